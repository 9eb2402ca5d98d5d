//! Null in the place of each section and value of values.yaml, in every mode: as the empty value, or refused in words.
//!
//! Helm takes a null away together with the default, keeps it in a subchart, and leaves the keys below a null without theirs.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::chart::helm::{self, Rendered};
use crate::chart::matrix;
use crate::chart::node;

type Path = Vec<String>;

/// What the chart hands to Kubernetes as it is: null is nothing, also where the default is something.
const HANDED_ON: [&str; 8] = [
    "labels",
    "liveness",
    "nodeSelector",
    "podSecurityContext",
    "readiness",
    "resources",
    "securityContext",
    "updateStrategy",
];
/// Texts and lists that cannot be empty: null is the default.
const NEVER_EMPTY: [&str; 12] = [
    "antiAffinity",
    "apiPorts",
    "endpoint",
    "failingFor",
    "interval",
    "kubeletPath",
    "leakFor",
    "mode",
    "pullPolicy",
    "repository",
    "rolloutOnConfigChange",
    "volume",
];

/// Every section and value of values.yaml, with its default. What the chart hands on is one value, and so is a role.
fn keys() -> Vec<(Path, Value)> {
    fn walk(at: &Value, path: &Path, into: &mut Vec<(Path, Value)>) {
        for (key, value) in at.as_object().into_iter().flatten() {
            let path: Path = path.iter().cloned().chain([key.clone()]).collect();
            into.push((path.clone(), value.clone()));
            if !HANDED_ON.contains(&key.as_str()) && key != "roles" {
                walk(value, &path, into);
            }
        }
    }
    let text = std::fs::read_to_string(helm::chart().join("values.yaml")).unwrap();
    let mut keys = Vec::new();
    walk(&serde_yaml::from_str(&text).unwrap(), &Path::new(), &mut keys);
    assert!(keys.len() > 120, "{}", keys.len());
    keys
}

fn with(values: &Value, path: &Path, value: Value) -> Value {
    let mut values = values.clone();
    *path.iter().fold(&mut values, |at, part| &mut at[part]) = value;
    values
}

fn without(values: &Value, path: &Path) -> Value {
    let mut values = values.clone();
    let (last, before) = path.split_last().unwrap();
    if let Some(at) = before.iter().try_fold(&mut values, |at, part| at.get_mut(part)).and_then(Value::as_object_mut) {
        at.remove(last);
    }
    values
}

/// The values that null has to mean the same as.
fn meant(values: &Value, path: &Path, default: &Value) -> Value {
    let key = path.last().unwrap().as_str();
    match default {
        Value::Object(keys) if HANDED_ON.contains(&key) => {
            with(values, path, keys.keys().map(|key| (key.clone(), Value::Null)).collect())
        }
        Value::Bool(_) => with(values, path, false.into()),
        Value::Array(_) if !NEVER_EMPTY.contains(&key) => with(values, path, json!([])),
        Value::String(_) if !NEVER_EMPTY.contains(&key) => with(values, path, "".into()),
        // As for the controller: computed from the longest call.
        Value::Number(_) if key == "terminationGracePeriodSeconds" => with(values, path, 45.into()),
        _ => without(values, path),
    }
}

/// A rendering, or why there is none, without the template's name and line.
fn result(rendered: Result<Rendered, String>) -> Result<Vec<Value>, String> {
    let reason = |told: String| match told.split_once("): ") {
        Some((before, reason)) if before.starts_with("Error: execution error at (") => reason.to_owned(),
        _ => panic!("not in our words: {told}"),
    };
    rendered.map(|rendered| rendered.objects).map_err(reason)
}

/// Everything is switched on, so that a value that is not taken as it should be is seen.
fn switched_on(mut values: Value) -> Value {
    values["monitoring"] = json!({
        "podPattern": "demo-.*", "podMonitor": {"enabled": true}, "serviceMonitor": {"enabled": true},
        "rules": {"enabled": true}, "dashboard": {"enabled": true},
    });
    values["networkPolicy"] = json!({"enabled": true, "egress": {"enabled": true}});
    values
}

