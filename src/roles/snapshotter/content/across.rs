//! What contents of one kind mean for those of the other: a group holds snapshots that a content may name for itself.
//!
//! A driver deletes a group with all of its snapshots, so the deletion of a group waits as long as somebody needs one of them. The
//! contents that the snapshot-controller makes for the snapshots of a group go with it, unless their policy is `Retain`: then
//! somebody has decided to keep the data.

use crate::cluster::{Cache, Object as _, VolumeGroupSnapshotContent, VolumeSnapshotContent};
use crate::roles::snapshotter::names::ANNOTATION_GROUP_HANDLE;

use super::facts;

/// The caches of both kinds.
#[derive(Debug, Clone)]
pub struct Across {
    /// The contents of snapshots.
    pub snapshots: Cache<VolumeSnapshotContent>,
    /// The contents of groups. `None`: groups are off.
    pub groups: Option<Cache<VolumeGroupSnapshotContent>>,
}

/// Whether a content says that its snapshot is of the group `group`: its status says so, or it has none that does and the
/// snapshot-controller has made it for that group. The annotation stays where the content gets a snapshot of another group.
pub fn is_of(content: &VolumeSnapshotContent, group: &str) -> bool {
    let annotated = || content.meta().annotation(ANNOTATION_GROUP_HANDLE);
    facts::group_handle(content).or_else(annotated) == Some(group)
}

/// Whether a content that names a snapshot of the group `group` keeps that from being deleted. One that goes with its snapshot does
/// not, nor one that the snapshot-controller has made for it, if the policy is `Delete`.
pub fn keeps(content: &VolumeSnapshotContent, group: &str) -> bool {
    let is_member = content.meta().annotation(ANNOTATION_GROUP_HANDLE) == Some(group);
    let is_going = facts::is_deleting(content) && (facts::has_lost_owner(content) || facts::is_unbound(content));
    !(facts::is_policy_delete(content) && (is_member || is_going))
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
            (looked_up("group-2"), false),
            (merged(annotated.clone(), looked_up("group-2")), false),
            (merged(annotated, looked_up("")), true),
        ] {
            assert_eq!(is_of(&cut(patch.clone()), "group-1"), expected, "{patch}");
        }
    }

    #[test]
    fn a_content_keeps_a_snapshot_of_a_group_unless_it_goes_with_it_or_was_made_for_it() {
        let member = |group: &str| json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: group } } });
        let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
        let dt = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let dt_bdel = merged(dt.clone(), json!({ "metadata": { "annotations": { BDEL: "yes" } } }));
        let looked_up = json!({ "status": { "volumeGroupSnapshotHandle": "group-1" } });
        for (patch, expected, what) in [
            (json!({}), true, "somebody names it"),
            (looked_up, true, "also where the driver has said of which group it is"),
            (member("group-1"), false, "the snapshot-controller made it for the group"),
            (member("group-2"), true, "for another group"),
            (merged(member("group-1"), retain.clone()), true, "somebody has decided to keep this one"),
            (dt.clone(), true, "its VolumeSnapshot lives"),
            (dt_bdel.clone(), false, "it has its snapshot deleted, too"),
            (merged(dt_bdel, retain), true, "it is to be kept"),
            (merged(dt, json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } })), false, "nobody's, and it goes"),
        ] {
            let patch: Value = patch;
            assert_eq!(keeps(&cut(patch), "group-1"), expected, "{what}");
        }
    }
}
