//! The next step of a claim that may name another `VolumeAttributesClass`. Pure, total, and tested without a server.
//!
//! ```text
//! gates ─> class ─> checks ─> secret ─> turn ─> begin ─────> ControllerModifyVolume ─┬─> volume ─> claim
//!                    └─> pending, until there is such a class                         └─> refusal ─> claim
//!                    └─> infeasible, if the class is another driver's
//! ```
//!
//! Two rules make this safe. The driver is called with a class only after the claim's status says so (I3). While the outcome of a call
//! is unknown, the call is repeated with the same class, even if the claim now names another one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{PersistentVolume, PersistentVolumeClaim, SecretRef, VolumeAttributesClass};
use crate::csi::RpcError;
use crate::roles::resizer::claim::{
    Ownership, is_bound, is_cancellable, is_modification_refused, ownership, pause_left, status,
};
use crate::roles::resizer::error::InvalidChange;
use crate::roles::resizer::memory::LastCall;
use crate::roles::resizer::names;
use crate::roles::resizer::progress;

/// What is the same for every claim of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The driver can modify volumes.
    pub modifies: bool,
    /// The request contains the names of the claim and the volume.
    pub tells_names: bool,
    /// The pause after the driver has refused a class as infeasible.
    pub infeasible_pause: Duration,
}

/// A class that a claim names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Class<'a> {
    /// The cache has it.
    Known(&'a VolumeAttributesClass),
    /// The cache has no class of this name.
    Missing,
    /// The cluster does not have the kind, or the daemon may not read it, or the cache is not synced yet.
    Unknown,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Its volume, if the cache holds it.
    pub volume: Option<&'a PersistentVolume>,
    /// The class that the claim asks for, S.
    pub wanted: Class<'a>,
    /// The class that it is being changed to, T.
    pub begun: Class<'a>,
    /// What is known of the last call.
    pub last_call: LastCall,
    /// The class that was begun has been missing for so long that the resizer no longer waits for it.
    pub gives_up_begun: bool,
    /// The API has shown the claim during the term.
    pub is_confirmed: bool,
    /// When the attempt began.
    pub now: Timestamp,
    /// The term's rules.
    pub rules: &'a Rules,
    /// What this attempt has done so far.
    pub progress: &'a Progress,
}

impl View<'_> {
    /// Whether the class is for our driver, as far as is known.
    fn may_be_ours(&self, class: Class<'_>) -> bool {
        !matches!(class, Class::Known(class) if class.driver_name != self.rules.driver)
    }
}

/// What one attempt has done so far.
pub type Progress = progress::Progress<String, String>;
/// Why the driver has not modified the volume.
pub type Refused = progress::Refused<String>;

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing: the volume is as the claim asks, or it is not ours.
    Settled,
    /// Nothing until something else has happened.
    Wait(Wait),
    /// Remove the condition, because the claim no longer names its first class.
    Cancel,
    /// Ask the API for a class that the cache lacks.
    LookUp(String),
    /// Write to the claim's status that its class is missing.
    RecordPending(InvalidChange),
    /// Write to the claim's status that this class is another driver's.
    RecordForeign(String, InvalidChange),
    /// Read the secret.
    ReadSecret(SecretRef),
    /// Lock the volume with this handle.
    TakeTurn(String),
    /// Write to the claim's status that the modification to this class has begun.
    Begin(String),
    /// Read the claim from the API, because the cache may be old.
    Confirm,
    /// `ControllerModifyVolume`.
    Modify(Box<Modify>),
    /// Write the class to the PersistentVolume.
    RecordClass(String),
    /// Write the new class to the claim's status.
    RecordModified(String),
    /// Drop the driver's answer, because somebody else has begun another modification meanwhile.
    DropAnswer,
    /// Write to the claim's status why the driver has refused.
    RecordRefusal,
    /// The driver has refused this class, and the claim says so.
    Refused(String, RpcError),
    /// Give up this attempt.
    Refuse(InvalidChange),
}

/// What a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A class that can be used, and the reason why there is none.
    Class(InvalidChange),
    /// Classes can be read.
    Classes,
    /// The driver has refused the class as infeasible.
    Infeasible(Duration),
    /// The cache lacks its volume.
    Volume,
}

/// The request of a modification, without the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modify {
    /// The class.
    pub class: String,
    /// The volume's handle.
    pub volume_id: String,
    /// The parameters.
    pub parameters: BTreeMap<String, String>,
}

/// What to do next for the claim of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    if view.progress.gone {
        return Step::Settled;
    }
    step(view).unwrap_or_else(Step::Refuse)
}

