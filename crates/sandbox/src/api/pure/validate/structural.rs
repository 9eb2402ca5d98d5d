//! Objects of kinds that were installed, against their definition: its schema, then its rules.
//!
//! As the server does it (`apiextensions-apiserver/pkg/registry/customresource`, `kube-openapi/pkg/validation`): what has not
//! changed is not complained of, and while a value has the wrong shape no rule is looked at.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::rejection::Cause;
use super::cel;

/// The faults of a whole object.
pub(super) fn object(schema: &Value, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    shape(schema, Place { field: "", name: "" }, old, new, causes);
    rules(schema, old, new, causes);
}

/// What is wrong with an object whose status was written. The server names the members of a status without their parent.
pub(super) fn status(schema: &Value, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if let (Some(of_status), Some(status)) = (schema.pointer("/properties/status"), new.get("status")) {
        shape(of_status, Place { field: "status", name: "" }, old.get("status"), status, causes);
    }
    rules(schema, Some(old), new, causes);
}

/// Where a value is: as the server names the field, and as its schema's validator does.
#[derive(Clone, Copy)]
struct Place<'a> {
    field: &'a str,
    name: &'a str,
}

fn below(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

fn shape(schema: &Value, place: Place<'_>, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if old == Some(new) || place.field == "metadata" {
        return;
    }
    let Place { field, name } = place;
    if let Some((wanted, found)) = mistyped(schema, new) {
        let why = format!("{name} in body must be of type {wanted}: {}", Value::from(found.as_str()));
        causes.push(Cause::mistyped(field, &found.into(), why));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array).filter(|it| !it.contains(new)) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::not_supported(field, new, &allowed));
    }
    if let Some(least) = schema.get("minimum").filter(|it| new.as_f64() < it.as_f64() && new.is_number()) {
        causes.push(Cause::invalid(field, new, format!("{name} in body should be greater than or equal to {least}")));
    }
    if let (Some(pattern), Some(text)) = (schema.get("pattern").and_then(Value::as_str), new.as_str())
        && super::volumes::quantity(&text.into()).is_none()
    {
        causes.push(Cause::invalid(field, new, format!("{name} in body should match '{pattern}'")));
    }
    for (index, item) in new.as_array().into_iter().flatten().enumerate() {
        let Some(schema) = schema.get("items") else { break };
        let (field, name) = (format!("{field}[{index}]"), format!("{name}[{index}]"));
        shape(schema, Place { field: &field, name: &name }, old.and_then(|it| it.get(index)), item, causes);
    }
    let Some(object) = new.as_object() else { return };
    let members = schema.get("properties").and_then(Value::as_object);
    for (member, value) in object {
        let of_all = schema.get("additionalProperties");
        let Some(schema) = members.and_then(|it| it.get(member)).or(of_all) else { continue };
        let (field, name) = (below(field, member), below(name, member));
        let place = Place { field: &field, name: &name };
        shape(schema, place, old.and_then(|it| it.get(member)), value, causes);
    }
    for member in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if object.get(member).is_none() {
            causes.push(Cause::required(below(field, member), ""));
        }
    }
}

/// The type that a value should have and the one that it has, if they do not fit.
fn mistyped(schema: &Value, value: &Value) -> Option<(String, String)> {
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let either = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let wanted: &[&str] =
        if either { &["integer", "string"] } else { &[schema.get("type").and_then(Value::as_str)?] };
    let format = schema.get("format").and_then(Value::as_str);
    match format {
        Some("date-time") if found == "string" => {
            let text = value.as_str().unwrap_or_default();
            text.parse::<Timestamp>().is_err().then(|| ("date-time".to_owned(), text.to_owned()))
        }
        _ if wanted.contains(&found) => None,
        Some(format) if found != "string" && found != "array" => Some((format.to_owned(), found_format.to_owned())),
        _ => Some((wanted.join(","), found.to_owned())),
    }
}

/// The rules of the whole object, if its shape lets them be looked at.
fn rules(schema: &Value, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if !has_rules(schema) {
        return;
    }
    if causes.iter().any(Cause::blocks_rules) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                   complete validation";
        causes.push(Cause::invalid("<nil>", &Value::Null, why));
        return;
    }
    broken(schema, "", old, new, causes);
}

