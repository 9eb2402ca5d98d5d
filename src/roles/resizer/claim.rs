//! A claim and its volume, as the decisions of both jobs see them. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::cluster::quantity::bytes;
use crate::cluster::{ClaimCondition, ClaimResize, PersistentVolume, PersistentVolumeClaim, SmolStr};

use super::error::{InvalidChange, is_refusal_name};
use super::names;

/// Whether the volume of a claim belongs to our driver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ownership<'a> {
    /// There is no volume, or it belongs to another driver or another claim: the resizer ignores it.
    None,
    /// The claim names a volume that the cache does not have yet.
    Unseen,
    /// It belongs to our driver, and is bound to this claim.
    Ours(&'a PersistentVolume),
    /// An in-tree volume whose claim says that our driver resizes it.
    InTree(&'a PersistentVolume),
}

/// Whether the volume of `claim` belongs to our driver (resizer spec 3.1).
pub fn ownership<'a>(
    claim: &PersistentVolumeClaim,
    volume: Option<&'a PersistentVolume>,
    driver: &str,
) -> Ownership<'a> {
    if claim.spec.volume_name.is_none() {
        return Ownership::None;
    }
    let Some(volume) = volume else { return Ownership::Unseen };
    let is_bound_here = volume.spec.claim_ref.as_deref().is_some_and(|bound| {
        Some(bound.namespace.as_str()) == claim.metadata.namespace.as_deref()
            && bound.uid.is_some()
            && bound.uid.as_deref() == Some(&*claim.metadata.uid)
    });
    if !is_bound_here {
        return Ownership::None;
    }
    let is_successor = volume.spec.in_tree.is_some_and(|source| source.successor() == driver);
    match &volume.spec.csi {
        Some(csi) if csi.driver == driver => Ownership::Ours(volume),
        None if is_successor && claim.metadata.annotation(names::ANNOTATION_STORAGE_RESIZER) == Some(driver) => {
            Ownership::InTree(volume)
        }
        _ => Ownership::None,
    }
}

/// Whether the claim is bound. Only then its volume is changed.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.phase.as_deref() == Some("Bound")
}

/// The status of the claim, as far as a resizer reads it. Empty for a claim that has no volume.
pub fn status(claim: &PersistentVolumeClaim) -> &ClaimResize {
    static EMPTY: LazyLock<ClaimResize> = LazyLock::new(ClaimResize::default);
    claim.status.resize.as_deref().unwrap_or(&EMPTY)
}

/// Whether a claim that names no class any more has a condition that says otherwise.
pub fn is_cancellable(status: &ClaimResize) -> bool {
    let error = status.condition(names::MODIFY_VOLUME_ERROR);
    status.condition(names::MODIFYING_VOLUME).is_some() || error.is_some_and(|it| it.reason == names::FOREIGN_CLASS)
}

/// What the claim says of a modification to `class` that the driver has refused for good.
pub fn failed_text(class: &str) -> String {
    format!("Modifying volume to \"{class}\" failed. Waiting for retry.")
}

/// Whether the claim says that the last `ControllerModifyVolume` was refused for good, and that nothing was begun since: this daemon and
/// csi-resizer write another text, and `InProgress`, before the next call.
pub fn is_modification_refused(status: &ClaimResize) -> bool {
    let Some(modify) = &status.modify else { return false };
    let is_failed = |class: &str| {
        let modifying = status.condition(names::MODIFYING_VOLUME);
        let error = status.condition(names::MODIFY_VOLUME_ERROR);
        modifying.is_some_and(|it| *it.message == *failed_text(class))
            && error.is_some_and(|it| is_refusal_name(&it.reason))
    };
    match modify.status.as_str() {
        names::INFEASIBLE => true,
        names::IN_PROGRESS => modify.target.as_deref().is_some_and(is_failed),
        _ => false,
    }
}

/// How far an expansion is: `status.allocatedResourceStatuses.storage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeState {
    /// Nothing is under way.
    None,
    /// The driver was called, or will be called.
    ControllerInProgress,
    /// The driver has refused the size as infeasible.
    ControllerInfeasible,
    /// The node has to act.
    NodePending,
    /// The node is at work.
    NodeInProgress,
    /// The node cannot do it.
    NodeInfeasible,
    /// A state of an older or later version. The expansion begins anew.
    Unknown,
}

