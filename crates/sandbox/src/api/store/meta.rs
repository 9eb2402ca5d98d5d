//! The server's own changes of `metadata`, and the part of an object (status or the rest) that a write may change.
//! Pure.
//!
//! The order of the real server is kept: the request's object is *prepared* (system fields carried over, status or spec
//! put back), then validated. A client that sends a stale `creationTimestamp` is corrected, not refused.

use serde_json::{Map, Value};

use crate::api::pure::resources::Resource;

/// Kinds whose `status` may be given on create: a kubelet registers its node with one.
const STATUS_ON_CREATE: [&str; 1] = ["nodes"];
/// Kinds that a PUT creates when they are missing.
const CREATE_ON_UPDATE: [&str; 2] = ["leases", "events"];
/// Kinds that refuse a PUT without a resourceVersion.
const CONDITIONAL_UPDATE: [&str; 5] = ["volumeattachments", "csinodes", "csidrivers", "leases", "csistoragecapacities"];
/// Kinds whose DELETE answers with the object; the others answer with a `Status`.
const RETURN_DELETED: [&str; 11] = [
    "namespaces",
    "pods",
    "persistentvolumes",
    "persistentvolumeclaims",
    "resourcequotas",
    "serviceaccounts",
    "volumeattachments",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "volumeattributesclasses",
];
/// Kinds whose `metadata.generation` counts the changes of their spec, from this number on. The others have none.
const GENERATIONS: [(&str, i64); 6] =
    [("pods", 1), ("csidrivers", 0), ("deployments", 1), ("replicasets", 1), ("statefulsets", 1), ("daemonsets", 1)];
/// Kinds whose status endpoint keeps the whole of `metadata`; on the others a status write may change labels and the like.
const STATUS_KEEPS_METADATA: [&str; 1] = ["volumeattachments"];

/// Whether a PUT of a missing object creates it.
pub(crate) fn creates_on_update(resource: &Resource) -> bool {
    CREATE_ON_UPDATE.contains(&resource.plural)
}

/// Whether a PUT without a resourceVersion is allowed.
pub(crate) fn updates_unconditionally(resource: &Resource) -> bool {
    !resource.optional && !CONDITIONAL_UPDATE.contains(&resource.plural)
}

/// Whether DELETE answers with the object that it removed.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    RETURN_DELETED.contains(&resource.plural)
}

fn first_generation(resource: &Resource) -> Option<i64> {
    if resource.optional {
        return Some(1);
    }
    GENERATIONS.iter().find(|(plural, _)| *plural == resource.plural).map(|(_, first)| *first)
}

/// A text member of `metadata`; empty when it is missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a member of `metadata`, or removes it.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let meta = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    if let Some(meta) = meta.as_object_mut() {
        match value {
            Some(value) => drop(meta.insert(field.to_owned(), value)),
            None => drop(meta.remove(field)),
        }
    }
}

/// Whether the object has finalizers.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Puts `from`'s member into `to`, or removes it where `from` has none.
fn carry(from: &Value, to: &mut Value, member: &str) {
    if let Some(to) = to.as_object_mut() {
        match from.get(member) {
            Some(value) => drop(to.insert(member.to_owned(), value.clone())),
            None => drop(to.remove(member)),
        }
    }
}

/// Empty lists and maps of `metadata` are not kept: the real server's types omit them.
fn tidy(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["finalizers", "ownerReferences", "labels", "annotations", "managedFields", "selfLink"] {
            let empty = match meta.get(field) {
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Null) => true,
                Some(Value::String(text)) => text.is_empty(),
                _ => false,
            };
            if empty {
                meta.remove(field);
            }
        }
    }
}

/// A new object as the server will store it, but for its name and resourceVersion.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, namespace: &str, uid: &str, now: &str) {
    set(object, "uid", Some(uid.into()));
    set(object, "creationTimestamp", Some(now.into()));
    set(object, "deletionTimestamp", None);
    set(object, "deletionGracePeriodSeconds", None);
    set(object, "namespace", resource.namespaced.then(|| namespace.into()));
    set(object, "generation", first_generation(resource).filter(|first| *first > 0).map(Into::into));
    tidy(object);
    if resource.has_status
        && !STATUS_ON_CREATE.contains(&resource.plural)
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
}

/// A status write to a kind that was installed changes nothing of `metadata`, whatever it says: not even a wrong uid is a
/// fault. What is checked before, the version, and who wrote which field stay as they are in the request.
fn keep_metadata(old: &Value, new: &mut Value) {
    let ours = ["resourceVersion", "managedFields"];
    let kept = ours.map(|field| new.pointer(&format!("/metadata/{field}")).cloned());
    carry(old, new, "metadata");
    for (field, value) in ours.into_iter().zip(kept) {
        set(new, field, value);
    }
}

