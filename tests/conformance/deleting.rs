//! Finalizers, `deletionTimestamp`, preconditions.

use serde_json::json;

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, VOLUMES, attachment, config_map, volume, with};

pub(crate) async fn a_finalizer_holds_a_deleted_object(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{ATTACHMENTS}/CASE-a");
    let held = with(attachment("CASE-a"), "/metadata", "finalizers", json!(["example.com/one", "example.com/two"]));
    case.post(ATTACHMENTS, held).await;
    let deleted = case.delete(&path).await;
    assert_eq!(deleted.code, 200);
    assert!(!deleted.text("/metadata/deletionTimestamp").is_empty());
    // Once more changes nothing.
    assert_eq!(case.delete(&path).await.version(), deleted.version());
    let one = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    assert_eq!(case.patch(PatchType::Json, &path, one.clone()).await.code, 200);
    assert_eq!(case.get(&path).await.code, 200);
    assert_eq!(case.patch(PatchType::Json, &path, one).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    case.end("a_finalizer_holds_a_deleted_object");
}

pub(crate) async fn a_deleted_object_gets_no_new_finalizer(server: &Server) {
    let (mut case, path, _) =
        Case::with(server, VOLUMES, with(volume("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"])))
            .await;
    case.delete(&path).await;
    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two"]}});
    assert_eq!(case.patch(PatchType::Merge, &path, more).await.code, 422);
    let other = json!({"metadata": {"finalizers": ["example.com/two"]}});
    assert_eq!(case.patch(PatchType::Merge, &path, other).await.code, 422);
    let twice = json!({"metadata": {"finalizers": ["example.com/one", "example.com/one"]}});
    case.patch(PatchType::Merge, &path, twice).await;
    let labels = json!({"metadata": {"labels": {"still": "changes"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, labels).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    case.end("a_deleted_object_gets_no_new_finalizer");
}

pub(crate) async fn deletion_is_not_written_by_clients(server: &Server) {
    let (mut case, path, _) = Case::with(server, CONFIG_MAPS, config_map("a")).await;
    let stamp = json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}});
    case.patch(PatchType::Merge, &path, stamp).await;
    let held = json!({"metadata": {"finalizers": ["example.com/one"]}});
    case.patch(PatchType::Merge, &path, held).await;
    case.delete(&path).await;
    let undo = json!({"metadata": {"deletionTimestamp": null}});
    let undone = case.patch(PatchType::Merge, &path, undo).await;
    assert!(undone.code != 200 || !undone.text("/metadata/deletionTimestamp").is_empty(), "{undone:?}");
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("deletion_is_not_written_by_clients");
}

pub(crate) async fn preconditions_spare_a_namesake(server: &Server) {
    let (mut case, path, first) = Case::with(server, ATTACHMENTS, attachment("CASE-a")).await;
    case.delete(&path).await;
    let second = case.post(ATTACHMENTS, attachment("CASE-a")).await;
    let by_uid = json!({"preconditions": {"uid": first.uid()}});
    assert_eq!(case.delete_with(&path, by_uid).await.code, 409);
    let by_version = json!({"preconditions": {"resourceVersion": first.version()}});
    assert_eq!(case.delete_with(&path, by_version).await.code, 409);
    let mine = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": second.uid()}});
    assert_eq!(case.delete_with(&path, mine).await.code, 200);
    case.end("preconditions_spare_a_namesake");
}

pub(crate) async fn a_patch_by_uid_spares_a_namesake(server: &Server) {
    let (mut case, path, first) = Case::with(server, ATTACHMENTS, attachment("CASE-a")).await;
    case.delete(&path).await;
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    let merge = json!({"metadata": {"uid": first.uid(), "labels": {"a": "b"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, merge).await.code, 422);
    let status = json!({"metadata": {"uid": first.uid()}, "status": {"attached": true}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/status"), status).await.code, 422);
    let version = json!({"metadata": {"resourceVersion": first.version(), "labels": {"a": "b"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, version).await.code, 409);
    let test = json!([{"op": "test", "path": "/metadata/uid", "value": first.uid()},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/one"]}]);
    assert_eq!(case.patch(PatchType::Json, &path, test).await.code, 422);
    case.end("a_patch_by_uid_spares_a_namesake");
}

pub(crate) async fn a_collection_is_deleted_by_selector(server: &Server) {
    let mut case = Case::begin(server).await;
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        case.post(CONFIG_MAPS, super::objects::labelled(name, json!({"colour": colour}))).await;
    }
    assert_eq!(case.delete(&format!("{CONFIG_MAPS}?labelSelector=colour%3Dred")).await.code, 200);
    assert_eq!(case.get(&format!("{CONFIG_MAPS}?labelSelector=colour")).await.names(), ["b"]);
    case.end("a_collection_is_deleted_by_selector");
}

pub(crate) async fn a_deleted_claim_comes_back_and_a_map_does_not(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(case.delete(&format!("{CONFIG_MAPS}/a")).await.text("/status"), "Success");
    case.post(VOLUMES, volume("CASE-a")).await;
    case.delete(&format!("{VOLUMES}/CASE-a")).await;
    let background = json!({"propagationPolicy": "Background"});
    case.post(CONFIG_MAPS, config_map("b")).await;
    assert_eq!(case.delete_with(&format!("{CONFIG_MAPS}/b"), background).await.code, 200);
    case.post(CONFIG_MAPS, config_map("c")).await;
    let wrong = json!({"propagationPolicy": "Sideways"});
    assert_eq!(case.delete_with(&format!("{CONFIG_MAPS}/c"), wrong).await.code, 422);
    case.end("a_deleted_claim_comes_back_and_a_map_does_not");
}
