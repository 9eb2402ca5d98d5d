//! The cluster that the story plays in: what a kubelet, a provisioner and the attach/detach controller would create.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A node, and its registration of the driver.
pub fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

/// What the kubelet registers for the driver on a node.
pub fn csi_node(name: &str, driver: &str, node_id: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": { "name": name },
        "spec": { "drivers": [{ "name": driver, "nodeID": node_id, "topologyKeys": [] }] },
    })
}

/// A claim, bound to the volume of [`volume`].
pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": format!("claim-{name}"), "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
            "volumeName": name,
        },
    })
}

/// A volume, bound to the claim of [`claim`].
pub fn volume(name: &str, driver: &str, handle: &str, claim_uid: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": format!("claim-{name}"),
                "uid": claim_uid,
            },
            "csi": { "driver": driver, "volumeHandle": handle },
        },
    })
}

/// What the attach/detach controller creates when a pod with the volume is bound to the node.
pub fn attachment(name: &str, driver: &str, volume: &str, node: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": { "attacher": driver, "nodeName": node, "source": { "persistentVolumeName": volume } },
    })
}

/// The attachment's name as the attach/detach controller makes it: `csi-` and a hash of handle, driver and node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}
