//! Contents and classes for the tests of the decisions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{Cached as _, Fields, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::roles::kit::fixtures::merged;
use crate::roles::snapshotter::names;

use super::kind::Content;
use super::request::{Asked, NameRule, Request, RequestRules};

pub(in crate::roles::snapshotter) const CLASSES: &str = <VolumeSnapshotContent as Content>::NAMES.classes;
pub(in crate::roles::snapshotter) const DRIVER: &str = "demo.csi.example.com";
pub(in crate::roles::snapshotter) const SNAPSHOT_UID: &str = "123e4567-e89b-12d3-a456-426614174000";
pub(in crate::roles::snapshotter) const FIN: &str = names::FINALIZER_BOUND_CONTENT;
pub(in crate::roles::snapshotter) const MARK: &str = names::ANNOTATION_SNAPSHOT_BEING_CREATED;
pub(in crate::roles::snapshotter) const BDEL: &str = names::ANNOTATION_SNAPSHOT_BEING_DELETED;
pub(in crate::roles::snapshotter) const INTENT: &str = names::ANNOTATION_SNAPSHOTTING;

/// A content of volume vol-1 that has its finalizer and was not begun, changed by `patch`.
pub(in crate::roles::snapshotter) fn content_value(patch: Value) -> Value {
    let base = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "content-1", "uid": "content-uid", "resourceVersion": "7", "finalizers": [FIN],
            "annotations": {} },
        "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "volumeSnapshotClassName": "fast",
            "source": { "volumeHandle": "vol-1" },
            "volumeSnapshotRef": { "namespace": "shop", "name": "snap", "uid": SNAPSHOT_UID } },
    });
    merged(base, patch)
}

/// The same as a cache holds it.
pub(in crate::roles::snapshotter) fn content(patch: Value) -> VolumeSnapshotContent {
    of(content_value(patch))
}

fn of(value: Value) -> VolumeSnapshotContent {
    let mut content: VolumeSnapshotContent = serde_json::from_value(value).unwrap();
    content.trim(DRIVER, Fields::NONE);
    content
}

/// The same, cut and not ready.
pub(in crate::roles::snapshotter) fn cut(patch: Value) -> VolumeSnapshotContent {
    of(merged(content_value(cut_status()), patch))
}

fn cut_status() -> Value {
    json!({ "status": { "snapshotHandle": "snap-1", "creationTime": 5, "restoreSize": 7, "readyToUse": false } })
}

/// The same, ready.
pub(in crate::roles::snapshotter) fn ready(patch: Value) -> VolumeSnapshotContent {
    of(merged(merged(content_value(cut_status()), json!({ "status": { "readyToUse": true } })), patch))
}

/// A content that was begun, and has no answer.
pub(in crate::roles::snapshotter) fn marked(patch: Value) -> VolumeSnapshotContent {
    let annotations = json!({ MARK: "yes", INTENT: asked().intent });
    content(merged(json!({ "metadata": { "annotations": annotations } }), patch))
}

/// A content of a snapshot that was there before it.
pub(in crate::roles::snapshotter) fn given(patch: Value) -> VolumeSnapshotContent {
    let source = json!({ "volumeHandle": null, "snapshotHandle": "old-1" });
    content(merged(json!({ "spec": { "source": source } }), patch))
}

/// Our class "fast", changed by `patch`.
pub(in crate::roles::snapshotter) fn class(patch: Value) -> VolumeSnapshotClass {
    let base = json!({ "metadata": { "name": "fast", "uid": "class-uid" }, "driver": DRIVER,
        "deletionPolicy": "Delete", "parameters": { "tier": "1" } });
    let mut class: VolumeSnapshotClass = serde_json::from_value(merged(base, patch)).unwrap();
    class.trim(DRIVER, Fields::NONE);
    class
}

pub(in crate::roles::snapshotter) fn request_rules() -> RequestRules {
    let names = NameRule { prefix: "snapshot".into(), uuid_length: None };
    RequestRules { driver: DRIVER.into(), names, extra_metadata: false }
}

/// What is asked for [`content`] with [`class`].
pub(in crate::roles::snapshotter) fn asked() -> Asked {
    let name = format!("snapshot-{SNAPSHOT_UID}");
    let parameters = BTreeMap::from([("tier".to_owned(), "1".to_owned())]);
    let class = super::intent::IntentClass { name: "fast".into(), uid: "class-uid".into() };
    let volumes = ["vol-1".to_owned()];
    let intent = super::intent::Intent::new("content-uid", DRIVER, &name, &volumes, &parameters, Some(class)).to_text();
    let request = Request { name, sources: vec!["vol-1".into()], parameters };
    Asked { request, intent, is_as_recorded: true, is_inherited: false }
}
