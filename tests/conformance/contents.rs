//! The behaviours on which a role that cuts snapshots relies: the rules of the snapshot kinds' definitions, and which
//! changes a patch of an installed kind guards against.

use http::Method;
use serde_json::{Value, json};

use super::dialogue::{Answer, Case, PatchType, Server};
use super::objects::with;

const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/CASE/volumesnapshots";

const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const BEGUN: &str = "/metadata/annotations/snapshot.storage.kubernetes.io~1volumesnapshot-being-created";
const DELETED: &str = "/metadata/annotations/snapshot.storage.kubernetes.io~1volumesnapshot-being-deleted";

/// The uids of snapshots that are not there.
const ONE: &str = "11111111-1111-4111-8111-111111111111";
const OTHER: &str = "22222222-2222-4222-8222-222222222222";

fn content(name: &str) -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": name},
        "spec": {"driver": "demo.csi.example.com", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
            "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "c",
            "volumeSnapshotRef": {"namespace": "CASE", "name": "a", "uid": ONE}}})
}

fn sourced(name: &str, source: Value) -> Value {
    with(content(name), "/spec", "source", source)
}

/// A case on a server that has the kinds.
async fn begin(server: &Server) -> Case {
    server.install().await;
    Case::begin(server).await
}

/// The same with a content of this name, and its path.
async fn begin_with(server: &Server, metadata: Value) -> (Case, String) {
    let mut case = begin(server).await;
    let mut object = content("CASE-a");
    for (member, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][member] = value.clone();
    }
    assert_eq!(case.post(CONTENTS, object).await.code, 201);
    (case, format!("{CONTENTS}/CASE-a"))
}

async fn json_patch(case: &mut Case, path: &str, operations: Value) -> Answer {
    case.patch(PatchType::Json, path, operations).await
}

async fn merged(case: &mut Case, path: &str, change: Value) -> u16 {
    case.patch(PatchType::Merge, path, change).await.code
}

