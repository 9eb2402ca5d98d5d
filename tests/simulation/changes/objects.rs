//! The objects of the play, and how the checks read them.

use csi_control_plane::cluster::quantity::bytes;
use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use serde_json::{Value, json};

use crate::world::{DRIVER, secret_name, text};

pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const STATE: &str = "/status/allocatedResourceStatuses/storage";
pub(super) const ALLOCATED: &str = "/status/allocatedResources/storage";
pub(super) const CAPACITY: &str = "/status/capacity/storage";
pub(super) const REQUESTED: &str = "/spec/resources/requests/storage";
pub(super) const RECORDED: &str = "/spec/capacity/storage";
pub(super) const WANTED: &str = "/spec/volumeAttributesClassName";
pub(super) const CURRENT: &str = "/status/currentVolumeAttributesClassName";
pub(super) const TARGET: &str = "/status/modifyVolumeStatus/targetVolumeAttributesClassName";
pub(super) const MODIFY: &str = "/status/modifyVolumeStatus/status";
/// The conditions of an expansion, and those of a modification.
pub(super) const OF_SIZES: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];
pub(super) const OF_CLASSES: [&str; 2] = ["ModifyingVolume", "ModifyVolumeError"];

/// How many claims the users change.
pub(super) const COUNT: usize = 4;
/// The classes of the driver. The last one comes late.
pub(super) const CLASSES: [&str; 4] = ["a", "b", "c", "late"];
/// A class of another driver.
pub(super) const FOREIGN_CLASS: &str = "foreign";
/// What the resizer must leave alone: a volume of another driver, and one that is bound to another claim.
pub(super) const LEFT_ALONE: [&str; 2] = ["theirs", "stray"];
/// The secret of the volumes.
pub(super) const SECRET: usize = 0;
/// The node that the pods run on.
pub(super) const NODE: &str = "node";

pub(super) fn size(object: &Value, pointer: &str) -> i64 {
    bytes(text(object, pointer)).unwrap_or_default()
}

pub(super) fn kind(group: &str, plural: &str) -> &'static Resource {
    resources::find(group, "v1", plural).unwrap()
}

pub(super) fn claim_name(name: &str) -> String {
    format!("claim-{name}")
}

/// The types of the conditions that an object has.
pub(super) fn conditions(object: &Value) -> Vec<&str> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter().flatten().map(|condition| text(condition, "/type")).collect()
}

/// Whether a claim says that the last expansion was refused, and that none was begun since.
pub(super) fn says_refused(claim: &Value) -> bool {
    let all = claim.pointer("/status/conditions").and_then(Value::as_array);
    let find = |type_: &str| all.into_iter().flatten().find(|condition| text(condition, "/type") == type_);
    let time = |condition| text(condition, "/lastTransitionTime");
    let is_open = |condition| ["Aborted", "DeadlineExceeded", "Unavailable"].contains(&text(condition, "/reason"));
    let error = find("ControllerResizeError").filter(|error| !is_open(error)).map(time).filter(|time| !time.is_empty());
    match text(claim, STATE) {
        "ControllerResizeInfeasible" => true,
        "ControllerResizeInProgress" => error.is_some() && find("Resizing").map(time) <= error,
        _ => false,
    }
}

/// Whether a node has to act, acts, or has failed.
pub(super) fn is_of_node(state: &str) -> bool {
    state.starts_with("Node")
}

/// Every second volume is a block device, which no node has to expand.
fn mode(name: &str) -> &'static str {
    if name.parse::<usize>().is_ok_and(|index| index.is_multiple_of(2)) { "Block" } else { "Filesystem" }
}

pub(super) fn volume(name: &str, is_secretive: bool) -> Value {
    let driver = if name == LEFT_ALONE[0] { "other.csi.example.com" } else { DRIVER };
    let mut csi = json!({ "driver": driver, "volumeHandle": format!("handle-{name}") });
    if is_secretive {
        csi["controllerExpandSecretRef"] = json!({ "namespace": "kube-system", "name": secret_name(SECRET) });
    }
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{name}") }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "volumeMode": mode(name),
        "storageClassName": "grows", "persistentVolumeReclaimPolicy": "Retain", "csi": csi } })
}

pub(super) fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim_name(name) },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "volumeName": format!("pv-{name}"),
            "volumeMode": mode(name), "resources": { "requests": { "storage": "1Gi" } } } })
}

pub(super) fn pod(index: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod_name(index) }, "spec": {
        "nodeName": NODE, "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("claim-{index}") } }] } })
}

pub(super) fn pod_name(index: usize) -> String {
    format!("pod-{index}")
}

/// The claims that a pod uses.
pub(super) fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let names = volumes.into_iter().flatten().map(|it| text(it, "/persistentVolumeClaim/claimName").to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

pub(super) fn class(name: &str) -> Value {
    let driver = if name == FOREIGN_CLASS { "other.csi.example.com" } else { DRIVER };
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": { "name": name },
        "driverName": driver, "parameters": { "iops": name } })
}

/// The other objects: the class of the volumes, the node, the quota.
pub(super) fn furniture(has_quota: bool) -> Vec<Value> {
    let mut all = vec![
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "grows" },
            "provisioner": DRIVER, "allowVolumeExpansion": true }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
            "spec": { "drivers": [{ "name": DRIVER, "nodeID": NODE, "topologyKeys": [] }] } }),
    ];
    if has_quota {
        all.push(json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "sizes" },
            "spec": { "hard": { "requests.storage": "60Gi" } } }));
    }
    all
}

/// A map or list that is empty is one that is not there.
pub(super) fn without_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(without_empty);
        members.retain(|_, member| {
            !member.as_object().is_some_and(serde_json::Map::is_empty) && !member.as_array().is_some_and(Vec::is_empty)
        });
    }
}
