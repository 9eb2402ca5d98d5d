//! What the benches share: objects as a server sends them, and what the kernel says of a process.

#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of it, as a module of its own")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

#[cfg(feature = "sandbox")]
pub mod cluster;

use std::fs;

use csi_control_plane::cluster::{Cached, Fields, VolumeAttachment};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The demo driver's name.
pub const DRIVER: &str = "demo.csi.example.com";
/// What the attacher's finalizer on its objects is called.
pub const FINALIZER: &str = "external-attacher/demo-csi-example-com";
/// Attachments are spread over so many nodes.
pub const NODES: usize = 100;

/// An attachment's name: a checksum of fixed length, as the attach/detach controller makes it.
pub fn attachment_name(number: usize) -> String {
    format!("csi-{number:064x}")
}

/// A volume's name, as the provisioner makes it.
pub fn volume_name(number: usize) -> String {
    format!("pvc-00000000-0000-4000-8000-{number:012x}")
}

/// The driver's handle of a volume.
pub fn handle(number: usize) -> String {
    format!("vol-{number:017x}")
}

/// A node's name.
pub fn node_name(number: usize) -> String {
    format!("node-{}.example.com", number % NODES)
}

/// The driver's id of a node.
pub fn node_id(number: usize) -> String {
    format!("i-{:017x}", number % NODES)
}

/// An attachment as a user creates it.
pub fn new_attachment(number: usize) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": attachment_name(number) },
        "spec": {
            "attacher": DRIVER, "nodeName": node_name(number),
            "source": { "persistentVolumeName": volume_name(number) },
        },
    })
}

/// An attached attachment as a server sends it, managed fields and all.
pub fn attachment(number: usize, version: usize) -> Value {
    let mut object = new_attachment(number);
    object["metadata"] = json!({
        "name": attachment_name(number),
        "uid": format!("11111111-0000-4000-8000-{number:012x}"),
        "resourceVersion": version.to_string(),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [FINALIZER],
        "annotations": { "csi.alpha.kubernetes.io/node-id": node_id(number), "csi-control-plane.io/volume-handle": handle(number) },
        "managedFields": [
            { "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "storage.k8s.io/v1",
              "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
              "fieldsV1": { "f:spec": { "f:attacher": {}, "f:nodeName": {}, "f:source": { "f:persistentVolumeName": {} } } } },
            { "manager": "csi-control-plane", "operation": "Update", "apiVersion": "storage.k8s.io/v1",
              "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
              "fieldsV1": { "f:metadata": { "f:annotations": {}, "f:finalizers": {} }, "f:status": { "f:attached": {} } } },
        ],
    });
    object["status"] = json!({
        "attached": true,
        "attachmentMetadata": { "devicePath": format!("/dev/disk/by-id/{}", handle(number)) },
    });
    object
}

/// A volume as a server sends it, bound and protected.
pub fn volume(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(number), "uid": format!("22222222-0000-4000-8000-{number:012x}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubernetes.io/pv-protection", FINALIZER],
            "annotations": { "pv.kubernetes.io/provisioned-by": DRIVER },
        },
        "spec": {
            "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "standard",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": format!("data-{number}"),
                "uid": format!("33333333-0000-4000-8000-{number:012x}"), "resourceVersion": "1",
            },
            "csi": {
                "driver": DRIVER, "volumeHandle": handle(number), "fsType": "ext4",
                "volumeAttributes": { "storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-demo", "pool": "fast" },
            },
        },
        "status": { "phase": "Bound" },
    })
}

/// A claim as a server sends it, bound to its volume.
pub fn claim(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("data-{number}"), "namespace": "default", "uid": format!("33333333-0000-4000-8000-{number:012x}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app.kubernetes.io/name": "postgres", "app.kubernetes.io/instance": format!("db-{number}") },
            "finalizers": ["kubernetes.io/pvc-protection"],
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
                "volume.kubernetes.io/storage-provisioner": DRIVER, "volume.beta.kubernetes.io/storage-provisioner": DRIVER,
                "volume.kubernetes.io/selected-node": node_name(number),
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } },
            "storageClassName": "standard", "volumeMode": "Filesystem", "volumeName": volume_name(number),
        },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "10Gi" } },
    })
}