pub(crate) async fn unknown_and_double_fields_of_an_installed_kind_are_told(server: &Server) {
    let case = begin(server).await;
    let body = r#"{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"a","zfoo":1},
        "spec":{"z":{"k":1,"k":2},"volumeSnapshotClassName":"a","volumeSnapshotClassName":"b",
        "source":{"persistentVolumeClaimName":"c","odd":1}},"odd":1}"#;
    let faults = [
        r#"duplicate field "spec.z.k""#,
        r#"duplicate field "spec.volumeSnapshotClassName""#,
        r#"unknown field "metadata.zfoo""#,
        r#"unknown field "odd""#,
        r#"unknown field "spec.source.odd""#,
        r#"unknown field "spec.z""#,
    ];
    let json = "application/json";
    let refused = case.write(&Method::POST, &format!("{SNAPSHOTS}?fieldValidation=Strict"), json, body).await;
    let says = "VolumeSnapshot in version \"v1\" cannot be handled as a VolumeSnapshot: strict decoding error: ";
    assert_eq!((refused.code, refused.text("/message")), (400, format!("{says}{}", faults.join(", ")).as_str()));
    let made = case.write(&Method::POST, SNAPSHOTS, json, body).await;
    let warnings: Vec<String> = faults.iter().map(|it| format!("299 - \"{}\"", it.replace('"', r#"\""#))).collect();
    assert_eq!((made.code, &made.warnings), (201, &warnings));
    assert_eq!(
        made.body["spec"],
        json!({"volumeSnapshotClassName": "b", "source": {"persistentVolumeClaimName": "c"}})
    );
    assert_eq!(made.body.pointer("/metadata/zfoo"), None);
    let (path, merge) = (format!("{SNAPSHOTS}/a?fieldValidation=Strict"), "application/merge-patch+json");
    let refused = case.write(&Method::PATCH, &path, merge, r#"{"spec":{"foo":1}}"#).await;
    assert!(
        refused.text("/message").ends_with(r#"strict decoding error: unknown field "spec.foo""#),
        "{}",
        refused.body
    );
}

pub(crate) async fn a_content_has_one_source_and_keeps_it(server: &Server) {
    let mut case = begin(server).await;
    for source in [json!({}), json!({"volumeHandle": "v", "snapshotHandle": "s"})] {
        assert_eq!(case.post(CONTENTS, sourced("CASE-a", source)).await.code, 422);
    }
    for (name, source, other) in
        [("CASE-a", "volumeHandle", "snapshotHandle"), ("CASE-b", "snapshotHandle", "volumeHandle")]
    {
        let path = format!("{CONTENTS}/{name}");
        let made = case.post(CONTENTS, sourced(name, json!({source: "x", "lost": "y"}))).await;
        assert_eq!((made.code, made.body.pointer("/spec/source/lost")), (201, None), "what nobody defined is dropped");
        assert_eq!(merged(&mut case, &path, json!({"spec": {"source": {source: "y"}}})).await, 422);
        assert_eq!(merged(&mut case, &path, json!({"spec": {"source": {source: null, other: "x"}}})).await, 422);
        assert_eq!(merged(&mut case, &path, json!({"spec": {"source": {other: "y"}}})).await, 422);
        assert_eq!(merged(&mut case, &path, json!({"spec": {"sourceVolumeMode": "Block"}})).await, 422);
        assert_eq!(merged(&mut case, &path, json!({"spec": {"sourceVolumeMode": null}})).await, 422);
        assert_eq!(merged(&mut case, &path, json!({"spec": {"deletionPolicy": "Retain"}})).await, 200);
        assert_eq!(case.delete(&path).await.code, 200);
    }
    case.end("a_content_has_one_source_and_keeps_it");
}

pub(crate) async fn a_content_has_what_it_must(server: &Server) {
    let mut case = begin(server).await;
    for missing in ["deletionPolicy", "driver", "source", "volumeSnapshotRef"] {
        let mut object = content("CASE-a");
        object["spec"].as_object_mut().unwrap().remove(missing);
        assert_eq!(case.post(CONTENTS, object).await.code, 422, "{missing}");
    }
    assert_eq!(case.post(CONTENTS, with(content("CASE-a"), "/spec", "deletionPolicy", "Keep".into())).await.code, 422);
    assert_eq!(case.post(CONTENTS, with(content("CASE-a"), "/spec", "driver", 5.into())).await.code, 422);
    let mut bare = content("CASE-a");
    bare.as_object_mut().unwrap().remove("spec");
    assert_eq!(case.post(CONTENTS, bare).await.code, 422);
    case.end("a_content_has_what_it_must");
}

pub(crate) async fn a_content_names_its_snapshot_and_its_class_may_change(server: &Server) {
    let mut case = begin(server).await;
    for half in [json!({"name": "a"}), json!({"namespace": "CASE"})] {
        let object = with(content("CASE-a"), "/spec", "volumeSnapshotRef", half);
        assert_eq!(case.post(CONTENTS, object).await.code, 422);
    }
    // As an administrator makes it: its snapshot binds it later.
    let mut unbound = sourced("CASE-a", json!({"snapshotHandle": "s"}));
    unbound["spec"]["volumeSnapshotRef"] = json!({"namespace": "CASE", "name": "a"});
    unbound["spec"].as_object_mut().unwrap().remove("volumeSnapshotClassName");
    assert_eq!(case.post(CONTENTS, unbound).await.code, 201);
    let path = format!("{CONTENTS}/CASE-a");
    let bind = json!({"spec": {"volumeSnapshotRef": {"uid": ONE}, "volumeSnapshotClassName": "c"}});
    assert_eq!(merged(&mut case, &path, bind).await, 200);
    let again = json!({"spec": {"volumeSnapshotRef": {"uid": OTHER}, "volumeSnapshotClassName": "d"}});
    assert_eq!(merged(&mut case, &path, again).await, 200);
    assert_eq!(case.delete(&path).await.code, 200);
    case.end("a_content_names_its_snapshot_and_its_class_may_change");
}

pub(crate) async fn a_contents_status_has_types(server: &Server) {
    let (mut case, path) = begin_with(server, json!({})).await;
    let status = format!("{path}/status");
    let refused = [
        json!({"restoreSize": -1}),
        json!({"restoreSize": "1"}),
        json!({"readyToUse": "true"}),
        json!({"snapshotHandle": 5}),
        json!({"error": {"time": "now"}}),
        json!({"error": "text"}),
    ];
    for status_of in refused {
        assert_eq!(merged(&mut case, &status, json!({ "status": status_of })).await, 422, "{status_of}");
    }
    let full = json!({"status": {"restoreSize": 0, "readyToUse": false, "creationTime": 1_700_000_000_123_456_789_i64,
        "snapshotHandle": "h", "lost": "x", "error": {"message": "m", "time": "2026-01-01T00:00:00Z", "lost": "x"}}});
    assert_eq!(merged(&mut case, &status, full).await, 200);
    // Nothing keeps the handle from being overwritten.
    assert_eq!(merged(&mut case, &status, json!({"status": {"snapshotHandle": "other"}})).await, 200);
    case.end("a_contents_status_has_types");
}

pub(crate) async fn a_snapshot_has_one_source_and_keeps_it(server: &Server) {
    let mut case = begin(server).await;
    let snapshot = |source: Value| {
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "a"},
            "spec": {"source": source}})
    };
    let both = json!({"persistentVolumeClaimName": "a", "volumeSnapshotContentName": "b"});
    for source in [json!({}), both] {
        assert_eq!(case.post(SNAPSHOTS, snapshot(source)).await.code, 422);
    }
    let empty =
        with(snapshot(json!({"persistentVolumeClaimName": "a"})), "/spec", "volumeSnapshotClassName", "".into());
    assert_eq!(case.post(SNAPSHOTS, empty).await.code, 422);
    assert_eq!(case.post(SNAPSHOTS, snapshot(json!({"persistentVolumeClaimName": "a"}))).await.code, 201);
    let path = format!("{SNAPSHOTS}/a");
    let other = json!({"spec": {"source": {"persistentVolumeClaimName": "b"}}});
    assert_eq!(merged(&mut case, &path, other).await, 422);
    for size in [json!("1Gi"), json!(1), json!("1073741824")] {
        let status = json!({"status": {"restoreSize": size}});
        assert_eq!(merged(&mut case, &format!("{path}/status"), status).await, 200);
    }
    let status = json!({"status": {"restoreSize": "much"}});
    assert_eq!(merged(&mut case, &format!("{path}/status"), status).await, 422);
    case.end("a_snapshot_has_one_source_and_keeps_it");
}

pub(crate) async fn a_snapshot_class_names_driver_and_policy(server: &Server) {
    let mut case = begin(server).await;
    let class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": "CASE-c"}, "driver": "demo.csi.example.com", "deletionPolicy": "Delete",
        "parameters": {"kind": "fast"}});
    for missing in ["driver", "deletionPolicy"] {
        let mut object = class.clone();
        object.as_object_mut().unwrap().remove(missing);
        assert_eq!(case.post(CLASSES, object).await.code, 422, "{missing}");
    }
    assert_eq!(case.post(CLASSES, with(class.clone(), "/parameters", "kind", 5.into())).await.code, 422);
    assert_eq!(case.post(CLASSES, class).await.code, 201);
    let path = format!("{CLASSES}/CASE-c");
    // Everything may change, and is a new generation.
    let change = json!({"parameters": {"kind": "slow"}, "driver": "other.example.com", "deletionPolicy": "Retain"});
    assert_eq!(merged(&mut case, &path, change).await, 200);
    assert_eq!(merged(&mut case, &format!("{path}/status"), json!({})).await, 404);
    assert_eq!(case.delete(&path).await.code, 200);
    case.end("a_snapshot_class_names_driver_and_policy");
}

