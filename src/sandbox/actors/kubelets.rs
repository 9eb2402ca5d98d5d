//! The kubelets' part of an expansion: what is left to a node is done once a pod with the volume runs there.

use serde_json::{Value, json};

use crate::cluster::quantity;

use super::{CLAIMS, Cluster, PODS, VOLUMES, claims_of, has_ended, list, place, text};

const STATE: &str = "/status/allocatedResourceStatuses/storage";
/// The members that a kubelet removes when it is done.
const CONDITIONS: [&str; 4] = ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// Looks at each claim once.
pub(super) fn pass(cluster: &Cluster) {
    for claim in cluster.all(CLAIMS) {
        let is_due = matches!(text(&claim, STATE), "NodeResizePending" | "NodeResizeInProgress");
        if is_due && is_on_a_node(cluster, &claim) {
            finish(cluster, &claim);
        }
    }
}

/// Whether a pod that uses the claim has a node.
fn is_on_a_node(cluster: &Cluster, claim: &Value) -> bool {
    let (namespace, name) = place(claim);
    cluster.all(PODS).iter().any(|pod| {
        place(pod).0 == namespace
            && !text(pod, "/spec/nodeName").is_empty()
            && !has_ended(pod)
            && claims_of(pod).any(|it| it == name)
    })
}

/// Says that the file system has the size of its volume.
fn finish(cluster: &Cluster, claim: &Value) {
    let Some(volume) = cluster.one(VOLUMES, "", text(claim, "/spec/volumeName")) else { return };
    let size = |object: &Value, at: &str| quantity::bytes(text(object, at)).unwrap_or_default();
    if size(&volume, "/spec/capacity/storage") <= size(claim, "/status/capacity/storage") {
        return;
    }
    let kept = |condition: &&Value| !CONDITIONS.contains(&text(condition, "/type"));
    let conditions: Vec<&Value> = list(claim, "/status/conditions").iter().filter(kept).collect();
    let status = json!({
        "capacity": { "storage": text(&volume, "/spec/capacity/storage") },
        "allocatedResourceStatuses": { "storage": null },
        "conditions": conditions,
    });
    cluster.change_status(CLAIMS, claim, &status);
}