fn has_rules(schema: &Value) -> bool {
    let members = schema.get("properties").and_then(Value::as_object);
    schema.get("x-kubernetes-validations").is_some() || members.is_some_and(|it| it.values().any(has_rules))
}

fn broken(schema: &Value, field: &str, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let about_change = part("rule").contains("oldSelf");
        // What has not changed may be as it is; a rule about changes needs something that was there before.
        let skipped = if about_change { old.is_none() } else { old == Some(new) };
        if skipped || cel::holds(part("rule"), new, old) {
            continue;
        }
        causes.push(match new {
            Value::Object(_) | Value::Array(_) => Cause::invalid_whole(field, part("message")),
            value => Cause::invalid(field, value, part("message")),
        });
    }
    let empty = Map::new();
    let members = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    for (member, schema) in members {
        if let Some(value) = new.get(member) {
            broken(schema, &below(field, member), old.and_then(|it| it.get(member)), value, causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn content() -> &'static Value {
        let resource = super::super::super::resources::find("snapshot.storage.k8s.io", "v1", "volumesnapshotcontents");
        super::super::super::definitions::schema(resource.unwrap()).unwrap()
    }

    fn valid() -> Value {
        json!({"spec": {"driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
            "volumeSnapshotRef": {"name": "n", "namespace": "ns"}}})
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut object = valid();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    }

    fn complaints(old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        object(content(), old, new, &mut causes);
        causes.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn a_source_is_one_handle_and_stays() {
        assert_eq!(complaints(None, &valid()), Vec::<String>::new());
        let exactly = "spec.source: Invalid value: exactly one of volumeHandle and snapshotHandle must be set";
        let both = json!({"volumeHandle": "v", "snapshotHandle": "s"});
        for source in [json!({}), both.clone()] {
            assert_eq!(complaints(None, &with("/spec/source", source)), [exactly]);
        }
        let other = with("/spec/source/volumeHandle", "w".into());
        let stays = r#"spec.source.volumeHandle: Invalid value: "w": volumeHandle is immutable"#;
        assert_eq!(complaints(Some(&valid()), &other), [stays]);
        let swapped = with("/spec/source", json!({"snapshotHandle": "s"}));
        let once = "spec.source: Invalid value: volumeHandle is required once set";
        assert_eq!(complaints(Some(&valid()), &swapped), [once]);
        // A fault that was there before may stay.
        let wrong = with("/spec/source", both);
        let mut edited = wrong.clone();
        edited["spec"]["deletionPolicy"] = "Retain".into();
        assert_eq!(complaints(Some(&wrong), &edited), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_shape_keeps_the_rules_from_being_looked_at() {
        let object = json!({"spec": {"driver": 5, "deletionPolicy": "Keep", "source": {}}});
        let skipped = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
        let expected = [
            r#"spec.deletionPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain""#,
            r#"spec.driver: Invalid value: "integer": spec.driver in body must be of type string: "integer""#,
            "spec.volumeSnapshotRef: Required value",
            skipped,
        ];
        assert_eq!(complaints(None, &object), expected);
    }

    #[test]
    fn a_status_has_types_and_a_size_that_is_not_negative() {
        let complaints = |written: Value| -> Vec<String> {
            let mut new = valid();
            new["status"] = written;
            let mut causes = Vec::new();
            status(content(), &valid(), &new, &mut causes);
            causes.into_iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
        };
        assert_eq!(complaints(json!({"restoreSize": 0, "creationTime": 7, "readyToUse": true})), Vec::<String>::new());
        let negative =
            "status.restoreSize: Invalid value: -1: restoreSize in body should be greater than or equal to 0";
        assert_eq!(complaints(json!({"restoreSize": -1})), [negative]);
        let text =
            r#"status.restoreSize: Invalid value: "string": restoreSize in body must be of type integer: "string""#;
        assert_eq!(complaints(json!({"restoreSize": "1"}))[0], text);
        let time = r#"status.error.time: Invalid value: "now": error.time in body must be of type date-time: "now""#;
        assert_eq!(complaints(json!({"error": {"time": "now"}}))[0], time);
    }
}
