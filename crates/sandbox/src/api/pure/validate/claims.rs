//! `PersistentVolumeClaim`.

use super::super::access::{at, set, text};
use super::super::rejection::Cause;
use super::{difference, immutable, names, selectors, volumes};
use serde_json::{Value, json};

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A claim.
pub(super) fn claim(new: &Value, causes: &mut Vec<Cause>) {
    let spec = at(new, &["spec"]).unwrap_or(&Value::Null);
    volumes::access_modes(spec, "spec.accessModes", "at least 1 access mode is required", causes);
    if let Some(selector) = at(spec, &["selector"]) {
        selectors::labels(selector, "spec.selector", causes);
    }
    match at(spec, &["resources", "requests", "storage"]) {
        None => causes.push(Cause::required("spec.resources[storage]", "")),
        Some(quantity) => volumes::positive(quantity, "spec.resources[storage]", causes),
    }
    volumes::class_name(spec, "storageClassName", "spec", causes);
    volumes::volume_mode(spec, "spec.volumeMode", causes);
    for member in ["dataSource", "dataSourceRef"] {
        if let Some(source) = at(spec, &[member]) {
            data_source(source, &format!("spec.{member}"), causes);
        }
    }
    both_sources(spec, causes);
    volumes::class_name(spec, "volumeAttributesClassName", "spec", causes);
}

fn data_source(source: &Value, field: &str, causes: &mut Vec<Cause>) {
    for key in ["name", "kind"] {
        if text(source, &[key]).is_empty() {
            causes.push(Cause::required(format!("{field}.{key}"), ""));
        }
    }
    let (group, kind) = (text(source, &["apiGroup"]), text(source, &["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(Cause::invalid(field, &kind.into(), why));
    }
    if !group.is_empty() {
        let field = format!("{field}.apiGroup");
        causes.extend(names::subdomain(group).into_iter().map(|why| Cause::invalid(&field, &group.into(), why)));
    }
    let namespace = text(source, &["namespace"]);
    if !namespace.is_empty() {
        let field = format!("{field}.namespace");
        causes.extend(names::label(namespace).into_iter().map(|why| Cause::invalid(&field, &namespace.into(), why)));
    }
}

/// Both sources must be one.
fn both_sources(spec: &Value, causes: &mut Vec<Cause>) {
    let (Some(old), Some(new)) = (at(spec, &["dataSource"]), at(spec, &["dataSourceRef"])) else { return };
    let why = if !text(new, &["namespace"]).is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["apiGroup", "kind", "name"].iter().any(|key| at(old, &[key]) != at(new, &[key])) {
        "must match dataSourceRef"
    } else {
        return;
    };
    // The real server names the spec and shows the inside of its path to the field where the value should be.
    causes.push(Cause::invalid("spec", &json!({ "name": "dataSource" }), why));
}

/// A member that is null is one that is not there: whoever wrote last decides which of the two a source's `apiGroup` is.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(|member| *member = without_nulls(member.take()));
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| *entry = without_nulls(entry.take())),
        _ => {}
    }
    value
}

/// The members of a claim that may change: the binding, once; later its size and its attributes class.
pub(super) fn changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let spec = |object: &Value| without_nulls(at(object, &["spec"]).cloned().unwrap_or_else(|| json!({})));
    let (before, mut after) = (spec(old), spec(new));
    let bound = text(old, &["status", "phase"]) == "Bound";
    let annotation = |object: &Value| at(object, &["metadata", "annotations", BETA_CLASS]).cloned();
    let class = at(old, &["spec", "storageClassName"]);
    let beta = annotation(old);
    // A class may be told where there was none: the one that the annotation tells, if it tells one.
    let names_class = class.is_none()
        && at(new, &["spec", "storageClassName"]).is_some_and(|class| beta.as_ref().is_none_or(|beta| beta == class));
    let moved = names_class && beta.is_some() && annotation(new).is_none_or(|it| Some(it) == beta);
    if !moved {
        let field = format!("metadata.annotations.{BETA_CLASS}");
        let shown = |object: &Value| Value::from(text(object, &["metadata", "annotations", BETA_CLASS]));
        immutable(&field, Some(&shown(old)), Some(&shown(new)), causes);
    }
    let mut restore = |path: &[&str], free: bool| {
        if let (true, Some((key, parents))) = (free, path.split_last()) {
            let parent = parents.iter().try_fold(&mut after, |value, key| value.get_mut(*key));
            match (parent, at(&before, path)) {
                (Some(parent), Some(value)) => set(parent, key, value.clone()),
                (Some(parent), None) => drop(parent.as_object_mut().and_then(|map| map.remove(*key))),
                (None, _) => {}
            }
        }
    };
    restore(&["volumeName"], text(old, &["spec", "volumeName"]).is_empty());
    restore(&["storageClassName"], names_class);
    restore(&["resources", "requests", "storage"], bound);
    restore(&["volumeAttributesClassName"], bound);
    if before != after {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", format!("{why}\n{}", difference::of_claims(&before, &after))));
    }
    smaller(old, new, causes);
    immutable("volumeMode", at(old, &["spec", "volumeMode"]), at(new, &["spec", "volumeMode"]), causes);
}

