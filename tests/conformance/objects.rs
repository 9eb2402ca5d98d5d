//! The objects that the cases speak of.

use serde_json::{Value, json};

pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/CASE/configmaps";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/CASE/leases";

pub(crate) fn volume(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "demo.csi.example.com", "volumeHandle": name}}})
}

pub(crate) fn attachment(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}, "spec": {
        "attacher": "demo.csi.example.com", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}}})
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}})
}

pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    with(config_map(name), "/metadata", "labels", labels)
}

/// The object with one more member.
pub(crate) fn with(mut object: Value, at: &str, key: &str, value: Value) -> Value {
    object.pointer_mut(at).expect("the place is there")[key] = value;
    object
}
