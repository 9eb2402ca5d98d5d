//! The objects that the cases speak of.

use serde_json::{Value, json};

pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/CASE/configmaps";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/CASE/leases";

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/CASE/persistentvolumeclaims";
pub(crate) const QUOTAS: &str = "/api/v1/namespaces/CASE/resourcequotas";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub(crate) const ATTRIBUTES_CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
pub(crate) const CAPACITIES: &str = "/apis/storage.k8s.io/v1/namespaces/CASE/csistoragecapacities";
pub(crate) const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

pub(crate) fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "CASE-class"}})
}

pub(crate) fn class(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "demo.csi.example.com"})
}

pub(crate) fn attributes_class(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
        "driverName": "demo.csi.example.com", "parameters": {"iops": "1"}})
}

pub(crate) fn capacity(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": {"name": name,
        "labels": {"csi.storage.k8s.io/drivername": "demo.csi.example.com"}}, "storageClassName": "class",
        "nodeTopology": {"matchLabels": {"example.com/zone": "z1"}}, "capacity": "1Gi"})
}

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
