//! Field ownership: sets of field paths, and `FieldsV1`, their form in `metadata.managedFields`.
//!
//! A path is a list of steps as `FieldsV1` writes them: `f:name` a member, `k:{"name":"x"}` an item by its keys, `v:"x"` a value
//! of a set. A leaf is what is owned as one: a scalar, an atomic list or map, an empty one, and each item of a keyed list.

use super::schema::{ListType, is_atomic_map, key_default, list_type};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Steps from the object's root to a field.
pub(super) type Path = Vec<String>;
/// Fields owned by one manager.
pub(super) type Fields = BTreeSet<Path>;
/// Each leaf with its value; items and containers are there or not, their value is null.
pub(super) type Leaves = BTreeMap<Path, Value>;

/// Members of the object and of its metadata that nobody owns.
const ROOT_UNOWNED: &[&str] = &["apiVersion", "kind"];
/// Members of the object that are maps, and not structs.
const ROOT_MAPS: &[&str] = &["data", "binaryData", "parameters"];
const METADATA_UNOWNED: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The leaves of an object. `containers` also lists non-empty maps, which an update owns and an apply does not, but no structs
/// of the first level.
pub(super) fn leaves(object: &Value, containers: bool) -> Leaves {
    let mut walk = Walk { leaves: Leaves::new(), containers };
    for (key, value) in object.as_object().into_iter().flatten() {
        if ROOT_UNOWNED.contains(&key.as_str()) {
            continue;
        }
        if key == "metadata" {
            for (name, value) in value.as_object().into_iter().flatten() {
                if !METADATA_UNOWNED.contains(&name.as_str()) {
                    walk.visit(value, &mut vec![member("metadata"), member(name)], &mut vec!["metadata", name]);
                }
            }
        } else {
            walk.visit(value, &mut vec![member(key)], &mut vec![key]);
        }
    }
    walk.leaves
}

fn member(name: &str) -> String {
    format!("f:{name}")
}

struct Walk {
    leaves: Leaves,
    containers: bool,
}

impl Walk {
    fn visit<'a>(&mut self, value: &'a Value, path: &mut Path, names: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) if !map.is_empty() && !is_atomic_map(names) => {
                if self.containers && (path.len() > 1 || names.last().is_some_and(|name| ROOT_MAPS.contains(name))) {
                    self.leaves.insert(path.clone(), Value::Null);
                }
                self.members(map, path, names);
            }
            Value::Array(items) if !items.is_empty() && list_type(names) != ListType::Atomic => {
                if self.containers {
                    self.leaves.insert(path.clone(), Value::Null);
                }
                for item in items {
                    path.push(step(item, list_type(names)));
                    self.leaves.insert(path.clone(), Value::Null);
                    match item {
                        Value::Object(map) if !is_atomic_map(names) => self.members(map, path, names),
                        // An atomic item is one value.
                        Value::Object(_) => drop(self.leaves.insert(path.clone(), item.clone())),
                        _ => {}
                    }
                    path.pop();
                }
            }
            // An intent with an empty keyed list owns nothing of it.
            Value::Array(_) if list_type(names) != ListType::Atomic => {
                if self.containers {
                    self.leaves.insert(path.clone(), Value::Null);
                }
            }
            // Filling an empty map does not change what owning it means.
            Value::Object(map) if map.is_empty() => drop(self.leaves.insert(path.clone(), Value::Null)),
            _ => drop(self.leaves.insert(path.clone(), value.clone())),
        }
    }

    fn members<'a>(&mut self, map: &'a Map<String, Value>, path: &mut Path, names: &mut Vec<&'a str>) {
        for (key, value) in map {
            path.push(member(key));
            names.push(key);
            self.visit(value, path, names);
            names.pop();
            path.pop();
        }
    }
}

/// The step to an item: its keys, or itself.
pub(super) fn step(item: &Value, list_type: ListType) -> String {
    match list_type {
        ListType::Map(keys) => {
            let members: Map<String, Value> = keys
                .iter()
                .filter_map(|key| {
                    let value = item.get(key).cloned().or_else(|| key_default(key).map(Value::from))?;
                    Some(((*key).to_owned(), value))
                })
                .collect();
            format!("k:{}", Value::Object(members))
        }
        _ => format!("v:{item}"),
    }
}

/// The set as `fieldsV1`.
pub(super) fn to_value(fields: &Fields) -> Value {
    let mut root = json!({});
    for path in fields {
        let mut at = &mut root;
        for step in path {
            // A field that was a leaf so far also has something below it.
            at = &mut at[step.as_str()];
            if at.is_null() {
                *at = json!({});
            }
        }
        at["."] = json!({});
    }
    compact(&mut root);
    root
}

/// A leaf is `{}`, not `{".":{}}`.
fn compact(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
    }
    for (_, below) in map.iter_mut().filter(|(step, _)| *step != ".") {
        compact(below);
    }
}

/// Reads `fieldsV1`.
pub(super) fn from_value(value: &Value) -> Fields {
    fn walk(value: &Value, path: &mut Path, fields: &mut Fields) {
        let Some(map) = value.as_object() else { return };
        if map.is_empty() && !path.is_empty() {
            fields.insert(path.clone());
        }
        for (step, below) in map {
            if step == "." {
                fields.insert(path.clone());
            } else {
                path.push(step.clone());
                walk(below, path, fields);
                path.pop();
            }
        }
    }
    let mut fields = Fields::new();
    walk(value, &mut Path::new(), &mut fields);
    fields
}

/// The path as conflicts show it: `.spec.drivers[name="x"].nodeID`.
pub(super) fn shown(path: &[String]) -> String {
    let mut out = String::new();
    for step in path {
        if let Some(name) = step.strip_prefix("f:") {
            out.push('.');
            out.push_str(name);
        } else if let Some(keys) = step.strip_prefix("k:") {
            let keys: Value = serde_json::from_str(keys).unwrap_or(Value::Null);
            let keys: Vec<String> =
                keys.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
            let _ = write!(out, "[{}]", keys.join(","));
        } else {
            let _ = write!(out, "[={}]", step.strip_prefix("v:").unwrap_or(step));
        }
    }
    out
}

/// Removes the field at `path`, and containers that it leaves empty, but never a member of the root.
pub(super) fn remove(object: &mut Value, path: &[String]) {
    fn walk(value: &mut Value, path: &[String], names: &mut Vec<String>) {
        let Some((first, rest)) = path.split_first() else { return };
        if let Some(name) = first.strip_prefix("f:") {
            let Some(map) = value.as_object_mut() else { return };
            names.push(name.to_owned());
            let emptied = match map.get_mut(name) {
                Some(below) if !rest.is_empty() => {
                    walk(below, rest, names);
                    names.len() > 1 && is_empty(below)
                }
                _ => true,
            };
            if emptied {
                map.remove(name);
            }
            names.pop();
        } else if let Some(items) = value.as_array_mut() {
            let names_now: Vec<&str> = names.iter().map(String::as_str).collect();
            let list_type = list_type(&names_now);
            if rest.is_empty() {
                items.retain(|item| step(item, list_type) != *first);
            } else if let Some(item) = items.iter_mut().find(|item| step(item, list_type) == *first) {
                walk(item, rest, names);
            }
        }
    }
    walk(object, path, &mut Vec::new());
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}
