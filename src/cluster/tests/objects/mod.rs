//! What is kept of an object, and what it costs.

mod attach_detach;
mod migrating;
mod provisioning;
mod resizing;
mod snapshotting;

use std::mem::size_of;

use base::InTree;
use serde_json::{Value, json};

use crate::cluster::objects::{
    BY_NODE, BY_VOLUME, Cached, CsiNode, CsiSource, CsiStorageCapacity, Fields, Node, PersistentVolume,
    PersistentVolumeClaim, StorageClass, VolumeAttachment, VolumeAttachmentStatus, VolumeSnapshot, VolumeSpec,
};

fn full_meta(name: &str) -> Value {
    json!({
        "name": name, "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3,
        "labels": { "a": "b" }, "finalizers": ["external-attacher/demo"],
        "annotations": { "csi.alpha.kubernetes.io/node-id": "i-1", "pv.kubernetes.io/migrated-to": "demo", "other": "x" },
        "managedFields": [{ "manager": "kubectl", "operation": "Update" }],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o" }],
    })
}

fn attachment(attacher: &str) -> VolumeAttachment {
    let mut object: VolumeAttachment = serde_json::from_value(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": full_meta("va"),
        "spec": { "attacher": attacher, "nodeName": "node-1", "source": { "persistentVolumeName": "pv-1" } },
        "status": { "attached": true, "attachmentMetadata": { "lun": "1" },
            "detachError": { "message": "busy", "time": "2026-01-01T00:00:00Z", "errorCode": 8 } },
    }))
    .unwrap();
    object.trim("demo", Fields::NONE);
    object
}

fn volume(spec: &Value) -> PersistentVolume {
    let mut object: PersistentVolume =
        serde_json::from_value(json!({ "metadata": full_meta("pv"), "spec": spec })).unwrap();
    object.trim("demo", Fields::NONE);
    object
}

fn keys(object: &impl Cached) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    object.index(&mut |index, value| keys.push((index.0, value.to_owned())));
    keys
}

#[test]
fn our_attachment_keeps_what_a_role_reads_and_nothing_else() {
    let own = attachment("demo");
    let meta = &own.metadata;
    assert!(meta.labels.is_none() && meta.owner_references.is_none());
    let annotations = meta.annotations.as_ref().unwrap();
    assert_eq!(annotations.iter().collect::<Vec<_>>(), [("csi.alpha.kubernetes.io/node-id", "i-1")]);
    assert_eq!(meta.finalizers.as_deref(), Some(&["external-attacher/demo".into()][..]));
    let error = own.status.detach_error.as_ref().unwrap();
    assert_eq!((error.message.as_deref(), error.error_code), (Some("busy"), Some(8)));
    assert_eq!(keys(&own), [(BY_VOLUME.0, "pv-1".into()), (BY_NODE.0, "node-1".into())]);
}

#[test]
fn a_foreign_attachment_still_holds_its_volume_but_little_else() {
    let foreign = attachment("other");
    assert_eq!(&*foreign.metadata.uid, "u1");
    assert_eq!(foreign.metadata.resource_version.as_deref(), Some("7"));
    assert!(foreign.metadata.annotations.is_none() && foreign.metadata.finalizers.is_none());
    assert_eq!(foreign.status, VolumeAttachmentStatus::default());
    assert_eq!(keys(&foreign), [(BY_VOLUME.0, "pv-1".into())]);
}

#[test]
fn an_annotation_map_of_others_stays_as_an_empty_one_so_that_patches_know_of_it() {
    let mut object: VolumeAttachment = serde_json::from_value(json!({
        "metadata": { "name": "va", "annotations": { "other": "x" } }, "spec": { "attacher": "demo", "nodeName": "n", "source": {} },
    }))
    .unwrap();
    object.trim("demo", Fields::NONE);
    assert!(object.metadata.annotations.is_some_and(|held| held.is_empty()));
}

#[test]
fn our_volume_keeps_what_publishing_needs() {
    let own = volume(&json!({
        "csi": { "driver": "demo", "volumeHandle": "vol-1", "readOnly": true, "fsType": "xfs", "volumeAttributes": { "tier": "fast" },
            "controllerPublishSecretRef": { "name": "s", "namespace": "ns" }, "nodeStageSecretRef": { "name": "x" } },
        "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"], "volumeMode": "Block", "capacity": { "storage": "1Gi" },
        "claimRef": { "namespace": "shop", "name": "data", "uid": "c1", "kind": "PersistentVolumeClaim" },
    }));
    let csi = own.spec.csi.as_deref().unwrap();
    assert_eq!((csi.volume_handle.as_str(), csi.read_only, csi.fs_type.as_deref()), ("vol-1", true, Some("xfs")));
    assert_eq!(
        csi.controller_publish_secret_ref.as_deref().map(|s| (s.name.as_str(), s.namespace.as_str())),
        Some(("s", "ns"))
    );
    assert_eq!(own.spec.claim_ref.as_deref().map(|claim| claim.name.as_str()), Some("data"));
    assert_eq!((own.spec.volume_mode.as_deref(), own.spec.in_tree), (Some("Block"), None));
}