fn step(view: &View<'_>) -> Result<Step, InvalidChange> {
    let (claim, progress) = (view.claim, view.progress);
    let volume = match ownership(claim, view.volume, &view.rules.driver) {
        Ownership::None | Ownership::InTree(_) => return Ok(Step::Settled),
        Ownership::Unseen => return Ok(Step::Wait(Wait::Volume)),
        Ownership::Ours(volume) => volume,
    };
    if !is_bound(claim) {
        return Ok(Step::Settled);
    }
    if let Some(refused) = &progress.refused {
        let Refused { asked: class, error, is_recorded } = refused;
        return Ok(if *is_recorded { Step::Refused(class.clone(), error.clone()) } else { Step::RecordRefusal });
    }
    if let Some(class) = &progress.answer {
        return Ok(record(view, volume, class));
    }
    let status = status(claim);
    let wanted = claim.spec.volume_attributes_class_name.as_deref();
    let (state, begun) = match &status.modify {
        Some(modify) => (Some(modify.status.as_str()), modify.target.as_deref()),
        None => (None, None),
    };
    let error = status.condition(names::MODIFY_VOLUME_ERROR);
    // Only the driver's refusals have a pause. A class of another driver has none, nor has the one that comes under its name.
    let is_foreign = error.is_some_and(|error| error.reason == names::FOREIGN_CLASS) || !view.may_be_ours(view.wanted);
    if state == Some(names::INFEASIBLE) && wanted.is_some() && begun == wanted && !is_foreign {
        // The claim has the time of the last refusal.
        let told = error.and_then(|error| error.last_probe_time.clone().or_else(|| error.last_transition_time.clone()));
        let since = view.last_call.refused_at().or(told);
        if let Some(left) = pause_left(since.as_ref(), view.rules.infeasible_pause, view.now) {
            return Ok(Step::Wait(Wait::Infeasible(left)));
        }
    }
    if state.is_none() && wanted == status.current_attributes_class.as_deref() {
        return Ok(Step::Settled);
    }
    let is_in_progress = state == Some(names::IN_PROGRESS);
    if wanted.is_none() && !is_in_progress {
        return Ok(if is_cancellable(status) { in_turn(view, volume, Step::Cancel) } else { Step::Settled });
    }
    if volume.metadata.deletion_timestamp.is_some() && !is_in_progress {
        return Ok(Step::Settled);
    }
    if !view.rules.modifies {
        return Err(InvalidChange::NoModification(view.rules.driver.clone()));
    }
    let has_begun = is_in_progress || state == Some(names::INFEASIBLE);
    let is_open = has_begun && !view.last_call.is_refused(is_modification_refused(status));
    let goes_on = is_open || (is_in_progress && wanted.is_none());
    let needed = if goes_on { view.begun } else { view.wanted };
    if needed == Class::Unknown {
        return Ok(Step::Wait(Wait::Classes));
    }
    // The class that was begun comes first: its call may still be running, or the claim names no other class.
    if let (true, Some(begun)) = (goes_on, begun) {
        match known(view, begun, view.begun) {
            Ok(class) => return ask(view, volume, class, begun),
            // It is waited for, because it may come back. Another driver's class does not become ours.
            Err(_) if wanted.is_some() && (view.gives_up_begun || !view.may_be_ours(view.begun)) => {}
            Err(reason @ InvalidChange::ForeignClass { .. }) => return Ok(foreign(view, volume, begun, reason)),
            Err(InvalidChange::NoClass(class)) if !progress.is_looked_up => return Ok(Step::LookUp(class)),
            Err(reason) => return Err(reason),
        }
    }
    let Some(wanted) = wanted else { return Ok(Step::Settled) };
    match known(view, wanted, view.wanted) {
        Ok(class) => ask(view, volume, class, wanted),
        Err(reason @ InvalidChange::ForeignClass { .. }) => Ok(foreign(view, volume, wanted, reason)),
        Err(InvalidChange::NoClass(class)) if !progress.is_looked_up => Ok(Step::LookUp(class)),
        Err(reason) if state == Some(names::PENDING) => Ok(Step::Wait(Wait::Class(reason))),
        Err(reason) => Ok(in_turn(view, volume, Step::RecordPending(reason))),
    }
}

/// The driver is never called with another driver's class. A class does not change, so the claim says that it is infeasible, until it
/// names another class, or a class of ours has this name.
fn foreign(view: &View<'_>, volume: &PersistentVolume, class: &str, reason: InvalidChange) -> Step {
    let status = status(view.claim);
    let is_told = status
        .modify
        .as_ref()
        .is_some_and(|modify| modify.status == names::INFEASIBLE && modify.target.as_deref() == Some(class))
        && status.condition(names::MODIFY_VOLUME_ERROR).is_some_and(|error| *error.message == *reason.to_string());
    if is_told {
        return Step::Wait(Wait::Class(reason));
    }
    in_turn(view, volume, Step::RecordForeign(class.to_owned(), reason))
}