pub(crate) async fn a_status_write_by_uid_spares_no_namesake_of_an_installed_kind(server: &Server) {
    let (mut case, path) = begin_with(server, json!({})).await;
    let wrong = json!({"uid": "00000000-0000-0000-0000-000000000000"});
    let status = json!({"metadata": wrong, "status": {"snapshotHandle": "h"}});
    assert_eq!(merged(&mut case, &format!("{path}/status"), status).await, 200, "it guards nothing");
    assert_eq!(merged(&mut case, &path, json!({ "metadata": wrong })).await, 422);
    case.end("a_status_write_by_uid_spares_no_namesake_of_an_installed_kind");
}

pub(crate) async fn a_status_of_an_installed_kind_is_written_by_test_or_by_version(server: &Server) {
    let (mut case, path) = begin_with(server, json!({})).await;
    let status = format!("{path}/status");
    let seen = super::fetch(&case, &path).await;
    let write = |uid: &str, handle: &str| {
        json!([{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "test", "path": "/status", "value": null},
            {"op": "add", "path": "/status", "value": {"snapshotHandle": handle}}])
    };
    let wrong = write("00000000-0000-0000-0000-000000000000", "theirs");
    assert_eq!(json_patch(&mut case, &status, wrong).await.code, 422);
    assert_eq!(json_patch(&mut case, &status, write(&seen.uid(), "ours")).await.code, 200);
    assert_eq!(json_patch(&mut case, &status, write(&seen.uid(), "late")).await.code, 422, "it has a status by now");
    let old = json!({"metadata": {"resourceVersion": seen.version()}, "status": {"snapshotHandle": "late"}});
    assert_eq!(merged(&mut case, &status, old).await, 409);
    case.end("a_status_of_an_installed_kind_is_written_by_test_or_by_version");
}

