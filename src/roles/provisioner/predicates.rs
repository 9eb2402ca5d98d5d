//! Which changes of the cluster wake which key. Pure.
//!
//! As in the attacher, only a change that *we never make ourselves* wakes a claim. For example, our removing a node
//! from the claim wakes no key, so back-off lasts. What a claim waits for wakes it, too: its class, its node, its
//! source and, where contents are watched, the content of its snapshot.
//!
//! A volume whose deletion failed is woken by a change of its class, of its secret's place, or of the other object with its handle.
//! With one daemon per node, another daemon's write is not ours: a claim that it gives back wakes us.

use crate::cluster::{
    Cached, Change, ClaimRef, CsiNode, Meta, ObjectName, PackedMap, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeAttachment, VolumeSnapshot, VolumeSnapshotContent,
};
use crate::roles::kit::Wake;
use crate::roles::provisioner::names;

use crate::roles::provisioner::claim::{Owner, owner_of};
use crate::roles::provisioner::deletion::policy as deletion;
use crate::roles::provisioner::volume::{is_delete, is_ours, is_released, keeps};

/// What a change of a claim means for its key. `is_begun`: the driver owes an answer for the claim. `home`: our node,
/// with one daemon per node.
pub fn claim_wake(change: &Change<PersistentVolumeClaim>, driver: &str, is_begun: bool, home: Option<&str>) -> Wake {
    let is_wanted = |object: &PersistentVolumeClaim| is_begun || is_wanted(object, driver);
    let is_given_back = |old: &PersistentVolumeClaim, new: &PersistentVolumeClaim| {
        home.is_some_and(|home| new.selected_node().is_none() && old.selected_node().is_some_and(|node| node != home))
    };
    match (&change.old, &change.new) {
        (_, None) => Wake::Forget,
        (None, Some(new)) => {
            if is_wanted(new) {
                Wake::Now
            } else {
                Wake::No
            }
        }
        (Some(old), Some(new)) if !is_wanted(new) => {
            if is_wanted(old) {
                Wake::Forget
            } else {
                Wake::No
            }
        }
        (Some(old), Some(new)) if !is_wanted(old) || is_turned(old, new) || is_given_back(old, new) => Wake::Now,
        (Some(_), Some(_)) => Wake::No,
    }
}

/// Whether a claim waits for a volume of our driver.
pub fn is_wanted(object: &PersistentVolumeClaim, driver: &str) -> bool {
    let is_waiting = object.spec.volume_name.as_deref().is_none_or(str::is_empty);
    owner_of(object, driver) != Owner::Others && is_waiting
}

/// Whether another writer changed what the claim requests.
fn is_turned(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    old.metadata.uid != new.metadata.uid
        || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
        || old.spec != new.spec
        || (new.selected_node().is_some() && old.selected_node() != new.selected_node())
        || others_annotations(old).ne(others_annotations(new))
}

/// The annotations that we never write. Any of them may be in a template of the class.
fn others_annotations(object: &PersistentVolumeClaim) -> impl Iterator<Item = (&str, &str)> {
    const OURS: [&str; 2] = [names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE];
    object.metadata.annotations.iter().flat_map(PackedMap::iter).filter(|(key, _)| !OURS.contains(key))
}

/// Whether failed claims of a class, and failed deletions of its volumes, should be tried now: the class appeared, or
/// its content changed.
pub fn class_unblocks(change: &Change<StorageClass>) -> bool {
    match (change.old.as_deref(), change.new.as_deref()) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => {
            let said = |class: &StorageClass| StorageClass {
                metadata: Meta { uid: class.metadata.uid.clone(), ..Default::default() },
                ..class.clone()
            };
            said(old) != said(new)
        }
    }
}

/// Whether claims for the node, and claims for any node, should be tried now: our driver came, went, or reports other
/// topology keys.
pub fn csi_node_unblocks(change: &Change<CsiNode>, driver: &str) -> bool {
    let keys = |node: Option<&CsiNode>| node.and_then(|node| node.topology_keys(driver)).map(<[String]>::to_vec);
    let is_there = |node: Option<&CsiNode>| node.is_some_and(|node| node.node_id(driver).is_some());
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    keys(old) != keys(new) || is_there(old) != is_there(new)
}

/// Whether a data source came, went, or is another one by now: by its uid, or by what `differs`.
fn source_unblocks<T: Cached>(change: &Change<T>, differs: impl Fn(&T, &T) -> bool) -> bool {
    match (change.old.as_deref(), change.new.as_deref()) {
        (None, _) | (_, None) => true,
        (Some(old), Some(new)) => old.meta().uid != new.meta().uid || differs(old, new),
    }
}

