//! Contents of groups, and their classes, for the tests.

use serde_json::{Value, json};

use crate::cluster::{Cached as _, Fields, GroupMember, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent};
use crate::roles::kit::fixtures::merged;
use crate::roles::snapshotter::content::policy::Rules;
use crate::roles::snapshotter::content::record::{Asked, ClassView, Content, NameRule, RequestRules, request::plan};
use crate::roles::snapshotter::names::ANNOTATION_SNAPSHOTTING;

pub(super) const DRIVER: &str = "demo.csi.example.com";
pub(super) const GROUP_UID: &str = "123e4567-e89b-12d3-a456-426614174000";
pub(super) const FIN: &str = VolumeGroupSnapshotContent::NAMES.finalizer;
pub(super) const MARK: &str = VolumeGroupSnapshotContent::NAMES.mark;
pub(super) const BDEL: &str = VolumeGroupSnapshotContent::NAMES.lost;
pub(super) const INTENT: &str = ANNOTATION_SNAPSHOTTING;

/// A content of volumes vol-2 and vol-1 that has its finalizer and was not begun, changed by `patch`.
pub(super) fn content(patch: Value) -> VolumeGroupSnapshotContent {
    let base = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotContent",
        "metadata": { "name": "content-1", "uid": "content-uid", "resourceVersion": "7", "finalizers": [FIN],
            "annotations": {} },
        "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "volumeGroupSnapshotClassName": "fast",
            "source": { "volumeHandles": ["vol-2", "vol-1"] },
            "volumeGroupSnapshotRef": { "namespace": "shop", "name": "all", "uid": GROUP_UID } },
    });
    let mut content: VolumeGroupSnapshotContent = serde_json::from_value(merged(base, patch)).unwrap();
    content.trim(DRIVER, Fields::NONE);
    content
}

/// The same, cut and not ready.
pub(super) fn cut(patch: Value) -> VolumeGroupSnapshotContent {
    let member = |volume: &str, snapshot: &str| {
        json!({ "volumeHandle": volume, "snapshotHandle": snapshot, "creationTime": 5, "readyToUse": false,
            "restoreSize": 7 })
    };
    let status = json!({ "volumeGroupSnapshotHandle": "group-1", "creationTime": "1970-01-01T00:00:01Z",
        "readyToUse": false, "volumeSnapshotInfoList": [member("vol-1", "snap-1"), member("vol-2", "snap-2")] });
    content(merged(json!({ "status": status }), patch))
}

/// A content that was begun, and has no answer.
pub(super) fn marked(patch: Value) -> VolumeGroupSnapshotContent {
    let annotations = json!({ MARK: "yes", INTENT: asked().intent });
    content(merged(json!({ "metadata": { "annotations": annotations } }), patch))
}

/// A content of a group that was there before it.
pub(super) fn given(patch: Value) -> VolumeGroupSnapshotContent {
    let handles = json!({ "volumeGroupSnapshotHandle": "old", "volumeSnapshotHandles": ["old-1", "old-2"] });
    let source = json!({ "volumeHandles": null, "groupSnapshotHandles": handles });
    content(merged(json!({ "spec": { "source": source } }), patch))
}

/// Our class "fast", changed by `patch`.
pub(super) fn class(patch: Value) -> VolumeGroupSnapshotClass {
    let base = json!({ "metadata": { "name": "fast", "uid": "class-uid" }, "driver": DRIVER,
        "deletionPolicy": "Delete", "parameters": { "tier": "1" } });
    serde_json::from_value(merged(base, patch)).unwrap()
}

/// A snapshot of a group.
pub(super) fn member(volume: &str, snapshot: &str, is_ready: bool) -> GroupMember {
    GroupMember {
        volume_handle: volume.into(),
        snapshot_handle: snapshot.into(),
        creation_time: Some(5),
        ready_to_use: Some(is_ready),
        restore_size: Some(7),
    }
}

pub(super) fn rules() -> Rules {
    let names = NameRule { prefix: "groupsnapshot".into(), uuid_length: None };
    Rules {
        request: RequestRules { driver: DRIVER.into(), names, extra_metadata: false },
        node: None,
        takes: true,
        lists: false,
        gets: false,
        groups: true,
        secret_namespaces: Vec::new(),
        delete_without_secret: false,
    }
}

/// What is asked for [`content`] with [`class`].
pub(super) fn asked() -> Asked {
    plan(&content(json!({})), ClassView::Ours(&class(json!({}))), &rules().request).unwrap()
}