pub(crate) async fn a_status_grows_member_by_member(server: &Server) {
    let (mut case, path) = begin_with(server, json!({})).await;
    let status = format!("{path}/status");
    let add = |member: &str, value: Value| json!({"op": "add", "path": format!("/status/{member}"), "value": value});
    let is_null = |member: &str| json!({"op": "test", "path": format!("/status/{member}"), "value": null});
    let handle = || json!([is_null("snapshotHandle"), add("snapshotHandle", "h".into())]);
    assert_eq!(json_patch(&mut case, &status, handle()).await.code, 422, "there is no status to look into");
    let failed = json!({"message": "m", "time": "2026-01-01T00:00:00Z"});
    let first = json!([{"op": "add", "path": "/status", "value": {"readyToUse": false, "error": failed}}]);
    assert_eq!(json_patch(&mut case, &status, first).await.code, 200);
    assert_eq!(json_patch(&mut case, &status, handle()).await.code, 200);
    assert_eq!(json_patch(&mut case, &status, handle()).await.code, 422, "the handle that is there stays");
    let cleared = json!([{"op": "remove", "path": "/status/error"}, {"op": "replace", "path": "/status/restoreSize", "value": 1}]);
    assert_eq!(json_patch(&mut case, &status, cleared).await.code, 200, "replace makes what is missing");
    let again = json!([{"op": "remove", "path": "/status/error"}]);
    assert_eq!(json_patch(&mut case, &status, again).await.code, 422);
    case.end("a_status_grows_member_by_member");
}

