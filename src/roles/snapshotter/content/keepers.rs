//! Who needs a snapshot of a group that is to be deleted (snapshotter spec 10), as far as the caches say.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{BY_HANDLE, IdKind, ObjectReference, VolumeSnapshotContent};

use super::across::{self, DoomedGroup, Hold};
use super::context::{Context, Objects};
use super::facts;
use super::found::Found;
use super::kind::Content;
use super::needed::{Needed, Ownership, User, WithPolicyDelete};
use super::view::OwnerNeed;

/// Whose the `VolumeSnapshots` are, by the uid of their contents: as far as they were read.
pub(super) type Owners = BTreeMap<String, Ownership>;

impl<K: Content> Context<K> {
    /// A snapshot of the group of `now` that another content needs, and a content of which it must be read first whether it does.
    /// `found`: the group of a content that is gone.
    pub fn needed_member(
        &self,
        now: &Objects<K>,
        found: Option<&Found>,
        owners: &Owners,
    ) -> (Option<Needed>, Option<OwnerNeed>) {
        let found = found.filter(|_| !now.exists);
        let handle = found.map_or_else(|| facts::handle(&*now.content), |found| Some(found.handle.as_str()));
        let is_over = !now.exists || facts::is_deleting(&*now.content);
        let Some(handle) = handle.filter(|_| K::NAMES.is_group && is_over) else { return (None, None) };
        let group = DoomedGroup { handle, owner: now.content.owner() };
        let members = found.map_or_else(|| now.content.members(), Found::member_ids);
        let mut unread = None;
        for content in self.contents_of(&members, group, now.content.driver()) {
            match standing(&content, group, owners) {
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

    /// The contents that name a member of a group, and those that name the group: its own content may list no members.
    fn contents_of(&self, members: &[String], group: DoomedGroup<'_>, driver: &str) -> Vec<Arc<VolumeSnapshotContent>> {
        let of_member = |snapshot: &String| {
            self.across.snapshots.find(BY_HANDLE, &IdKind::Snapshot.key(&self.rules.request.driver, snapshot))
        };
        let mut contents: Vec<_> = members.iter().flat_map(of_member).collect();
        let is_of =
            |content: &Arc<VolumeSnapshotContent>| content.driver() == driver && across::is_of(content, group.handle);
        contents.extend(self.across.snapshots.all().into_iter().filter(is_of));
        contents.retain(|content| facts::handle(&**content).is_some());
        contents
    }
}

enum Standing {
    Goes,
    Unread,
    Needs(Needed),
}

fn standing(content: &VolumeSnapshotContent, group: DoomedGroup<'_>, owners: &Owners) -> Standing {
    let policy_deletes = facts::is_policy_delete(content);
    let owner = owners.get(&*content.metadata.uid);
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