/// Renders with each key null, and with what that means, and compares.
fn each_null_is_as_the_empty_value(values: &Value, render: impl Fn(&Value) -> Result<Rendered, String> + Sync) {
    let known: Mutex<BTreeMap<String, Result<Vec<Value>, String>>> = Mutex::default();
    let render = |values: &Value| {
        let text = values.to_string();
        let found = known.lock().unwrap().get(&text).cloned();
        found.unwrap_or_else(|| {
            let made = result(render(values));
            known.lock().unwrap().insert(text, made.clone());
            made
        })
    };
    assert!(render(values).is_ok());
    let keys = keys();
    let (first, second) = keys.split_at(keys.len() / 2);
    let render = &render;
    std::thread::scope(|scope| {
        for part in [first, second] {
            scope.spawn(move || {
                for (path, default) in part {
                    let (null, meant) = (with(values, path, Value::Null), meant(values, path, default));
                    assert_eq!(render(&null), render(&meant), "{}", path.join("."));
                }
            });
        }
    });
}

#[test]
fn null_is_as_the_empty_value_of_each_key_with_a_deployment_and_a_node_plugin() {
    each_null_is_as_the_empty_value(&switched_on(node::values()), |values| helm::with(values, &[]));
}

#[test]
fn null_is_as_the_empty_value_of_each_key_with_a_daemonset() {
    each_null_is_as_the_empty_value(&switched_on(matrix::case("daemonset").values), |values| helm::with(values, &[]));
}

/// In another chart's pod, whose user gives the values.
#[test]
fn null_is_as_the_empty_value_of_each_key_in_a_subchart() {
    let values = switched_on(json!({
        "mode": "sidecar", "driver": {"name": "parent.csi.example.com"}, "config": {"roles": {"attacher": {}}},
        "sidecar": {"podLabels": {"app": "parent"}},
    }));
    let nothing = json!({});
    each_null_is_as_the_empty_value(&values, |values| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.yaml");
        std::fs::write(&file, json!({"csi-control-plane": values}).to_string()).unwrap();
        helm::parent_with(Some(&nothing), &["--values", file.to_str().unwrap()])
    });
}

/// There Helm takes some nulls for no value at all, and leaves others: none is an error of a template.
#[test]
fn null_in_the_values_of_another_chart_is_an_empty_value_or_none() {
    let values =
        json!({"mode": "sidecar", "driver": {"name": "parent.csi.example.com"}, "config": {"roles": {"attacher": {}}}});
    let sections = keys().into_iter().filter(|(path, default)| path.len() < 3 && default.is_object());
    let mut rendered = 0;
    for (path, _) in sections {
        let own = with(&values, &path, Value::Null);
        rendered += usize::from(result(helm::parent_with(Some(&own), &[])).is_ok());
    }
    assert!(rendered > 20, "{rendered}");
}

#[test]
fn sections_whose_lines_are_all_comments_are_taken_together() {
    let mut values = node::values();
    for key in
        ["affinity", "podLabels", "commonLabels", "updateStrategy", "hostNetwork", "serviceAccount", "probes", "rbac"]
    {
        values[key] = Value::Null;
    }
    for key in
        ["affinity", "podLabels", "updateStrategy", "hostNetwork", "securityContext", "socket", "config", "tolerations"]
    {
        values["node"][key] = Value::Null;
    }
    for list in ["args", "env", "ports"] {
        values["driver"]["containers"][0][list] = json!([null]);
    }
    let rendered = helm::with(&values, &[]).unwrap();
    let driver = &rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][1];
    assert_eq!((&driver["args"], &driver["env"], &driver["ports"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["name"], "demo-csi-control-plane", "its default");
    let node = &rendered.one("DaemonSet")["spec"]["template"]["spec"];
    assert!(node["tolerations"].is_null(), "none, also where the default is one");
    let sidecar = node["containers"].as_array().unwrap().iter().find(|it| it["name"] == "csi-control-plane").unwrap();
    assert_eq!(sidecar["securityContext"], json!({}), "and not the controller's");
}

#[test]
fn an_egress_rule_without_ports_is_refused() {
    let mut values = matrix::case("attacher").values;
    values["networkPolicy"] = json!({"enabled": true, "egress": {"enabled": true, "apiPorts": []}});
    let told = helm::with(&values, &[]).err().unwrap();
    assert!(told.contains("networkPolicy.egress.apiPorts is empty"), "{told}");
}
