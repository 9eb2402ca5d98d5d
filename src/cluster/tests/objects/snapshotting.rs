//! What a snapshotter reads.

use kube::Resource as _;
use serde_json::{Value, json};

use super::keys;
use crate::cluster::objects::{
    BY_CLASS, BY_HANDLE, Cached, Fields, GroupMember, GroupSource, MemberList, Object, ObjectReference,
    VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshotClass, VolumeSnapshotContent,
};

fn read<K: Cached>(object: &Value) -> K {
    let mut object: K = serde_json::from_value(object.clone()).unwrap();
    object.trim("demo", Fields::NONE);
    object
}

fn content(driver: &str) -> Value {
    json!({
        "metadata": { "name": "snapcontent-1", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {
                "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes",
                "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
                "snapshot.storage.kubernetes.io/allow-volume-mode-change": "true", "other": "x" },
            "labels": { "snapshot.storage.kubernetes.io/managed-by": "node-1", "other": "x" } },
        "spec": { "driver": driver, "deletionPolicy": "Delete", "volumeSnapshotClassName": "fast",
            "sourceVolumeMode": "Block", "source": { "volumeHandle": "vol-1" },
            "volumeSnapshotRef": { "namespace": "shop", "name": "snap", "uid": "vs", "kind": "VolumeSnapshot" } },
        "status": { "snapshotHandle": "snap-1", "creationTime": 1_767_225_600_000_000_000_i64, "readyToUse": false,
            "restoreSize": 1_073_741_824, "volumeGroupSnapshotHandle": "group-1",
            "error": { "time": "2026-01-01T00:00:00Z", "message": "busy" } },
    })
}

#[test]
fn a_content_tells_what_was_asked_and_what_became_of_it() {
    let own: VolumeSnapshotContent = read(&content("demo"));
    assert_eq!((own.deletion_policy.as_str(), own.class_name.as_deref()), ("Delete", Some("fast")));
    assert_eq!((own.source_volume.as_deref(), own.source_snapshot.as_deref()), (Some("vol-1"), None));
    assert_eq!((own.snapshot_ref.uid.as_str(), own.source_volume_mode.as_deref()), ("vs", Some("Block")));
    assert_eq!(own.snapshot_handle.as_deref(), Some("snap-1"));
    let status = own.status.as_deref().unwrap();
    assert_eq!((status.creation_time, status.ready_to_use), (Some(1_767_225_600_000_000_000), Some(false)));
    assert_eq!((status.restore_size, status.volume_group_snapshot_handle.as_deref()), (Some(1 << 30), Some("group-1")));
    assert_eq!(status.error.as_ref().unwrap().message.as_deref(), Some("busy"));
    assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 3);
    let labels: Vec<_> = own.metadata.labels.as_ref().unwrap().values().map(String::as_str).collect();
    assert_eq!(labels, ["node-1"]);
    assert_eq!(keys(&own), [(BY_CLASS.0, "fast".into()), (BY_HANDLE.0, "snap-1".into())]);
}

#[test]
fn a_content_that_was_never_begun_has_no_status_and_one_that_was_there_before_its_handle() {
    let mut object = content("demo");
    object["status"] = json!(null);
    object["spec"]["source"] = json!({ "snapshotHandle": "old-1" });
    object["spec"]["volumeSnapshotClassName"] = json!(null);
    let own: VolumeSnapshotContent = read(&object);
    assert_eq!((own.status.as_deref(), own.snapshot_handle.as_deref()), (None, None));
    assert_eq!(keys(&own), [(BY_HANDLE.0, "old-1".into())]);
    object["status"] = json!({});
    assert!(read::<VolumeSnapshotContent>(&object).status.is_some(), "an empty status is one");
}

#[test]
fn of_a_foreign_content_its_name_and_its_driver_are_known() {
    let foreign: VolumeSnapshotContent = read(&content("other"));
    assert_eq!((foreign.driver.as_str(), &*foreign.metadata.uid), ("other", "u"));
    assert_eq!((foreign.snapshot_ref.clone(), foreign.status.clone()), (ObjectReference::default(), None));
    assert!(foreign.metadata.annotations.is_none() && foreign.metadata.finalizers.is_none());
    assert_eq!(keys(&foreign), []);
}

#[test]
fn a_foreign_class_is_known_to_be_foreign() {
    let class = |driver: &str| {
        json!({ "metadata": { "name": "fast" }, "driver": driver, "deletionPolicy": "Retain",
        "parameters": { "tier": "fast" } })
    };
    let own: VolumeSnapshotClass = read(&class("demo"));
    assert_eq!((own.driver.as_str(), own.parameters["tier"].as_str()), ("demo", "fast"));
    let foreign: VolumeSnapshotClass = read(&class("other"));
    assert_eq!((foreign.driver.as_str(), foreign.parameters.len()), ("other", 0));
}

