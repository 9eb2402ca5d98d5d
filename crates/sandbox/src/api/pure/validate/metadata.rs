//! The rules of `metadata`, the same for each kind.

use super::super::access::{at, list, text};
use super::super::rejection::Cause;
use super::super::resources::Resource;
use super::{immutable, names};
use serde_json::Value;

/// All annotations of an object together may have this many bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Finalizers without a domain that Kubernetes itself uses.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Rules that hold at any time.
pub(super) fn check(resource: &Resource, new: &Value, causes: &mut Vec<Cause>) {
    let grammar = if resource.plural == "namespaces" { names::label } else { names::subdomain };
    let name = text(new, &["metadata", "name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        extend("metadata.name", name, grammar(name), causes);
    }
    namespace(resource, new, causes);
    labels(new, causes);
    annotations(new, causes);
    owners(new, causes);
    for (i, finalizer) in list(new, &["metadata", "finalizers"]).iter().filter_map(Value::as_str).enumerate() {
        extend("metadata.finalizers", finalizer, names::qualified(finalizer), causes);
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{i}]"), &finalizer.into(), why));
        }
    }
}

fn extend(field: &str, value: &str, faults: Vec<String>, causes: &mut Vec<Cause>) {
    causes.extend(faults.into_iter().map(|fault| Cause::invalid(field, &value.into(), fault)));
}

fn namespace(resource: &Resource, new: &Value, causes: &mut Vec<Cause>) {
    let namespace = text(new, &["metadata", "namespace"]);
    if !resource.namespaced {
        if !namespace.is_empty() {
            causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
        }
    } else if namespace.is_empty() {
        causes.push(Cause::required("metadata.namespace", ""));
    } else {
        extend("metadata.namespace", namespace, names::label(namespace), causes);
    }
}

fn labels(new: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in at(new, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten() {
        extend("metadata.labels", key, names::qualified(key), causes);
        let value = value.as_str().unwrap_or("");
        extend("metadata.labels", value, names::label_value(value), causes);
    }
}

fn annotations(new: &Value, causes: &mut Vec<Cause>) {
    let Some(annotations) = at(new, &["metadata", "annotations"]).and_then(Value::as_object) else { return };
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Upper-case letters in the prefix are allowed here, for history's sake.
        extend("metadata.annotations", key, names::qualified(&key.to_lowercase()), causes);
    }
    if size > MAX_ANNOTATIONS {
        causes.push(Cause::too_long("metadata.annotations", MAX_ANNOTATIONS));
    }
}

fn owners(new: &Value, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for (i, owner) in list(new, &["metadata", "ownerReferences"]).iter().enumerate() {
        for (key, word) in [("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")] {
            if text(owner, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences[{i}].{key}");
                let why = if key == "apiVersion" {
                    "version must not be empty".to_owned()
                } else {
                    format!("{word} must not be empty")
                };
                causes.push(Cause::invalid(field, &Value::from(""), why));
            }
        }
        controllers += usize::from(at(owner, &["controller"]) == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        let why = "Only one reference can have Controller set to true";
        let owners = at(new, &["metadata", "ownerReferences"]).unwrap_or(&Value::Null);
        causes.push(Cause::invalid("metadata.ownerReferences", owners, why));
    }
}

/// Rules about the step from the stored object to the next.
pub(super) fn unchanged(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if at(old, &["metadata", "deletionTimestamp"]).is_some() {
        let before = list(old, &["metadata", "finalizers"]);
        let after = list(new, &["metadata", "finalizers"]).iter();
        let mut added: Vec<&str> = after.filter(|it| !before.contains(it)).filter_map(Value::as_str).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|it| format!("\"{it}\"")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", why));
        }
    }
    if text(new, &["metadata", "resourceVersion"]).is_empty() {
        causes.push(Cause::invalid("metadata.resourceVersion", &Value::from(""), "must be specified for an update"));
    }
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let path = ["metadata", key];
        immutable(&format!("metadata.{key}"), at(old, &path), at(new, &path), causes);
    }
}
