//! The kubelets: a pod runs once its volumes are attached to its node, and what an expansion leaves to a node is done once a pod
//! with the volume is there.

use serde_json::{Value, json};

use base::quantity;

use super::attachments::wanted_by;
use super::{ATTACHMENTS, CLAIMS, Cluster, PODS, VOLUMES, claims_of, has_ended, is_deleting, list, place, text};

const STATE: &str = "/status/allocatedResourceStatuses/storage";
/// The members that a kubelet removes when it is done.
const CONDITIONS: [&str; 4] = ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// What is true of a pod that runs, in the order in which a kubelet says it.
const RUNS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Looks at each pod and at each claim once.
pub(super) fn pass(cluster: &Cluster) {
    for pod in cluster.all(PODS) {
        let waits = text(&pod, "/status/phase") == "Pending" && !text(&pod, "/spec/nodeName").is_empty();
        if waits && !is_deleting(&pod) && has_its_volumes(cluster, &pod) {
            run(cluster, &pod);
        }
    }
    for claim in cluster.all(CLAIMS) {
        let is_due = matches!(text(&claim, STATE), "NodeResizePending" | "NodeResizeInProgress");
        if is_due && is_on_a_node(cluster, &claim) {
            finish(cluster, &claim);
        }
    }
}

/// Whether each claim of a pod has its volume, and each volume that has to be attached is attached to the pod's node.
fn has_its_volumes(cluster: &Cluster, pod: &Value) -> bool {
    let is_bound = |name: &str| {
        cluster.one(CLAIMS, place(pod).0, name).is_some_and(|claim| text(&claim, "/status/phase") == "Bound")
    };
    let is_attached = |(name, _): (String, Value)| {
        let attachment = cluster.one(ATTACHMENTS, "", &name);
        attachment.is_some_and(|it| it.pointer("/status/attached") == Some(&Value::Bool(true)) && !is_deleting(&it))
    };
    claims_of(pod).all(is_bound) && wanted_by(cluster, pod).into_iter().all(is_attached)
}

/// Starts a pod's containers, and says so.
fn run(cluster: &Cluster, pod: &Value) {
    let now = cluster.now();
    let condition =
        |kind: &&str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now });
    let container = |container: &Value| {
        json!({
            "name": text(container, "/name"), "image": text(container, "/image"), "imageID": "", "ready": true,
            "started": true, "restartCount": 0, "state": { "running": { "startedAt": now } }, "lastState": {},
        })
    };
    let status = json!({
        "phase": "Running",
        "startTime": now,
        "conditions": RUNS.iter().map(condition).collect::<Vec<_>>(),
        "containerStatuses": list(pod, "/spec/containers").iter().map(container).collect::<Vec<_>>(),
    });
    cluster.change_status(PODS, pod, &status);
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