#[test]
fn a_foreign_volume_is_known_to_be_foreign_and_cannot_be_published_by_mistake() {
    let foreign = volume(&json!({
        "csi": { "driver": "other", "volumeHandle": "vol-1", "volumeAttributes": { "a": "b" } }, "accessModes": ["ReadWriteOnce"],
    }));
    assert_eq!(foreign.spec, VolumeSpec { foreign_driver: Some("other".into()), ..VolumeSpec::default() });
    assert!(foreign.metadata.finalizers.is_some(), "our finalizer may be on it and must be releasable");
}

#[test]
fn in_tree_sources_are_told_apart() {
    for (key, kind) in [
        ("gcePersistentDisk", InTree::GcePersistentDisk),
        ("awsElasticBlockStore", InTree::AwsElasticBlockStore),
        ("azureDisk", InTree::AzureDisk),
        ("azureFile", InTree::AzureFile),
        ("cinder", InTree::Cinder),
        ("vsphereVolume", InTree::VsphereVolume),
        ("portworxVolume", InTree::PortworxVolume),
    ] {
        let object = volume(&json!({ key: { "anything": [1, { "goes": true }] }, "accessModes": ["ReadWriteOnce"] }));
        assert_eq!(object.spec.in_tree, Some(kind), "{key}");
    }
    assert_eq!(volume(&json!({ "nfs": { "server": "s" } })).spec.in_tree, None);
}

#[test]
fn an_inline_volume_is_read_like_any_other() {
    let mut object: VolumeAttachment = serde_json::from_value(json!({
        "metadata": { "name": "va" },
        "spec": { "attacher": "demo", "nodeName": "n", "source": { "inlineVolumeSpec": {
            "csi": { "driver": "demo", "volumeHandle": "vol-1" }, "accessModes": ["ReadWriteOnce"] } } },
    }))
    .unwrap();
    object.trim("demo", Fields::NONE);
    let spec = object.spec.source.inline_volume_spec.unwrap();
    assert_eq!(spec.csi.map(|csi| csi.volume_handle), Some("vol-1".into()));
}

#[test]
fn r16_a_node_tells_our_id_or_that_we_are_not_on_it() {
    let mut node: CsiNode = serde_json::from_value(json!({
        "metadata": full_meta("node-1"),
        "spec": { "drivers": [{ "name": "other", "nodeID": "o-1", "topologyKeys": ["z"] }, { "name": "demo", "nodeID": "i-1" }] },
    }))
    .unwrap();
    node.trim("demo", Fields::NONE);
    assert_eq!((node.node_id("demo"), node.node_id("other"), node.spec.drivers.len()), (Some("i-1"), None, 1));
    assert!(node.metadata.annotations.is_none());
}

/// Bytes on a 64-bit machine, without what is behind pointers. A field of a role that is not always hosted goes behind the
/// pointer of its group, so that the objects of the others' daemons do not grow.
#[test]
fn the_slim_types_stay_slim() {
    use k8s_openapi::api::{core::v1 as core, storage::v1 as storage};
    let sizes = [
        ("VolumeAttachment", size_of::<VolumeAttachment>(), 328),
        ("PersistentVolume", size_of::<PersistentVolume>(), 424),
        ("a volume's source", size_of::<CsiSource>(), 120),
        ("PersistentVolumeClaim", size_of::<PersistentVolumeClaim>(), 392),
        ("StorageClass", size_of::<StorageClass>(), 336),
        ("CSINode", size_of::<CsiNode>(), 216),
        ("Node", size_of::<Node>(), 192),
        ("CSIStorageCapacity", size_of::<CsiStorageCapacity>(), 304),
        ("VolumeSnapshot", size_of::<VolumeSnapshot>(), 248),
    ];
    let grown: Vec<_> = sizes.into_iter().filter(|(_, size, most)| size > most).collect();
    assert!(grown.is_empty(), "the kind, its size, and the most that it may have: {grown:?}");
    assert!(size_of::<VolumeAttachment>() * 2 < size_of::<storage::VolumeAttachment>());
    assert!(size_of::<PersistentVolume>() * 2 < size_of::<core::PersistentVolume>());
}

#[test]
fn a_status_is_written_back_as_the_api_spells_it() {
    let status = serde_json::to_value(attachment("demo").status).unwrap();
    assert_eq!(
        status,
        json!({ "attached": true, "attachmentMetadata": { "lun": "1" },
            "detachError": { "message": "busy", "time": "2026-01-01T00:00:00Z", "errorCode": 8 } })
    );
}

#[test]
fn null_is_an_empty_list_as_go_writes_it() {
    let node: CsiNode =
        serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": { "drivers": null } })).unwrap();
    assert_eq!(node.spec.drivers, []);
    let spec = json!({ "accessModes": null, "mountOptions": null, "csi": { "driver": "demo", "volumeHandle": "v",
        "volumeAttributes": null, "readOnly": null } });
    assert!(volume(&spec).spec.access_modes.is_empty());
    let bare = json!({ "metadata": { "name": "a" }, "spec": { "attacher": "demo", "source": null }, "status": null });
    let bare: VolumeAttachment = serde_json::from_value(bare).unwrap();
    assert_eq!(bare.status, VolumeAttachmentStatus::default());
}
