//! The next step of a claim whose volume may need an expansion. Pure, total, and tested without a server.
//!
//! ```text
//! gates ─> target ─> checks ─> secret ─> turn ─> pods ─> begin ─────> ControllerExpandVolume ─┬─> volume ─> claim
//!                                                                                              └─> refusal ─> claim
//! ```
//!
//! Three rules make this safe. An expansion that cannot be requested is never marked as begun in the claim's status, because
//! `allocatedResources` counts against the namespace's quota. The driver is called with a size only after the claim's status says so
//! (I2). The PersistentVolume has the new size before the claim says that a node must reach it (I6).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{PersistentVolume, PersistentVolumeClaim, SecretRef};
use crate::csi::RpcError;
use crate::csi::volume;
use crate::proto::VolumeCapability;
use crate::roles::resizer::claim::{Ownership, ResizeState, Sizes, is_bound, ownership, pause_left, status};
use crate::roles::resizer::error::{InvalidChange, is_infeasible_expansion, is_refusal};
use crate::roles::resizer::memory::LastCall;
use crate::roles::resizer::names;
use crate::roles::resizer::progress;
use crate::translation::csi_volume;

use super::begin::{Begin, begin};
use super::target::{Target, target};

/// How the driver expands volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expansion {
    /// By a call of the Controller service, and perhaps also of the Node service.
    Controller,
    /// By a call of the Node service alone.
    Node,
    /// It does not.
    None,
    /// The Node service has not answered yet.
    Unknown,
}

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The driver has `SINGLE_NODE_MULTI_WRITER`.
    pub multi_writer: bool,
    /// The PersistentVolume gets an annotation with the size before an expansion, until the node has finished.
    pub annotates: bool,
    /// The pause after the driver has refused a size as infeasible.
    pub infeasible_pause: Duration,
}

/// Whether pods use the claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// No pod uses it, or the driver has not refused it because it is in use.
    None,
    /// The driver has refused the volume while it was in use, and a pod still uses it.
    Some,
    /// The driver has refused the volume, and the pods are not listed yet.
    Unknown,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Its volume, if the cache holds it.
    pub volume: Option<&'a PersistentVolume>,
    /// How the driver expands volumes.
    pub expansion: Expansion,
    /// The pods that use it.
    pub pods: Pods,
    /// The rest of the back-off before a node that has failed is asked to try again.
    pub node_pause: Option<Duration>,
    /// What is known of the last call.
    pub last_call: LastCall,
    /// The API has shown the claim during the term.
    pub is_confirmed: bool,
    /// When the attempt began.
    pub now: Timestamp,
    /// The term's rules.
    pub rules: &'a Rules,
    /// What this attempt has done so far.
    pub progress: &'a Progress,
}

/// What one attempt has done so far.
pub type Progress = progress::Progress<i64, Answer>;
/// Why the driver has not expanded the volume.
pub type Refused = progress::Refused<i64>;

/// The driver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The requested size.
    pub asked: i64,
    /// The size that the volume has now.
    pub size: i64,
    /// Whether a node has to act.
    pub needs_node: bool,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing: the claim has what it asks for, or it is not ours.
    Settled,
    /// Nothing until something else has happened.
    Wait(Wait),
    /// Remove the annotation with the size before a finished expansion from the PersistentVolume.
    RemoveNote,
    /// Read the secret.
    ReadSecret(SecretRef),
    /// Lock the volume with this handle.
    TakeTurn(String),
    /// Write to the claim's status that the expansion has begun.
    Begin(Begin),
    /// Read the claim from the API, because the cache may be old.
    Confirm,
    /// `ControllerExpandVolume`.
    Expand(Box<Expand>),
    /// For a driver that only expands on nodes: go on without a call.
    LeaveToNode(i64),
    /// Write the size to the PersistentVolume.
    RecordSize {
        /// The size.
        size: i64,
        /// The size that the claim had before, if the annotation is needed.
        before: Option<i64>,
    },
    /// Write to the claim's status that its node has to act. For a driver that only expands on nodes, also the size that was begun.
    RecordNode {
        /// The size that was begun, if the claim's status does not have it yet.
        begun: Option<i64>,
    },
    /// The node has begun or finished meanwhile: the write to the claim took effect, although its answer was lost.
    NodeHasBegun,
    /// Write the new size to the claim's status.
    RecordDone(i64),
    /// Drop the driver's answer, because somebody else has begun another expansion meanwhile.
    DropAnswer,
    /// Write to the claim's status why the driver has refused.
    RecordRefusal,
    /// The driver has refused, and nothing is left to be recorded.
    Refused(RpcError),
    /// Give up this attempt.
    Refuse(InvalidChange),
}

/// What a claim waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Its node has to act.
    Node,
    /// Its volume is in use.
    Pods,
    /// The pods of its namespace are not listed yet.
    PodList,
    /// The driver has refused the size as infeasible.
    Infeasible(Duration),
    /// A node has failed at this size before.
    NodeRetry(Duration),
    /// The cache lacks its volume.
    Volume,
    /// It is not known yet how the driver expands volumes.
    Driver,
}

/// The request of an expansion, without the secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Expand {
    /// The volume's handle.
    pub volume_id: String,
    /// The requested size.
    pub size: i64,
    /// The volume's capability: its access mode and type.
    pub capability: VolumeCapability,
}

/// What to do next for the claim of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    if view.progress.gone {
        return Step::Settled;
    }
    step(view).unwrap_or_else(Step::Refuse)
}

