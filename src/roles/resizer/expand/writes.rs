//! What an expansion writes: one patch each (resizer spec 6). Pure.
//!
//! Each patch names only what it changes, so that conditions, resources and annotations of others stay, also those that the cache
//! does not have yet.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::patch::{Condition, Guard, MESSAGE_LIMIT, StrategicPatch, truncate_message};
use crate::cluster::quantity::format_bytes;
use crate::cluster::{Patch, PersistentVolume, PersistentVolumeClaim, SmolStr};
use crate::roles::kit::report::gist;
use crate::roles::resizer::claim::status;
use crate::roles::resizer::error::is_infeasible_expansion;
use crate::roles::resizer::names;
use crate::roles::resizer::progress::Refused;
use crate::roles::resizer::step::Begin;

const STATE: [&str; 3] = ["status", "allocatedResourceStatuses", "storage"];
const ALLOCATED: [&str; 3] = ["status", "allocatedResources", "storage"];
const NOT_REQUIRED: [&str; 3] = ["metadata", "annotations", names::ANNOTATION_EXPANSION_NOT_REQUIRED];
const NOTE: [&str; 3] = ["metadata", "annotations", names::ANNOTATION_PRE_RESIZE_CAPACITY];
/// The text of csi-resizer.
const WAITS_FOR_NODE: &str = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
/// The conditions of an expansion. All are removed when it is done.
const CONDITIONS: [&str; 4] =
    [names::CONTROLLER_RESIZE_ERROR, names::NODE_RESIZE_ERROR, names::RESIZING, names::FILE_SYSTEM_RESIZE_PENDING];

/// The claim's status says that the expansion has begun.
pub(in crate::roles::resizer) fn begun(claim: &PersistentVolumeClaim, begin: &Begin, now: Timestamp) -> Option<Patch> {
    let mut patch = StrategicPatch::of(&claim.metadata, Guard::Version);
    if begin.drops_not_required {
        patch = patch.remove(&NOT_REQUIRED);
    }
    if let Some(size) = &begin.allocated {
        patch = patch.set(&ALLOCATED, size.as_str());
    }
    if begin.sets_state {
        patch = patch.set(&STATE, names::CONTROLLER_RESIZE_IN_PROGRESS);
    }
    if begin.sets_resizing {
        // The API keeps whole seconds, and the call is later than the refusal before it.
        let refused = time_of(claim, names::CONTROLLER_RESIZE_ERROR);
        let after = refused.and_then(|refused| refused.checked_add(Duration::from_secs(1)).ok());
        let at = after.map_or(now, |after| now.max(after));
        patch = patch.set_condition(&condition(names::RESIZING, "", "", at));
    }
    begin.removes.iter().fold(patch, |patch, type_| patch.remove_condition(type_)).into_patch()
}

/// The size of the PersistentVolume, and the annotation with the size that the claim had `before`.
pub(in crate::roles::resizer) fn size(volume: &PersistentVolume, size: i64, before: Option<i64>) -> Option<Patch> {
    let patch = StrategicPatch::of(&volume.metadata, Guard::Version);
    let patch = patch.set(&["spec", "capacity", "storage"], format_bytes(size));
    match before {
        Some(before) => patch.set(&NOTE, format_bytes(before)),
        None => patch,
    }
    .into_patch()
}

/// The annotation with the size before the expansion is removed.
pub(in crate::roles::resizer) fn note_removed(volume: &PersistentVolume) -> Option<Patch> {
    StrategicPatch::of(&volume.metadata, Guard::Uid).remove(&NOTE).into_patch()
}

