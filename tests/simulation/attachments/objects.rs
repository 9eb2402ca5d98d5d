//! The objects of the play, how all parts of it read them, and the API past HTTP.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use csi_control_plane::sandbox::api::{Api, PatchBody};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::world::{DRIVER, text};

pub(crate) const PODS: &str = "pods";
pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(crate) const NODES: &str = "nodes";
pub(super) const ATTACHMENTS: &str = "volumeattachments";
/// Another driver, whose attacher the play is.
pub(super) const OTHER: &str = "other.csi.example.com";
/// A driver whose volumes are not attached.
const BARE: &str = "bare.csi.example.com";
/// Who runs the other controller, as the API server knows it.
pub(super) const THEIRS: &str = "kube-controller-manager";
/// How many nodes there are.
pub(super) const NODE_COUNT: usize = 3;
/// What the names of CSI volumes begin with in the status of a node.
const CSI: &str = "kubernetes.io/csi/";
/// Who leaves attaching to a controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The finalizer of a pod's kubelet, in place of a grace period.
const KUBELET: &str = "example.com/kubelet";

/// A claim with the volume that is made for it.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Its name, and the second half of its volume's.
    pub(super) name: &'static str,
    pub(super) driver: &'static str,
    pub(crate) handle: &'static str,
    pub(super) mode: &'static str,
}

const fn claim(name: &'static str, driver: &'static str, handle: &'static str, mode: &'static str) -> Claim {
    Claim { name, driver, handle, mode }
}

/// All claims: `twin` has the volume of `a`, and the volume of `theirs` has the same handle with another driver. `late` is bound late.
pub(super) const ALL: [Claim; 7] = [
    claim("a", DRIVER, "handle-a", "ReadWriteOnce"),
    claim("b", DRIVER, "handle^b/ 1", "ReadWriteOncePod"),
    claim("many", DRIVER, "handle-many", "ReadWriteMany"),
    claim("twin", DRIVER, "handle-a", "ReadWriteOnce"),
    claim("theirs", OTHER, "handle-a", "ReadWriteOnce"),
    claim("bare", BARE, "handle-bare", "ReadWriteOnce"),
    claim("late", DRIVER, "handle-late", "ReadWriteOnce"),
];

/// A node and a volume, by its name in the status of a node.
pub(super) type Site = (String, String);

impl Claim {
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|claim| claim.name == name)
    }

    /// That of a PersistentVolume.
    pub(super) fn of_volume(name: &str) -> Option<&'static Self> {
        Self::of(name.strip_prefix("pv-")?)
    }

    /// The name of its volume in the status of a node. `None`: it is never attached.
    pub(super) fn volume(&self) -> Option<String> {
        (self.driver != BARE).then(|| format!("{CSI}{}^{}", self.driver, self.handle))
    }
}

/// Whether one node alone may have a volume.
pub(super) fn is_exclusive(volume: &str) -> bool {
    !ALL.iter().any(|claim| claim.mode == "ReadWriteMany" && claim.volume().as_deref() == Some(volume))
}

pub(super) fn is_csi(volume: &str) -> bool {
    volume.starts_with(CSI)
}

/// The driver of a CSI volume.
pub(super) fn driver_of(volume: &str) -> &str {
    volume.strip_prefix(CSI).and_then(|rest| rest.split_once('^')).unwrap_or_default().0
}

/// What an attachment is called, and where kubelets look for it.
pub(super) fn attachment_name((node, volume): &Site) -> String {
    let (driver, handle) = volume.strip_prefix(CSI).and_then(|rest| rest.split_once('^')).unwrap_or_default();
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index}")
}

pub(super) fn kind(plural: &str) -> &'static Resource {
    let group = if [ATTACHMENTS, "csinodes", "csidrivers"].contains(&plural) { "storage.k8s.io" } else { "" };
    resources::find(group, "v1", plural).unwrap()
}

/// A new Node, and its `CSINode`.
pub(crate) fn node(name: &str) -> [Value; 2] {
    let managed = json!({ MANAGED: "true" });
    let drivers: Vec<_> = [DRIVER, OTHER, BARE].map(|driver| json!({ "name": driver, "nodeID": name })).into();
    [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": managed } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
            "spec": { "drivers": drivers } }),
    ]
}

/// The objects of the drivers.
pub(crate) fn drivers() -> [Value; 3] {
    [DRIVER, OTHER, BARE].map(|name| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": name },
            "spec": { "attachRequired": name != BARE } })
    })
}

pub(super) fn claim_object(claim: &Claim) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim.name, "namespace": "default" },
        "spec": { "accessModes": [claim.mode], "storageClassName": "", "volumeName": format!("pv-{}", claim.name),
            "resources": { "requests": { "storage": "1Gi" } } } })
}

/// The volume of a claim with this uid.
pub(super) fn volume_object(claim: &Claim, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{}", claim.name) }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": [claim.mode], "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": "default", "name": claim.name, "uid": uid },
        "csi": { "driver": claim.driver, "volumeHandle": claim.handle } } })
}

/// A pod that uses claims. Without a node it is scheduled later.
pub(crate) fn pod(name: &str, node: Option<&str>, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
    let volumes: Vec<_> = claims.iter().map(volume).collect();
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default", "finalizers": [KUBELET] },
        "spec": { "nodeName": node, "volumes": volumes, "containers": [{ "name": "c", "image": "example.com/none" }] } })
}

/// An attachment of an object that is not the daemon's.
pub(super) fn attachment(name: &str, volume: &str, node: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": node, "source": { "persistentVolumeName": volume } } })
}

