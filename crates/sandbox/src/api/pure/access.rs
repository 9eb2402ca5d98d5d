//! Reads members of an object by path.

use serde_json::Value;

/// The member at `path` (`["metadata", "name"]`), unless it or a parent is missing or null.
pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let found = path.iter().try_fold(object, |value, key| value.get(key))?;
    (!found.is_null()).then_some(found)
}

/// The string at `path`, or nothing.
pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The list at `path`, or an empty one.
pub(super) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Sets a member of an object; anything that is no object is left alone.
pub(super) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}
