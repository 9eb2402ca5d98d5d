//! Claims and volumes for the tests of the decisions.

use serde_json::{Value, json};

use crate::cluster::{Cached as _, Fields, PersistentVolume, PersistentVolumeClaim};
use crate::roles::kit::fixtures::merged;

pub(super) const DRIVER: &str = "demo.csi.example.com";

/// A bound claim of 1Gi, changed by `patch`.
pub(super) fn claim_value(patch: Value) -> Value {
    let base = json!({
        "metadata": { "name": "data", "namespace": "default", "uid": "claim-uid", "resourceVersion": "7" },
        "spec": { "volumeName": "pv-1", "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
    });
    merged(base, patch)
}

/// The same as a cache holds it.
pub(super) fn claim(patch: Value) -> PersistentVolumeClaim {
    let mut claim: PersistentVolumeClaim = serde_json::from_value(claim_value(patch)).unwrap();
    claim.trim(DRIVER, Fields::RESIZE);
    claim
}

/// The claim's volume of 1Gi, changed by `patch`.
pub(super) fn volume_value(patch: Value) -> Value {
    let base = json!({
        "metadata": { "name": "pv-1", "uid": "volume-uid", "resourceVersion": "8" },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "default", "name": "data", "uid": "claim-uid" },
            "csi": { "driver": DRIVER, "volumeHandle": "handle-1", "fsType": "ext4" },
        },
        "status": { "phase": "Bound" },
    });
    merged(base, patch)
}

/// The same as a cache holds it.
pub(super) fn volume(patch: Value) -> PersistentVolume {
    let mut volume: PersistentVolume = serde_json::from_value(volume_value(patch)).unwrap();
    volume.trim(DRIVER, Fields::RESIZE);
    volume
}
