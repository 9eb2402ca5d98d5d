//! Performs the steps of a modification. [`super::decide`] decides which step comes next.

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{EventKind, ObjectName, Patch, VolumeAttributesClass};
use crate::csi::RpcError;
use crate::proto::ControllerModifyVolumeRequest;
use crate::roles::kit::Secret;
use crate::roles::resizer::attempt;
use crate::roles::resizer::claim::status;
use crate::roles::resizer::context::{Context, Objects};
use crate::roles::resizer::error::{
    BEGIN_MODIFICATION, CANCEL, InvalidChange, LOOK_UP, RECORD_CLASS, RECORD_MODIFIED, RECORD_UNUSABLE, is_refusal,
};
use crate::roles::resizer::memory::{Job, LastCall};
use crate::roles::resizer::objects::{Stop, patch_claim, patch_volume};
use crate::roles::resizer::turn::Turn;

use super::decide::{Modify, Refused};
use super::writes;

/// The outcome of a step.
pub(super) type Done = attempt::Done<String, String>;

/// Asks the API for a class that the cache lacks.
pub(super) async fn look_up(cx: &Context, now: &Objects, class: &str) -> Result<Done, Stop> {
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::cluster(class);
    let found = api.get_opt::<VolumeAttributesClass>(&name).await.map_err(|error| LOOK_UP.failed(error))?;
    match found {
        None => {
            let begun = status(&now.claim).modify.as_ref().and_then(|modify| modify.target.as_deref());
            if begun == Some(class) {
                cx.note_missing(now.uid(), class);
            }
            Ok(Done::LookedUp)
        }
        Some(_) => Err(Stop::Behind(InvalidChange::UnseenClass(class.to_owned()).into())),
    }
}

/// Writes to the claim's status that the modification has begun. For a new class there is an Event.
pub(super) async fn begin(cx: &Context, now: &Objects, class: &str, turn: &Turn, at: Timestamp) -> Result<Done, Stop> {
    let is_new = status(&now.claim).modify.as_ref().is_none_or(|modify| modify.target.as_deref() != Some(class));
    let Some(patch) = writes::begun(&now.claim, class, at) else { return Ok(Done::Nothing) };
    let Some(written) = patch_claim(cx, now, turn, &patch, BEGIN_MODIFICATION).await? else { return Ok(Done::Nothing) };
    // A server without the feature gate accepts the write and drops the field.
    if status(&written).modify.is_none() {
        return Err(InvalidChange::NotStored("status.modifyVolumeStatus of claims", "VolumeAttributesClass").into());
    }
    cx.confirmed.note(now.uid());
    let name = now.name();
    let note = format!("external resizer is modifying volume {} with vac {class}", name.name());
    if is_new {
        cx.event(now, EventKind::Normal, "VolumeModify", &note);
    } else {
        cx.tell_of_attempt(now, "VolumeModify", &note);
    }
    Ok(Done::Nothing)
}

/// Calls `ControllerModifyVolume`.
pub(super) async fn modify(cx: &Context, now: &Objects, modify: Modify, secret: Option<&Secret>) -> Result<Done, Stop> {
    let request = ControllerModifyVolumeRequest {
        volume_id: modify.volume_id,
        secrets: secret.map(Secret::texts).unwrap_or_default(),
        mutable_parameters: modify.parameters.into_iter().collect(),
    };
    let client = cx.scope.driver.use_now()?.with_own_timeout(cx.section.modify_timeout);
    cx.missing.forget(now.uid());
    // From here on the outcome is unknown until the driver answers.
    cx.note_call(now.uid(), Job::Modify, Some(LastCall::Open));
    let answer: Result<_, RpcError> = cx.scope.term.during(client.controller_modify_volume(request)).await?;
    match answer {
        Ok(_) => {
            cx.note_call(now.uid(), Job::Modify, None);
            cx.modified.set(now.uid(), modify.class.clone());
            Ok(Done::Answered(modify.class))
        }
        Err(error) => {
            if is_refusal(error.code) {
                cx.note_call(now.uid(), Job::Modify, Some(LastCall::Refused(cx.scope.clock.wall())));
            }
            Ok(Done::Refused(Refused { asked: modify.class, error, is_recorded: false }))
        }
    }
}

/// Writes the class to the PersistentVolume.
pub(super) async fn record_class(cx: &Context, now: &Objects, class: &str, turn: &Turn) -> Result<Done, Stop> {
    let Some(volume) = &now.volume else { return Ok(Done::Nothing) };
    let Some(patch) = writes::class(volume, class) else { return Ok(Done::Nothing) };
    patch_volume(cx, now, Some(turn), &patch, RECORD_CLASS).await.map(|()| Done::Nothing)
}

/// Writes the new class to the claim's status.
pub(super) async fn record_modified(cx: &Context, now: &Objects, class: &str, turn: &Turn) -> Result<Done, Stop> {
    let Some(patch) = writes::done(&now.claim, class) else { return Ok(Done::Nothing) };
    if patch_claim(cx, now, turn, &patch, RECORD_MODIFIED).await?.is_none() {
        return Ok(Done::Nothing);
    }
    tracing::info!(class, "modified");
    cx.modified.forget(now.uid());
    cx.told.forget(&(now.uid().to_owned(), Job::Modify));
    let name = now.name();
    let note = format!("external resizer modified volume {} with vac {class} successfully", name.name());
    cx.event(now, EventKind::Normal, "VolumeModifySuccessful", &note);
    Ok(Done::Recorded)
}

/// Writes to the claim's status why its class cannot be used.
pub(super) async fn record_unusable(
    cx: &Context,
    now: &Objects,
    patch: Option<Patch>,
    turn: &Turn,
) -> Result<Done, Stop> {
    let Some(patch) = patch else { return Ok(Done::Nothing) };
    if let Some(written) = patch_claim(cx, now, turn, &patch, RECORD_UNUSABLE).await?
        && status(&written).modify.is_none()
    {
        return Err(InvalidChange::NotStored("status.modifyVolumeStatus of claims", "VolumeAttributesClass").into());
    }
    Ok(Done::Nothing)
}

/// The claim names no class any more, and its volume never had one.
pub(super) async fn cancel(cx: &Context, now: &Objects, turn: &Turn) -> Result<Done, Stop> {
    let Some(patch) = writes::cancelled(&now.claim) else { return Ok(Done::Nothing) };
    if patch_claim(cx, now, turn, &patch, CANCEL).await?.is_some() {
        cx.event(now, EventKind::Normal, "VolumeModifyCanceled", "Cancelled modify.");
    }
    Ok(Done::Nothing)
}
