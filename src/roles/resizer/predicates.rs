//! Which changes of the cluster wake which job of a claim. Pure.
//!
//! A change wakes a job only if it is one that we never make ourselves. So our own marks, errors and sizes never wake the key,
//! whichever of the write's answer and the watch's event arrives first, and back-off really backs off (resizer spec 2).

use crate::cluster::{Change, PersistentVolume, PersistentVolumeClaim, SmolStr, VolumeAttributesClass, quantity};
use crate::queue::epoch_of;

use super::claim::{Ownership, Sizes, is_bound, ownership, status};
use super::expand::decide::{Expansion, note};
use super::expand::target::{Target, target};
use super::memory::Job;
use super::names;

/// What tells one wish from the next: another one begins afresh, without the failures of the last.
pub fn epoch(claim: &PersistentVolumeClaim, job: Job) -> u64 {
    let wish = match job {
        Job::Expand => &claim.spec.storage,
        Job::Modify => &claim.spec.volume_attributes_class_name,
    };
    epoch_of((&claim.metadata.uid, wish.as_deref()))
}

/// Whether there is something to do, or to wait for. Of a volume that the cache lacks nobody knows yet.
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
    // A size that is no number is told.
    let Ok(sizes) = Sizes::of(claim, volume) else { return is_bound(claim) };
    let is_noted = is_ours && note(volume).is_some() && sizes.capacity >= sizes.volume;
    is_noted || (is_bound(claim) && target(&sizes, expansion == Expansion::Controller) != Target::Done)
}

fn wants_class(claim: &PersistentVolumeClaim) -> bool {
    let status = status(claim);
    let wanted = claim.spec.volume_attributes_class_name.as_deref();
    match &status.modify {
        None => wanted.is_some() && wanted != status.current_attributes_class.as_deref(),
        // Rolled back, and told so.
        Some(modify) if wanted.is_none() && modify.status != names::IN_PROGRESS => {
            status.condition(names::MODIFYING_VOLUME).is_some()
        }
        Some(_) => true,
    }
}

/// Whether somebody else has changed the claim so that a job must look at it again.
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

/// We begin, leave to the node, refuse, and finish: the last raises what the user has.
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

/// We begin, wait, refuse, and finish: the last says which class the volume has.
fn is_modified(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    let (before, after) = (status(old), status(new));
    let has_class = before.current_attributes_class != after.current_attributes_class;
    let is_done = before.modify.is_some() && after.modify.is_none();
    // One without the other is not ours.
    has_class != is_done
}

fn size(text: Option<&SmolStr>) -> i64 {
    text.and_then(|text| quantity::bytes(text).ok()).unwrap_or_default()
}

/// Whether the claim of a volume must be looked at again because the volume is there now, or is another's, or somebody has made its
/// record smaller.
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

/// The jobs of a claim in the order in which they should get their turn: what may still be running goes first.
pub fn order(claim: &PersistentVolumeClaim) -> [Job; 2] {
    let is_modifying = status(claim).modify.as_ref().is_some_and(|modify| modify.status == names::IN_PROGRESS);
    let is_expanding = matches!(status(claim).allocated_status.as_deref(), Some(names::CONTROLLER_RESIZE_IN_PROGRESS));
    if is_modifying && !is_expanding { [Job::Modify, Job::Expand] } else { [Job::Expand, Job::Modify] }
}

#[cfg(test)]
#[path = "predicates_tests.rs"]
mod tests;
