//! The objects of the demo's cluster: those that an administrator, a kubelet and a user would create.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The class whose volumes are created for the first pod that uses them.
pub const ON_FIRST_USE: &str = "on-first-use";
/// The class whose volumes are created as soon as they are claimed.
pub const AT_ONCE: &str = "at-once";
/// The class that cannot be served: the secret that it names does not exist.
pub const WITHOUT_SECRET: &str = "without-its-secret";
/// The class of attributes that a volume is changed to.
pub const FASTER: &str = "faster";
/// The class of the demo's snapshots.
pub const SNAPSHOTS: &str = "snapshots";
/// The version of the kinds of snapshots.
pub const SNAPSHOT_API: &str = "snapshot.storage.k8s.io/v1";
/// The class of the demo's groups of snapshots.
pub const GROUPS: &str = "groups";
/// The version of the kinds of groups of snapshots.
pub const GROUP_API: &str = "groupsnapshot.storage.k8s.io/v1";
/// The label by which a group finds the demo's claims, and its value.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "shop");
/// The label by which a pod selects its node.
const HOST_NAME: &str = "kubernetes.io/hostname";

/// A node in this place.
pub fn node(name: &str, segments: &BTreeMap<String, String>) -> Value {
    let mut labels = segments.clone();
    labels.insert(HOST_NAME.to_owned(), name.to_owned());
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } })
}

/// The kubelet's registration of the driver on a node.
pub fn csi_node(name: &str, driver: &str, node_id: &str, segments: &BTreeMap<String, String>) -> Value {
    let keys: Vec<&String> = segments.keys().collect();
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": { "name": name },
        "spec": { "drivers": [{ "name": driver, "nodeID": node_id, "topologyKeys": keys }] },
    })
}

/// The driver, as its installation announces it.
pub fn csi_driver(driver: &str, tells_room: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": driver },
        "spec": { "attachRequired": true, "storageCapacity": tells_room },
    })
}

/// A class of this driver's volumes.
pub fn class(name: &str, driver: &str) -> Value {
    let parameters = if name == WITHOUT_SECRET {
        json!({
            "csi.storage.k8s.io/provisioner-secret-name": "credentials-that-nobody-made",
            "csi.storage.k8s.io/provisioner-secret-namespace": "default",
        })
    } else {
        json!({})
    };
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": name },
        "provisioner": driver,
        "allowVolumeExpansion": true,
        "parameters": parameters,
        "volumeBindingMode": if name == ON_FIRST_USE { "WaitForFirstConsumer" } else { "Immediate" },
    })
}

/// A class of attributes that the demo driver's volumes may have.
pub fn attributes(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": { "name": name },
        "driverName": driver,
        "parameters": { "iops": "4000" },
    })
}

/// A claim to a volume of this class.
pub fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "labels": { PART_OF.0: PART_OF.1 } },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": class,
        },
    })
}

/// A class of this driver's snapshots.
pub fn snapshot_class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": SNAPSHOT_API,
        "kind": "VolumeSnapshotClass",
        "metadata": { "name": name },
        "driver": driver,
        "deletionPolicy": "Delete",
    })
}

/// A snapshot of a claim's volume.
pub fn snapshot(name: &str, class: &str, claim: &str) -> Value {
    json!({
        "apiVersion": SNAPSHOT_API,
        "kind": "VolumeSnapshot",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } },
    })
}

/// A class of this driver's groups of snapshots.
pub fn group_class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": GROUP_API,
        "kind": "VolumeGroupSnapshotClass",
        "metadata": { "name": name },
        "driver": driver,
        "deletionPolicy": "Delete",
    })
}

/// A group of snapshots of all claims of the demo.
pub fn group(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": GROUP_API,
        "kind": "VolumeGroupSnapshot",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "volumeGroupSnapshotClassName": class,
            "source": { "selector": { "matchLabels": { PART_OF.0: PART_OF.1 } } },
        },
    })
}

/// A claim to a volume of 2 GiB of this class that is made from a snapshot.
pub fn restored_claim(name: &str, class: &str, snapshot: &str) -> Value {
    let mut claim = claim(name, class);
    claim["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
    claim["spec"]["dataSource"] =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
    claim
}

/// A pod that uses the claim of its own name; on this node, or where the scheduler puts it.
pub fn pod(name: &str, node: Option<&str>) -> Value {
    let selector: BTreeMap<&str, &str> = node.map(|node| (HOST_NAME, node)).into_iter().collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeSelector": selector,
            "containers": [{
                "name": "app",
                "image": "registry.example.com/app",
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        },
    })
}

/// An attachment that only its author needs.
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
