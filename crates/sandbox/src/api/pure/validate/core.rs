//! Secret, ConfigMap, Event, Lease, Pod.

use super::super::access::{at, list, text};
use super::super::rejection::Cause;
use super::{immutable, names};
use serde_json::Value;

/// All values of a Secret or a ConfigMap together.
const MAX_DATA: usize = 1024 * 1024;

/// A Secret.
pub(super) fn secret(new: &Value, causes: &mut Vec<Cause>) {
    // Three decoded bytes for each four characters of base64.
    if keys(new, "data", causes) / 4 * 3 > MAX_DATA {
        causes.push(Cause::too_long("data", MAX_DATA));
    }
    let required: &[&str] = match text(new, &["type"]) {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        _ => &[],
    };
    for key in required.iter().filter(|key| at(new, &["data", key]).is_none()) {
        causes.push(Cause::required(format!("data[{key}]"), ""));
    }
}

/// Checks the keys of a map of data; the length of all values.
fn keys(new: &Value, member: &str, causes: &mut Vec<Cause>) -> usize {
    let mut size = 0;
    for (key, value) in at(new, &[member]).and_then(Value::as_object).into_iter().flatten() {
        size += value.as_str().map_or(0, str::len);
        let field = format!("{member}[{key}]");
        causes.extend(names::config_key(key).into_iter().map(|why| Cause::invalid(&field, &key.as_str().into(), why)));
    }
    size
}

/// The type of a Secret never changes, nor does the data of an immutable one.
pub(super) fn secret_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let kind = |object: &Value| {
        let kind = text(object, &["type"]);
        Value::from(if kind.is_empty() { "Opaque" } else { kind })
    };
    immutable("type", Some(&kind(old)), Some(&kind(new)), causes);
    frozen(old, new, &["data"], causes);
}

/// A ConfigMap.
pub(super) fn config_map(new: &Value, causes: &mut Vec<Cause>) {
    let size = keys(new, "data", causes) + keys(new, "binaryData", causes) / 4 * 3;
    if size > MAX_DATA {
        causes.push(Cause::too_long("", MAX_DATA));
    }
}

/// An immutable ConfigMap's data never changes.
pub(super) fn config_map_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    frozen(old, new, &["data", "binaryData"], causes);
}

fn frozen(old: &Value, new: &Value, members: &[&str], causes: &mut Vec<Cause>) {
    let is_frozen = |object: &Value| at(object, &["immutable"]) == Some(&Value::Bool(true));
    if !is_frozen(old) {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !is_frozen(new) {
        causes.push(Cause::forbidden("immutable", why));
    }
    for member in members.iter().filter(|member| at(old, &[member]) != at(new, &[member])) {
        causes.push(Cause::forbidden(*member, why));
    }
}

/// An Event lies in the namespace of its object, or in `default` (or `kube-system`) if that has none.
pub(super) fn event_placement(new: &Value, causes: &mut Vec<Cause>) {
    let object = text(new, &["involvedObject", "namespace"]);
    let namespace = text(new, &["metadata", "namespace"]);
    let fits =
        if object.is_empty() { matches!(namespace, "" | "default" | "kube-system") } else { object == namespace };
    if !fits {
        let why = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &object.into(), why));
    }
}

/// A Lease.
pub(super) fn lease(new: &Value, causes: &mut Vec<Cause>) {
    let number = |key: &str| at(new, &["spec", key]).filter(|value| value.is_i64());
    if let Some(value) = number("leaseDurationSeconds").filter(|value| value.as_i64() <= Some(0)) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
    }
    if let Some(value) = number("leaseTransitions").filter(|value| value.as_i64() < Some(0)) {
        causes.push(Cause::invalid("spec.leaseTransitions", value, "must be greater than or equal to 0"));
    }
}

/// Few members of a Pod's spec change. Its node may be named once: in a real cluster the scheduler names it by another way. The
/// server also shows the difference of the specs, with all the defaults that only it fills in.
pub(super) fn pod_changes(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (before, mut after) =
        (at(old, &["spec"]).cloned().unwrap_or_default(), at(new, &["spec"]).cloned().unwrap_or_default());
    for containers in ["containers", "initContainers"] {
        let (old, new) = (list(&before, &[containers]), list(&after, &[containers]));
        if old.len() != new.len() {
            let why = "pod updates may not add or remove containers";
            causes.push(Cause::forbidden(format!("spec.{containers}"), why));
            return;
        }
        let images: Vec<Option<Value>> = old.iter().map(|it| at(it, &["image"]).cloned()).collect();
        let new = after.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, image) in new.zip(images) {
            restore(container, "image", image);
        }
    }
    for (member, may_change) in [
        ("activeDeadlineSeconds", true),
        ("nodeName", text(old, &["spec", "nodeName"]).is_empty()),
        ("tolerations", list(&before, &["tolerations"]).iter().all(|it| list(&after, &["tolerations"]).contains(it))),
    ] {
        if may_change {
            restore(&mut after, member, before.get(member).cloned());
        }
    }
    if before != after {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                   `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                   `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}

/// Gives a member the value that it had.
fn restore(object: &mut Value, member: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(object.insert(member.to_owned(), value)),
        None => drop(object.remove(member)),
    }
}

/// A Pod: containers with distinct names.
pub(super) fn pod(new: &Value, causes: &mut Vec<Cause>) {
    let containers = list(new, &["spec", "containers"]);
    if containers.is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let name = text(container, &["name"]);
        let field = format!("spec.containers[{i}].name");
        if name.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if seen.contains(&name) {
            causes.push(Cause::duplicate(field, &name.into()));
        } else {
            causes.extend(names::label(name).into_iter().map(|why| Cause::invalid(&field, &name.into(), why)));
        }
        seen.push(name);
    }
}