/// The same as the other controller makes it. A real server would say by itself who has made it.
pub(super) fn attachment_of_theirs(site: &Site, volume: &str) -> Value {
    let mut object = attachment(&attachment_name(site), volume, &site.0);
    object["metadata"]["managedFields"] = json!([{ "manager": THEIRS, "operation": "Update",
        "apiVersion": "storage.k8s.io/v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:spec": { "f:attacher": {}, "f:nodeName": {} } } }]);
    object
}

/// The statuses of a pod's container.
pub(super) fn containers(is_running: bool) -> Value {
    let state = if is_running { json!({ "running": {} }) } else { json!({ "terminated": { "exitCode": 0 } }) };
    json!({ "containerStatuses": [{ "name": "c", "image": "example.com/none", "imageID": "", "ready": is_running,
        "restartCount": 0, "state": state }] })
}

/// Whether its kubelet has said that its container runs.
pub(super) fn is_running(pod: &Value) -> bool {
    pod.pointer("/status/containerStatuses/0/state/running").is_some()
}

/// Whether its kubelet has said anything of its container.
pub(super) fn has_statuses(pod: &Value) -> bool {
    pod.pointer("/status/containerStatuses/0").is_some()
}

pub(super) fn is_finished(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().map(|volume| text(volume, "/persistentVolumeClaim/claimName"))
}

/// Whether claim and volume are bound to each other.
pub(super) fn are_bound(claim: &Value, volume: &Value) -> bool {
    text(claim, "/status/phase") == "Bound"
        && text(volume, "/spec/claimRef/uid") == text(claim, "/metadata/uid")
        && text(volume, "/metadata/name") == text(claim, "/spec/volumeName")
}

pub(super) fn is_ready(node: &Value) -> bool {
    text(node, "/status/conditions/0/status") == "True"
}

pub(super) fn is_managed(node: &Value) -> bool {
    node["metadata"]["annotations"].get(MANAGED).is_some()
}

pub(super) fn is_tainted(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|taint| text(taint, "/key") == "node.kubernetes.io/out-of-service")
}

/// What its kubelet says that it uses.
pub(super) fn used(node: &Value) -> BTreeSet<String> {
    let list = node.pointer("/status/volumesInUse").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The list of attached volumes.
pub(super) fn list(node: &Value) -> Vec<Value> {
    node.pointer("/status/volumesAttached").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Which CSI volumes it reports.
pub(super) fn reported(node: &Value) -> BTreeSet<String> {
    list(node).iter().map(|it| text(it, "/name").to_owned()).filter(|name| is_csi(name)).collect()
}

pub(super) fn is_attached(attachment: &Value) -> bool {
    attachment.pointer("/status/attached") == Some(&Value::Bool(true))
}

/// The API past HTTP: the part of people, kubelets and other controllers. What cannot be done is not done.
#[derive(Debug, Clone)]
pub(crate) struct Cluster(pub(crate) Api);

impl Cluster {
    fn place(plural: &str) -> &'static str {
        if [PODS, CLAIMS].contains(&plural) { "default" } else { "" }
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Arc<Value>> {
        self.0.object(kind(plural), Self::place(plural), name)
    }

    pub(super) fn all(&self, plural: &str) -> Vec<Arc<Value>> {
        self.0.objects(kind(plural), "").unwrap()
    }

    pub(crate) fn create(&self, object: Value) -> bool {
        self.0.create_value(object).is_ok()
    }

    pub(crate) fn patch(&self, plural: &str, name: &str, body: Value) -> bool {
        self.0.patch_object(kind(plural), Self::place(plural), name, PatchBody::Merge(body), false).is_ok()
    }

    pub(crate) fn status(&self, plural: &str, name: &str, status: &Value) -> bool {
        let body = PatchBody::Merge(json!({ "status": status }));
        self.0.patch_object(kind(plural), Self::place(plural), name, body, true).is_ok()
    }

    pub(crate) fn delete(&self, plural: &str, name: &str) {
        let _ = self.0.delete_object(kind(plural), Self::place(plural), name);
    }

    /// Deletes it, whatever holds it.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        self.delete(plural, name);
        self.patch(plural, name, json!({ "metadata": { "finalizers": null } }));
    }

    pub(super) fn manage(&self, node: &str, is_managed: bool) {
        let value = if is_managed { json!("true") } else { Value::Null };
        self.patch(NODES, node, json!({ "metadata": { "annotations": { MANAGED: value } } }));
    }

    pub(crate) fn taint(&self, node: &str, is_tainted: bool) {
        let taint = json!({ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" });
        let taints = if is_tainted { json!([taint]) } else { Value::Null };
        self.patch(NODES, node, json!({ "spec": { "taints": taints } }));
    }

    /// The claim, bound, and its volume, which names it.
    pub(crate) fn supply(&self, claim: &Claim) {
        let name = format!("pv-{}", claim.name);
        self.create(claim_object(claim));
        let uid = self.get(CLAIMS, claim.name).map(|it| text(&it, "/metadata/uid").to_owned()).unwrap_or_default();
        let volume = volume_object(claim, &uid);
        let reference = json!({ "spec": { "claimRef": volume["spec"]["claimRef"] } });
        if !self.create(volume) {
            self.patch(VOLUMES, &name, reference);
        }
        for (plural, name) in [(CLAIMS, claim.name), (VOLUMES, &name)] {
            self.status(plural, name, &json!({ "phase": "Bound" }));
        }
    }
}
