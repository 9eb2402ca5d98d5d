//! The rights that `check` prints, to be given to a daemon less one of them.

use csi_control_plane::app::Plan;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The roles that `check` prints, without one verb on one resource.
pub(crate) fn without(plan: &Plan, missing: Option<(&str, &str)>) -> Vec<Value> {
    let manifests = plan.manifests.replace("NAMESPACE", "kube-system");
    let documents = serde_yaml::Deserializer::from_str(&manifests);
    let mut granted: Vec<Value> = documents.map(|document| Value::deserialize(document).unwrap()).collect();
    for role in &mut granted {
        let rules = role["rules"].as_array_mut().unwrap();
        for rule in rules.iter_mut() {
            let is_meant =
                |verb: &Value| missing == Some((verb.as_str().unwrap(), rule["resources"][0].as_str().unwrap()));
            let left: Vec<Value> =
                rule["verbs"].as_array().unwrap().iter().filter(|it| !is_meant(it)).cloned().collect();
            rule["verbs"] = left.into();
        }
        rules.retain(|rule| rule["verbs"] != json!([]));
    }
    granted
}
