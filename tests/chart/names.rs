//! Names that YAML 1.1 takes for numbers or switches are texts in everything that the chart renders.

use csi_control_plane::process::yaml;
use serde_json::Value;

use crate::chart::{helm, matrix};

/// The namespace, and the name of all objects.
const ODD: [(&str, &str); 4] = [("1234", "0x1f"), ("yes", "on"), ("1e3", "null"), ("0400", "n")];

#[test]
fn names_that_look_like_numbers_or_switches_are_texts() {
    for case in matrix::known() {
        for (namespace, name) in ODD {
            let fullname = format!("fullnameOverride={name}");
            let account = format!("serviceAccount.name={namespace}");
            let priority = format!("priorityClassName={name}");
            let more = [
                "--namespace",
                namespace,
                "--set-string",
                &fullname,
                "--set-string",
                &account,
                "--set-string",
                &priority,
            ];
            let rendered = helm::render(&helm::chart(), Some(&case.path), &more);
            let text = rendered.unwrap_or_else(|error| panic!("{}: {error}", case.name)).text;
            let documents: Vec<&str> = text.split("\n---").filter(|one| one.contains("kind:")).collect();
            assert!(documents.len() > 1, "{text}");
            for document in documents {
                let object = yaml::read(document.trim_start_matches("---")).unwrap();
                texts(&serde_json::to_value(object).unwrap(), &format!("{} in {namespace}", case.name));
            }
        }
    }
}

/// Every name, label and annotation is a text.
fn texts(value: &Value, place: &str) {
    const NAMES: [&str; 4] = ["name", "namespace", "serviceAccountName", "priorityClassName"];
    const MAPS: [&str; 4] = ["labels", "annotations", "matchLabels", "data"];
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let place = format!("{place}.{key}");
                if NAMES.contains(&&**key) && !value.is_object() {
                    assert!(value.is_string(), "{place} is {value}");
                }
                if let Some(members) = value.as_object().filter(|_| MAPS.contains(&&**key)) {
                    assert!(members.values().all(Value::is_string), "{place} is {value}");
                }
                texts(value, &place);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, place)),
        _ => {}
    }
}
