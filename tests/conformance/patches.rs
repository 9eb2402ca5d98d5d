//! JSON, merge and strategic-merge patches, and server-side apply.

use http::Method;
use serde_json::json;

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, VOLUMES, attachment, config_map, volume, with};

pub(crate) async fn a_json_patch_is_all_or_nothing(server: &Server) {
    let (mut case, path, made) = Case::with(server, CONFIG_MAPS, config_map("a")).await;
    let good = json!([{"op": "test", "path": "/data/key", "value": "value"},
        {"op": "add", "path": "/data/other", "value": "more"}, {"op": "replace", "path": "/data/key", "value": "new"}]);
    assert_eq!(case.patch(PatchType::Json, &path, good).await.code, 200);
    let failed_test = json!([{"op": "add", "path": "/data/third", "value": "x"},
        {"op": "test", "path": "/data/key", "value": "value"}]);
    assert_eq!(case.patch(PatchType::Json, &path, failed_test).await.code, 422);
    let missing = json!([{"op": "remove", "path": "/data/nothing"}]);
    assert_eq!(case.patch(PatchType::Json, &path, missing).await.code, 422);
    let orphan = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/one"}]);
    assert_eq!(case.patch(PatchType::Json, &path, orphan).await.code, 422);
    let absent = json!([{"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/one"]}]);
    assert_eq!(case.patch(PatchType::Json, &path, absent).await.code, 200);
    let append = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/two"}]);
    assert_eq!(case.patch(PatchType::Json, &path, append).await.code, 200);
    let old = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": made.version()},
        {"op": "add", "path": "/data/fourth", "value": "x"}]);
    assert_eq!(case.patch(PatchType::Json, &path, old).await.code, 409);
    let nonsense = json!([{"op": "shuffle", "path": "/data"}]);
    case.patch(PatchType::Json, &path, nonsense).await;
    case.patch(PatchType::Json, &path, json!({"not": "a list"})).await;
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("a_json_patch_is_all_or_nothing");
}

pub(crate) async fn json_patch_pointers_escape_slashes(server: &Server) {
    let (mut case, path, _) = Case::with(
        server,
        CONFIG_MAPS,
        with(config_map("a"), "/metadata", "annotations", json!({"example.com/id": "1"})),
    )
    .await;
    let change = json!([{"op": "test", "path": "/metadata/annotations/example.com~1id", "value": "1"},
        {"op": "replace", "path": "/metadata/annotations/example.com~1id", "value": "2"}]);
    let changed = case.patch(PatchType::Json, &path, change).await;
    assert_eq!((changed.code, changed.text("/metadata/annotations/example.com~1id")), (200, "2"));
    case.end("json_patch_pointers_escape_slashes");
}

pub(crate) async fn a_merge_patch_replaces_lists_and_null_removes(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{VOLUMES}/CASE-a");
    case.post(
        VOLUMES,
        with(volume("CASE-a"), "/metadata", "finalizers", json!(["example.com/one", "example.com/two"])),
    )
    .await;
    let one = case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": ["example.com/three"]}})).await;
    assert_eq!(one.body["metadata"]["finalizers"], json!(["example.com/three"]));
    let none = case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null, "labels": null}})).await;
    assert!(none.body["metadata"].get("finalizers").is_none());
    let same = case.patch(PatchType::Merge, &path, json!({})).await;
    assert_eq!(same.version(), none.version());
    case.patch(PatchType::Merge, &path, json!([1])).await;
    case.end("a_merge_patch_replaces_lists_and_null_removes");
}

pub(crate) async fn a_merge_patch_of_an_object_and_its_version_is_one_of_that_or_none(server: &Server) {
    let (mut case, path, made) = Case::with(server, CONFIG_MAPS, config_map("a")).await;
    assert_eq!(case.post(CONFIG_MAPS, config_map("a")).await.code, 409);
    let at = |uid: &str, version: &str, data: serde_json::Value| json!({"metadata": {"uid": uid, "resourceVersion": version}, "data": data});
    let first = at(&made.uid(), &made.version(), json!({"one": "1", "two": "2", "key": null}));
    let written = case.patch(PatchType::Merge, &path, first.clone()).await;
    assert_eq!((written.code, &written.body["data"]), (200, &json!({"one": "1", "two": "2"})));
    // A late request is refused.
    assert_eq!(case.patch(PatchType::Merge, &path, first).await.code, 409);
    let namesake = at("another", &written.version(), json!({"three": "3"}));
    assert_eq!(case.patch(PatchType::Merge, &path, namesake).await.code, 422);
    let all = at(&made.uid(), &written.version(), json!({"one": null, "two": null}));
    let emptied = case.patch(PatchType::Merge, &path, all).await;
    assert_eq!(emptied.code, 200);
    case.delete(&path).await;
    let gone = at(&made.uid(), &emptied.version(), json!({"four": "4"}));
    assert_eq!(case.patch(PatchType::Merge, &path, gone).await.code, 404);
    case.end("a_merge_patch_of_an_object_and_its_version_is_one_of_that_or_none");
}

