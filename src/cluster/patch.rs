//! Patches that carry their preconditions, and never say nothing. Pure.
//!
//! A finalizer list belongs to several controllers at once. So each change of it is a JSON Patch that *tests* what the
//! change was computed from: the object's uid (never a namesake) and the list as we saw it (never somebody's finalizer
//! overwritten, never ours added twice). A failed test is an answer, not an accident: look again, decide again.
//!
//! A status is ours alone, so a merge patch does; its `metadata.uid` makes the server refuse a namesake. A status whose
//! conditions other controllers write too needs a strategic merge patch: [`StrategicPatch`].
//! Nothing to change gives `None`: no request.

mod strategic;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::meta::Meta;

pub use strategic::{Condition, StrategicPatch};

/// What a PATCH request carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Patch {
    /// RFC 6902: a list of operations, all or none.
    Json(Vec<Value>),
    /// RFC 7386: null removes, an object merges, all else replaces.
    Merge(Value),
    /// As a merge, but lists of known items are merged by their keys. No server takes it for a custom resource.
    Strategic(Value),
}

impl Patch {
    /// The request's `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
        }
    }
}

/// How much of the object must be as we saw it for a status to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// It is the same object.
    Uid,
    /// It is the same object and nothing was written to it since.
    Version,
}

/// Adds `finalizer` and sets `annotations` in one all-or-nothing patch. `None` if all of it is there already.
pub fn add_finalizer(meta: &Meta, finalizer: &str, annotations: &BTreeMap<String, String>) -> Option<Patch> {
    let change = MetaChange { add_finalizers: &[finalizer], set_annotations: annotations, ..MetaChange::default() };
    change_meta(meta, &change)
}

/// Removes `finalizer`, each time that it is in the list. `None` if it is not.
///
/// Only its own places in the list are tested: another controller that removes its own at the same time and shifts
/// ours makes this patch fail, never remove a wrong one.
pub fn remove_finalizer(meta: &Meta, finalizer: &str) -> Option<Patch> {
    change_meta(meta, &MetaChange { remove_finalizers: &[finalizer], ..MetaChange::default() })
}

/// What to change in an object's metadata, in one all-or-nothing patch.
#[derive(Debug, Clone)]
pub struct MetaChange<'a> {
    /// Finalizers that must be there.
    pub add_finalizers: &'a [&'a str],
    /// Finalizers that must not.
    pub remove_finalizers: &'a [&'a str],
    /// Annotations that must have these values.
    pub set_annotations: &'a BTreeMap<String, String>,
    /// Annotations that must not be there. Those that a cache has dropped are not seen, so they stay.
    pub remove_annotations: &'a [&'a str],
    /// Further operations that test what the change was decided from: [`test()`].
    pub require: Vec<Value>,
}

impl Default for MetaChange<'_> {
    fn default() -> Self {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        Self {
            add_finalizers: &[],
            remove_finalizers: &[],
            set_annotations: &NONE,
            remove_annotations: &[],
            require: Vec::new(),
        }
    }
}

/// Makes all of `change`. `None` if nothing of it is left to do.
///
/// Tested is the object's uid, each value that is removed, and of the finalizers as much as the change needs: additions test
/// the whole list, a mere removal only its own places.
pub fn change_meta(meta: &Meta, change: &MetaChange<'_>) -> Option<Patch> {
    const LIST: &str = "/metadata/finalizers";
    let held = meta.finalizers.as_deref().unwrap_or_default();
    let missing = |wanted: &&&str| !held.iter().any(|finalizer| **finalizer == ***wanted);
    let mut added: Vec<&str> = change.add_finalizers.iter().filter(missing).copied().collect();
    added.dedup();
    let mut operations = Vec::new();
    if !added.is_empty() {
        operations.push(test(LIST, &meta.finalizers.as_ref().map_or(Value::Null, |list| json!(list))));
    }
    // From the end, so that one removal does not shift the next.
    let unwanted = |finalizer: &str| change.remove_finalizers.contains(&finalizer);
    for (index, finalizer) in held.iter().enumerate().rev().filter(|(_, finalizer)| unwanted(finalizer)) {
        let path = format!("{LIST}/{index}");
        if added.is_empty() {
            operations.push(test(&path, &json!(finalizer)));
        }
        operations.push(json!({ "op": "remove", "path": path }));
    }
    let mut unset = meta.finalizers.is_none();
    for finalizer in added {
        if std::mem::take(&mut unset) {
            operations.push(add(LIST, &json!([finalizer])));
        } else {
            operations.push(add(&format!("{LIST}/-"), &json!(finalizer)));
        }
    }
    operations.extend(annotation_operations(meta, change));
    if operations.is_empty() {
        return None;
    }
    operations.splice(0..0, change.require.iter().cloned());
    guarded(meta, operations)
}