/// Whether clones of a claim should be tried now: something that a clone depends on changed.
pub fn source_claim_unblocks(change: &Change<PersistentVolumeClaim>) -> bool {
    source_unblocks(change, |old, new| {
        old.status != new.status
            || old.spec.volume_name != new.spec.volume_name
            || old.spec.storage != new.spec.storage
            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
    })
}

/// Whether restores of a snapshot should be tried now.
pub fn snapshot_unblocks(change: &Change<VolumeSnapshot>) -> bool {
    source_unblocks(change, |old, new| {
        old.status != new.status
            || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
    })
}

/// Whether restores of the snapshot of a content should be tried now: what they read of the content has changed (snapshotter spec 13).
pub fn content_unblocks(change: &Change<VolumeSnapshotContent>) -> bool {
    let read = |content: &VolumeSnapshotContent| {
        let may_change_mode = content.metadata.annotation(names::ANNOTATION_ALLOW_MODE_CHANGE).map(str::to_owned);
        let (handle, mode) = (content.snapshot_handle.clone(), content.source_volume_mode.clone());
        (content.snapshot_ref.clone(), handle, mode, may_change_mode)
    };
    source_unblocks(change, |old, new| read(old) != read(new))
}

/// What a change of a volume means for its key in the queue of deletions.
pub fn volume_wake(change: &Change<PersistentVolume>, rules: &deletion::Rules) -> Wake {
    match (change.old.as_deref(), change.new.as_deref()) {
        (_, None) => Wake::Forget,
        (old, Some(new)) => {
            let old = old.filter(|old| old.metadata.uid == new.metadata.uid);
            let wants = wants_work(new, rules);
            let is_news =
                old.is_none_or(|old| wants_work(old, rules) != wants || secret_clues(old) != secret_clues(new));
            if wants.is_some() && is_news { Wake::Now } else { Wake::No }
        }
    }
}

/// What a volume says about its deletion secret. It is written once, at creation, so any change is another writer's.
fn secret_clues(volume: &PersistentVolume) -> ([Option<&str>; 3], Option<&ClaimRef>) {
    const NOTES: [&str; 3] = [
        names::ANNOTATION_DELETION_SECRET_NAME,
        names::ANNOTATION_DELETION_SECRET_NAMESPACE,
        names::ANNOTATION_PROVISIONED_BY,
    ];
    (NOTES.map(|key| volume.metadata.annotation(key)), volume.spec.claim_ref.as_deref())
}

/// The handle that this object no longer keeps, so that a deletion of another object with the same handle may go on.
pub fn handle_freed(change: &Change<PersistentVolume>) -> Option<&str> {
    let old = change.old.as_deref().filter(|old| keeps(old))?;
    let is_kept = change.new.as_deref().is_some_and(keeps);
    old.spec.csi.as_ref().filter(|_| !is_kept).map(|csi| csi.volume_handle.as_str())
}

/// The work that a volume's own fields ask for. Removing our finalizer changes none of it. We delete the object only
/// after the driver's answer, while the attempt still runs, so that change wakes nothing either.
pub fn wants_work(volume: &PersistentVolume, rules: &deletion::Rules) -> Option<(&'static str, bool)> {
    let is_deleting = volume.metadata.deletion_timestamp.is_some();
    let is_protected = deletion::is_protected(volume, rules);
    if !is_ours(volume, &rules.driver) {
        return None;
    }
    if !deletion::keeps_finalizer(volume, rules) && is_protected {
        return Some(("release", is_deleting));
    }
    if !is_delete(volume) {
        return None;
    }
    if is_released(volume) {
        return (!is_deleting || is_protected).then_some(("delete", false));
    }
    let is_bound = volume.phase.as_deref() == Some("Bound");
    (is_bound && !is_deleting && !is_protected && rules.honors_policy).then_some(("protect", false))
}

/// The volume whose deletion may go on, because an attachment that named it is gone.
pub fn volume_detached(change: &Change<VolumeAttachment>) -> Option<&str> {
    let named =
        |object: Option<&VolumeAttachment>| object.and_then(|object| object.spec.source.persistent_volume_name.clone());
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), new) if named(Some(old)) != named(new) => old.spec.source.persistent_volume_name.as_deref(),
        _ => None,
    }
}

/// The name of a PersistentVolume that is gone: a claim whose volume has this name can go on.
pub fn name_freed(change: &Change<PersistentVolume>) -> Option<ObjectName> {
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), None) => Some(ObjectName::of(old)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "predicates_tests.rs"]
mod tests;