/// A node has to act. `begun`: the size that a driver that only expands on nodes has to reach.
pub(in crate::roles::resizer) fn left_to_node(
    claim: &PersistentVolumeClaim,
    begun: Option<i64>,
    now: Timestamp,
) -> Option<Patch> {
    let mut patch = StrategicPatch::of(&claim.metadata, Guard::Version).set(&STATE, names::NODE_RESIZE_PENDING);
    if let Some(begun) = begun {
        patch = patch.set(&ALLOCATED, words(claim, begun));
        for type_ in [names::CONTROLLER_RESIZE_ERROR, names::NODE_RESIZE_ERROR] {
            if status(claim).condition(type_).is_some() {
                patch = patch.remove_condition(type_);
            }
        }
        if status(claim).condition(names::RESIZING).is_none() {
            patch = patch.set_condition(&condition(names::RESIZING, "", "", now));
        }
    }
    if claim.metadata.annotation(names::ANNOTATION_EXPANSION_NOT_REQUIRED).is_some() {
        patch = patch.remove(&NOT_REQUIRED);
    }
    patch.set_condition(&condition(names::FILE_SYSTEM_RESIZE_PENDING, "", WAITS_FOR_NODE, now)).into_patch()
}

/// The claim has its size, and no node has to act.
pub(in crate::roles::resizer) fn done(claim: &PersistentVolumeClaim, size: i64) -> Option<Patch> {
    let patch = StrategicPatch::of(&claim.metadata, Guard::Version)
        .set(&["status", "capacity", "storage"], format_bytes(size))
        .remove(&STATE)
        .set(&NOT_REQUIRED, "true");
    CONDITIONS.into_iter().fold(patch, StrategicPatch::remove_condition).into_patch()
}

/// How the call has ended. `None`: the claim says so already, but for the time and for IDs in the text. The patch does not depend on the
/// claim's version, but on its uid.
pub(in crate::roles::resizer) fn refused(
    claim: &PersistentVolumeClaim,
    refused: &Refused,
    now: Timestamp,
) -> Option<Patch> {
    let held = status(claim);
    let was_infeasible = held.allocated_status.as_deref() == Some(names::CONTROLLER_RESIZE_INFEASIBLE);
    let state = match (was_infeasible, is_infeasible_expansion(refused.error.code)) {
        (false, true) => Some(names::CONTROLLER_RESIZE_INFEASIBLE),
        (true, false) => Some(names::CONTROLLER_RESIZE_IN_PROGRESS),
        (true, true) | (false, false) => None,
    };
    let message = format!("failed to expand pvc with {}", refused.error);
    let message = truncate_message(&message, MESSAGE_LIMIT);
    let reason = refused.error.label();
    let begun = time_of(claim, names::RESIZING);
    let is_told = begun <= time_of(claim, names::CONTROLLER_RESIZE_ERROR)
        && held
            .condition(names::CONTROLLER_RESIZE_ERROR)
            .is_some_and(|it| it.status == "True" && it.reason == reason && gist(&it.message) == gist(&message));
    if is_told && state.is_none() {
        return None;
    }
    let patch = StrategicPatch::of(&claim.metadata, Guard::Uid);
    let patch = match state {
        Some(state) => patch.set(&STATE, state),
        None => patch,
    };
    // The end of a call is not before its beginning, which another clock may have told.
    let at = begun.map_or(now, |begun| now.max(begun));
    patch.set_condition(&condition(names::CONTROLLER_RESIZE_ERROR, reason, &message, at)).into_patch()
}

/// The time that the claim has for this condition.
fn time_of(claim: &PersistentVolumeClaim, type_: &str) -> Option<Timestamp> {
    Some(status(claim).condition(type_)?.last_transition_time.as_ref()?.0)
}

fn condition<'a>(type_: &'a str, reason: &'a str, message: &'a str, now: Timestamp) -> Condition<'a> {
    Condition { type_, status: "True", reason, message, probed: None, changed: Some(now) }
}

/// The size as the user has written it.
fn words(claim: &PersistentVolumeClaim, size: i64) -> String {
    let said = claim.spec.storage.as_ref();
    let same = said.filter(|text| crate::cluster::quantity::bytes(text) == Ok(size));
    same.map_or_else(|| format_bytes(size), SmolStr::to_string)
}