impl ResizeState {
    fn of(text: Option<&str>) -> Self {
        match text {
            None => Self::None,
            Some(names::CONTROLLER_RESIZE_IN_PROGRESS) => Self::ControllerInProgress,
            Some(names::CONTROLLER_RESIZE_INFEASIBLE) => Self::ControllerInfeasible,
            Some(names::NODE_RESIZE_PENDING) => Self::NodePending,
            Some(names::NODE_RESIZE_IN_PROGRESS) => Self::NodeInProgress,
            Some(names::NODE_RESIZE_INFEASIBLE) => Self::NodeInfeasible,
            Some(_) => Self::Unknown,
        }
    }

    /// Whether it is the node's turn, or was.
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::NodePending | Self::NodeInProgress | Self::NodeInfeasible)
    }
}

/// The sizes of a claim and its volume, in bytes, and how far an expansion is: the letters of resizer spec 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// R: the size that the claim requests.
    pub requested: i64,
    /// C: the capacity in the claim's status.
    pub capacity: i64,
    /// A: the size of the last expansion that was begun.
    pub allocated: Option<i64>,
    /// P: the size of the PersistentVolume.
    pub volume: i64,
    /// St: how far the expansion is.
    pub state: ResizeState,
    /// F: the last call has ended in a final error. [`Sizes::of`]: as the claim's status says. The term may know better.
    pub has_failed: bool,
    /// The condition `FileSystemResizePending`, by which older servers say that the node has to act.
    pub waits_for_file_system: bool,
}

