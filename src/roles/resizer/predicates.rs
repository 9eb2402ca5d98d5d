//! Which changes of the cluster wake which job of a claim. Pure.
//!
//! A change wakes a job only if the daemon never makes such a change itself. So the daemon's own writes never wake the key, whether the
//! write's answer or the watch event arrives first, and they do not end a back-off (resizer spec 2).

use crate::cluster::{Change, PersistentVolume, PersistentVolumeClaim, SmolStr, VolumeAttributesClass, quantity};
use crate::queue::epoch_of;

use super::claim::{Ownership, Sizes, is_bound, is_cancellable, ownership, status};
use super::expand::policy::note;
use super::expand::target::{Target, target};
use super::job::Job;
use super::names;
use super::view::Expansion;

/// A number that changes with the claim's request: a new request starts without the failures of the last one.
pub fn epoch(claim: &PersistentVolumeClaim, job: Job) -> u64 {
    let wish = match job {
        Job::Expand => &claim.spec.storage,
        Job::Modify => &claim.spec.volume_attributes_class_name,
    };
    epoch_of((&claim.metadata.uid, wish.as_deref()))
}

/// Whether there is work, or something to wait for. Without the volume in the cache there is none yet.
pub fn wants(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    job: Job,
    driver: &str,
    expansion: Expansion,
) -> bool {
    let (volume, is_ours) = match ownership(claim, volume, driver) {
        Ownership::None | Ownership::Unseen => return false,
        Ownership::Ours(volume) => (volume, true),
        Ownership::InTree(volume) => (volume, false),
    };
    match job {
        Job::Expand => wants_size(claim, volume, is_ours, expansion),
        Job::Modify => is_ours && is_bound(claim) && wants_class(claim),
    }
}

fn wants_size(claim: &PersistentVolumeClaim, volume: &PersistentVolume, is_ours: bool, expansion: Expansion) -> bool {
    // A size that is not a number is reported.
    let Ok(sizes) = Sizes::of(claim, volume) else { return is_bound(claim) };
    let is_noted = is_ours && note(volume).is_some() && sizes.capacity >= sizes.volume;
    is_noted || (is_bound(claim) && target(&sizes, expansion == Expansion::Controller) != Target::Done)
}

fn wants_class(claim: &PersistentVolumeClaim) -> bool {
    let status = status(claim);
    let wanted = claim.spec.volume_attributes_class_name.as_deref();
    match &status.modify {
        None => wanted.is_some() && wanted != status.current_attributes_class.as_deref(),
        // The claim no longer names a class, and its condition must be removed.
        Some(modify) if wanted.is_none() && modify.status != names::IN_PROGRESS => is_cancellable(status),
        Some(_) => true,
    }
}

/// Whether another writer has changed the claim so that the job must run.
pub fn is_turned(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim, job: Job) -> bool {
    old.metadata.uid != new.metadata.uid
        || epoch(old, job) != epoch(new, job)
        || old.status.phase != new.status.phase
        || old.spec.volume_name != new.spec.volume_name
        || match job {
            Job::Expand => is_resized(old, new),
            Job::Modify => is_modified(old, new),
        }
}

/// The daemon's own writes begin an expansion, leave it to the node, record a refusal, and finish it; the last one raises the capacity.
fn is_resized(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    let resizer =
        |claim: &PersistentVolumeClaim| claim.metadata.annotation(names::ANNOTATION_STORAGE_RESIZER).map(str::to_owned);
    let (before, after) = (status(old), status(new));
    let (was, is) = (before.allocated_status.as_deref(), after.allocated_status.as_deref());
    let is_node_done = is.is_none() && was.is_some_and(|was| was.starts_with("Node"));
    let is_node_failed = is == Some(names::NODE_RESIZE_INFEASIBLE) && was != is;
    let has_grown = size(after.capacity.as_ref()) > size(before.capacity.as_ref());
    let is_undone = was.is_some() && is.is_none() && !has_grown;
    resizer(old) != resizer(new)
        || is_node_done
        || is_node_failed
        || is_undone
        || size(after.capacity.as_ref()) < size(before.capacity.as_ref())
        || (before.allocated.is_some() && after.allocated.is_none())
}

/// The daemon's own writes begin a modification, let it wait, record a refusal, and finish it; the last one sets the current class.
fn is_modified(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    let (before, after) = (status(old), status(new));
    let has_class = before.current_attributes_class != after.current_attributes_class;
    let is_done = before.modify.is_some() && after.modify.is_none();
    // The daemon always writes both together.
    has_class != is_done
}

fn size(text: Option<&SmolStr>) -> i64 {
    text.and_then(|text| quantity::bytes(text).ok()).unwrap_or_default()
}

/// Whether a change of a PersistentVolume must wake its claim: it has appeared, it belongs to another claim, its size was lowered, or it
/// names another secret.
pub fn volume_turns(change: &Change<PersistentVolume>) -> bool {
    let (old, new) = match (change.old.as_deref(), change.new.as_deref()) {
        (None, Some(_)) => return true,
        (_, None) => return false,
        (Some(old), Some(new)) => (old, new),
    };
    let recorded =
        |volume: &PersistentVolume| size(volume.spec.resize.as_ref().and_then(|resize| resize.capacity.as_ref()));
    let secret = |volume: &PersistentVolume, key| volume.metadata.annotation(key).map(str::to_owned);
    let has_other_secret = [names::ANNOTATION_MODIFY_SECRET_NAME, names::ANNOTATION_MODIFY_SECRET_NAMESPACE]
        .into_iter()
        .any(|key| secret(old, key) != secret(new, key));
    let expand_secret =
        |volume: &PersistentVolume| volume.spec.resize.as_ref().and_then(|resize| resize.expand_secret.clone());
    old.metadata.uid != new.metadata.uid
        || old.spec.claim_ref != new.spec.claim_ref
        || recorded(new) < recorded(old)
        || has_other_secret
        || expand_secret(old) != expand_secret(new)
}

/// The class that a claim may have waited for.
pub fn class_appears(change: &Change<VolumeAttributesClass>) -> Option<&str> {
    let new = change.new.as_deref()?;
    let is_new = change.old.as_deref().is_none_or(|old| old.metadata.uid != new.metadata.uid);
    is_new.then_some(&*new.metadata.name)
}

/// The jobs of a claim in the order in which they should get their turn: a job whose call may still be running goes first.
pub fn order(claim: &PersistentVolumeClaim) -> [Job; 2] {
    let is_modifying = status(claim).modify.as_ref().is_some_and(|modify| modify.status == names::IN_PROGRESS);
    let is_expanding = matches!(status(claim).allocated_status.as_deref(), Some(names::CONTROLLER_RESIZE_IN_PROGRESS));
    if is_modifying && !is_expanding { [Job::Modify, Job::Expand] } else { [Job::Expand, Job::Modify] }
}

#[cfg(test)]
#[path = "predicates_tests.rs"]
mod tests;
