//! A small JSON Schema validator for the configuration's schema, independent of the code under test.

use serde_json::Value;

/// The keys of `document` that `schema` refuses, sorted.
pub(crate) fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(schema, document, "", &mut found);
    found.sort();
    found
}

fn visit(schema: &Value, value: &Value, key: &str, found: &mut Vec<String>) {
    if !is_accepted(schema, value) {
        found.push(key.to_owned());
        return;
    }
    let Some(members) = value.as_object() else { return };
    for (name, member) in members {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        match (schema.pointer(&format!("/properties/{name}")), &schema["additionalProperties"]) {
            (Some(schema), _) | (None, schema @ Value::Object(_)) => visit(schema, member, &key, found),
            (None, Value::Bool(false)) => found.push(key),
            (None, _) => {}
        }
    }
}

/// Everything but the members.
fn is_accepted(schema: &Value, value: &Value) -> bool {
    let is_type = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        other => panic!("the schema names a type {other:?}"),
    };
    let fits_type = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is_type),
        name => is_type(name),
    };
    let bound = |name: &str, fits: fn(f64, f64) -> bool| match (schema[name].as_f64(), value.as_f64()) {
        (Some(bound), Some(value)) => fits(value, bound),
        _ => true,
    };
    let alternatives = schema["oneOf"].as_array();
    fits_type
        && bound("minimum", |value, bound| value >= bound)
        && bound("maximum", |value, bound| value <= bound)
        && (schema["const"].is_null() || &schema["const"] == value)
        && schema["enum"].as_array().is_none_or(|allowed| allowed.contains(value))
        && alternatives.is_none_or(|schemas| schemas.iter().filter(|schema| is_accepted(schema, value)).count() == 1)
}
