//! The status is written through its own path, and only through it.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, VOLUMES, attachment, volume, with};

pub(crate) async fn a_write_to_the_object_leaves_its_status(server: &Server) {
    let (mut case, path, made) =
        Case::with(server, ATTACHMENTS, with(attachment("CASE-a"), "", "status", json!({"attached": true}))).await;
    assert_eq!(made.body["status"], json!({"attached": false}));
    let merge = json!({"status": {"attached": true}, "metadata": {"labels": {"a": "b"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, merge).await.body["status"], json!({"attached": false}));
    assert_eq!(case.get(&format!("{path}/status")).await.code, 200);
    case.end("a_write_to_the_object_leaves_its_status");
}

pub(crate) async fn a_write_to_the_status_leaves_the_rest(server: &Server) {
    let (mut case, path, _) =
        Case::with(server, ATTACHMENTS, with(attachment("CASE-a"), "/metadata", "labels", json!({"a": "b"}))).await;
    let write = json!({"metadata": {"labels": {"a": "c"}, "annotations": {"x": "y"}, "finalizers": ["example.com/one"]},
        "spec": {"nodeName": "elsewhere"},
        "status": {"attached": true, "attachmentMetadata": {"device": "/dev/sdb"}}});
    let written = case.patch(PatchType::Merge, &format!("{path}/status"), write).await;
    assert_eq!((written.code, written.text("/spec/nodeName")), (200, "node-1"));
    assert_eq!(written.body["status"]["attached"], Value::Bool(true));
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    case.end("a_write_to_the_status_leaves_the_rest");
}

pub(crate) async fn a_volumes_phase_is_its_status(server: &Server) {
    let (mut case, path, _) = Case::with(server, VOLUMES, volume("CASE-a")).await;
    case.patch(PatchType::Merge, &path, json!({"status": {"phase": "Bound"}})).await;
    let bound = case.patch(PatchType::Merge, &format!("{path}/status"), json!({"status": {"phase": "Bound"}})).await;
    assert_eq!(bound.text("/status/phase"), "Bound");
    case.end("a_volumes_phase_is_its_status");
}

/// The real server refuses beyond 1024 bytes, and says another limit: clients cut at 1024.
pub(crate) async fn an_error_message_is_at_most_1024_bytes(server: &Server) {
    let (mut case, path, _) = Case::with(server, ATTACHMENTS, attachment("CASE-a")).await;
    let failure = |kind: &str, message: String| json!({"status": {"attached": false, kind: {"time": "2026-01-01T00:00:00Z", "message": message}}});
    let status = format!("{path}/status");
    for kind in ["attachError", "detachError"] {
        assert_eq!(case.patch(PatchType::Merge, &status, failure(kind, "x".repeat(1024))).await.code, 200);
        assert_eq!(case.patch(PatchType::Merge, &status, failure(kind, "x".repeat(1025))).await.code, 422);
    }
    // Bytes, not characters.
    assert_eq!(case.patch(PatchType::Merge, &status, failure("attachError", "é".repeat(513))).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &status, failure("attachError", "é".repeat(512))).await.code, 200);
    case.end("an_error_message_is_at_most_1024_bytes");
}

pub(crate) async fn an_error_has_a_code_and_a_time(server: &Server) {
    let (mut case, path, _) = Case::with(server, ATTACHMENTS, attachment("CASE-a")).await;
    let status = format!("{path}/status");
    let error = |code: i64| json!({"status": {"attachError": {"message": "no", "time": "2026-01-01T00:00:00Z", "errorCode": code}}});
    assert_eq!(case.patch(PatchType::Merge, &status, error(8)).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &status, error(-1)).await.code, 422);
    // A client that writes a status without `attached` gets no error, and false.
    case.patch(PatchType::Merge, &status, json!({"status": null})).await;
    case.patch(PatchType::Merge, &status, json!({"status": {"attached": "yes"}})).await;
    case.patch(PatchType::Merge, &status, json!({"status": {"attachError": {"time": "yesterday"}}})).await;
    case.end("an_error_has_a_code_and_a_time");
}

pub(crate) async fn what_is_being_deleted_still_gets_its_status(server: &Server) {
    let (mut case, path, _) = Case::with(
        server,
        ATTACHMENTS,
        with(attachment("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"])),
    )
    .await;
    case.delete(&path).await;
    let detached =
        json!({"status": {"attached": false, "detachError": {"message": "busy", "time": "2026-01-01T00:00:00Z"}}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/status"), detached).await.code, 200);
    case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(
        case.patch(PatchType::Merge, &format!("{path}/status"), json!({"status": {"attached": true}})).await.code,
        404
    );
    case.end("what_is_being_deleted_still_gets_its_status");
}
