//! Who needs a snapshot of a group that is to be deleted (snapshotter spec 10). Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{ObjectReference, VolumeSnapshotContent};
use crate::roles::snapshotter::content::record::across::{DoomedGroup, Hold};
use crate::roles::snapshotter::content::record::needed::{User, WithPolicyDelete};
use crate::roles::snapshotter::content::record::{Content as _, Needed, Ownership, across, facts};

use super::view::OwnerNeed;

/// Whose the `VolumeSnapshots` are, by the uid of their contents: as far as they were read.
pub type Owners = BTreeMap<String, Ownership>;

/// A snapshot of a group that one of `contents` needs; and one of `contents` whose `VolumeSnapshot` must be read before this is known.
pub fn needed(
    contents: &[Arc<VolumeSnapshotContent>],
    group: DoomedGroup<'_>,
    owners: Option<&Owners>,
) -> (Option<Needed>, Option<OwnerNeed>) {
    let mut unread = None;
    for content in contents {
        match standing(content, group, owners) {
            Standing::Goes => {}
            Standing::Unread => {
                let (content, snapshot) = (content.metadata.uid.to_string(), content.snapshot_ref.clone());
                unread.get_or_insert(OwnerNeed { content, snapshot });
            }
            Standing::Needs(needed) => return (Some(needed), None),
        }
    }
    (None, unread)
}

enum Standing {
    Goes,
    Unread,
    Needs(Needed),
}

fn standing(content: &VolumeSnapshotContent, group: DoomedGroup<'_>, owners: Option<&Owners>) -> Standing {
    let policy_deletes = facts::is_policy_delete(content);
    let owner = owners.and_then(|owners| owners.get(&*content.metadata.uid));
    match (across::hold(content, group, policy_deletes), owner) {
        (Hold::Released, _) | (Hold::ByOwner, Some(Ownership::Group)) => return Standing::Goes,
        (Hold::ByOwner, None) => return Standing::Unread,
        (Hold::ByOwner, Some(Ownership::Other | Ownership::Missing)) | (Hold::Keeps, _) => {}
    }
    let with_policy_delete = match across::hold(content, group, true) {
        _ if policy_deletes => WithPolicyDelete::Stays,
        Hold::Released => WithPolicyDelete::Goes,
        Hold::ByOwner => WithPolicyDelete::GoesIfOwned,
        Hold::Keeps => WithPolicyDelete::Stays,
    };
    Standing::Needs(Needed {
        snapshot: facts::handle(content).unwrap_or_default().to_owned(),
        content: content.metadata.name.to_string(),
        policy: (!policy_deletes).then(|| content.policy().to_owned()),
        is_deleting: facts::is_deleting(content),
        user: user(content, owner),
        with_policy_delete,
    })
}

fn user(content: &VolumeSnapshotContent, owner: Option<&Ownership>) -> User {
    let ObjectReference { namespace, name, .. } = &content.snapshot_ref;
    let named = || format!("{namespace}/{name}");
    match owner {
        _ if facts::is_unbound(content) => User::None,
        _ if facts::has_lost_owner(content) => User::Going,
        Some(Ownership::Missing) => User::Missing(named()),
        _ => User::Lives(named()),
    }
}