/// A claim never requests as little as it has, or less.
fn smaller(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let size = |object: &Value, path: &[&str]| at(object, path).and_then(volumes::quantity).unwrap_or_default();
    let requested = |object: &Value| size(object, &["spec", "resources", "requests", "storage"]);
    if requested(new) < requested(old) && requested(new) <= size(old, &["status", "capacity", "storage"]) {
        let why = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", why));
    }
}

/// What a write of the status may say of sizes: of `storage`, or of a resource that somebody else has qualified; and of health.
pub(super) fn status(new: &Value, causes: &mut Vec<Cause>) {
    const STATES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    health(new, causes);
    let members = |member: &str| at(new, &["status", member]).and_then(Value::as_object).into_iter().flatten();
    let is_known = |name: &str| name == "storage" || name.contains('/');
    for (name, quantity) in members("capacity") {
        size(quantity, &format!("status.capacity[{name}]"), causes);
    }
    for (name, state) in members("allocatedResourceStatuses") {
        let (field, shown) = ("status.allocatedResourceStatuses", Value::from(name.as_str()));
        if !is_known(name) {
            causes.push(Cause::not_supported(field, &shown, &["storage"]));
        } else if !STATES.iter().any(|it| state == it) {
            // The real server shows the resource, not the state that it does not know.
            causes.push(Cause::not_supported(field, &shown, STATES));
        }
    }
    for (name, quantity) in members("allocatedResources") {
        if is_known(name) {
            size(quantity, &format!("status.allocatedResources[{name}]"), causes);
        } else {
            causes.push(Cause::not_supported("status.allocatedResources", &Value::from(name.as_str()), &["storage"]));
        }
    }
}

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
    characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or \
    'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_condition_reason(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && !reason.ends_with([',', ':'])
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c))
}

/// What a claim may say of its volume's health.
fn health(new: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "status.healthStatus.healthConditions";
    const MOST: usize = 16;
    let conditions = at(new, &["status", "healthStatus", "healthConditions"]).and_then(Value::as_array);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    if conditions.len() > MOST {
        causes.push(Cause::too_many(FIELD, conditions.len(), MOST));
    }
    for (index, condition) in conditions.iter().enumerate() {
        let field = |member: &str| format!("{FIELD}[{index}].{member}");
        let (status, reason) = (text(condition, &["status"]), text(condition, &["reason"]));
        let known = ["DataLoss", "Degraded", "Inaccessible"];
        if !known.contains(&status) {
            causes.push(Cause::not_supported(field("status"), &status.into(), &known));
        }
        if reason.is_empty() {
            causes.push(Cause::required(field("reason"), ""));
        } else if !is_condition_reason(reason) {
            causes.push(Cause::invalid(field("reason"), &reason.into(), REASON));
        }
        for (member, limit) in [("reason", 256), ("message", 1024)] {
            if text(condition, &[member]).len() > limit {
                causes.push(Cause::too_long(field(member), limit));
            }
        }
        let is_same = |other: &Value| text(other, &["status"]) == status && text(other, &["reason"]) == reason;
        if conditions[..index].iter().any(is_same) {
            let shown = json!({ "status": status, "reason": reason });
            causes.push(Cause::duplicate(format!("{FIELD}[{index}]"), &shown));
        }
    }
}

/// Refuses a negative size.
fn size(quantity: &Value, field: &str, causes: &mut Vec<Cause>) {
    if let Some(size) = volumes::quantity(quantity).filter(|size| *size < 0.0) {
        causes.push(Cause::invalid(field, &Value::from(as_whole(size)), "must be a valid resource quantity"));
    }
}

/// The number as the server shows it: whole, unless it is too large for that.
#[expect(clippy::cast_possible_truncation, reason = "a size that does not fit is shown as the largest that does")]
fn as_whole(size: f64) -> i64 {
    size as i64
}