pub(crate) async fn a_content_is_begun_by_one_patch_or_not_at_all(server: &Server) {
    let (mut case, path) = begin_with(server, json!({})).await;
    let begin = || {
        json!([{"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "test", "path": "/metadata/deletionTimestamp", "value": null},
            {"op": "test", "path": "/metadata/annotations", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": [BOUND]},
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": BEGUN, "value": "yes"}])
    };
    let below = json!([{"op": "test", "path": DELETED, "value": null}]);
    assert_eq!(json_patch(&mut case, &path, below).await.code, 422, "there is no map to look into");
    assert_eq!(json_patch(&mut case, &path, begin()).await.code, 200);
    assert_eq!(json_patch(&mut case, &path, begin()).await.code, 422);
    let absent = json!([{"op": "test", "path": DELETED, "value": null}]);
    assert_eq!(json_patch(&mut case, &path, absent).await.code, 200);
    case.end("a_content_is_begun_by_one_patch_or_not_at_all");
}

pub(crate) async fn the_last_annotation_takes_the_map_with_it(server: &Server) {
    let annotations = json!({"annotations": {"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}});
    let (mut case, path) = begin_with(server, annotations).await;
    let off = || json!([{"op": "remove", "path": BEGUN}]);
    let bare = json_patch(&mut case, &path, off()).await;
    assert_eq!((bare.code, bare.body.pointer("/metadata/annotations")), (200, None));
    assert_eq!(json_patch(&mut case, &path, off()).await.code, 422);
    assert_eq!(json_patch(&mut case, &path, json!([{"op": "add", "path": BEGUN, "value": "yes"}])).await.code, 422);
    let whole = json!([{"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}}]);
    assert_eq!(json_patch(&mut case, &path, whole).await.code, 200);
    case.end("the_last_annotation_takes_the_map_with_it");
}

pub(crate) async fn the_same_finalizer_may_be_there_twice(server: &Server) {
    let (mut case, path) = begin_with(server, json!({"finalizers": [BOUND]})).await;
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": BOUND}]);
    let twice = json_patch(&mut case, &path, add).await;
    assert_eq!((twice.code, &twice.body["metadata"]["finalizers"]), (200, &json!([BOUND, BOUND])));
    assert_eq!(case.delete(&path).await.code, 200);
    let each = json!([{"op": "test", "path": "/metadata/finalizers", "value": [BOUND, BOUND]},
        {"op": "remove", "path": "/metadata/finalizers/1"}, {"op": "remove", "path": "/metadata/finalizers/0"}]);
    assert_eq!(json_patch(&mut case, &path, each).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    case.end("the_same_finalizer_may_be_there_twice");
}

pub(crate) async fn a_deleted_content_takes_annotations_and_no_finalizer(server: &Server) {
    let (mut case, path) = begin_with(server, json!({"finalizers": ["example.com/one"]})).await;
    assert_eq!(case.delete(&path).await.code, 200);
    let mark = json!([{"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": BEGUN, "value": "yes"}]);
    assert_eq!(json_patch(&mut case, &path, mark).await.code, 200);
    let hold = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": BOUND}]);
    assert_eq!(json_patch(&mut case, &path, hold).await.code, 422);
    let status = json!({"status": {"snapshotHandle": "h", "readyToUse": true}});
    assert_eq!(merged(&mut case, &format!("{path}/status"), status).await, 200);
    let none = json!([{"op": "replace", "path": "/metadata/finalizers", "value": null}]);
    assert_eq!(json_patch(&mut case, &path, none).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    case.end("a_deleted_content_takes_annotations_and_no_finalizer");
}

pub(crate) async fn a_whole_map_replaces_what_others_wrote(server: &Server) {
    let (mut case, path) = begin_with(server, json!({"annotations": {"a": "1"}})).await;
    // What was cached is written back with one more key, and so wipes what was written meanwhile.
    let mark = json!([{"op": "add", "path": BEGUN, "value": "yes"}]);
    assert_eq!(json_patch(&mut case, &path, mark).await.code, 200);
    let whole = json!([{"op": "replace", "path": "/metadata/annotations",
        "value": {"a": "1", "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}}]);
    let wiped = json_patch(&mut case, &path, whole).await;
    assert_eq!((wiped.code, wiped.body.pointer(BEGUN)), (200, None));
    let merge = json!({"metadata": {"annotations": {"b": "2"}}});
    assert_eq!(merged(&mut case, &path, merge).await, 200);
    case.end("a_whole_map_replaces_what_others_wrote");
}
