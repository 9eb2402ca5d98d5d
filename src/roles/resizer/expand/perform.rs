//! Performs the steps of an expansion. [`super::decide`] decides which step comes next.

use k8s_openapi::jiff::Timestamp;

use crate::cluster::EventKind;
use crate::cluster::quantity::format_bytes;
use crate::csi::RpcError;
use crate::proto::{CapacityRange, ControllerExpandVolumeRequest};
use crate::roles::kit::Secret;
use crate::roles::resizer::attempt;
use crate::roles::resizer::claim::{ResizeState, Sizes, status};
use crate::roles::resizer::context::{Context, Objects};
use crate::roles::resizer::error::{
    BEGIN_EXPANSION, CLEAN_UP, InvalidChange, RECORD_DONE, RECORD_NODE, RECORD_SIZE, is_refusal,
};
use crate::roles::resizer::memory::{Job, LastCall};
use crate::roles::resizer::objects::{Stop, patch_claim, patch_volume};
use crate::roles::resizer::turn::Turn;

use super::begin::Begin;
use super::decide::{Answer, Expand, Refused};
use super::writes;

/// The outcome of a step.
pub(super) type Done = attempt::Done<i64, Answer>;

/// Writes to the claim's status that the expansion has begun. For a new size there is an Event.
pub(super) async fn begin(
    cx: &Context,
    now: &Objects,
    begin: &Begin,
    turn: &Turn,
    at: Timestamp,
) -> Result<Done, Stop> {
    let Some(patch) = writes::begun(&now.claim, begin, at) else { return Ok(Done::Nothing) };
    let Some(written) = patch_claim(cx, now, turn, &patch, BEGIN_EXPANSION).await? else { return Ok(Done::Nothing) };
    // A server without the feature gate accepts the write and drops the field.
    let is_stored = begin.allocated.is_none() || status(&written).allocated.is_some();
    if !is_stored {
        let gate = "RecoverVolumeExpansionFailure";
        return Err(InvalidChange::NotStored("status.allocatedResources of claims", gate).into());
    }
    cx.confirmed.note(now.uid());
    if begin.is_fresh {
        cx.event(now, EventKind::Normal, "Resizing", &beginning(now));
    } else {
        cx.tell_of_attempt(now, "Resizing", &beginning(now));
    }
    Ok(Done::Nothing)
}

/// Writes the Event of a new size for a driver that only expands on nodes: no status says whether there was one.
pub(super) fn tell_of_size(cx: &Context, now: &Objects, size: i64) {
    if cx.told.is_news((now.uid().to_owned(), Job::Expand), &format!("to {size}")) {
        cx.event(now, EventKind::Normal, "Resizing", &beginning(now));
    } else {
        cx.tell_of_attempt(now, "Resizing", &beginning(now));
    }
}

fn beginning(now: &Objects) -> String {
    format!("External resizer is resizing volume {}", now.volume_name())
}

/// Calls `ControllerExpandVolume`.
pub(super) async fn expand(cx: &Context, now: &Objects, expand: Expand, secret: Option<&Secret>) -> Result<Done, Stop> {
    let request = ControllerExpandVolumeRequest {
        volume_id: expand.volume_id,
        capacity_range: Some(CapacityRange { required_bytes: expand.size, limit_bytes: 0 }),
        secrets: secret.map(Secret::texts).unwrap_or_default(),
        volume_capability: Some(expand.capability),
    };
    let is_migrated = now.volume.as_ref().is_some_and(|volume| volume.spec.in_tree.is_some());
    let client = cx.scope.driver.use_now()?.for_migrated(is_migrated).with_own_timeout(cx.section.resize_timeout);
    // From here on the outcome is unknown until the driver answers.
    cx.note_call(now.uid(), Job::Expand, Some(LastCall::Open));
    let answer: Result<_, RpcError> = cx.scope.term.during(client.controller_expand_volume(request)).await?;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            if cx.section.in_use_check && error.code == tonic::Code::FailedPrecondition {
                cx.in_use.mark(&now.name(), now.uid());
            } else {
                cx.in_use.unmark(&now.name(), now.uid());
            }
            if is_refusal(error.code) {
                cx.note_call(now.uid(), Job::Expand, Some(LastCall::Refused(cx.scope.clock.wall())));
            }
            return Ok(Done::Refused(Refused { asked: expand.size, error, is_recorded: false }));
        }
    };
    cx.in_use.unmark(&now.name(), now.uid());
    let size = match answer.capacity_bytes {
        0 => {
            tracing::info!(volume = now.volume_name(), "the driver's answer has no size: the requested size counts");
            expand.size
        }
        size if size < expand.size => {
            // The call is over, and has not done what it was to do: another request of the user counts from now on.
            cx.note_call(now.uid(), Job::Expand, Some(LastCall::Refused(cx.scope.clock.wall())));
            return Err(InvalidChange::TooSmall { asked: expand.size, answered: size }.into());
        }
        size => size,
    };
    let answer = Answer { asked: expand.size, size, needs_node: answer.node_expansion_required };
    cx.expanded.set(now.uid(), answer);
    cx.note_call(now.uid(), Job::Expand, None);
    Ok(Done::Answered(answer))
}