fn annotation_operations(meta: &Meta, change: &MetaChange<'_>) -> Vec<Value> {
    const ANNOTATIONS: &str = "/metadata/annotations";
    let path = |key: &str| format!("{ANNOTATIONS}/{}", escaped(key));
    let Some(held) = &meta.annotations else {
        if change.set_annotations.is_empty() {
            return Vec::new();
        }
        return vec![test(ANNOTATIONS, &Value::Null), add(ANNOTATIONS, &json!(change.set_annotations))];
    };
    let mut operations = Vec::new();
    for key in change.remove_annotations.iter().filter(|key| !change.set_annotations.contains_key(**key)) {
        if let Some(value) = held.get(key) {
            operations.extend([test(&path(key), &json!(value)), json!({ "op": "remove", "path": path(key) })]);
        }
    }
    // The cache drops the annotations that nobody reads, but keeps an empty map where there were some.
    let changed = change.set_annotations.iter().filter(|(key, value)| held.get(key) != Some(value.as_str()));
    operations.extend(changed.map(|(key, value)| add(&path(key), &json!(value))));
    operations
}

/// Merges `changes` into the status, if the object is the one that we saw.
///
/// The changes are what *we* want written, never a difference to what a cache holds: a stale cache must not leave out
/// what it has not seen yet (external-attacher ends with `attached: true` beside an old error that way).
pub fn status_changes(meta: &Meta, guard: Guard, changes: &Value) -> Patch {
    Patch::Merge(json!({ "metadata": preconditions(meta, guard), "status": changes }))
}

/// The members of `metadata` that make the server refuse a patch of another object, or of another version of it.
fn preconditions(meta: &Meta, guard: Guard) -> Map<String, Value> {
    let mut metadata = Map::from_iter([("uid".to_owned(), json!(meta.uid))]);
    if let (Guard::Version, Some(version)) = (guard, &meta.resource_version) {
        metadata.insert("resourceVersion".into(), json!(version));
    }
    metadata
}

/// The API's limit for an error message in a status.
pub const MESSAGE_LIMIT: usize = 1024;

/// Cuts `message` to at most `limit` bytes, between two characters, and marks that it did.
///
/// ```
/// use csi_control_plane::cluster::patch::truncate_message;
///
/// assert_eq!(truncate_message("too many volumes", 1024), "too many volumes");
/// assert_eq!(truncate_message("größer als erlaubt", 8), "grö…");
/// ```
pub fn truncate_message(message: &str, limit: usize) -> Cow<'_, str> {
    const MARK: &str = "…";
    if message.len() <= limit {
        return Cow::Borrowed(message);
    }
    if limit < MARK.len() {
        return Cow::Borrowed(&message[..boundary(message, limit)]);
    }
    Cow::Owned(format!("{}{MARK}", &message[..boundary(message, limit - MARK.len())]))
}

/// The last place between two characters that is not beyond `limit`.
fn boundary(text: &str, limit: usize) -> usize {
    (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn guarded(meta: &Meta, mut operations: Vec<Value>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    operations.insert(0, test("/metadata/uid", &json!(meta.uid)));
    Some(Patch::Json(operations))
}

/// An operation that fails unless `path` holds `value`. Null passes on a missing member too.
pub fn test(path: &str, value: &Value) -> Value {
    json!({ "op": "test", "path": path, "value": value })
}

fn add(path: &str, value: &Value) -> Value {
    json!({ "op": "add", "path": path, "value": value })
}

/// RFC 6901: a key as one step of a path.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
