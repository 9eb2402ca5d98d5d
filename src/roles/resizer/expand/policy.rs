//! The next step of a claim whose volume may need an expansion. Pure, total, and tested without a server.
//!
//! ```text
//! gates ─> target ─> checks ─> secret ─> pods ─> begin ─────> ControllerExpandVolume ─┬─> volume ─> claim
//!                                                                                              └─> refusal ─> claim
//! ```
//!
//! Three rules make this safe. An expansion that cannot be requested is never marked as begun in the claim's status, because
//! `allocatedResources` counts against the namespace's quota. The driver is called with a size only after the claim's status says so
//! (I2). The PersistentVolume has the new size before the claim says that a node must reach it (I6).

use std::time::Duration;

use tonic::Code;

use crate::cluster::PersistentVolume;
use crate::csi::volume;
use crate::roles::resizer::claim::{Ownership, ResizeState, Sizes, is_bound, ownership, pause_left, status};
use crate::roles::resizer::error::{InvalidChange, Wait, is_infeasible_expansion, is_refusal};
use crate::roles::resizer::names;
use crate::roles::resizer::progress::{Expanded, Progress};
use crate::roles::resizer::step::{Expand, NodeRetries, Step, Write};
use crate::roles::resizer::view::{Expansion, Pods, View};
use crate::translation::csi_volume;

use super::begin::begin;
use super::target::{Target, target};

/// What to do next for the claim of `view`.
pub fn step(view: &View, progress: &Progress) -> Result<Step, InvalidChange> {
    let claim = view.claim.as_ref();
    let (volume, is_in_tree) = match ownership(claim, view.volume.as_deref(), &view.rules.driver) {
        Ownership::None => return Ok(Step::Settled),
        Ownership::Unseen => return Ok(Step::Wait(Wait::Volume)),
        Ownership::Ours(volume) => (volume, false),
        Ownership::InTree(volume) => (volume, true),
    };
    // A volume that cannot be translated is reported only if there is work to do.
    let translated = csi_volume(volume, &view.rules.driver);
    let volume = translated.as_deref().unwrap_or(volume);
    let told = Sizes::of(claim, volume)?;
    if let Some(refused) = &progress.refused {
        // An error that leaves the outcome open is written only where the claim says that the call was refused.
        let is_due = !refused.is_recorded && (is_refusal(refused.error.code) || told.has_failed);
        return Ok(if is_due { Step::Write(Write::Refusal) } else { Step::Fail(refused.error.clone()) });
    }
    let sizes = Sizes { has_failed: view.memory.last_call.is_refused(told.has_failed), ..told };
    if let Some(expanded) = progress.expanded {
        return Ok(record(view, volume, &sizes, expanded));
    }
    if !is_in_tree && note(volume).is_some() && sizes.capacity >= sizes.volume {
        return Ok(Step::Write(Write::RemoveNote));
    }
    if !is_bound(claim) {
        return Ok(Step::Settled);
    }
    let size = match target(&sizes, view.expansion == Expansion::Controller) {
        Target::Done => return Ok(Step::Settled),
        Target::Node => return Ok(Step::Wait(Wait::Node)),
        Target::Size(size) => size,
    };
    let has_begun = !matches!(sizes.state, ResizeState::None | ResizeState::ControllerInfeasible);
    if volume.metadata.deletion_timestamp.is_some() && !has_begun {
        return Ok(Step::Settled);
    }
    if let Err(why) = &translated {
        return Err(InvalidChange::NotServed(why.clone()));
    }
    match view.expansion {
        Expansion::Unknown => return Ok(Step::Wait(Wait::Driver)),
        Expansion::None => return Err(InvalidChange::NoExpansion(view.rules.driver.clone())),
        Expansion::Controller | Expansion::Node => {}
    }
    if let Some(wait) = pause(view, &sizes, size) {
        return Ok(Step::Wait(wait));
    }
    ask(view, progress, volume, (&sizes, size, told.has_failed))
}

/// The pauses that only time, or another request of the user, ends.
fn pause(view: &View, sizes: &Sizes, size: i64) -> Option<Wait> {
    // Another size that is requested waits only for the outcome of the last call.
    let is_pinned = !sizes.has_failed && size != sizes.requested;
    if sizes.state == ResizeState::ControllerInfeasible && sizes.allocated == Some(size) && !is_pinned {
        // The claim has the time of the last refusal.
        let error = status(&view.claim).condition(names::CONTROLLER_RESIZE_ERROR);
        let told = error.and_then(|error| error.last_transition_time.clone());
        let since = view.memory.last_call.refused_at().or(told);
        return pause_left(since.as_ref(), view.rules.section.retry.infeasible, view.now).map(Wait::Infeasible);
    }
    if sizes.state == ResizeState::NodeInfeasible {
        return node_pause(view, sizes).map(Wait::NodeRetry);
    }
    None
}

