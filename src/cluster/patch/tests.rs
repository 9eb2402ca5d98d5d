use super::*;
use crate::cluster::packed_map::PackedMap;
use proptest::prelude::*;

const FIN: &str = "external-attacher/demo";

fn meta(finalizers: Option<&[&str]>) -> Meta {
    Meta {
        uid: "u1".into(),
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
