//! Patches with preconditions, which are never empty. Pure.
//!
//! A finalizer list belongs to several controllers at once. So each change of it is a JSON Patch that *tests* what the
//! change was computed from: the object's uid (never another object of the same name) and the list as we saw it (so it
//! never overwrites another controller's finalizer and never adds ours twice). If a test fails, the caller reads the
//! object and decides again.
//!
//! If only we write a status, a merge patch is enough; its `metadata.uid` makes the server refuse another object of the
//! same name. If other controllers write conditions of the status, too, it needs a strategic merge patch:
//! [`StrategicPatch`]. If nothing changes, the result is `None`, and no request is made.

mod strategic;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::meta::Meta;

pub use strategic::{Condition, StrategicPatch};

/// The content of a PATCH request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Patch {
    /// RFC 6902: a list of operations, all or none.
    Json(Vec<Value>),
    /// RFC 7386: null removes, an object merges, all else replaces.
    Merge(Value),
    /// As a merge, but lists of known items are merged by their keys. Servers refuse it for custom resources.
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

/// The precondition for writing a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// It is the same object.
    Uid,
    /// It is the same object and it was not written since.
    Version,
}

/// Adds `finalizer` and sets `annotations` in one all-or-nothing patch. `None` if all of it is there already.
pub fn add_finalizer(meta: &Meta, finalizer: &str, annotations: &BTreeMap<String, String>) -> Option<Patch> {
    let change = MetaChange { add_finalizers: &[finalizer], set_annotations: annotations, ..MetaChange::default() };
    change_meta(meta, &change)
}

/// Removes `finalizer`, each time that it is in the list. `None` if it is not. The patch tests only the positions of
/// this finalizer. If another controller removes its own finalizer at the same time and so shifts ours, the patch
/// fails, and never removes a wrong one.
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
    /// Annotations that must be removed. Annotations that a cache does not hold stay.
    pub remove_annotations: &'a [&'a str],
    /// More operations that test the basis of the decision: [`test()`].
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

/// A patch for all of `change`. `None` if nothing is left to do. The patch tests the object's uid, each removed value,
/// and the finalizers: an addition tests the whole list, a removal only its own positions.
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
    // The cache drops unused annotations, but keeps an empty map if there were some.
    let changed = change.set_annotations.iter().filter(|(key, value)| held.get(key) != Some(value.as_str()));
    operations.extend(changed.map(|(key, value)| add(&path(key), &json!(value))));
    operations
}

/// Merges `changes` into the status, if `guard` holds. The changes are the fields that *we* want, never a difference to
/// the cached object: with a stale cache, a difference could leave out a needed change (so external-attacher can end
/// with `attached: true` beside an old error).
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

/// Cuts `message` to at most `limit` bytes, between two characters, and marks the cut.
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

/// An operation that puts `value` at `path`, whether something is there or not. Its parent must be there.
pub fn add(path: &str, value: &Value) -> Value {
    json!({ "op": "add", "path": path, "value": value })
}

/// An operation that removes what is at `path`, and fails if nothing is.
pub fn remove(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}

/// RFC 6901: a key as one step of a path.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
