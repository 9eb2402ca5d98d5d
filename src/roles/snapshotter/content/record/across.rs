//! What contents of one kind mean for those of the other: a content may name a snapshot of a group.
//!
//! A driver deletes a group with all of its snapshots, so the deletion of a group waits as long as an object needs one of them. The
//! contents of its own snapshots go with it, whether the snapshot-controller has made them or an administrator, unless their policy is
//! `Retain`: then the data is to be kept. A content is the group's own if it names the group, or if the group owns its
//! `VolumeSnapshot`. Pure.

use crate::cluster::{
    Cache, IdKind, Object as _, ObjectReference, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotContent,
};
use crate::roles::snapshotter::names::ANNOTATION_GROUP_HANDLE;

use super::{facts, intent, kind::Content, needed::Ownership};

/// The caches of both kinds.
#[derive(Debug, Clone)]
pub struct Across {
    /// The contents of snapshots.
    pub snapshots: Cache<VolumeSnapshotContent>,
    /// The contents of groups. `None`: groups are off.
    pub groups: Option<Cache<VolumeGroupSnapshotContent>>,
}

/// Whether a content of any node keeps the snapshot that it names. One that goes with it does not.
pub fn keeps<K: Content>(content: &K) -> bool {
    let is_going = facts::is_deleting(content) && (facts::has_lost_owner(content) || facts::is_unbound(content));
    let takes_along = facts::takes_snapshot_along(content) && !intent::is_copied(content);
    !(is_going && takes_along)
}

/// The group that a content says its snapshot is of: its status says so, or it has none that does and the snapshot-controller has made it
/// for that group. The annotation stays where the content gets a snapshot of another group.
fn named_group(content: &VolumeSnapshotContent) -> Option<&str> {
    facts::group_handle(content).or_else(|| content.meta().annotation(ANNOTATION_GROUP_HANDLE))
}

/// Whether a content says that its snapshot is of the group `group`, in whatever letters.
pub fn is_of(content: &VolumeSnapshotContent, group: &str) -> bool {
    named_group(content).is_some_and(|named| IdKind::Snapshot.may_be_same(&content.driver, named, group))
}

/// A group that is to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct DoomedGroup<'a> {
    /// The driver's id.
    pub handle: &'a str,
    /// The `VolumeGroupSnapshot` that it belongs to.
    pub owner: &'a ObjectReference,
}

/// What a content that names a snapshot of a group means for the deletion of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It goes with the group, or has its snapshot deleted itself.
    Released,
    /// It goes with the group if the group owns its `VolumeSnapshot`.
    ByOwner,
    /// The snapshot is to be kept.
    Keeps,
}

/// Whether a content that names a snapshot of a group keeps that from being deleted (snapshotter spec 10). `policy_deletes`: whether its
/// policy is `Delete`.
///
/// Here the group's id counts letter by letter: a doubt keeps the snapshot.
///
/// A group and the `VolumeSnapshots` that it owns are in one namespace. So a content for another namespace belongs to another user,
/// whatever the driver says of its snapshot.
pub fn hold(content: &VolumeSnapshotContent, group: DoomedGroup<'_>, policy_deletes: bool) -> Hold {
    let is_member = content.meta().annotation(ANNOTATION_GROUP_HANDLE) == Some(group.handle);
    let is_near = content.snapshot_ref.namespace == group.owner.namespace;
    let is_going = facts::is_deleting(content) && (facts::has_lost_owner(content) || facts::is_unbound(content));
    if !policy_deletes {
        Hold::Keeps
    } else if is_member || is_going || (is_near && named_group(content) == Some(group.handle)) {
        Hold::Released
    } else if is_near && !facts::is_unbound(content) && !group.owner.uid.is_empty() {
        Hold::ByOwner
    } else {
        Hold::Keeps
    }
}