/// Writes the size to the PersistentVolume.
pub(super) async fn record_size(
    cx: &Context,
    now: &Objects,
    size: i64,
    before: Option<i64>,
    turn: &Turn,
) -> Result<Done, Stop> {
    let Some(volume) = &now.volume else { return Ok(Done::Nothing) };
    let Some(patch) = writes::size(volume, size, before) else { return Ok(Done::Nothing) };
    patch_volume(cx, now, Some(turn), &patch, RECORD_SIZE).await.map(|()| Done::Nothing)
}

/// Writes to the claim's status that its node has to act.
pub(super) async fn record_node(
    cx: &Context,
    now: &Objects,
    begun: Option<i64>,
    turn: &Turn,
    at: Timestamp,
) -> Result<Done, Stop> {
    let Some(patch) = writes::left_to_node(&now.claim, begun, at) else { return Ok(Done::Nothing) };
    if patch_claim(cx, now, turn, &patch, RECORD_NODE).await?.is_none() {
        return Ok(Done::Nothing);
    }
    let sizes = now.volume.as_ref().and_then(|volume| Sizes::of(&now.claim, volume).ok());
    if let Some(sizes) = sizes.filter(|sizes| sizes.state == ResizeState::NodeInfeasible) {
        cx.note_node_retry(now.uid(), sizes.requested, sizes.capacity);
    }
    Ok(left_to_node(cx, now))
}

/// The claim says that its node has to act, or has acted.
pub(super) fn left_to_node(cx: &Context, now: &Objects) -> Done {
    finished(cx, now);
    cx.event(now, EventKind::Normal, "FileSystemResizeRequired", "Require file system resize of volume on node");
    Done::Recorded
}

/// Writes the new size to the claim's status.
pub(super) async fn record_done(cx: &Context, now: &Objects, size: i64, turn: &Turn) -> Result<Done, Stop> {
    let Some(patch) = writes::done(&now.claim, size) else { return Ok(Done::Nothing) };
    if patch_claim(cx, now, turn, &patch, RECORD_DONE).await?.is_none() {
        return Ok(Done::Nothing);
    }
    tracing::info!(size = format_bytes(size), "expanded");
    finished(cx, now);
    cx.event(now, EventKind::Normal, "VolumeResizeSuccessful", "Resize volume succeeded");
    Ok(Done::Recorded)
}

/// Forgets the attempts before this success.
fn finished(cx: &Context, now: &Objects) {
    cx.expanded.forget(now.uid());
    cx.told.forget(&(now.uid().to_owned(), Job::Expand));
}

/// Removes the annotation with the size before the expansion from the PersistentVolume.
pub(super) async fn remove_note(cx: &Context, now: &Objects) -> Result<Done, Stop> {
    let Some(volume) = &now.volume else { return Ok(Done::Nothing) };
    let Some(patch) = writes::note_removed(volume) else { return Ok(Done::Nothing) };
    patch_volume(cx, now, None, &patch, CLEAN_UP).await.map(|()| Done::Nothing)
}
