//! The PV controller: names the provisioner of a claim, binds claims and volumes, and sets their phases. It handles
//! claims that are provisioned, and claims and volumes that name each other. It matches no others.

use serde_json::{Value, json};

use base::{InTree, quantity};

use super::{CLAIMS, CLASSES, Cluster, VOLUMES, annotation, class_of, text, uid};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONERS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// A class with it has volumes that people make.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Looks at each volume and each claim once.
pub(super) fn pass(cluster: &Cluster) {
    for volume in cluster.all(VOLUMES) {
        look_at_volume(cluster, &volume);
    }
    for claim in cluster.all(CLAIMS) {
        look_at_claim(cluster, &claim);
    }
}

fn look_at_volume(cluster: &Cluster, volume: &Value) {
    name_successor(cluster, volume);
    let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
    let wanted = text(volume, "/spec/claimRef/uid");
    if name.is_empty() || wanted.is_empty() {
        return phase(cluster, volume, "Available");
    }
    let claim = cluster.one(CLAIMS, namespace, name).filter(|claim| uid(claim) == wanted);
    let Some(claim) = claim else { return phase(cluster, volume, "Released") };
    match text(&claim, "/spec/volumeName") {
        // The claim's turn comes.
        "" => {}
        mine if mine == text(volume, "/metadata/name") => phase(cluster, volume, "Bound"),
        _ if annotation(volume, PROVISIONED_BY).is_some()
            && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" =>
        {
            phase(cluster, volume, "Released");
        }
        // It waits for a claim of that name, with any uid.
        _ => {
            let reference = json!({"uid": null, "resourceVersion": null});
            cluster.change(VOLUMES, volume, json!({"spec": {"claimRef": reference}}));
        }
    }
}

/// Says on a volume that a plugin has provisioned which driver has taken the plugin over.
fn name_successor(cluster: &Cluster, volume: &Value) {
    let Some(plugin) = annotation(volume, PROVISIONED_BY).and_then(InTree::of_plugin) else { return };
    if annotation(volume, MIGRATED_TO) != Some(plugin.successor()) {
        cluster.change(VOLUMES, volume, json!({"metadata": {"annotations": {MIGRATED_TO: plugin.successor()}}}));
    }
}

/// Writes a volume's phase.
fn phase(cluster: &Cluster, volume: &Value, phase: &str) {
    let now = text(volume, "/status/phase");
    // A released or failed volume is left to its provisioner.
    if now != phase && !(phase == "Released" && now == "Failed") {
        cluster.change_status(VOLUMES, volume, &json!({ "phase": phase }));
    }
}

fn look_at_claim(cluster: &Cluster, claim: &Value) {
    let named = text(claim, "/spec/volumeName");
    if named.is_empty() {
        match waiting_volume(cluster, claim) {
            Some(volume) => bind(cluster, claim, &volume),
            None => name_provisioner(cluster, claim),
        }
        return;
    }
    let is_complete = annotation(claim, BIND_COMPLETED).is_some();
    let volume = cluster.one(VOLUMES, "", named);
    let theirs = |volume: &Value| !text(volume, "/spec/claimRef/name").is_empty() && !refers_to(volume, claim);
    match volume {
        Some(volume) if !theirs(&volume) => bind(cluster, claim, &volume),
        _ if is_complete && text(claim, "/status/phase") != "Lost" => {
            cluster.change_status(CLAIMS, claim, &json!({ "phase": "Lost", "capacity": null, "accessModes": null }));
        }
        _ => {}
    }
}

/// Whether a volume is meant for a claim: by its name, and by its uid if it says one.
fn refers_to(volume: &Value, claim: &Value) -> bool {
    let wanted = text(volume, "/spec/claimRef/uid");
    text(volume, "/spec/claimRef/namespace") == text(claim, "/metadata/namespace")
        && text(volume, "/spec/claimRef/name") == text(claim, "/metadata/name")
        && (wanted.is_empty() || wanted == uid(claim))
}

/// A volume that waits for the claim: it names the claim and is large enough. Its class does not matter.
fn waiting_volume(cluster: &Cluster, claim: &Value) -> Option<std::sync::Arc<Value>> {
    let size = |object: &Value, at: &str| quantity::bytes(text(object, at)).unwrap_or_default();
    let wanted = size(claim, "/spec/resources/requests/storage");
    let fits = |volume: &Value| {
        let is_going = !text(volume, "/metadata/deletionTimestamp").is_empty();
        refers_to(volume, claim) && !is_going && size(volume, "/spec/capacity/storage") >= wanted
    };
    cluster.all(VOLUMES).into_iter().find(|volume| fits(volume))
}

/// Says on a claim who is to provision it, once it is known where.
fn name_provisioner(cluster: &Cluster, claim: &Value) {
    let name = class_of(claim);
    let Some(class) = cluster.one(CLASSES, "", name) else {
        if !name.is_empty() {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            cluster.warn(claim, "ProvisioningFailed", &message);
        }
        return;
    };
    // For a class of an in-tree plugin that a CSI driver has taken over, Kubernetes 1.37 names the driver.
    let provisioner = text(&class, "/provisioner");
    let provisioner = match InTree::of_plugin(provisioner) {
        Some(kind) => kind.successor(),
        None => provisioner,
    };
    let waits =
        text(&class, "/volumeBindingMode") == "WaitForFirstConsumer" && annotation(claim, SELECTED_NODE).is_none();
    let is_named = PROVISIONERS.iter().all(|key| annotation(claim, key) == Some(provisioner));
    if !waits && !is_named && provisioner != NO_PROVISIONER {
        let [key, beta] = PROVISIONERS;
        cluster.change(CLAIMS, claim, json!({"metadata": {"annotations": {key: provisioner, beta: provisioner}}}));
    }
}

/// Binds the two, one write after the other: the volume's reference, its phase, the claim, its status.
fn bind(cluster: &Cluster, claim: &Value, volume: &Value) {
    if text(volume, "/spec/claimRef/uid").is_empty() {
        let (namespace, name) = super::place(claim);
        let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
            "uid": uid(claim), "resourceVersion": text(claim, "/metadata/resourceVersion")});
        let mut patch = json!({"spec": {"claimRef": reference}});
        if text(volume, "/spec/claimRef/name").is_empty() {
            patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
        }
        cluster.change(VOLUMES, volume, patch);
        return;
    }
    phase(cluster, volume, "Bound");
    let name = text(volume, "/metadata/name");
    if annotation(claim, BIND_COMPLETED).is_none() || text(claim, "/spec/volumeName").is_empty() {
        let mut patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
        if text(claim, "/spec/volumeName").is_empty() {
            patch["spec"]["volumeName"] = name.into();
            patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
        }
        cluster.change(CLAIMS, claim, patch);
        return;
    }
    if text(claim, "/status/phase") != "Bound" {
        let member = |pointer: &str| volume.pointer(pointer).cloned().unwrap_or_default();
        // A node still has to expand the file system.
        let capacity = match annotation(volume, PRE_RESIZE_CAPACITY) {
            Some(before) => json!({ "storage": before }),
            None => member("/spec/capacity"),
        };
        let mut status = json!({"phase": "Bound", "accessModes": member("/spec/accessModes"), "capacity": capacity});
        let class = text(claim, "/spec/volumeAttributesClassName");
        if !class.is_empty() {
            status["currentVolumeAttributesClassName"] = class.into();
        }
        cluster.change_status(CLAIMS, claim, &status);
    }
}