/// Whose a `VolumeSnapshot` is, which a content for `named` belongs to. The API version of an owner says nothing: it is that of the
/// program which wrote the reference.
pub fn ownership(snapshot: Option<&VolumeSnapshot>, named: &ObjectReference, group: &ObjectReference) -> Ownership {
    let Some(snapshot) = snapshot.filter(|snapshot| *snapshot.metadata.uid == *named.uid) else {
        return Ownership::Missing;
    };
    let owners = snapshot.metadata.owner_references.as_deref().unwrap_or_default();
    let kind = VolumeGroupSnapshotContent::NAMES.owner;
    let is_group = owners.iter().any(|owner| owner.kind == kind && owner.uid == group.uid);
    if is_group { Ownership::Group } else { Ownership::Other }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{BDEL, cut};
    use super::*;
    use crate::roles::kit::fixtures::merged;

    #[test]
    fn a_content_is_of_the_group_of_its_status_or_else_of_the_one_that_it_was_made_for() {
        let annotated = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: "group-1" } } });
        let looked_up = |group: &str| json!({ "status": { "volumeGroupSnapshotHandle": group } });
        for (patch, expected) in [
            (json!({}), false),
            (annotated.clone(), true),
            (looked_up("group-1"), true),
            (looked_up("Group-1"), true),
            (looked_up("group-2"), false),
            (merged(annotated.clone(), looked_up("group-2")), false),
            (merged(annotated, looked_up("")), true),
        ] {
            assert_eq!(is_of(&cut(patch.clone()), "group-1"), expected, "{patch}");
        }
    }

    fn reference(uid: &str) -> ObjectReference {
        ObjectReference { namespace: "shop".into(), name: "all".into(), uid: uid.into() }
    }

    #[test]
    fn a_content_keeps_a_snapshot_of_a_group_unless_it_goes_with_it_or_is_the_groups_own() {
        let member = |group: &str| json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: group } } });
        let looked_up = |group: &str| json!({ "status": { "volumeGroupSnapshotHandle": group } });
        let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
        let far = json!({ "spec": { "volumeSnapshotRef": { "namespace": "other" } } });
        let unbound = json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } });
        let dt = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let dt_bdel = merged(dt.clone(), json!({ "metadata": { "annotations": { BDEL: "yes" } } }));
        for (patch, expected, what) in [
            (json!({}), Hold::ByOwner, "its VolumeSnapshot may be the group's"),
            (unbound.clone(), Hold::Keeps, "it is bound to nothing, and names the snapshot"),
            (looked_up("group-1"), Hold::Released, "the driver has said of which group it is"),
            (merged(looked_up("group-1"), unbound.clone()), Hold::Released, "also before it is bound"),
            (merged(looked_up("group-1"), far.clone()), Hold::Keeps, "its VolumeSnapshot is in another namespace"),
            (far, Hold::Keeps, "no group owns a VolumeSnapshot of another namespace"),
            (looked_up("group-2"), Hold::ByOwner, "of another group"),
            (member("group-1"), Hold::Released, "the snapshot-controller made it for the group"),
            (member("group-2"), Hold::ByOwner, "for another group"),
            (merged(member("group-1"), retain.clone()), Hold::Keeps, "this one is to be kept"),
            (merged(looked_up("group-1"), retain.clone()), Hold::Keeps, "and this one"),
            (dt.clone(), Hold::ByOwner, "its VolumeSnapshot lives"),
            (dt_bdel.clone(), Hold::Released, "it has its snapshot deleted, too"),
            (merged(dt_bdel, retain), Hold::Keeps, "it is to be kept"),
            (merged(dt, unbound), Hold::Released, "it is bound to nothing, and goes"),
        ] {
            let content = cut(Value::clone(&patch));
            let owner = reference("group-uid");
            let group = DoomedGroup { handle: "group-1", owner: &owner };
            assert_eq!(hold(&content, group, facts::is_policy_delete(&content)), expected, "{what}");
        }
        let unowned = DoomedGroup { handle: "group-1", owner: &reference("") };
        assert_eq!(hold(&cut(json!({})), unowned, true), Hold::Keeps, "nothing can be owned by a group without a uid");
    }

    #[test]
    fn a_volume_snapshot_is_the_groups_if_it_has_the_groups_uid_among_its_owners() {
        let owned = |uid: &str, kind: &str, owner: &str| -> VolumeSnapshot {
            // Written by a program that knows an older version.
            let owner = json!({ "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2", "kind": kind, "name": "all", "uid": owner });
            serde_json::from_value(json!({ "metadata": { "name": "s", "uid": uid, "ownerReferences": [owner] } }))
                .unwrap()
        };
        let of = |snapshot: Option<VolumeSnapshot>| {
            ownership(snapshot.as_ref(), &reference("snapshot-uid"), &reference("group-uid"))
        };
        let kind = "VolumeGroupSnapshot";
        assert_eq!(of(Some(owned("snapshot-uid", kind, "group-uid"))), Ownership::Group);
        assert_eq!(of(Some(owned("snapshot-uid", kind, "another"))), Ownership::Other);
        assert_eq!(of(Some(owned("snapshot-uid", "Job", "group-uid"))), Ownership::Other);
        assert_eq!(of(Some(owned("a namesake", kind, "group-uid"))), Ownership::Missing);
        assert_eq!(of(None), Ownership::Missing);
    }
}