/// A class as a server sends it.
pub fn class(number: usize) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": format!("class-{number}"), "uid": format!("44444444-0000-4000-8000-{number:012x}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "false" },
        },
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true, "mountOptions": ["noatime"],
        "parameters": {
            "type": "ssd", "pool": format!("pool-{number}"), "csi.storage.k8s.io/fstype": "ext4",
            "csi.storage.k8s.io/provisioner-secret-name": "backend", "csi.storage.k8s.io/provisioner-secret-namespace": "storage",
        },
    })
}

/// The metadata of a node, as a watch of metadata alone brings it, with the labels of a cloud's.
pub fn node_metadata(number: usize) -> Value {
    let name = format!("node-{number}.example.com");
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": name, "uid": format!("55555555-0000-4000-8000-{number:012x}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m7i.2xlarge", "topology.kubernetes.io/region": "eu-west-1",
                "topology.kubernetes.io/zone": format!("eu-west-1{}", ["a", "b", "c"][number % 3]),
                "topology.demo.csi.example.com/zone": format!("zone-{}", number % 3), "team": "storage",
            },
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
    })
}

/// A pod with two claims that runs on a node, as a server sends it.
pub fn pod(number: usize) -> Value {
    let name = format!("database-{number}");
    let claim = |of: &str| json!({ "name": of, "persistentVolumeClaim": { "claimName": format!("{of}-{name}") } });
    let mount = json!([{ "name": "data", "mountPath": "/data" }, { "name": "log", "mountPath": "/log" }]);
    let started = "2026-01-01T00:00:05Z";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": format!("team-{}", number % 50), "uid": format!("66666666-0000-4000-8000-{number:012x}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generateName": "database-",
            "labels": { "app": "database", "pod-template-hash": "7d9c5b8f6", "statefulset.kubernetes.io/pod-name": name },
            "annotations": { "example.com/checksum": "0123456789abcdef0123456789abcdef" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "database",
                "uid": "77777777-0000-4000-8000-000000000000", "controller": true }],
            "managedFields": [{ "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:containers": {} } } }],
        },
        "spec": {
            "nodeName": node_name(number), "volumes": [claim("data"), claim("log"), { "name": "tmp", "emptyDir": {} }],
            "containers": [{ "name": "database", "image": "registry.example.com/database:16.2", "volumeMounts": mount }],
        },
        "status": { "phase": "Running", "startTime": started,
            "containerStatuses": [{ "name": "database", "ready": true, "state": { "running": { "startedAt": started } } }] },
    })
}

/// A node on which the driver runs.
pub fn node(number: usize) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": { "name": node_name(number) },
        "spec": { "drivers": [{ "name": DRIVER, "nodeID": node_id(number), "topologyKeys": [] }] },
    })
}

/// Parses and trims, as a cache does.
pub fn trimmed<K: Cached>(object: Value) -> K {
    let mut object: K = parsed(object);
    object.trim(DRIVER, Fields::NONE);
    object
}

/// Parses.
pub fn parsed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// `count` attachments as a cache holds them; those in `changed` in a newer version.
pub fn attachments(count: usize, changed: impl Fn(usize) -> bool) -> Vec<VolumeAttachment> {
    (0..count).map(|number| trimmed(attachment(number, if changed(number) { 2 } else { 1 }))).collect()
}

/// Memory in RAM of a process (`self` or its number), in bytes.
pub fn resident(process: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// User and system CPU time of a process so far, in milliseconds (with the kernel's 10 ms for a tick).
pub fn cpu(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

/// How many descriptors a process has open: connections, for the most part.
pub fn descriptors(process: &str) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Whether the bench is only to prove that it runs: `cargo bench -- --test`.
pub fn only_once() -> bool {
    std::env::args().any(|argument| argument == "--test")
}
