//! The next step of a claim that may name another `VolumeAttributesClass`. Pure, total, and tested without a server.
//!
//! ```text
//! gates ─> class ─> checks ─> secret ─> begin ─────> ControllerModifyVolume ─┬─> volume ─> claim
//!                    └─> pending, until there is such a class                         └─> refusal ─> claim
//!                    └─> infeasible, if the class is another driver's
//! ```
//!
//! Two rules make this safe. The driver is called with a class only after the claim's status says so (I3). While the outcome of a call
//! is unknown, the call is repeated with the same class, even if the claim now names another one.

use crate::cluster::{PersistentVolume, SecretRef, VolumeAttributesClass};
use crate::roles::resizer::claim::{
    Ownership, is_bound, is_cancellable, is_modification_refused, ownership, pause_left, status,
};
use crate::roles::resizer::error::{InvalidChange, Wait};
use crate::roles::resizer::names;
use crate::roles::resizer::progress::Progress;
use crate::roles::resizer::step::{Modify, Step, Write};
use crate::roles::resizer::view::{Class, View};

/// What to do next for the claim of `view`.
pub fn step(view: &View, progress: &Progress) -> Result<Step, InvalidChange> {
    let claim = view.claim.as_ref();
    let volume = match ownership(claim, view.volume.as_deref(), &view.rules.driver) {
        Ownership::None | Ownership::InTree(_) => return Ok(Step::Settled),
        Ownership::Unseen => return Ok(Step::Wait(Wait::Volume)),
        Ownership::Ours(volume) => volume,
    };
    if !is_bound(claim) {
        return Ok(Step::Settled);
    }
    if let Some(refused) = &progress.refused {
        return Ok(if refused.is_recorded { Step::Fail(refused.error.clone()) } else { Step::Write(Write::Refusal) });
    }
    if let Some(class) = &progress.modified {
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
    let is_foreign =
        error.is_some_and(|error| error.reason == names::FOREIGN_CLASS) || !may_be_ours(view, &view.wanted);
    if state == Some(names::INFEASIBLE) && wanted.is_some() && begun == wanted && !is_foreign {
        // The claim has the time of the last refusal.
        let told = error.and_then(|error| error.last_probe_time.clone().or_else(|| error.last_transition_time.clone()));
        let since = view.memory.last_call.refused_at().or(told);
        if let Some(left) = pause_left(since.as_ref(), view.rules.section.retry.infeasible, view.now) {
            return Ok(Step::Wait(Wait::Infeasible(left)));
        }
    }
    if state.is_none() && wanted == status.current_attributes_class.as_deref() {
        return Ok(Step::Settled);
    }
    let is_in_progress = state == Some(names::IN_PROGRESS);
    if wanted.is_none() && !is_in_progress {
        return Ok(if is_cancellable(status) { Step::Write(Write::Cancel) } else { Step::Settled });
    }
    if volume.metadata.deletion_timestamp.is_some() && !is_in_progress {
        return Ok(Step::Settled);
    }
    if !view.rules.modifies {
        return Err(InvalidChange::NoModification(view.rules.driver.clone()));
    }
    let has_begun = is_in_progress || state == Some(names::INFEASIBLE);
    let is_open = has_begun && !view.memory.last_call.is_refused(is_modification_refused(status));
    let goes_on = is_open || (is_in_progress && wanted.is_none());
    let needed = if goes_on { &view.begun } else { &view.wanted };
    if matches!(needed, Class::Unknown) {
        return Ok(Step::Wait(Wait::Classes));
    }
    // The class that was begun comes first: its call may still be running, or the claim names no other class.
    if let (true, Some(begun)) = (goes_on, begun) {
        match known(view, begun, &view.begun) {
            Ok(class) => return ask(view, progress, volume, (class, begun)),
            // It is waited for, because it may come back. Another driver's class does not become ours.
            Err(_) if wanted.is_some() && (gives_up_begun(view, begun) || !may_be_ours(view, &view.begun)) => {}
            Err(reason @ InvalidChange::ForeignClass { .. }) => return Ok(foreign(view, begun, reason)),
            Err(InvalidChange::NoClass(class)) if !progress.is_looked_up => return Ok(Step::LookUp(class)),
            Err(reason) => return Err(reason),
        }
    }
    let Some(wanted) = wanted else { return Ok(Step::Settled) };
    match known(view, wanted, &view.wanted) {
        Ok(class) => ask(view, progress, volume, (class, wanted)),
        Err(reason @ InvalidChange::ForeignClass { .. }) => Ok(foreign(view, wanted, reason)),
        Err(InvalidChange::NoClass(class)) if !progress.is_looked_up => Ok(Step::LookUp(class)),
        Err(reason) if state == Some(names::PENDING) => Ok(Step::Wait(Wait::Class(Box::new(reason)))),
        Err(_) => Ok(Step::Write(Write::Pending)),
    }
}

/// The driver is never called with another driver's class. A class does not change, so the claim says that it is infeasible, until it
/// names another class, or a class of ours has this name.
fn foreign(view: &View, class: &str, reason: InvalidChange) -> Step {
    let status = status(&view.claim);
    let is_told = status
        .modify
        .as_ref()
        .is_some_and(|modify| modify.status == names::INFEASIBLE && modify.target.as_deref() == Some(class))
        && status.condition(names::MODIFY_VOLUME_ERROR).is_some_and(|error| *error.message == *reason.to_string());
    if is_told {
        return Step::Wait(Wait::Class(Box::new(reason)));
    }
    Step::Write(Write::Foreign(class.to_owned(), reason))
}

/// Whether the class is for our driver, as far as is known.
fn may_be_ours(view: &View, class: &Class) -> bool {
    !matches!(class, Class::Known(class) if class.driver != view.rules.driver)
}

/// Whether the class that was begun has been missing for so long that it is no longer waited for.
fn gives_up_begun(view: &View, begun: &str) -> bool {
    let missing = view.memory.missing.as_ref().filter(|(class, _)| class == begun);
    missing.is_some_and(|(_, since)| view.at.saturating_duration_since(*since) >= view.rules.section.retry.max)
}

/// The class, if it exists and is for our driver.
fn known<'a>(view: &View, name: &str, class: &'a Class) -> Result<&'a VolumeAttributesClass, InvalidChange> {
    match class {
        Class::Known(class) if class.driver == view.rules.driver => Ok(class),
        Class::Known(class) => Err(InvalidChange::ForeignClass {
            class: name.to_owned(),
            driver: class.driver.clone(),
            ours: view.rules.driver.clone(),
        }),
        Class::Missing | Class::Unknown => Err(InvalidChange::NoClass(name.to_owned())),
    }
}