fn group(driver: &str) -> Value {
    json!({
        "metadata": { "name": "groupsnapcontent-1", "uid": "u", "annotations": {
            "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created": "yes", "other": "x" } },
        "spec": { "driver": driver, "deletionPolicy": "Retain", "volumeGroupSnapshotClassName": "fast",
            "source": { "volumeHandles": ["v1", "v2"] },
            "volumeGroupSnapshotRef": { "namespace": "shop", "name": "group", "uid": "vgs" } },
        "status": { "volumeGroupSnapshotHandle": "g1", "creationTime": "2026-01-01T00:00:00Z", "readyToUse": true,
            "volumeSnapshotInfoList": [{ "volumeHandle": "v1", "snapshotHandle": "s1", "creationTime": 5, "readyToUse": true,
                "restoreSize": 7 }] },
    })
}

#[test]
fn a_group_tells_its_volumes_and_its_snapshots() {
    let own: VolumeGroupSnapshotContent = read(&group("demo"));
    assert_eq!((own.deletion_policy.as_str(), own.group_ref.uid.as_str()), ("Retain", "vgs"));
    assert_eq!(own.source, GroupSource::Volumes(vec!["v1".into(), "v2".into()]));
    let status = own.status.as_deref().unwrap();
    assert_eq!((status.volume_group_snapshot_handle.as_deref(), status.ready_to_use), (Some("g1"), Some(true)));
    assert!(status.creation_time.is_some() && status.error.is_none());
    let member = &status.members[0];
    assert_eq!((member.volume_handle.as_str(), member.snapshot_handle.as_str()), ("v1", "s1"));
    assert_eq!((member.creation_time, member.ready_to_use, member.restore_size), (Some(5), Some(true), Some(7)));
    assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 1);
    assert_eq!(keys(&own), [(BY_CLASS.0, "fast".into()), (BY_HANDLE.0, "g1".into())]);

    let mut there_before = group("demo");
    there_before["spec"]["source"] =
        json!({ "groupSnapshotHandles": { "volumeGroupSnapshotHandle": "g0", "volumeSnapshotHandles": ["s0"] } });
    there_before["status"] = json!({ "volumeSnapshotInfoList": null });
    let there_before: VolumeGroupSnapshotContent = read(&there_before);
    assert_eq!(there_before.source, GroupSource::Snapshots { group: "g0".into(), members: vec!["s0".into()] });
    assert!(there_before.status.unwrap().members.is_empty());
}

fn url<K: Object>() -> String {
    K::Kind::url_path(&(), None)
}

#[test]
fn the_oldest_version_of_a_group_lists_handles_alone() {
    let mut old = group("demo");
    old["apiVersion"] = json!("groupsnapshot.storage.k8s.io/v1beta1");
    old["status"] = json!({ "volumeSnapshotHandlePairList": [{ "volumeHandle": "v1", "snapshotHandle": "s1" }] });
    let old: VolumeGroupSnapshotContent = read(&old);
    let member = GroupMember { volume_handle: "v1".into(), snapshot_handle: "s1".into(), ..GroupMember::default() };
    assert_eq!((old.status.unwrap().members, old.member_list), (vec![member], MemberList::HandlePairs));
    for (version, list) in [("v1", MemberList::Infos), ("v1beta2", MemberList::Infos)] {
        let mut new = group("demo");
        new["apiVersion"] = json!(format!("groupsnapshot.storage.k8s.io/{version}"));
        assert_eq!(read::<VolumeGroupSnapshotContent>(&new).member_list, list);
    }
}

#[test]
fn a_group_is_the_same_by_any_version_and_a_foreign_one_is_known_to_be_foreign() {
    assert_eq!(VolumeGroupSnapshotContent::VERSIONS, ["v1", "v1beta2", "v1beta1"]);
    assert_eq!(VolumeGroupSnapshotClass::VERSIONS, VolumeGroupSnapshotContent::VERSIONS);
    let foreign: VolumeGroupSnapshotContent = read(&group("other"));
    assert_eq!(
        (foreign.driver.as_str(), &foreign.source, foreign.status.is_some()),
        ("other", &GroupSource::None, false)
    );
    let class = json!({ "metadata": { "name": "c" }, "driver": "other", "parameters": { "a": "b" } });
    assert!(read::<VolumeGroupSnapshotClass>(&class).parameters.is_empty());

    for (found, expected) in [
        (url::<VolumeGroupSnapshotContent>(), "v1/volumegroupsnapshotcontents"),
        (url::<VolumeGroupSnapshotClass>(), "v1/volumegroupsnapshotclasses"),
    ] {
        assert_eq!(found, format!("/apis/groupsnapshot.storage.k8s.io/{expected}"));
    }
}
