//! Checks a value against a JSON Schema: every fault is reported, and removed from the value.
//!
//! Only what our schemas contain is understood (`schema.rs` inlines references): types, properties, the entries of lists,
//! enumerations, number ranges, and the formats of [`FORMATS`]. Blocks that are null become empty.

use std::net::SocketAddr;

use serde_json::{Map, Value};

use super::renamed::{Renamed, renamed};
use super::schema::RoleSection;
use super::suggest;
use crate::process::duration;

/// A key whose value does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) path: Vec<String>,
    pub(super) found: String,
    pub(super) allowed: String,
}

/// What was found where no key is.
pub(super) const UNKNOWN_KEY: &str = "an unknown key";

type Format = (&'static str, fn(&str) -> bool, &'static str);

/// Formats of strings: name, test, description.
const FORMATS: [Format; 2] = [
    (duration::FORMAT, |text| duration::parse(text).is_some(), duration::ALLOWED),
    (
        "socket-address",
        |text| text.parse::<SocketAddr>().is_ok(),
        "an IP address and a port, such as 0.0.0.0:8080 or [::]:8080",
    ),
];

/// Takes whatever does not fit out of `value`. The flags of the roles' sidecars are known, as keys that were meant.
pub(super) fn check(schema: &Value, roles: &[RoleSection], value: &mut Value) -> Vec<Finding> {
    let mut walk = Walk { root: schema, roles, path: Vec::new(), findings: Vec::new() };
    if !walk.fits(schema, value) {
        *value = Value::Object(Map::new());
    }
    walk.findings
}

/// The part of the schema that describes the key at `path`.
pub(super) fn at<'a>(schema: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(schema, |schema, key| child(schema, key))
}

/// Whether a value of this type is allowed.
pub(super) fn allows(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(any) => any.iter().any(|allowed| allowed == kind),
        _ => false,
    }
}

fn child<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema["properties"].get(key).or_else(|| schema.get("additionalProperties").filter(|rest| rest.is_object()))
}

struct Walk<'a> {
    root: &'a Value,
    roles: &'a [RoleSection],
    path: Vec<String>,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn fits(&mut self, schema: &Value, value: &mut Value) -> bool {
        if value.is_null() && allows(schema, "null") {
            if allows(schema, "object") {
                *value = Value::Object(Map::new());
            }
            return true;
        }
        let choices = choices(schema);
        let fits = match value {
            _ if !choices.is_empty() => choices.contains(&&*value),
            Value::Object(entries) if allows(schema, "object") => {
                self.prune(schema, entries);
                true
            }
            // Each entry is reported under the list's own key.
            Value::Array(entries) if allows(schema, "array") => {
                let refused =
                    entries.iter_mut().filter_map(|entry| (!self.fits(&schema["items"], entry)).then_some(()));
                return refused.count() == 0;
            }
            Value::String(text) => allows(schema, "string") && format(schema).is_none_or(|(_, test, _)| test(text)),
            Value::Bool(_) => allows(schema, "boolean"),
            Value::Number(number) => {
                let whole = number.is_i64() || number.is_u64();
                let (least, most) = range(schema);
                let within =
                    number.as_f64().is_some_and(|n| least.is_none_or(|l| n >= l) && most.is_none_or(|m| n <= m));
                (allows(schema, "number") || whole && allows(schema, "integer")) && within
            }
            _ => false,
        };
        if !fits {
            self.report(show(value), describe(schema));
        }
        fits
    }

    fn prune(&mut self, schema: &Value, entries: &mut Map<String, Value>) {
        let mut kept = Map::new();
        for (key, mut value) in std::mem::take(entries) {
            self.path.push(key.clone());
            let fits = if let Some(child) = child(schema, &key) {
                self.fits(child, &mut value)
            } else {
                self.report(UNKNOWN_KEY.to_owned(), self.instead(schema, &key, &value));
                false
            };
            self.path.pop();
            if fits {
                kept.insert(key, value);
            }
        }
        *entries = kept;
    }

    /// What could have been meant by an unknown key.
    fn instead(&self, schema: &Value, key: &str, value: &Value) -> String {
        let known = || schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str);
        if key == "enabled" && self.path.len() == 3 && self.path[0] == "roles" {
            return "nothing: the block itself enables the role".to_owned();
        }
        // A block is more likely a block's misplaced or mistyped name: `leader-election: {...}`, `provisioner:`.
        let is_block = value.is_object() || value.is_null();
        let flag = renamed(self.roles, &self.path);
        if let Some(Renamed::Key(meant)) = flag.as_ref().filter(|_| !is_block) {
            return meant.clone();
        }
        if let Some(meant) = suggest::nearest(key, known()) {
            return format!("did you mean `{meant}`?");
        }
        let mut elsewhere = Vec::new();
        find(self.root, key, "", &mut elsewhere);
        match (elsewhere.as_slice(), flag, known().next()) {
            ([only], ..) => format!("did you mean `{only}`?"),
            (_, Some(Renamed::Key(text) | Renamed::Gone(text)), _) => text,
            (.., Some(_)) => format!("one of {}", known().collect::<Vec<_>>().join(", ")),
            (.., None) => "nothing".to_owned(),
        }
    }

    fn report(&mut self, found: String, allowed: String) {
        self.findings.push(Finding { path: self.path.clone(), found, allowed });
    }
}