pub(crate) async fn a_strategic_patch_merges_lists_by_key(server: &Server) {
    let (mut case, path, _) =
        Case::with(server, VOLUMES, with(volume("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"])))
            .await;
    let more = json!({"metadata": {"finalizers": ["example.com/two"]}});
    let both = case.patch(PatchType::Strategic, &path, more).await;
    assert_eq!(both.body["metadata"]["finalizers"].as_array().map(Vec::len), Some(2));
    let less = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}});
    let one = case.patch(PatchType::Strategic, &path, less).await;
    assert_eq!(one.body["metadata"]["finalizers"], json!(["example.com/two"]));
    let owners = |uid: &str, kind: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid}]}});
    case.patch(PatchType::Strategic, &path, owners("u-1", "ConfigMap")).await;
    let two = case.patch(PatchType::Strategic, &path, owners("u-2", "ConfigMap")).await;
    assert_eq!(two.body["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2));
    let replaced = case.patch(PatchType::Strategic, &path, owners("u-2", "Secret")).await;
    assert_eq!(replaced.body["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2));
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("a_strategic_patch_merges_lists_by_key");
}

pub(crate) async fn a_patch_of_another_type_is_refused(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(case.send(&Method::PATCH, &path, "application/json", &json!({})).await.code, 415);
    assert_eq!(case.send(&Method::POST, CONFIG_MAPS, "text/plain", &json!({})).await.code, 415);
    assert_eq!(case.patch(PatchType::Merge, &format!("{CONFIG_MAPS}/b"), json!({})).await.code, 404);
    case.end("a_patch_of_another_type_is_refused");
}

pub(crate) async fn apply_makes_owns_and_conflicts(server: &Server) {
    let mut case = Case::begin(server).await;
    case.tell_managed_fields();
    let at = |manager: &str, rest: &str| format!("{CONFIG_MAPS}/a?fieldManager={manager}{rest}");
    let applied = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": value}});
    assert_eq!(case.patch(PatchType::Apply, &at("one", ""), applied("1")).await.code, 201);
    let same = case.patch(PatchType::Apply, &at("one", ""), applied("1")).await;
    assert_eq!(same.code, 200);
    assert_eq!(case.patch(PatchType::Apply, &at("two", ""), applied("2")).await.code, 409);
    assert_eq!(case.patch(PatchType::Apply, &at("two", "&force=true"), applied("2")).await.text("/data/key"), "2");
    let without = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let gone = case.patch(PatchType::Apply, &at("two", ""), without).await;
    assert!(gone.body.pointer("/data/key").is_none(), "{gone:?}");
    let nobody = format!("{CONFIG_MAPS}/a");
    case.patch(PatchType::Apply, &nobody, applied("3")).await;
    case.end("apply_makes_owns_and_conflicts");
}

pub(crate) async fn apply_of_a_finalizer_leaves_those_of_others(server: &Server) {
    let mut case = Case::begin(server).await;
    case.tell_managed_fields();
    let path = format!("{ATTACHMENTS}/CASE-a");
    case.post(ATTACHMENTS, with(attachment("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"]))).await;
    let mine = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "CASE-a", "finalizers": ["example.com/two"]}});
    let both = case.patch(PatchType::Apply, &format!("{path}?fieldManager=me"), mine).await;
    assert_eq!(both.body["metadata"]["finalizers"].as_array().map(Vec::len), Some(2));
    let none = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "CASE-a"}});
    let one = case.patch(PatchType::Apply, &format!("{path}?fieldManager=me"), none).await;
    assert_eq!(one.body["metadata"]["finalizers"], json!(["example.com/one"]));
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("apply_of_a_finalizer_leaves_those_of_others");
}

pub(crate) async fn managed_fields_tell_who_wrote_what(server: &Server) {
    let mut case = Case::begin(server).await;
    case.tell_managed_fields();
    let path = format!("{ATTACHMENTS}/CASE-a");
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    case.patch(PatchType::Merge, &format!("{path}/status?fieldManager=other"), json!({"status": {"attached": true}}))
        .await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/one"], "annotations": {"example.com/id": "1"}}});
    case.patch(PatchType::Merge, &format!("{path}?fieldManager=other"), finalizer).await;
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("managed_fields_tell_who_wrote_what");
}
