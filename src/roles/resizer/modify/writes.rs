//! What a modification writes: one patch each (resizer spec 6). Pure.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::patch::{Condition, Guard, MESSAGE_LIMIT, StrategicPatch, truncate_message};
use crate::cluster::{ClaimCondition, Patch, PersistentVolume, PersistentVolumeClaim};
use crate::roles::kit::report::gist;
use crate::roles::resizer::claim::{failed_text, status};
use crate::roles::resizer::error::{is_infeasible_modification, is_refusal};
use crate::roles::resizer::names;
use crate::roles::resizer::progress::Refused;

const MODIFY: [&str; 2] = ["status", "modifyVolumeStatus"];

/// The claim's status says that the modification to `class` has begun.
pub(in crate::roles::resizer) fn begun(claim: &PersistentVolumeClaim, class: &str, now: Timestamp) -> Option<Patch> {
    let is_other = status(claim).modify.as_ref().is_none_or(|modify| modify.target.as_deref() != Some(class));
    let error = status(claim).condition(names::MODIFY_VOLUME_ERROR);
    let message = format!("Modifying volume to \"{class}\" is in progress.");
    let mut patch = StrategicPatch::of(&claim.metadata, Guard::Version)
        .set(&MODIFY, state(names::IN_PROGRESS, class))
        .set_condition(&condition(claim, names::MODIFYING_VOLUME, "", &message, now));
    // The condition is about another class.
    if error.is_some_and(|error| is_other || error.reason == names::FOREIGN_CLASS) {
        patch = patch.remove_condition(names::MODIFY_VOLUME_ERROR);
    }
    patch.into_patch()
}

/// The claim's class is missing. The class that was begun before stays in the status.
pub(in crate::roles::resizer) fn pending(claim: &PersistentVolumeClaim) -> Option<Patch> {
    let state = [MODIFY[0], MODIFY[1], "status"];
    StrategicPatch::of(&claim.metadata, Guard::Version).set(&state, names::PENDING).into_patch()
}

/// The class is another driver's. Nothing is being modified.
pub(in crate::roles::resizer) fn foreign(
    claim: &PersistentVolumeClaim,
    class: &str,
    message: &str,
    now: Timestamp,
) -> Option<Patch> {
    let patch = StrategicPatch::of(&claim.metadata, Guard::Version)
        .set(&MODIFY, state(names::INFEASIBLE, class))
        .set_condition(&condition(claim, names::MODIFY_VOLUME_ERROR, names::FOREIGN_CLASS, message, now));
    let is_told = status(claim).condition(names::MODIFYING_VOLUME).is_some();
    if is_told { patch.remove_condition(names::MODIFYING_VOLUME) } else { patch }.into_patch()
}

/// Why the driver has refused. `None`: the claim says so already, but for the time and for IDs in the text.
pub(in crate::roles::resizer) fn refused(
    claim: &PersistentVolumeClaim,
    refused: &Refused,
    now: Timestamp,
) -> Option<Patch> {
    let code = refused.error.code;
    let to = if is_infeasible_modification(code) { names::INFEASIBLE } else { names::IN_PROGRESS };
    let class = &refused.asked;
    let still = || format!("Modifying volume to \"{class}\" is still in progress.");
    let modifying = if is_refusal(code) { failed_text(class) } else { still() };
    let error = truncate_message(&refused.error.message, MESSAGE_LIMIT);
    let held = status(claim);
    let says = |type_: &str, reason: &str, message: &str| {
        let is_same =
            |it: &ClaimCondition| it.status == "True" && it.reason == reason && gist(&it.message) == gist(message);
        held.condition(type_).is_some_and(is_same)
    };
    let is_told = held.modify.as_ref().is_some_and(|modify| modify.status == to)
        && says(names::MODIFYING_VOLUME, "", &modifying)
        && says(names::MODIFY_VOLUME_ERROR, refused.error.label(), &error);
    if is_told {
        return None;
    }
    StrategicPatch::of(&claim.metadata, Guard::Version)
        .set(&MODIFY, state(to, &refused.asked))
        .set_condition(&condition(claim, names::MODIFYING_VOLUME, "", &modifying, now))
        .set_condition(&condition(claim, names::MODIFY_VOLUME_ERROR, refused.error.label(), &error, now))
        .into_patch()
}

/// The class of the PersistentVolume.
pub(in crate::roles::resizer) fn class(volume: &PersistentVolume, class: &str) -> Option<Patch> {
    StrategicPatch::of(&volume.metadata, Guard::Uid).set(&["spec", "volumeAttributesClassName"], class).into_patch()
}

/// The claim has its class.
pub(in crate::roles::resizer) fn done(claim: &PersistentVolumeClaim, class: &str) -> Option<Patch> {
    StrategicPatch::of(&claim.metadata, Guard::Version)
        .remove(&MODIFY)
        .set(&["status", "currentVolumeAttributesClassName"], class)
        .remove_condition(names::MODIFYING_VOLUME)
        .remove_condition(names::MODIFY_VOLUME_ERROR)
        .into_patch()
}

/// Nothing is being modified any more.
pub(in crate::roles::resizer) fn cancelled(claim: &PersistentVolumeClaim) -> Option<Patch> {
    let error = status(claim).condition(names::MODIFY_VOLUME_ERROR);
    let patch = StrategicPatch::of(&claim.metadata, Guard::Uid).remove_condition(names::MODIFYING_VOLUME);
    let is_foreign = error.is_some_and(|error| error.reason == names::FOREIGN_CLASS);
    if is_foreign { patch.remove_condition(names::MODIFY_VOLUME_ERROR) } else { patch }.into_patch()
}

fn state(status: &str, target: &str) -> Value {
    json!({ "status": status, "targetVolumeAttributesClassName": target })
}

/// The time of the last transition is written only if the status or the reason changes.
fn condition<'a>(
    claim: &PersistentVolumeClaim,
    type_: &'a str,
    reason: &'a str,
    message: &'a str,
    now: Timestamp,
) -> Condition<'a> {
    let is_same = |held: &ClaimCondition| held.status == "True" && held.reason == reason;
    let changed = (!status(claim).condition(type_).is_some_and(is_same)).then_some(now);
    Condition { type_, status: "True", reason, message, probed: Some(now), changed }
}
