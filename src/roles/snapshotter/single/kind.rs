//! Contents of independent snapshots, and of the members of groups. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{ObjectReference, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::roles::snapshotter::content::record::kind::{Names, Said};
use crate::roles::snapshotter::content::record::{Class, Content, Found};
use crate::roles::snapshotter::names;

impl Content for VolumeSnapshotContent {
    type Class = VolumeSnapshotClass;

    const NAMES: Names = Names {
        finalizer: names::FINALIZER_BOUND_CONTENT,
        mark: names::ANNOTATION_SNAPSHOT_BEING_CREATED,
        lost: names::ANNOTATION_SNAPSHOT_BEING_DELETED,
        secret: (names::ANNOTATION_SNAPSHOT_SECRET_NAME, names::ANNOTATION_SNAPSHOT_SECRET_NAMESPACE),
        handle: "snapshotHandle",
        owner: "VolumeSnapshot",
        group: names::SNAPSHOTS,
        is_group: false,
        word: "snapshot",
        looked_up: "content",
        classes: "volumesnapshotclass.snapshot.storage.k8s.io",
        reason: "Snapshot",
        metadata: [
            "csi.storage.k8s.io/volumesnapshot/name",
            "csi.storage.k8s.io/volumesnapshot/namespace",
            "csi.storage.k8s.io/volumesnapshotcontent/name",
        ],
        call: "CreateSnapshot",
        name_length: "snapshotNameUuidLength",
        capability: "CREATE_DELETE_SNAPSHOT",
        operations: ["create", "ready", "delete"],
    };
    const IS_ASKED_BY_ID: bool = false;

    fn driver(&self) -> &str {
        &self.driver
    }

    fn owner(&self) -> &ObjectReference {
        &self.snapshot_ref
    }

    fn policy(&self) -> &str {
        &self.deletion_policy
    }

    fn class_name(&self) -> Option<&str> {
        self.class_name.as_deref()
    }

    fn sources(&self) -> &[String] {
        self.source_volume.as_slice()
    }

    fn given_handle(&self) -> Option<&str> {
        self.source_snapshot.as_deref()
    }

    fn stored_handle(&self) -> Option<&str> {
        self.snapshot_handle.as_deref()
    }

    fn said(&self) -> Option<Said<'_>> {
        let status = self.status.as_deref()?;
        Some(Said { ready: status.ready_to_use, error: status.error.as_ref() })
    }

    fn is_member(&self) -> bool {
        self.metadata.annotation(names::ANNOTATION_GROUP_HANDLE).is_some()
    }

    fn group_handle(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
    }

    fn learnt(&self, found: &Found) -> Vec<(&'static str, Value)> {
        let status = self.status.as_deref();
        let mut learnt = Vec::new();
        if status.is_none_or(|status| status.creation_time.is_none()) {
            learnt.push(("creationTime", json!(found.creation_time)));
        }
        let size = found.restore_size.filter(|_| status.is_none_or(|status| status.restore_size.is_none()));
        learnt.extend(size.map(|size| ("restoreSize", json!(size))));
        let is_unknown = status.is_none_or(|status| status.volume_group_snapshot_handle.is_none());
        let group = found.group.as_ref().filter(|_| is_unknown);
        learnt.extend(group.map(|group| ("volumeGroupSnapshotHandle", json!(group))));
        learnt
    }

    fn perishable(&self) -> Vec<&'static str> {
        let Some(status) = self.status.as_deref() else { return Vec::new() };
        let time = status.creation_time.map(|_| "creationTime");
        time.into_iter().chain(status.restore_size.map(|_| "restoreSize")).collect()
    }
}

impl Class for VolumeSnapshotClass {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }
}
