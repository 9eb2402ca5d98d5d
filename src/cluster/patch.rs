//! Patches that carry their preconditions, and never say nothing. Pure.
//!
//! A finalizer list belongs to several controllers at once. So each change of it is a JSON Patch that *tests* what the
//! change was computed from: the object's uid (never a namesake) and the list as we saw it (never somebody's finalizer
//! overwritten, never ours added twice). A failed test is an answer, not an accident: look again, decide again.
//!
//! A status is ours alone, so a merge patch does; its `metadata.uid` makes the server refuse a namesake.
//! Nothing to change gives `None`: no request.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::meta::Meta;

/// What a PATCH request carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Patch {
    /// RFC 6902: a list of operations, all or none.
    Json(Vec<Value>),
    /// RFC 7386: null removes, an object merges, all else replaces.
    Merge(Value),
}

impl Patch {
    /// The request's `Content-Type`.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
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
    let mut metadata = Map::new();
    if let Some(uid) = &meta.uid {
        metadata.insert("uid".into(), json!(uid));
    }
    if let (Guard::Version, Some(version)) = (guard, &meta.resource_version) {
        metadata.insert("resourceVersion".into(), json!(version));
    }
    Patch::Merge(json!({ "metadata": metadata, "status": changes }))
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
    if let Some(uid) = &meta.uid {
        operations.insert(0, test("/metadata/uid", &json!(uid)));
    }
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
mod tests {
    use super::*;
    use crate::cluster::packed_map::PackedMap;
    use proptest::prelude::*;

    const FIN: &str = "external-attacher/demo";

    fn meta(finalizers: Option<&[&str]>) -> Meta {
        Meta {
            uid: Some("u1".into()),
            resource_version: Some("7".into()),
            finalizers: finalizers.map(|list| list.iter().map(|&f| f.into()).collect()),
            ..Meta::default()
        }
    }

    fn operations(patch: Option<Patch>) -> Value {
        patch.map_or(Value::Null, |patch| json!(patch))
    }

    #[test]
    fn r43_a_finalizer_is_added_only_to_the_list_that_was_seen() {
        let uid = json!({ "op": "test", "path": "/metadata/uid", "value": "u1" });
        for (held, expected) in [
            (
                None,
                json!([uid, { "op": "test", "path": "/metadata/finalizers", "value": null },
                    { "op": "add", "path": "/metadata/finalizers", "value": [FIN] }]),
            ),
            (
                Some(&[][..]),
                json!([uid, { "op": "test", "path": "/metadata/finalizers", "value": [] },
                    { "op": "add", "path": "/metadata/finalizers/-", "value": FIN }]),
            ),
            (
                Some(&["other"][..]),
                json!([uid, { "op": "test", "path": "/metadata/finalizers", "value": ["other"] },
                    { "op": "add", "path": "/metadata/finalizers/-", "value": FIN }]),
            ),
            (Some(&["other", FIN][..]), Value::Null),
        ] {
            assert_eq!(operations(add_finalizer(&meta(held), FIN, &BTreeMap::new())), expected, "{held:?}");
        }
    }