/// All paths in the schema that end with `key`.
fn find(schema: &Value, key: &str, prefix: &str, paths: &mut Vec<String>) {
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        find(child, key, &path, paths);
        if name == key {
            paths.push(path);
        }
    }
}

/// The values of an enumeration, whichever way it is written.
fn choices(schema: &Value) -> Vec<&Value> {
    let list = |schema: &'_ Value, key: &str| schema[key].as_array().map_or(0, Vec::len);
    if list(schema, "enum") > 0 {
        return schema["enum"].as_array().into_iter().flatten().collect();
    }
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants
        .flat_map(|variant| variant.get("const").into_iter().chain(variant["enum"].as_array().into_iter().flatten()))
        .collect()
}

fn format(schema: &Value) -> Option<&'static Format> {
    FORMATS.iter().find(|(name, _, _)| schema["format"] == *name)
}

/// The least and the greatest number allowed, by keyword or by the width of the integer.
fn range(schema: &Value) -> (Option<f64>, Option<f64>) {
    let most = match schema["format"].as_str() {
        Some("int32") => Some(f64::from(i32::MAX)),
        Some("uint32") => Some(f64::from(u32::MAX)),
        _ => None,
    };
    (schema["minimum"].as_f64(), schema["maximum"].as_f64().or(most))
}

/// What the schema allows, in words.
fn describe(schema: &Value) -> String {
    let choices = choices(schema);
    let text = if !choices.is_empty() {
        let words: Vec<_> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        words.join(" or ")
    } else if let Some((_, _, description)) = format(schema) {
        (*description).to_owned()
    } else if allows(schema, "object") {
        // "or null" would be true, but of no help.
        return match schema["properties"].as_object() {
            Some(properties) => {
                format!("a mapping with {}", properties.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
            None => "a mapping of texts".to_owned(),
        };
    } else if allows(schema, "array") {
        format!("a list, each entry of it {}", describe(&schema["items"]))
    } else if allows(schema, "boolean") {
        "true or false".to_owned()
    } else if allows(schema, "string") {
        "a text".to_owned()
    } else {
        let kind = if allows(schema, "integer") { "a whole number" } else { "a number" };
        match range(schema) {
            (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
            (Some(least), None) => format!("{kind} from {least}"),
            _ => kind.to_owned(),
        }
    };
    if allows(schema, "null") { format!("{text}, or null") } else { text }
}

/// What was found, in words, and not too many of them.
fn show(value: &Value) -> String {
    match value {
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "nothing (null)".to_owned(),
        scalar => shorten(&scalar.to_string()),
    }
}

/// At most 80 characters.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
