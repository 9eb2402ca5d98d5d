//! Formats decoded JSON values like Go's `%v` and `%T`, because messages of the server's library quote patches in this
//! form.

use serde_json::{Map, Value};

/// `map[a:1 b:[x y]]`, members sorted.
pub(super) fn go_map(map: &Map<String, Value>) -> String {
    let mut members: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
    members.sort_unstable();
    format!("map[{}]", members.join(" "))
}

/// A value as `%v` shows it.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => go_map(map),
    }
}

/// A value's type as `%T` shows it.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_as_go_shows_them() {
        for (value, text, kind) in [
            (
                json!({"b": [1, "x", null], "a": {"c": true}}),
                "map[a:map[c:true] b:[1 x <nil>]]",
                "map[string]interface {}",
            ),
            (json!([]), "[]", "[]interface {}"),
            (json!(1.5), "1.5", "float64"),
            (json!("text"), "text", "string"),
        ] {
            assert_eq!((go_text(&value).as_str(), go_type(&value)), (text, kind));
        }
    }
}