/// The step, if the attempt has its turn; otherwise the step to get the turn.
fn in_turn(view: &View<'_>, volume: &PersistentVolume, step: Step) -> Step {
    match &volume.spec.csi {
        Some(csi) if !view.progress.has_turn => Step::TakeTurn(csi.volume_handle.clone()),
        _ => step,
    }
}

/// The class, if it exists and is for our driver.
fn known<'a>(view: &View<'_>, name: &str, class: Class<'a>) -> Result<&'a VolumeAttributesClass, InvalidChange> {
    match class {
        Class::Known(class) if class.driver_name == view.rules.driver => Ok(class),
        Class::Known(class) => Err(InvalidChange::ForeignClass {
            class: name.to_owned(),
            driver: class.driver_name.clone(),
            ours: view.rules.driver.clone(),
        }),
        Class::Missing | Class::Unknown => Err(InvalidChange::NoClass(name.to_owned())),
    }
}

/// The steps before the call, and the call.
fn ask(
    view: &View<'_>,
    volume: &PersistentVolume,
    class: &VolumeAttributesClass,
    name: &str,
) -> Result<Step, InvalidChange> {
    let progress = view.progress;
    let csi = volume.spec.csi.as_deref().filter(|csi| !csi.volume_handle.is_empty()).ok_or(InvalidChange::NoHandle)?;
    if let (Some(reference), None) = (secret(volume), &progress.secret) {
        return Ok(Step::ReadSecret(reference));
    }
    if !progress.has_turn {
        return Ok(Step::TakeTurn(csi.volume_handle.clone()));
    }
    let status = status(view.claim);
    // What the claim says of a refusal does not stand while the driver is asked again.
    let is_begun = status
        .modify
        .as_ref()
        .is_some_and(|modify| modify.status == names::IN_PROGRESS && modify.target.as_deref() == Some(name))
        && status.condition(names::MODIFYING_VOLUME).is_some()
        && !is_modification_refused(status);
    if !is_begun {
        return Ok(Step::Begin(name.to_owned()));
    }
    if !view.is_confirmed {
        return Ok(Step::Confirm);
    }
    let mut parameters = class.parameters.clone();
    if view.rules.tells_names {
        let meta = &view.claim.metadata;
        for (key, value) in [
            ("csi.storage.k8s.io/pvc/name", Some(&*meta.name)),
            ("csi.storage.k8s.io/pvc/namespace", meta.namespace.as_deref()),
            ("csi.storage.k8s.io/pv/name", Some(&*volume.metadata.name)),
        ] {
            parameters.insert(key.to_owned(), value.unwrap_or_default().to_owned());
        }
    }
    let volume_id = csi.volume_handle.clone();
    Ok(Step::Modify(Box::new(Modify { class: name.to_owned(), volume_id, parameters })))
}

/// The secret for a modification; if the volume has none, the secret for its expansion.
fn secret(volume: &PersistentVolume) -> Option<SecretRef> {
    let annotation = |key| volume.metadata.annotation(key).filter(|text| !text.is_empty()).map(str::to_owned);
    match (annotation(names::ANNOTATION_MODIFY_SECRET_NAME), annotation(names::ANNOTATION_MODIFY_SECRET_NAMESPACE)) {
        (Some(name), Some(namespace)) => Some(SecretRef { name, namespace }),
        _ => volume.spec.resize.as_ref()?.expand_secret.clone(),
    }
}

/// The next write after the driver's answer. The PersistentVolume comes first, so that an object always names a class that is in use.
fn record(view: &View<'_>, volume: &PersistentVolume, class: &str) -> Step {
    if !view.progress.has_turn {
        return match &volume.spec.csi {
            Some(csi) => Step::TakeTurn(csi.volume_handle.clone()),
            None => Step::DropAnswer,
        };
    }
    let status = status(view.claim);
    let (modify, current) = (status.modify.as_ref(), status.current_attributes_class.as_deref());
    // Everything is written, although the answer to the last write was lost. To write it again does no harm, and causes the Event.
    let is_recorded = modify.is_none() && current == Some(class);
    if !is_recorded && modify.is_none_or(|modify| modify.target.as_deref() != Some(class)) {
        return Step::DropAnswer;
    }
    let held = volume.spec.resize.as_ref().and_then(|resize| resize.attributes_class.as_deref());
    if held == Some(class) { Step::RecordModified(class.to_owned()) } else { Step::RecordClass(class.to_owned()) }
}
