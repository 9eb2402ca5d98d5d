//! The form of a segment: what is written, what is read, and what is not readable.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fixtures::{Asked, place};
use super::format::{self, Key, Version};
use super::place::Place;
use super::unreadable::{Unreadable, UnreadableReason};
use crate::cluster::Patch;
use crate::process::error_chain;

const LINE: &str = r#"{"at":"2026-01-01T00:00:00.25Z","volumeName":"pvc-u1","bytes":1073741824}"#;

/// The same, as the object `o1` has it.
const MARKED: &str =
    r#"{"in":"o1","since":"3","at":"2026-01-01T00:00:00.25Z","volumeName":"pvc-u1","bytes":1073741824}"#;

fn at() -> Timestamp {
    "2026-01-01T00:00:00.25Z".parse().unwrap()
}

/// A segment as the API sends it, merged with `change`.
fn sent(change: &Value) -> Value {
    let mut object = json!({
        "metadata": { "name": "demo-csi-journal-3", "namespace": "storage", "uid": "o1", "resourceVersion": "7",
            "labels": { "csi-control-plane.io/journal": "demo.csi" },
            "annotations": { "csi-control-plane.io/journal-version": "1" } },
        "data": { "u1": MARKED },
    });
    merge(&mut object, change);
    object
}

fn merge(object: &mut Value, change: &Value) {
    let Some(members) = change.as_object() else { return object.clone_from(change) };
    for (key, value) in members {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(object.as_object_mut().unwrap().entry(key).or_insert_with(|| json!({})), value);
        }
    }
}

fn read(place: &Place, object: Value) -> Result<format::Contents, Unreadable> {
    format::read::<Asked>(place, 3, serde_json::from_value(object).unwrap())
}

#[test]
fn an_entry_is_one_line_that_begins_with_its_time() {
    assert_eq!(format::text(at(), &Asked::volume("u1")).unwrap(), LINE);
    assert_eq!(format::parse::<Asked>(LINE).unwrap(), (at(), Asked::volume("u1")));
}

#[test]
fn a_segment_is_read_with_its_version() {
    let contents = read(&place(), sent(&json!({}))).unwrap();
    assert_eq!(contents.object, Version { uid: "o1".into(), version: "7".into() });
    let entries: Vec<_> =
        contents.entries.iter().map(|entry| (&*entry.key, &*entry.text, entry.at, entry.since.as_str())).collect();
    assert_eq!(entries, [("u1", LINE, at(), "3")]);
    assert!(contents.copies.is_empty());
    for empty in [json!({ "data": null }), json!({ "data": { "u1": null } })] {
        assert!(read(&place(), sent(&empty)).unwrap().entries.is_empty());
    }
}

#[test]
fn a_segment_says_whose_it_is_and_only_a_node_s_names_a_node() {
    assert_eq!(
        format::creation(&place(), 3),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "demo-csi-journal-3", "namespace": "storage",
                "labels": { "csi-control-plane.io/journal": "demo.csi" },
                "annotations": { "csi-control-plane.io/journal-version": "1" } },
            "data": {},
        })
    );
    let node = Place { node: Some("n1".into()), ..place() };
    let created = format::creation(&node, 3);
    assert_eq!(created["metadata"]["annotations"]["csi-control-plane.io/node"], "n1");
    assert!(read(&node, created.clone()).is_ok());
    assert!(read(&Place { node: Some("n2".into()), ..place() }, created).is_err());
}

