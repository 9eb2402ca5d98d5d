//! Claims, volumes and views for the tests of the decisions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{Cached as _, Fields, PersistentVolume, PersistentVolumeClaim};
use crate::process::Clock;
use crate::roles::kit::fixtures::merged;

use super::config::ResizerSection;
use super::job::Job;
use super::progress::{Memory, Progress};
use super::view::{Class, Expansion, Pods, Rules, View};

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

/// The rules of a driver that can do everything.
pub(super) fn rules() -> Rules {
    let section = ResizerSection::default();
    Rules { driver: DRIVER.to_owned(), section, multi_writer: false, modifies: true, pairs: false }
}

/// A view of a change that the term does not remember.
pub(super) fn view(job: Job, claim: PersistentVolumeClaim, volume: Option<PersistentVolume>) -> View {
    View {
        rules: Arc::new(rules()),
        job,
        id: job.id(&claim.metadata.uid),
        claim: Arc::new(claim),
        volume: volume.map(Arc::new),
        handle: Some("handle-1".to_owned()),
        expansion: Expansion::Controller,
        pods: Pods::None,
        wanted: Class::Missing,
        begun: Class::Missing,
        memory: Memory::default(),
        partner: None,
        is_confirmed: true,
        now: "2026-01-01T00:10:00Z".parse().unwrap(),
        at: Clock::system().now(),
    }
}

/// An attempt that has done nothing.
pub(super) fn progress(job: Job) -> Progress {
    let first = view(job, claim(json!({})), None);
    Progress::begin(job, first.name(), first.at, &first.memory)
}
