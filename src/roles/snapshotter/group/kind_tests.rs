use super::super::fixtures::{content, cut, given, member};
use super::*;
use crate::cluster::Patch;
use crate::roles::snapshotter::content::record::status::{cleared, failed, filled};

fn operations(patch: Option<Patch>) -> Vec<Value> {
    match patch {
        Some(Patch::Json(operations)) => operations,
        patch => panic!("{patch:?}"),
    }
}

fn found() -> Found {
    let members = vec![member("vol-1", "snap-1", false), member("vol-2", "snap-2", false)];
    Found { handle: "group-1".into(), creation_time: 1_500_000_000, members, ..Found::default() }
}

#[test]
fn s22_an_answer_is_the_whole_status_at_first() {
    let operations = operations(filled(&content(json!({})), &found()));
    assert_eq!(operations[0], json!({ "op": "test", "path": "/metadata/uid", "value": "content-uid" }));
    assert_eq!(operations[1], json!({ "op": "test", "path": "/status", "value": null }));
    let status = &operations[2]["value"];
    assert_eq!(status["volumeGroupSnapshotHandle"], "group-1");
    assert_eq!(status["creationTime"], "1970-01-01T00:00:01Z", "RFC 3339");
    assert_eq!(status["readyToUse"], false);
    let first = json!({ "volumeHandle": "vol-1", "snapshotHandle": "snap-1", "creationTime": 5, "readyToUse": false,
        "restoreSize": 7 });
    assert_eq!((&status["volumeSnapshotInfoList"][0], operations.len()), (&first, 3));
    let bare = GroupMember { creation_time: None, restore_size: None, ..member("v", "s", true) };
    assert_eq!(to_json(&bare), json!({ "volumeHandle": "v", "snapshotHandle": "s", "readyToUse": true }));
}

#[test]
fn s22_the_oldest_version_is_told_the_handles_alone() {
    let old = json!({ "apiVersion": "groupsnapshot.storage.k8s.io/v1beta1" });
    let all = operations(filled(&content(old.clone()), &found()));
    let pair =
        |number: u8| json!({ "volumeHandle": format!("vol-{number}"), "snapshotHandle": format!("snap-{number}") });
    let status = &all[2]["value"];
    assert_eq!(status["volumeSnapshotHandlePairList"], json!([pair(1), pair(2)]));
    assert_eq!(status.get("volumeSnapshotInfoList"), None);
    let mut stored = old;
    stored["status"] = status.clone();
    let stored = content(stored);
    assert_eq!((filled(&stored, &found()), stored.members()), (None, vec!["snap-1".into(), "snap-2".into()]));
}

#[test]
fn s51_members_are_refreshed_while_the_group_is_not_ready() {
    let looked_up = |members: Vec<GroupMember>, is_ready| {
        let found = Found { is_ready, members, ..found() };
        filled(&cut(json!({})), &found)
    };
    let stored = || vec![member("vol-1", "snap-1", false), member("vol-2", "snap-2", false)];
    assert_eq!(looked_up(stored(), false), None, "an idle look costs no write");
    assert_eq!(looked_up(Vec::new(), false), None, "an answer without members takes none away");
    let one_is_ready = vec![member("vol-2", "snap-2", true), member("vol-1", "snap-1", false)];
    let spelled = vec![member("vol-2", "SNAP-2", true), member("vol-1", "snap-1", false)];
    assert_eq!(looked_up(spelled, false), looked_up(one_is_ready.clone(), false), "the id stays as it was stored");
    let operations = operations(looked_up(one_is_ready, false));
    assert_eq!(operations.len(), 2);
    let list = operations[1]["value"].as_array().unwrap();
    assert_eq!((&operations[1]["path"], list.len()), (&json!("/status/volumeSnapshotInfoList"), 2));
    assert_eq!((&list[0]["readyToUse"], &list[1]["readyToUse"]), (&json!(false), &json!(true)));
}

#[test]
fn the_members_of_a_given_group_are_not_listed() {
    let operations = operations(filled(&given(json!({})), &Found { is_ready: true, ..found() }));
    assert_eq!(operations[2]["value"].get("volumeSnapshotInfoList"), None);
}

#[test]
fn s25_a_failure_takes_nothing_away_and_a_deletion_leaves_the_members() {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let told = operations(failed(&cut(json!({})), "no", now));
    assert_eq!((told.len(), &told[1]["path"]), (2, &json!("/status/error")), "it is not ready already");
    let failing = cut(json!({ "status": { "error": { "message": "no" } } }));
    let paths: Vec<Value> = operations(cleared(&failing)).iter().map(|it| it["path"].clone()).collect();
    let expected = [
        "/metadata/uid",
        "/status/volumeGroupSnapshotHandle",
        "/status/volumeGroupSnapshotHandle",
        "/status/readyToUse",
        "/status/creationTime",
        "/status/error",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn s26_the_ids_of_a_deletion_are_those_of_the_status_else_those_of_the_spec_else_none() {
    assert_eq!(cut(json!({})).members(), ["snap-1", "snap-2"]);
    assert_eq!(given(json!({})).members(), ["old-1", "old-2"]);
    assert!(content(json!({})).members().is_empty());
    let empty = cut(json!({ "status": { "volumeSnapshotInfoList": null } }));
    assert!(empty.members().is_empty());
}