fn is_same_but_metadata(old: &Value, new: &Value) -> bool {
    let members = |object: &Value| {
        let mut members = object.as_object().cloned().unwrap_or_default();
        members.remove("metadata");
        members
    };
    members(old) == members(new)
}

/// An update's object with what it may not change put back: system metadata, and the half that this endpoint doesn't write.
pub(crate) fn prepare_update(resource: &Resource, old: &Value, new: &mut Value, status: bool) {
    set(new, "creationTimestamp", old.pointer("/metadata/creationTimestamp").cloned());
    for field in ["uid", "namespace"] {
        if text(new, field).is_empty() {
            set(new, field, old.pointer(&format!("/metadata/{field}")).cloned());
        }
    }
    if is_deleting(old) {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            set(new, field, old.pointer(&format!("/metadata/{field}")).cloned());
        }
    }
    if status && resource.optional {
        keep_metadata(old, new);
    }
    if status {
        if STATUS_KEEPS_METADATA.contains(&resource.plural) {
            for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "generation"] {
                set(new, field, old.pointer(&format!("/metadata/{field}")).cloned());
            }
        }
        let members: Vec<String> = [old, new]
            .iter()
            .filter_map(|object| object.as_object())
            .flat_map(|object| object.keys().cloned())
            .filter(|member| !["apiVersion", "kind", "metadata", "status"].contains(&member.as_str()))
            .collect();
        for member in members {
            carry(old, new, &member);
        }
    } else if resource.has_status {
        carry(old, new, "status");
    }
    let generation = first_generation(resource).map(|first| {
        let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(first);
        let same = if resource.optional { is_same_but_metadata(old, new) } else { old.get("spec") == new.get("spec") };
        if same || status { before } else { before + 1 }
    });
    set(new, "generation", generation.filter(|number| *number > 0).map(Into::into));
    tidy(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pure::resources;
    use serde_json::json;

    fn resource(plural: &str) -> &'static Resource {
        resources::RESOURCES.iter().find(|resource| resource.plural == plural).unwrap()
    }

    #[test]
    fn a_main_write_leaves_the_status_alone_and_a_status_write_the_rest() {
        let old =
            json!({"metadata": {"uid": "u", "labels": {"a": "1"}}, "spec": {"x": 1}, "status": {"attached": false}});
        let sent = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"x": 2}, "status": {"attached": true}});
        let mut main = sent.clone();
        prepare_update(resource("volumeattachments"), &old, &mut main, false);
        assert_eq!((&main["spec"]["x"], &main["status"]["attached"]), (&json!(2), &json!(false)));
        let mut status = sent.clone();
        prepare_update(resource("volumeattachments"), &old, &mut status, true);
        assert_eq!((&status["spec"]["x"], &status["status"]["attached"]), (&json!(1), &json!(true)));
        assert_eq!(status["metadata"]["labels"]["a"], "1");
        let mut volume = sent;
        prepare_update(resource("persistentvolumes"), &old, &mut volume, true);
        assert_eq!(volume["metadata"]["labels"]["a"], "2");
    }

    #[test]
    fn a_status_write_to_an_installed_kind_keeps_the_metadata_whatever_it_says() {
        let old = json!({"metadata": {"uid": "u", "resourceVersion": "1", "generation": 3, "annotations": {"a": "1"}},
            "spec": {"x": 1}});
        let mut new = json!({"metadata": {"uid": "v", "resourceVersion": "1", "labels": {"b": "2"}},
            "spec": {"x": 2}, "status": {"readyToUse": true}});
        prepare_update(resource("volumesnapshotcontents"), &old, &mut new, true);
        let mut expected = old.clone();
        expected["status"] = json!({"readyToUse": true});
        assert_eq!(new, expected);
    }

    #[test]
    fn any_change_of_an_installed_kind_but_of_its_metadata_is_a_new_generation() {
        let old = json!({"metadata": {"uid": "u", "generation": 1}, "parameters": {"a": "1"}});
        for (member, generation) in [("parameters", 2), ("metadata", 1)] {
            let mut new = old.clone();
            new[member]["b"] = "2".into();
            prepare_update(resource("volumesnapshotclasses"), &old, &mut new, false);
            assert_eq!(new["metadata"]["generation"], generation, "{member}");
        }
    }

    #[test]
    fn a_deletion_cannot_be_taken_back() {
        let old = json!({"metadata": {"uid": "u", "deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}});
        let mut new = json!({"metadata": {"finalizers": []}});
        prepare_update(resource("persistentvolumes"), &old, &mut new, false);
        assert!(is_deleting(&new));
        assert_eq!(new["metadata"].get("finalizers"), None);
    }
}