impl Sizes {
    /// Reads them.
    pub fn of(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<Self, InvalidChange> {
        let status = status(claim);
        let size = |text: Option<&SmolStr>| text.map_or(Ok(0), |text| bytes(text));
        let pv = volume.spec.resize.as_ref().and_then(|resize| resize.capacity.as_ref());
        let state = ResizeState::of(status.allocated_status.as_deref());
        let has_failed = status.condition(names::CONTROLLER_RESIZE_ERROR).is_some_and(|error| {
            let says_so = match state {
                ResizeState::ControllerInProgress => is_refusal_name(code_of(error)),
                ResizeState::ControllerInfeasible => true,
                _ => false,
            };
            // csi-resizer writes the time of each call to this condition; this daemon, that of a call that repeats a refused one.
            let begun = status.condition(names::RESIZING).and_then(|resizing| resizing.last_transition_time.as_ref());
            says_so && begun <= error.last_transition_time.as_ref()
        });
        Ok(Self {
            requested: size(claim.spec.storage.as_ref())?,
            capacity: size(status.capacity.as_ref())?,
            allocated: status.allocated.as_deref().map(bytes).transpose()?,
            volume: size(pv)?,
            state,
            has_failed,
            waits_for_file_system: status
                .condition(names::FILE_SYSTEM_RESIZE_PENDING)
                .is_some_and(|pending| pending.status == "True"),
        })
    }
}

/// The name of the gRPC code of a refused expansion. csi-resizer gives no reason, but the driver's whole error in the text.
fn code_of(error: &ClaimCondition) -> &str {
    if !error.reason.is_empty() {
        return &error.reason;
    }
    let code = error.message.split_once("rpc error: code = ").and_then(|(_, rest)| rest.split_whitespace().next());
    code.unwrap_or_default()
}

/// The rest of a pause that began at `since`. If `since` is in the future, the clock that wrote it is ahead, and the pause is over:
/// otherwise it would begin again and again until our clock has caught up.
pub fn pause_left(since: Option<&Time>, pause: Duration, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since?.0)).ok()?;
    let left = pause.saturating_sub(elapsed);
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{DRIVER, claim, volume};
    use super::*;

    #[test]
    fn z3_z36_only_our_volumes_that_are_bound_to_this_claim_are_touched() {
        let ours = volume(json!({}));
        let owner = |claim_patch: Value, volume: Option<&PersistentVolume>| match ownership(
            &claim(claim_patch),
            volume,
            DRIVER,
        ) {
            Ownership::None => "none",
            Ownership::Unseen => "unseen",
            Ownership::Ours(_) => "ours",
            Ownership::InTree(_) => "in-tree",
        };
        assert_eq!(owner(json!({}), Some(&ours)), "ours");
        assert_eq!(owner(json!({ "spec": { "volumeName": null } }), Some(&ours)), "none", "no volume (Z2)");
        assert_eq!(owner(json!({}), None), "unseen");
        for bound in [json!(null), json!({ "uid": "other" }), json!({ "namespace": "other" }), json!({ "uid": null })] {
            let other = volume(json!({ "spec": { "claimRef": bound } }));
            assert_eq!(owner(json!({}), Some(&other)), "none", "{bound}");
        }
        let foreign = volume(json!({ "spec": { "csi": { "driver": "other.csi" } } }));
        assert_eq!(owner(json!({}), Some(&foreign)), "none");
        let in_tree = volume(json!({ "spec": { "csi": null, "awsElasticBlockStore": { "volumeID": "v" } } }));
        assert_eq!(owner(json!({}), Some(&in_tree)), "none");
        let resizer = |driver: &str| {
            claim(json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_RESIZER: driver } } }))
        };
        let aws = "ebs.csi.aws.com";
        assert!(matches!(ownership(&resizer(aws), Some(&in_tree), aws), Ownership::InTree(_)));
        assert_eq!(ownership(&resizer(DRIVER), Some(&in_tree), DRIVER), Ownership::None);
    }

    #[test]
    fn only_bound_counts_as_bound_and_only_true_as_true() {
        for (phase, expected) in
            [("Bound", true), ("Pending", false), ("Lost", false), ("bound", false), ("New", false)]
        {
            assert_eq!(is_bound(&claim(json!({ "status": { "phase": phase } }))), expected, "{phase}");
        }
        for (word, expected) in [("True", true), ("False", false), ("Unknown", false), ("true", false), ("New", false)]
        {
            let pending = json!({ "type": "FileSystemResizePending", "status": word });
            let claim = claim(json!({ "status": { "conditions": [pending] } }));
            assert_eq!(Sizes::of(&claim, &volume(json!({}))).unwrap().waits_for_file_system, expected, "{word}");
        }
    }

    #[test]
    fn a_pause_is_counted_from_what_the_claim_says_and_is_over_if_that_is_in_the_future() {
        let at = |text: &str| Time(text.parse().unwrap());
        let now = at("2026-01-01T00:01:00Z").0;
        let pause = Duration::from_secs(100);
        assert_eq!(pause_left(Some(&at("2026-01-01T00:00:30Z")), pause, now), Some(Duration::from_secs(70)));
        assert_eq!(pause_left(Some(&at("2026-01-01T00:30:00Z")), pause, now), None, "a clock that is ahead");
        assert_eq!(pause_left(Some(&at("2025-12-31T23:59:20Z")), pause, now), None);
        assert_eq!(pause_left(None, pause, now), None);
    }

    #[test]
    fn z14_a_final_error_is_known_by_the_reason_that_it_has_left() {
        const INTERNAL: &str = "failed to expand pvc with rpc error: code = Internal desc = no";
        let failed = |state: &str, told: &str, begun: Value| {
            // csi-resizer tells the code in its text alone.
            let (reason, message) = if told.contains(' ') { ("", told) } else { (told, "no") };
            let claim = claim(json!({ "status": {
                "allocatedResourceStatuses": { "storage": state },
                "conditions": [
                    { "type": "Resizing", "status": "True", "lastTransitionTime": begun },
                    { "type": "ControllerResizeError", "status": "True", "reason": reason, "message": message,
                        "lastTransitionTime": "2026-01-01T00:00:05Z" }] } }));
            Sizes::of(&claim, &volume(json!({}))).unwrap().has_failed
        };
        let (before, same, after) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:05Z", "2026-01-01T00:00:06Z");
        for (state, reason, begun, expected) in [
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "Internal", json!(before), true),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "Internal", json!(same), true),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "Internal", json!(null), true),
            // The driver was called since.
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "Internal", json!(after), false),
            (names::CONTROLLER_RESIZE_INFEASIBLE, "OutOfRange", json!(after), false),
            (names::CONTROLLER_RESIZE_INFEASIBLE, "OutOfRange", json!(before), true),
            // What csi-resizer leaves behind.
            (names::CONTROLLER_RESIZE_INFEASIBLE, "", json!(same), true),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "", json!(same), false),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, INTERNAL, json!(same), true),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, INTERNAL, json!(after), false),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "failed: rpc error: code = Aborted desc = busy", json!(same), false),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "failed to expand pvc with code = Internal", json!(same), false),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "DeadlineExceeded", json!(before), false),
            (names::CONTROLLER_RESIZE_IN_PROGRESS, "Whatever", json!(before), false),
            (names::NODE_RESIZE_INFEASIBLE, "Internal", json!(before), false),
        ] {
            assert_eq!(failed(state, reason, begun.clone()), expected, "{state} {reason} {begun}");
        }
    }
}
