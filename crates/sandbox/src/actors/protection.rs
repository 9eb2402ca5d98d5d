//! The protection controllers: remove admission's finalizers from deleted objects that are not in use.

use serde_json::Value;

use super::{ATTRIBUTES_CLASSES, CLAIMS, Cluster, PODS, VOLUMES, claims_of, finalizers, is_deleting, place, text};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const ATTRIBUTES_CLASS: &str = "kubernetes.io/vac-protection";

/// Where a volume and a claim name attributes classes.
const NAMED_BY_VOLUMES: [&str; 1] = ["/spec/volumeAttributesClassName"];
const NAMED_BY_CLAIMS: [&str; 3] = [
    "/spec/volumeAttributesClassName",
    "/status/currentVolumeAttributesClassName",
    "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
];

/// Looks at each claim, each volume and each attributes class once.
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
    for class in cluster.all(ATTRIBUTES_CLASSES).into_iter().filter(|class| held(class, ATTRIBUTES_CLASS)) {
        let name = place(&class).1;
        if !is_named(cluster, VOLUMES, &NAMED_BY_VOLUMES, name) && !is_named(cluster, CLAIMS, &NAMED_BY_CLAIMS, name) {
            cluster.let_go(ATTRIBUTES_CLASSES, &class, ATTRIBUTES_CLASS);
        }
    }
}

/// Whether an object of this kind names the attributes class in one of these fields.
fn is_named(cluster: &Cluster, kind: super::Kind, fields: &[&str], class: &str) -> bool {
    cluster.all(kind).iter().any(|object| fields.iter().any(|field| text(object, field) == class))
}

/// Whether a pod uses the claim. A pod without a node does not yet: no kubelet would start it with a deleted claim.
fn is_used(cluster: &Cluster, claim: &Value) -> bool {
    let (namespace, name) = place(claim);
    cluster.all(PODS).iter().any(|pod| {
        place(pod).0 == namespace && !text(pod, "/spec/nodeName").is_empty() && claims_of(pod).any(|it| it == name)
    })
}