/// The steps before the call, and the call.
fn ask(
    view: &View,
    progress: &Progress,
    volume: &PersistentVolume,
    (class, name): (&VolumeAttributesClass, &str),
) -> Result<Step, InvalidChange> {
    let csi = volume.spec.csi.as_deref().filter(|csi| !csi.volume_handle.is_empty()).ok_or(InvalidChange::NoHandle)?;
    if let (Some(reference), None) = (secret(volume), &progress.secret) {
        return Ok(Step::ReadSecret(reference));
    }
    let status = status(&view.claim);
    // What the claim says of a refusal does not stand while the driver is asked again.
    let is_begun = status
        .modify
        .as_ref()
        .is_some_and(|modify| modify.status == names::IN_PROGRESS && modify.target.as_deref() == Some(name))
        && status.condition(names::MODIFYING_VOLUME).is_some()
        && !is_modification_refused(status);
    if !is_begun {
        return Ok(Step::Write(Write::BeginModification(name.to_owned())));
    }
    if !view.is_confirmed {
        return Ok(Step::Confirm);
    }
    let mut parameters = class.parameters.clone();
    if view.rules.section.extra_modify_metadata {
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
fn record(view: &View, volume: &PersistentVolume, class: &str) -> Step {
    let status = status(&view.claim);
    let (modify, current) = (status.modify.as_ref(), status.current_attributes_class.as_deref());
    // Everything is written, although the answer to the last write was lost. To write it again does no harm, and causes the Event.
    let is_recorded = modify.is_none() && current == Some(class);
    if !is_recorded && modify.is_none_or(|modify| modify.target.as_deref() != Some(class)) {
        return Step::DropAnswer;
    }
    let held = volume.spec.resize.as_ref().and_then(|resize| resize.attributes_class.as_deref());
    let class = class.to_owned();
    Step::Write(if held == Some(&*class) { Write::Modified(class) } else { Write::Class(class) })
}
