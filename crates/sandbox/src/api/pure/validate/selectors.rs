//! Selectors of nodes and of labels, where objects carry them: a volume's affinity, a class's topologies, a capacity's segment.

use super::super::access::{at, list, text};
use super::super::rejection::Cause;
use super::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A volume's `nodeAffinity`.
pub(super) fn node_affinity(affinity: &Value, field: &str, causes: &mut Vec<Cause>) {
    let field = format!("{field}.required");
    if at(affinity, &["required"]).is_none() {
        causes.push(Cause::required(field, "must specify required node constraints"));
        return;
    }
    let field = format!("{field}.nodeSelectorTerms");
    let terms = list(affinity, &["required", "nodeSelectorTerms"]);
    if terms.is_empty() {
        causes.push(Cause::required(&field, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        for (j, expression) in list(term, &["matchExpressions"]).iter().enumerate() {
            node_requirement(expression, &format!("{field}[{i}].matchExpressions[{j}]"), causes);
        }
    }
}

fn node_requirement(expression: &Value, field: &str, causes: &mut Vec<Cause>) {
    let values = list(expression, &["values"]);
    let values_field = format!("{field}.values");
    match text(expression, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            causes.push(Cause::required(values_field, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.push(Cause::forbidden(values_field, why));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            causes.push(Cause::required(values_field, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            causes.push(Cause::invalid(format!("{field}.operator"), &other.into(), "not a valid selector operator"));
        }
    }
    key(expression, field, causes);
    label_values(values, field, causes);
}

fn key(expression: &Value, field: &str, causes: &mut Vec<Cause>) {
    let (key, field) = (text(expression, &["key"]), format!("{field}.key"));
    causes.extend(names::qualified(key).into_iter().map(|why| Cause::invalid(&field, &key.into(), why)));
}

fn label_values(values: &[Value], field: &str, causes: &mut Vec<Cause>) {
    for (i, value) in values.iter().enumerate() {
        let (value, field) = (value.as_str().unwrap_or_default(), format!("{field}.values[{i}]"));
        causes.extend(names::label_value(value).into_iter().map(|why| Cause::invalid(&field, &value.into(), why)));
    }
}

/// A `LabelSelector`.
pub(super) fn labels(selector: &Value, field: &str, causes: &mut Vec<Cause>) {
    let match_labels = format!("{field}.matchLabels");
    for (key, value) in at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
        let keys = names::qualified(key).into_iter();
        causes.extend(keys.map(|why| Cause::invalid(&match_labels, &key.as_str().into(), why)));
        let value = value.as_str().unwrap_or_default();
        let values = names::label_value(value).into_iter();
        causes.extend(values.map(|why| Cause::invalid(&match_labels, &value.into(), why)));
    }
    for (i, expression) in list(selector, &["matchExpressions"]).iter().enumerate() {
        let field = format!("{field}.matchExpressions[{i}]");
        let values = list(expression, &["values"]);
        match text(expression, &["operator"]) {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{field}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let why = "not a valid selector operator";
                causes.push(Cause::invalid(format!("{field}.operator"), &other.into(), why));
            }
        }
        key(expression, &field, causes);
        label_values(values, &field, causes);
    }
}

/// A class's `allowedTopologies`.
pub(super) fn allowed_topologies(terms: &[Value], field: &str, causes: &mut Vec<Cause>) {
    // The real server begins its list with as many empty terms as there are terms: an empty one is always a duplicate.
    let mut seen: Vec<BTreeMap<&str, BTreeSet<&str>>> = vec![BTreeMap::new()];
    for (i, term) in terms.iter().enumerate() {
        let field = format!("{field}[{i}].matchLabelExpressions");
        let mut expressions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, expression) in list(term, &["matchLabelExpressions"]).iter().enumerate() {
            let (field, key_text) = (format!("{field}[{j}]"), text(expression, &["key"]));
            let values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
            if values.is_empty() {
                causes.push(Cause::required(format!("{field}.values"), ""));
            }
            let mut distinct = BTreeSet::new();
            for (k, value) in values.iter().enumerate() {
                if !distinct.insert(*value) {
                    causes.push(Cause::duplicate(format!("{field}.values[{k}]"), &(*value).into()));
                }
            }
            key(expression, &field, causes);
            if expressions.insert(key_text, distinct).is_some() {
                causes.push(Cause::duplicate(format!("{field}.key"), &key_text.into()));
            }
        }
        if seen.contains(&expressions) {
            causes.push(Cause::duplicate(&field, &"".into()));
        }
        seen.push(expressions);
    }
}
