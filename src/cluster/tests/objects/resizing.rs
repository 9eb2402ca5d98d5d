//! What a resizer reads, and that it costs nothing where there is no resizer.

use serde_json::{Value, json};

use super::keys;
use crate::cluster::objects::{
    BY_ATTRIBUTES_CLASS, Cached, Fields, PersistentVolume, PersistentVolumeClaim, VolumeAttachment,
    VolumeAttributesClass,
};

fn read<K: Cached>(object: &Value, fields: Fields) -> K {
    let mut object: K = serde_json::from_value(object.clone()).unwrap();
    object.trim("demo", fields);
    object
}

/// A claim of another driver's provisioner, or of nobody's: its volume may be ours.
fn claim() -> Value {
    json!({
        "metadata": { "name": "a", "namespace": "shop", "uid": "u", "annotations": {
            "volume.kubernetes.io/storage-resizer": "demo", "volume.kubernetes.io/node-expansion-not-required": "true", "other": "x" } },
        "spec": { "volumeName": "pv", "volumeAttributesClassName": "gold", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "3Gi", "example.com/x": "1" } } },
        "status": {
            "phase": "Bound", "capacity": { "storage": "1Gi", "example.com/x": "1" },
            "allocatedResources": { "storage": "2Gi" },
            "allocatedResourceStatuses": { "storage": "NodeResizePending", "example.com/x": "NodeResizeInfeasible" },
            "currentVolumeAttributesClassName": "silver",
            "modifyVolumeStatus": { "status": "InProgress", "targetVolumeAttributesClassName": "bronze" },
            "conditions": [
                { "type": "Unused", "status": "True", "lastProbeTime": null, "lastTransitionTime": null },
                { "type": "ModifyVolumeError", "status": "True", "reason": "Internal", "message": "no room",
                    "lastProbeTime": "2026-01-02T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
        },
    })
}

#[test]
fn a_claim_with_a_volume_tells_how_far_its_size_and_attributes_are() {
    let claim: PersistentVolumeClaim = read(&claim(), Fields::RESIZE);
    let resize = claim.status.resize.as_deref().unwrap();
    assert_eq!((resize.capacity.as_deref(), resize.allocated.as_deref()), (Some("1Gi"), Some("2Gi")));
    assert_eq!(resize.allocated_status.as_deref(), Some("NodeResizePending"));
    assert_eq!(resize.current_attributes_class.as_deref(), Some("silver"));
    let modify = resize.modify.as_ref().unwrap();
    assert_eq!((modify.status.as_str(), modify.target.as_deref()), ("InProgress", Some("bronze")));
    assert_eq!(resize.conditions.len(), 1, "other controllers' conditions are theirs");
    let error = resize.condition("ModifyVolumeError").unwrap();
    assert_eq!((error.status.as_str(), error.reason.as_str(), &*error.message), ("True", "Internal", "no room"));
    assert!(error.last_probe_time > error.last_transition_time && error.last_transition_time.is_some());
    assert_eq!((claim.spec.storage.as_deref(), claim.status.phase.as_deref()), (Some("3Gi"), Some("Bound")));
    assert_eq!(claim.spec.volume_attributes_class_name.as_deref(), Some("gold"));
    let annotations: Vec<&str> = claim.metadata.annotations.as_ref().unwrap().keys().collect();
    assert_eq!(
        annotations,
        ["volume.kubernetes.io/node-expansion-not-required", "volume.kubernetes.io/storage-resizer"]
    );
    assert_eq!(
        keys(&claim),
        [(BY_ATTRIBUTES_CLASS.0, "gold".into()), (BY_ATTRIBUTES_CLASS.0, "bronze".into())],
        "a class that appears wakes who waits for it"
    );
}