#[test]
fn a_change_carries_what_changes_and_names_what_it_builds_on() {
    let basis = Version { uid: "o1".into(), version: "7".into() };
    let set: [(Key, Arc<str>); 2] = [("u2".into(), LINE.into()), ("u3".into(), LINE.into())];
    let patch = format::change(&basis, &set, &[("u3".into(), "3".into())].into(), &["u1".into()]);
    let new = MARKED.replace(r#""since":"3""#, r#""since":"7""#);
    let data = json!({ "u1": null, "u2": new, "u3": MARKED });
    assert_eq!(patch, Patch::Merge(json!({ "metadata": { "uid": "o1", "resourceVersion": "7" }, "data": data })));
}

#[test]
fn j9_an_entry_counts_only_on_the_object_that_it_was_written_for() {
    let of = |text: &str| {
        let contents = read(&place(), sent(&json!({ "data": { "u1": text } }))).unwrap();
        let texts = |all: &[format::Stored]| all.iter().map(|it| it.text.to_string()).collect::<Vec<_>>();
        (texts(&contents.entries), texts(&contents.copies))
    };
    let turned = MARKED.replace(r#"{"in":"o1",""#, r#"{""#).replace('}', r#","in":"o1"}"#);
    for ours in [MARKED, &turned] {
        assert_eq!(of(ours), (vec![LINE.to_owned()], vec![]), "{ours}");
    }
    for copy in [LINE, &MARKED.replace("o1", "o2"), &MARKED.replace("o1", "")] {
        assert_eq!(of(copy), (vec![], vec![copy.to_owned()]), "{copy}");
    }
    let nameless = sent(&json!({ "metadata": { "uid": "" }, "data": { "u1": MARKED.replace("o1", "") } }));
    assert_eq!(read(&place(), nameless).unwrap().entries, [], "an object without a uid proves nothing");
}

#[test]
fn what_is_no_segment_of_ours_is_refused_with_its_name_the_reason_and_a_remedy() {
    let annotations = |change: Value| json!({ "metadata": { "annotations": change } });
    let label = |text: Value| json!({ "metadata": { "labels": { "csi-control-plane.io/journal": text } } });
    let version = |text: Value| annotations(json!({ "csi-control-plane.io/journal-version": text }));
    let value = |text: &str| json!({ "data": { "u1": text } });
    let table = [
        (version(json!(null)), "journal-version is missing, not \"1\" (restore"),
        (version(json!("one")), "journal-version is \"one\", not \"1\" (restore"),
        (
            version(json!("2")),
            "a newer version of the daemon has written it: the annotation csi-control-plane.io/journal-version is \"2\", and this version reads \"1\" (run that version again",
        ),
        (label(json!(null)), "the label csi-control-plane.io/journal is missing, not \"demo.csi\" (correct"),
        (label(json!("other")), "the label csi-control-plane.io/journal is \"other\", not \"demo.csi\" (correct"),
        (
            annotations(json!({ "csi-control-plane.io/node": "n1" })),
            "csi-control-plane.io/node is \"n1\", not missing (correct",
        ),
        (json!({ "binaryData": { "b": "AA==" } }), "binaryData has the key \"b\""),
        (json!({ "immutable": true }), "it is immutable (restore"),
        (value("x"), "the value of the key \"u1\" is not an entry in the format \"1\" (restore"),
        (value("{}"), "missing field `at`"),
        (value(r#"{"at":"2026-01-01T00:00:00Z"}"#), "missing field `volumeName`"),
        (value(r#"{"at":"yesterday","volumeName":"v","bytes":1}"#), "the key \"u1\""),
    ];
    for (change, expected) in table {
        let text = error_chain(&read(&place(), sent(&change)).unwrap_err());
        assert!(text.starts_with("configmap \"storage/demo-csi-journal-3\" is not a readable segment"), "{text}");
        assert!(text.contains(expected), "{text}\n{expected}");
    }
    let newer = read(&place(), sent(&version(json!("2")))).unwrap_err();
    assert_eq!(newer.reason, UnreadableReason::Newer { version: 2 });
}

#[test]
fn a_key_is_one_of_a_configmap() {
    for key in ["3f0c1f2e-7f2b-4a53-9f5e-0a1b2c3d4e5f", "a", "A_b.c", "-"] {
        assert!(format::is_key(key), "{key}");
    }
    for key in ["", ".", "..", "..a", "a/b", "a b", "ä", &"a".repeat(254)] {
        assert!(!format::is_key(key), "{key}");
    }
}