fn step(view: &View<'_>) -> Result<Step, InvalidChange> {
    let claim = view.claim;
    let (volume, is_in_tree) = match ownership(claim, view.volume, &view.rules.driver) {
        Ownership::None => return Ok(Step::Settled),
        Ownership::Unseen => return Ok(Step::Wait(Wait::Volume)),
        Ownership::Ours(volume) => (volume, false),
        Ownership::InTree(volume) => (volume, true),
    };
    // A volume that cannot be translated is reported only if there is work to do.
    let translated = csi_volume(volume, &view.rules.driver);
    let volume = translated.as_deref().unwrap_or(volume);
    let told = Sizes::of(claim, volume)?;
    if let Some(refused) = &view.progress.refused {
        // An error that leaves the outcome open is written only where the claim says that the call was refused.
        let is_due = !refused.is_recorded && (is_refusal(refused.error.code) || told.has_failed);
        return Ok(if is_due { Step::RecordRefusal } else { Step::Refused(refused.error.clone()) });
    }
    let sizes = Sizes { has_failed: view.last_call.is_refused(told.has_failed), ..told };
    if let Some(answer) = view.progress.answer {
        return Ok(record(view, volume, &sizes, answer));
    }
    if !is_in_tree && note(volume).is_some() && sizes.capacity >= sizes.volume {
        return Ok(Step::RemoveNote);
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
    ask(view, volume, &sizes, size, told.has_failed)
}

/// The pauses that only time, or another request of the user, ends.
fn pause(view: &View<'_>, sizes: &Sizes, size: i64) -> Option<Wait> {
    // Another size that is requested waits only for the outcome of the last call.
    let is_pinned = !sizes.has_failed && size != sizes.requested;
    if sizes.state == ResizeState::ControllerInfeasible && sizes.allocated == Some(size) && !is_pinned {
        // The claim has the time of the last refusal.
        let error = status(view.claim).condition(names::CONTROLLER_RESIZE_ERROR);
        let told = error.and_then(|error| error.last_transition_time.clone());
        let since = view.last_call.refused_at().or(told);
        return pause_left(since.as_ref(), view.rules.infeasible_pause, view.now).map(Wait::Infeasible);
    }
    if sizes.state == ResizeState::NodeInfeasible {
        return view.node_pause.map(Wait::NodeRetry);
    }
    None
}

/// The steps before the call, and the call.
fn ask(
    view: &View<'_>,
    volume: &PersistentVolume,
    sizes: &Sizes,
    size: i64,
    says_failed: bool,
) -> Result<Step, InvalidChange> {
    let progress = view.progress;
    let csi = volume.spec.csi.as_deref().filter(|csi| !csi.volume_handle.is_empty()).ok_or(InvalidChange::NoHandle)?;
    if view.expansion == Expansion::Node {
        return Ok(if progress.has_turn { Step::LeaveToNode(size) } else { Step::TakeTurn(csi.volume_handle.clone()) });
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
    if !progress.has_turn {
        return Ok(Step::TakeTurn(csi.volume_handle.clone()));
    }
    match view.pods {
        Pods::None => {}
        Pods::Some => return Ok(Step::Wait(Wait::Pods)),
        Pods::Unknown => return Ok(Step::Wait(Wait::PodList)),
    }
    if let Some(begin) = begin(view.claim, sizes, size, says_failed) {
        return Ok(Step::Begin(begin));
    }
    if !view.is_confirmed {
        return Ok(Step::Confirm);
    }
    Ok(Step::Expand(Box::new(Expand { volume_id: csi.volume_handle.clone(), size, capability })))
}

/// The next write after the driver's answer. The PersistentVolume comes first, because a node that has to act reads there the size
/// that it must reach.
fn record(view: &View<'_>, volume: &PersistentVolume, sizes: &Sizes, answer: Answer) -> Step {
    if !view.progress.has_turn {
        return match &volume.spec.csi {
            Some(csi) => Step::TakeTurn(csi.volume_handle.clone()),
            None => Step::DropAnswer,
        };
    }
    let is_real = view.expansion == Expansion::Controller;
    if is_real && sizes.allocated != Some(answer.asked) {
        return Step::DropAnswer;
    }
    if sizes.capacity > answer.size {
        return Step::DropAnswer;
    }
    // A volume does not shrink. For a driver that only expands on nodes, the size is only a record.
    let size = if is_real { answer.size.max(sizes.volume) } else { answer.size };
    // If the claim said again that the node has to act, it would wait for a kubelet that has nothing left to do. If somebody has
    // written the old size back to the volume, the new one is restored first, because the kubelet reads it there.
    let has_begun = sizes.state == ResizeState::NodeInProgress || sizes.capacity == answer.size;
    if answer.needs_node && has_begun && size == sizes.volume {
        return Step::NodeHasBegun;
    }
    let is_due = view.rules.annotates && answer.needs_node && note(volume).is_none();
    let before = (is_due && sizes.capacity > 0 && sizes.capacity < size).then_some(sizes.capacity);
    if size != sizes.volume || before.is_some() {
        return Step::RecordSize { size, before };
    }
    if answer.needs_node {
        Step::RecordNode { begun: (!is_real).then_some(answer.asked) }
    } else {
        Step::RecordDone(answer.size)
    }
}

/// The annotation with the size before an expansion that a node has to finish.
pub fn note(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotation(names::ANNOTATION_PRE_RESIZE_CAPACITY)
}

/// Whether the driver says that the expansion is infeasible.
pub fn is_infeasible(refused: &Refused) -> bool {
    is_infeasible_expansion(refused.error.code)
}

fn name(volume: &PersistentVolume) -> String {
    volume.metadata.name.to_string()
}
