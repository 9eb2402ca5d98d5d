//! JSON Merge Patch (RFC 7386): members are merged, null removes, everything else replaces.

use super::super::rejection::Rejection;
use serde_json::{Map, Value};

/// Applies a merge patch, which must be an object.
pub(super) fn apply(current: &Value, body: &[u8]) -> Result<Value, Rejection> {
    let mut merged = current.clone();
    merge(&mut merged, read(body)?);
    Ok(merged)
}

/// The object after a merge patch.
pub fn merged(current: &Value, patch: &Value) -> Value {
    let mut merged = current.clone();
    merge(&mut merged, patch.clone());
    merged
}

/// A patch body that must be a JSON object.
fn read(body: &[u8]) -> Result<Value, Rejection> {
    let prefixed =
        |refusal: Rejection| Rejection { message: format!("error decoding patch: {}", refusal.message), ..refusal };
    object(body).map(Value::Object).map_err(prefixed)
}

/// A body that must be a JSON object.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Rejection> {
    let patch: Value = serde_json::from_slice(body).map_err(|error| Rejection::bad_request(error.to_string()))?;
    if let Value::Object(members) = patch {
        return Ok(members);
    }
    let found = super::super::validate::json_type(&patch);
    let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
    Err(Rejection::bad_request(why))
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(members) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in members {
        if value.is_null() {
            map.remove(&key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}