    #[test]
    fn an_annotation_goes_into_the_same_patch() {
        let node = &BTreeMap::from([("csi.alpha.kubernetes.io/node-id".to_owned(), "i-1".to_owned())]);
        let with = |annotations: Option<&[(&str, &str)]>| Meta {
            annotations: annotations.map(|a| a.iter().copied().collect()),
            ..meta(Some(&[FIN]))
        };
        let uid = json!({ "op": "test", "path": "/metadata/uid", "value": "u1" });
        let path = "/metadata/annotations/csi.alpha.kubernetes.io~1node-id";
        for (held, expected) in [
            (
                None,
                json!([uid, { "op": "test", "path": "/metadata/annotations", "value": null },
                { "op": "add", "path": "/metadata/annotations", "value": { "csi.alpha.kubernetes.io/node-id": "i-1" } }]),
            ),
            (Some(&[][..]), json!([uid, { "op": "add", "path": path, "value": "i-1" }])),
            (
                Some(&[("csi.alpha.kubernetes.io/node-id", "i-0")][..]),
                json!([uid, { "op": "add", "path": path, "value": "i-1" }]),
            ),
            (Some(&[("csi.alpha.kubernetes.io/node-id", "i-1")][..]), Value::Null),
        ] {
            assert_eq!(operations(add_finalizer(&with(held), FIN, node)), expected, "{held:?}");
        }
        assert_eq!(operations(add_finalizer(&meta(None), FIN, node)).as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn r36_removing_a_finalizer_tests_its_place_and_touches_no_other() {
        assert_eq!(
            operations(remove_finalizer(&meta(Some(&["a", FIN, "b", FIN])), FIN)),
            json!([{ "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/finalizers/3", "value": FIN }, { "op": "remove", "path": "/metadata/finalizers/3" },
                { "op": "test", "path": "/metadata/finalizers/1", "value": FIN }, { "op": "remove", "path": "/metadata/finalizers/1" }])
        );
        assert_eq!(remove_finalizer(&meta(Some(&["a"])), FIN), None);
        assert_eq!(remove_finalizer(&meta(None), FIN), None);
    }

    #[test]
    fn one_patch_changes_finalizers_and_annotations_as_they_were_seen() {
        let (intent, note) = (BTreeMap::from([("note".to_owned(), "v2".to_owned())]), "example.io/node");
        let held = Meta {
            annotations: Some([("note", "v1"), (note, "n1")].into_iter().collect()),
            ..meta(Some(&["a", "old", "b"]))
        };
        let uid = json!({ "op": "test", "path": "/metadata/uid", "value": "u1" });
        let unbound = test("/spec/volumeName", &Value::Null);
        let begin = MetaChange {
            add_finalizers: &[FIN, "a"],
            set_annotations: &intent,
            require: vec![unbound.clone()],
            ..MetaChange::default()
        };
        assert_eq!(
            operations(change_meta(&held, &begin)),
            json!([uid, unbound, { "op": "test", "path": "/metadata/finalizers", "value": ["a", "old", "b"] },
                { "op": "add", "path": "/metadata/finalizers/-", "value": FIN },
                { "op": "add", "path": "/metadata/annotations/note", "value": "v2" }])
        );
        let end = MetaChange {
            remove_finalizers: &["old", "absent"],
            remove_annotations: &[note, "unseen"],
            ..MetaChange::default()
        };
        let path = "/metadata/annotations/example.io~1node";
        assert_eq!(
            operations(change_meta(&held, &end)),
            json!([uid, { "op": "test", "path": "/metadata/finalizers/1", "value": "old" },
                { "op": "remove", "path": "/metadata/finalizers/1" },
                { "op": "test", "path": path, "value": "n1" }, { "op": "remove", "path": path }])
        );
        let swap = MetaChange { add_finalizers: &[FIN], remove_finalizers: &["a", "b"], ..MetaChange::default() };
        assert_eq!(
            operations(change_meta(&held, &swap)),
            json!([uid, { "op": "test", "path": "/metadata/finalizers", "value": ["a", "old", "b"] },
                { "op": "remove", "path": "/metadata/finalizers/2" }, { "op": "remove", "path": "/metadata/finalizers/0" },
                { "op": "add", "path": "/metadata/finalizers/-", "value": FIN }])
        );
    }

    #[test]
    fn metadata_that_is_as_wanted_makes_no_request_and_a_bare_object_gets_its_lists() {
        let intent = BTreeMap::from([("note".to_owned(), "v".to_owned())]);
        let change = MetaChange {
            add_finalizers: &[FIN, "second"],
            remove_finalizers: &["x"],
            set_annotations: &intent,
            remove_annotations: &["y"],
            require: vec![test("/spec/volumeName", &Value::Null)],
        };
        let done = Meta { annotations: Some(PackedMap::from(&intent)), ..meta(Some(&["second", FIN])) };
        assert_eq!(change_meta(&done, &change), None, "what is only required is no change");
        assert_eq!(
            operations(change_meta(&meta(None), &MetaChange { require: Vec::new(), ..change })),
            json!([{ "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/finalizers", "value": null },
                { "op": "add", "path": "/metadata/finalizers", "value": [FIN] },
                { "op": "add", "path": "/metadata/finalizers/-", "value": "second" },
                { "op": "test", "path": "/metadata/annotations", "value": null },
                { "op": "add", "path": "/metadata/annotations", "value": { "note": "v" } }])
        );
    }

    #[test]
    fn r48_a_status_patch_says_what_is_wanted_whatever_the_cache_holds_and_names_the_object() {
        let changes = json!({ "attached": true, "attachError": null });
        assert_eq!(
            json!(status_changes(&meta(None), Guard::Uid, &changes)),
            json!({ "metadata": { "uid": "u1" }, "status": changes })
        );
        assert_eq!(
            json!(status_changes(&meta(None), Guard::Version, &changes)),
            json!({ "metadata": { "uid": "u1", "resourceVersion": "7" }, "status": changes })
        );
    }

    #[test]
    fn r46_messages_are_cut_between_characters_to_the_limit() {
        assert_eq!(truncate_message("short", MESSAGE_LIMIT), "short");
        let long = "ü".repeat(5 * 1024);
        let cut = truncate_message(&long, MESSAGE_LIMIT);
        assert!(cut.len() <= MESSAGE_LIMIT && cut.len() > MESSAGE_LIMIT - 4 && cut.ends_with("ü…"), "{}", cut.len());
        assert_eq!(truncate_message("üü", 2), "ü");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_cut_message_never_exceeds_its_limit(text in ".{0,60}", limit in 0_usize..70) {
            let cut = truncate_message(&text, limit);
            prop_assert!(cut.len() <= limit);
            prop_assert!(text.len() > limit || cut == text);
        }
    }
}
