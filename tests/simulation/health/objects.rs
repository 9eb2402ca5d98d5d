//! The objects of the play, what can be wrong with a volume, and how the checks read claims.

use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use serde_json::{Value, json};

use crate::world::{DRIVER, text};

pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
/// How many claims have a volume of their own.
pub(super) const COUNT: usize = 4;
/// A claim whose volume has the handle of claim 0's.
pub(super) const TWIN: &str = "twin";
/// What must be left alone: a volume of another driver, which has the handle of claim 1's, and one that names another claim.
pub(super) const LEFT_ALONE: [&str; 2] = ["theirs", "stray"];
/// The handles of the driver's volumes.
pub(super) const HANDLES: [&str; COUNT + 1] = ["handle-0", "handle-1", "handle-2", "handle-3", "handle-stray"];

/// What is wrong with a volume: as the driver stores it, and as it is to be written.
#[derive(Debug)]
pub(super) struct Illness {
    /// Kind, reason and words for people.
    pub(super) entries: &'static [(i32, &'static str, &'static str)],
    /// Status, reason and message of the conditions of a claim, in their order.
    pub(super) conditions: &'static [(&'static str, &'static str, &'static str)],
    /// The text of an Event, of a driver of CSI 1.13 and of one before.
    pub(super) texts: [&'static str; 2],
}

/// All of them. The second and the third differ in their words alone; the last one is of a kind that is not known.
pub(super) const ILLNESSES: [Illness; 6] = [
    Illness {
        entries: &[(1, "PathLost", "one path of two")],
        conditions: &[("Degraded", "PathLost", "one path of two")],
        texts: ["Degraded (PathLost): one path of two", "one path of two"],
    },
    Illness {
        entries: &[(3, "Torn", "block 7")],
        conditions: &[("DataLoss", "Torn", "block 7")],
        texts: ["DataLoss (Torn): block 7", "block 7"],
    },
    Illness {
        entries: &[(3, "Torn", "blocks 7 and 8")],
        conditions: &[("DataLoss", "Torn", "blocks 7 and 8")],
        texts: ["DataLoss (Torn): blocks 7 and 8", "blocks 7 and 8"],
    },
    Illness {
        entries: &[(1, "PathLost", "one path of two"), (3, "Torn", "block 7")],
        conditions: &[("DataLoss", "Torn", "block 7"), ("Degraded", "PathLost", "one path of two")],
        texts: ["DataLoss (Torn): block 7; Degraded (PathLost): one path of two", "one path of two, block 7"],
    },
    Illness {
        entries: &[(2, "", "no path"), (9, "New", "odd")],
        conditions: &[("Inaccessible", "Unspecified", "no path")],
        texts: ["Inaccessible (Unspecified): no path", "no path, odd"],
    },
    Illness { entries: &[(9, "New", "odd")], conditions: &[], texts: ["", "odd"] },
];

pub(super) fn kind(plural: &str) -> &'static Resource {
    resources::find("", "v1", plural).unwrap()
}

pub(super) fn claim_name(name: &str) -> String {
    format!("claim-{name}")
}

pub(super) fn volume_name(name: &str) -> String {
    format!("pv-{name}")
}

/// The names of all claims.
pub(super) fn names() -> impl Iterator<Item = String> {
    (0..COUNT).map(|index| index.to_string()).chain([TWIN, LEFT_ALONE[0], LEFT_ALONE[1]].map(str::to_owned))
}

pub(super) fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": claim_name(name), "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume_name(name),
            "resources": { "requests": { "storage": "1Gi" } } } })
}

/// The volume of a claim with this uid.
pub(super) fn volume(name: &str, claim: &str) -> Value {
    let driver = if name == LEFT_ALONE[0] { "other.csi.example.com" } else { DRIVER };
    let handle = match name {
        TWIN => HANDLES[0].to_owned(),
        it if it == LEFT_ALONE[0] => HANDLES[1].to_owned(),
        _ => format!("handle-{name}"),
    };
    let uid = if name == LEFT_ALONE[1] { "of-another-claim" } else { claim };
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume_name(name) }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": "default", "name": claim_name(name), "uid": uid },
        "csi": { "driver": driver, "volumeHandle": handle } } })
}

/// The handle of a volume of our driver.
pub(super) fn handle(volume: &Value) -> Option<&str> {
    (text(volume, "/spec/csi/driver") == DRIVER).then(|| text(volume, "/spec/csi/volumeHandle"))
}

/// Whether claim and volume are bound to each other, and neither is being deleted.
pub(super) fn are_bound(claim: &Value, volume: &Value) -> bool {
    let is_bound = |object: &Value| {
        text(object, "/status/phase") == "Bound" && text(object, "/metadata/deletionTimestamp").is_empty()
    };
    is_bound(claim)
        && is_bound(volume)
        && text(volume, "/spec/claimRef/uid") == text(claim, "/metadata/uid")
        && text(volume, "/metadata/name") == text(claim, "/spec/volumeName")
}

/// The conditions in the status of a claim: status, reason and message.
pub(super) fn conditions(claim: &Value) -> Vec<(&str, &str, &str)> {
    let all = claim.pointer("/status/healthStatus/healthConditions").and_then(Value::as_array);
    let one = |it| (text(it, "/status"), text(it, "/reason"), text(it, "/message"));
    all.into_iter().flatten().map(one).collect()
}