#[test]
fn what_a_claim_does_not_say_is_not_there() {
    for status in [
        json!(null),
        json!({}),
        json!({ "phase": "Bound", "conditions": null, "capacity": null,
        "allocatedResourceStatuses": { "storage": "" }, "currentVolumeAttributesClassName": "" }),
    ] {
        let mut bare = claim();
        bare["status"] = status;
        bare["spec"]["volumeAttributesClassName"] = json!("");
        let claim: PersistentVolumeClaim = read(&bare, Fields::RESIZE);
        assert_eq!(claim.status.resize, Some(Box::default()));
        assert_eq!(keys(&claim), []);
    }
}

#[test]
fn without_a_resizer_no_object_has_anything_of_it() {
    for unbound in [false, true] {
        let mut object = claim();
        if unbound {
            object["spec"].as_object_mut().unwrap().remove("volumeName");
        }
        let claim: PersistentVolumeClaim = read(&object, if unbound { Fields::RESIZE } else { Fields::NONE });
        assert_eq!((claim.status.resize.as_deref(), claim.spec.volume_attributes_class_name.as_deref()), (None, None));
        assert!(claim.metadata.annotations.as_ref().unwrap().is_empty());
        assert_eq!(keys(&claim), []);
    }
    let volume: PersistentVolume = read(&volume("demo"), Fields::NONE);
    assert!(volume.spec.resize.is_none() && volume.metadata.annotations.unwrap().is_empty());
    let attachment = json!({ "metadata": { "name": "va" }, "spec": { "attacher": "demo", "nodeName": "n", "source": {
        "inlineVolumeSpec": volume_spec("demo") } } });
    let attachment: VolumeAttachment = read(&attachment, Fields::RESIZE);
    assert_eq!(attachment.spec.source.inline_volume_spec.unwrap().resize, None, "an inline volume has no claim");
}

fn volume_spec(driver: &str) -> Value {
    json!({ "capacity": { "storage": "1Gi" }, "volumeAttributesClassName": "gold", "csi": { "driver": driver,
        "volumeHandle": "v", "controllerExpandSecretRef": { "name": "s", "namespace": "ns" } } })
}

fn volume(driver: &str) -> Value {
    json!({ "metadata": { "name": "pv", "annotations": { "volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi",
        "volume.kubernetes.io/controller-modify-secret-name": "m", "volume.kubernetes.io/controller-modify-secret-namespace": "ns",
        "other": "x" } }, "spec": volume_spec(driver) })
}

#[test]
fn a_volume_tells_its_size_its_attributes_and_its_secrets() {
    let own: PersistentVolume = read(&volume("demo"), Fields::RESIZE);
    let resize = own.spec.resize.as_deref().unwrap();
    assert_eq!((resize.capacity.as_deref(), resize.attributes_class.as_deref()), (Some("1Gi"), Some("gold")));
    assert_eq!(resize.expand_secret.as_ref().map(|secret| secret.name.as_str()), Some("s"));
    assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 3);
    // A volume that was migrated is resized too, another driver's never.
    let in_tree = json!({ "metadata": { "name": "pv" }, "spec": { "capacity": { "storage": "5G" }, "cinder": {} } });
    let in_tree: PersistentVolume = read(&in_tree, Fields::RESIZE);
    assert_eq!(in_tree.spec.resize.unwrap().capacity.as_deref(), Some("5G"));
    assert_eq!(read::<PersistentVolume>(&volume("other"), Fields::RESIZE).spec.resize, None);
}

#[test]
fn a_foreign_attributes_class_is_known_to_be_foreign() {
    let class =
        |driver: &str| json!({ "metadata": { "name": "gold" }, "driverName": driver, "parameters": { "iops": "1" } });
    assert_eq!(read::<VolumeAttributesClass>(&class("demo"), Fields::NONE).parameters["iops"], "1");
    let foreign: VolumeAttributesClass = read(&class("other"), Fields::NONE);
    assert_eq!((foreign.driver.as_str(), foreign.parameters.len()), ("other", 0));
}
