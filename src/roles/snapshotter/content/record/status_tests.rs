use super::super::fixtures::{content, cut, ready};
use super::*;

fn found() -> Found {
    Found { handle: "snap-1".into(), creation_time: 5, restore_size: Some(7), is_ready: true, ..Found::default() }
}

fn operations(patch: Option<Patch>) -> Value {
    patch.map_or(Value::Null, |patch| serde_json::to_value(patch).unwrap())
}

fn uid() -> Value {
    json!({ "op": "test", "path": "/metadata/uid", "value": "content-uid" })
}

fn at() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

#[test]
fn p2_of_a_content_without_a_status_puts_all_of_it_there() {
    assert_eq!(
        operations(filled(&content(json!({})), &found())),
        json!([
            uid(),
            { "op": "test", "path": "/status", "value": null },
            { "op": "add", "path": "/status", "value":
                { "snapshotHandle": "snap-1", "creationTime": 5, "readyToUse": true, "restoreSize": 7 } },
        ])
    );
}

#[test]
fn s53_p2_adds_what_is_missing_and_never_overwrites_a_handle() {
    let failed = content(json!({ "status": { "readyToUse": false, "error": { "message": "no" } } }));
    assert_eq!(
        operations(filled(&failed, &Found { is_ready: false, restore_size: None, ..found() })),
        json!([
            uid(),
            { "op": "test", "path": "/status/snapshotHandle", "value": null },
            { "op": "add", "path": "/status/snapshotHandle", "value": "snap-1" },
            { "op": "add", "path": "/status/creationTime", "value": 5 },
            { "op": "remove", "path": "/status/error" },
        ])
    );
    assert_eq!(
        operations(filled(&cut(json!({})), &found())),
        json!([uid(), { "op": "add", "path": "/status/readyToUse", "value": true }]),
        "time and size never change once set"
    );
    assert_eq!(filled(&ready(json!({})), &found()), None, "nothing to change is no request");
    let grouped = filled(&cut(json!({})), &Found { is_ready: false, group: Some("g".into()), ..found() });
    assert_eq!(
        operations(grouped),
        json!([uid(), { "op": "add", "path": "/status/volumeGroupSnapshotHandle", "value": "g" }])
    );
}

#[test]
fn s19_s32_a_failure_is_written_once_for_each_text() {
    let error = json!({ "message": "no room", "time": "2026-01-02T03:04:05Z" });
    assert_eq!(
        operations(failed(&content(json!({})), "no room", at())),
        json!([
            uid(),
            { "op": "test", "path": "/status", "value": null },
            { "op": "add", "path": "/status", "value": { "readyToUse": false, "error": error } },
        ])
    );
    assert_eq!(
        operations(failed(&cut(json!({ "status": { "readyToUse": null } })), "no room", at())),
        json!([
            uid(),
            { "op": "add", "path": "/status/error", "value": error },
            { "op": "add", "path": "/status/readyToUse", "value": false },
        ])
    );
    let odd = content(json!({ "status": { "readyToUse": false, "error": { "message": null } } }));
    assert!(failed(&odd, "no room", at()).is_some(), "a null message is none");
}

#[test]
fn s46_s47_a_new_id_is_no_news_and_an_answer_clears_the_error() {
    let told = content(json!({ "status": { "readyToUse": false, "error": { "message": "no room: 0a1b2c3d4e" } } }));
    assert_eq!(failed(&told, "no room: ffffffff01", at()), None);
    assert!(failed(&told, "denied: 0a1b2c3d4e", at()).is_some());
    let answered = filled(&told, &Found { is_ready: false, ..found() });
    let cleared = json!({ "op": "remove", "path": "/status/error" });
    assert!(operations(answered).as_array().unwrap().contains(&cleared), "also if the snapshot is not ready");
}

#[test]
fn a_long_message_is_cut() {
    let patch = operations(failed(&content(json!({})), &"x".repeat(5000), at()));
    assert_eq!(patch[2]["value"]["error"]["message"].as_str().unwrap().len(), MESSAGE_LIMIT);
}

#[test]
fn p5_removes_what_offers_the_deleted_snapshot_and_leaves_the_error() {
    let failing = json!({ "status": { "restoreSize": null, "error": { "message": "no" } } });
    assert_eq!(
        operations(cleared(&ready(failing))),
        json!([
            uid(),
            { "op": "test", "path": "/status/snapshotHandle", "value": "snap-1" },
            { "op": "remove", "path": "/status/snapshotHandle" },
            { "op": "remove", "path": "/status/readyToUse" },
            { "op": "remove", "path": "/status/creationTime" },
        ])
    );
    assert_eq!(cleared(&content(json!({}))), None);
    let kept = json!({ "metadata": { "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection", "other"] } });
    assert!(must_clear(&ready(kept)) && !must_clear(&ready(json!({}))), "with the last finalizer the object goes");
}