/// The rest of the back-off before a node that has failed is asked to try again.
fn node_pause(view: &View, sizes: &Sizes) -> Option<Duration> {
    let held = node_retries(view, sizes)?;
    let elapsed = view.at.saturating_duration_since(held.last);
    let left = view.rules.section.retry.backoff().delay(held.count, None, 0.0).saturating_sub(elapsed);
    (!left.is_zero()).then_some(left)
}

/// How often the node was asked for what is requested now.
fn node_retries(view: &View, sizes: &Sizes) -> Option<NodeRetries> {
    let held = view.memory.node_retries;
    held.filter(|held| (held.requested, held.capacity) == (sizes.requested, sizes.capacity))
}

/// The steps before the call, and the call.
fn ask(
    view: &View,
    progress: &Progress,
    volume: &PersistentVolume,
    (sizes, size, says_failed): (&Sizes, i64, bool),
) -> Result<Step, InvalidChange> {
    let csi = volume.spec.csi.as_deref().filter(|csi| !csi.volume_handle.is_empty()).ok_or(InvalidChange::NoHandle)?;
    if view.expansion == Expansion::Node {
        return Ok(Step::LeaveToNode(size));
    }
    let capability = volume::capability(
        &volume.spec.access_modes,
        volume.spec.is_block(),
        csi.fs_type.as_deref().unwrap_or_default(),
        &volume.spec.mount_options,
        view.rules.multi_writer,
    )
    .map_err(|source| InvalidChange::AccessModes { volume: name(volume), source })?;
    let reference = volume.spec.resize.as_ref().and_then(|resize| resize.expand_secret.as_ref());
    if let (Some(reference), None) = (reference, &progress.secret) {
        return Ok(Step::ReadSecret(reference.clone()));
    }
    match view.pods {
        Pods::None => {}
        Pods::Some => return Ok(Step::Wait(Wait::Pods)),
        Pods::Unknown => return Ok(Step::Wait(Wait::PodList)),
    }
    if let Some(begin) = begin(&view.claim, sizes, size, says_failed) {
        return Ok(Step::Write(Write::BeginExpansion(begin)));
    }
    if !view.is_confirmed {
        return Ok(Step::Confirm);
    }
    Ok(Step::Expand(Box::new(Expand { volume_id: csi.volume_handle.clone(), size, capability })))
}

/// The next write after the driver's answer. The PersistentVolume comes first, because a node that has to act reads there the size
/// that it must reach.
fn record(view: &View, volume: &PersistentVolume, sizes: &Sizes, answer: Expanded) -> Step {
    let is_real = view.expansion == Expansion::Controller;
    let is_other = is_real && sizes.allocated != Some(answer.asked);
    if volume.spec.csi.is_none() || is_other || sizes.capacity > answer.size {
        return Step::DropAnswer;
    }
    // A volume does not shrink. For a driver that only expands on nodes, the size is only a record.
    let size = if is_real { answer.size.max(sizes.volume) } else { answer.size };
    // If the claim said again that the node has to act, it would wait for a kubelet that has nothing left to do. If another writer has
    // written the old size back to the volume, the new one is restored first, because the kubelet reads it there.
    let has_begun = sizes.state == ResizeState::NodeInProgress || sizes.capacity == answer.size;
    if answer.needs_node && has_begun && size == sizes.volume {
        return Step::NodeHasBegun;
    }
    let is_due = view.rules.section.annotate_pre_resize && answer.needs_node && note(volume).is_none();
    let before = (is_due && sizes.capacity > 0 && sizes.capacity < size).then_some(sizes.capacity);
    if size != sizes.volume || before.is_some() {
        return Step::Write(Write::Size { size, before });
    }
    if !answer.needs_node {
        return Step::Write(Write::Expanded(answer.size));
    }
    let asks_again = sizes.state == ResizeState::NodeInfeasible;
    let retries = asks_again.then(|| NodeRetries {
        requested: sizes.requested,
        capacity: sizes.capacity,
        count: node_retries(view, sizes).map_or(0, |held| held.count) + 1,
        last: view.at,
    });
    Step::Write(Write::LeftToNode { begun: (!is_real).then_some(answer.asked), retries })
}

/// The annotation with the size before an expansion that a node has to finish.
pub fn note(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotation(names::ANNOTATION_PRE_RESIZE_CAPACITY)
}

/// Whether only another request of the user, or the end of the pause, can help after this answer to a call: the driver says that the
/// size is infeasible, and it is the one that is still requested.
pub fn waits_after(view: &View, code: Code) -> bool {
    let sizes = view.volume.as_ref().and_then(|volume| Sizes::of(&view.claim, volume).ok());
    let is_other = sizes.is_some_and(|sizes| {
        let sizes = Sizes { has_failed: true, state: ResizeState::ControllerInfeasible, ..sizes };
        sizes.allocated.is_some_and(|asked| target(&sizes, true) != Target::Size(asked))
    });
    is_infeasible_expansion(code) && !is_other
}

fn name(volume: &PersistentVolume) -> String {
    volume.metadata.name.to_string()
}
