//! The protection controllers: remove admission's finalizers from deleted objects that are not in use.

use serde_json::Value;

use super::{CLAIMS, Cluster, PODS, VOLUMES, claims_of, finalizers, is_deleting, place, text};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Looks at each claim and each volume once.
pub(super) fn pass(cluster: &Cluster) {
    let held = |object: &Value, finalizer: &str| is_deleting(object) && finalizers(object).any(|it| it == finalizer);
    for claim in cluster.all(CLAIMS).into_iter().filter(|claim| held(claim, CLAIM)) {
        if !is_used(cluster, &claim) {
            cluster.let_go(CLAIMS, &claim, CLAIM);
        }
    }
    for volume in cluster.all(VOLUMES).into_iter().filter(|volume| held(volume, VOLUME)) {
        if text(&volume, "/status/phase") != "Bound" {
            cluster.let_go(VOLUMES, &volume, VOLUME);
        }
    }
}

/// Whether a pod uses the claim. A pod without a node does not yet: no kubelet would start it with a deleted claim.
fn is_used(cluster: &Cluster, claim: &Value) -> bool {
    let (namespace, name) = place(claim);
    cluster.all(PODS).iter().any(|pod| {
        place(pod).0 == namespace && !text(pod, "/spec/nodeName").is_empty() && claims_of(pod).any(|it| it == name)
    })
}
