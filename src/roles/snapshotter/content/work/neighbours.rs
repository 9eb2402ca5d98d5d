//! What the other contents mean for a content: who has its name, its snapshot, or its call, as far as the caches say.

use std::sync::Arc;

use crate::cluster::{BY_HANDLE, Cache, IdKind, VolumeGroupSnapshotContent, VolumeSnapshotContent};
use crate::queue::Cause;
use crate::roles::snapshotter::content::policy::{Objects, OwnerNeed, Phase, keepers, keepers::Owners};
use crate::roles::snapshotter::content::record::across::{DoomedGroup, keeps};
use crate::roles::snapshotter::content::record::{Content, Found, Needed, across, described, facts, intent, request};

use super::context::Context;
use super::memory::{Memory, Unanswered};

impl<K: Content> Context<K> {
    /// The contents whose ids may be this one of our driver.
    pub fn with_handle(&self, handle: &str) -> Vec<Arc<K>> {
        self.stores.contents.find(BY_HANDLE, &IdKind::Snapshot.key(&self.rules.request.driver, handle))
    }

    fn may_be_same(&self, one: &str, other: &str) -> bool {
        IdKind::Snapshot.may_be_same(&self.rules.request.driver, one, other)
    }

    /// Whether another content has the snapshot of a content that is gone, or is to get it.
    pub fn has_heir(&self, gone: &K, handle: Option<&str>) -> bool {
        let is_other = |other: &Arc<K>| other.meta().uid != gone.meta().uid;
        let names = |handle| self.with_handle(handle).iter().any(is_other);
        handle.is_some_and(names) || self.heir(gone).is_some()
    }

    /// The content that is to get the snapshot which `gone` has asked for: it belongs to the same object and asks by the same name. A
    /// content that asks by another name, because the settings of names have changed meanwhile, gets another snapshot.
    fn heir(&self, gone: &K) -> Option<Arc<K>> {
        let owner = gone.owner().uid.as_str();
        let asked_by = |content: &K| {
            let name = |memory: &Memory<K>| memory.unanswered.as_ref().map(|it| it.asked.request.name.clone());
            let remembered = self.memory.read(&content.meta().uid, name);
            remembered.unwrap_or_else(|| request::name(content, &self.rules.request))
        };
        let is_heir = |other: &Arc<K>| {
            other.meta().uid != gone.meta().uid
                && !owner.is_empty()
                && other.owner().uid == owner
                && other.driver() == gone.driver()
                && facts::has_sources(&**other)
                && !intent::is_copied(&**other)
                && asked_by(other) == asked_by(gone)
        };
        self.stores.contents.own().into_iter().find(is_heir)
    }

    /// Other contents, by kind and name, whose snapshot has the name that the content of `now` is to ask by, and which belong to another
    /// object: the driver would answer with that snapshot. The first counts as long as the content is not marked. The second counts
    /// after that, too: the driver was asked for it, or it has the snapshot.
    pub fn namesakes(&self, now: &Objects<K>, is_unanswered: bool) -> (Option<String>, Option<String>) {
        if !now.exists || facts::handle(&*now.content).is_some() || is_unanswered {
            return (None, None);
        }
        let Some(name) = self.ambiguous_name(&*now.content) else { return (None, None) };
        let asker = self.memory.collect(|memory| asker(memory.unanswered.as_ref(), &now.content, &name)).pop();
        let of_name = |counts: &dyn Fn(&K) -> bool| self.other_of_name(&name, &now.content, counts);
        let rival = asker.or_else(|| of_name(&|other| facts::stored_handle(other).is_some()));
        (rival.clone().or_else(|| of_name(&|other| facts::has_mark(other))), rival)
    }

    /// The name that `content` asks by, if another object can have it too: a few digits of two uids may be the same, whole uids never.
    pub fn ambiguous_name(&self, content: &K) -> Option<String> {
        let rules = &self.rules.request;
        rules.names.uuid_length.map(|_| request::name(content, rules))
    }

    fn other_of_name(&self, name: &str, content: &K, counts: &dyn Fn(&K) -> bool) -> Option<String> {
        let owner = content.owner().uid.as_str();
        let is_namesake = |other: &Arc<K>| {
            counts(&**other)
                && other.owner().uid != owner
                && other.driver() == content.driver()
                && facts::has_sources(&**other)
                && !intent::is_copied(&**other)
                && request::name(&**other, &self.rules.request) == name
        };
        self.stores.contents.own().into_iter().find(is_namesake).map(|other| described(&*other))
    }

    /// Another content that needs the snapshot which is to be deleted with the content of `now`, by kind and name: one that names it,
    /// unless it has it deleted as well, at this moment; or the content of a group that it is of.
    pub fn named_by(&self, now: &Objects<K>) -> Option<String> {
        let handle = facts::handle(&*now.content).filter(|_| now.exists && facts::is_deleting(&*now.content))?;
        let deletes = |other: &Arc<K>| {
            let is_going = self.phase_of(&self.about(Arc::clone(other), true)) == Phase::Delete;
            is_going && facts::takes_snapshot_along(&**other) && !intent::is_copied(&**other)
        };
        let needs = |other: &Arc<K>| other.meta().uid != now.content.meta().uid && !deletes(other);
        let others = self.with_handle(handle);
        let other = others.iter().find(|other| needs(other)).map(|other| described(&**other));
        let group = || self.group_of(handle).map(|group| described(&*group));
        other.or_else(group)
    }

    /// Whether a copy of a content that is gone was put into the cluster.
    pub fn has_copy(&self, gone: &K) -> bool {
        let owner = gone.owner().uid.as_str();
        let is_copy = |other: &Arc<K>| other.owner().uid == owner && intent::is_copied(&**other);
        !owner.is_empty() && self.stores.contents.own().iter().any(is_copy)
    }

    /// Hands the unanswered call of `gone` over to the content that is to get its snapshot. That content may not have asked yet, and
    /// may be deleted before it does: it then still asks, and deletes the snapshot.
    pub fn hand_over(&self, gone: &K) {
        let call = self.memory.read(&gone.meta().uid, |memory| memory.unanswered.clone());
        let heir = self.heir(gone).filter(|heir| facts::handle(&**heir).is_none());
        let Some((call, heir)) = call.zip(heir) else { return };
        let has_asked = self.is_unanswered(&heir.meta().uid);
        self.memory.change(&heir.meta().uid, |memory| memory.inherit(&heir, &call));
        if !has_asked {
            self.add(&self.about(heir, true), Cause::Changed);
        }
    }

    /// Whether the cluster shows no contents of snapshots. It is unknown then who needs the snapshots of a group.
    pub fn are_members_unseen(&self) -> bool {
        K::NAMES.is_group && !self.stores.across.snapshots.is_known()
    }

    /// The content of the group that a snapshot with this id is of, unless the snapshots are being deleted with it.
    fn group_of(&self, snapshot: &str) -> Option<Arc<VolumeGroupSnapshotContent>> {
        self.groups_listing(snapshot).find(|group| keeps(&**group))
    }

    /// Whether the snapshot of a content that is being deleted is of a group that is being deleted as well: a driver deletes it with the
    /// group, and not by itself.
    pub fn goes_with_group(&self, now: &Objects<K>) -> bool {
        let handle = facts::handle(&*now.content).filter(|_| now.exists && facts::is_deleting(&*now.content));
        handle.is_some_and(|handle| self.groups_listing(handle).any(|group| !keeps(&*group)))
    }

    fn groups_listing(&self, snapshot: &str) -> impl Iterator<Item = Arc<VolumeGroupSnapshotContent>> {
        let groups = self.stores.across.groups.as_ref().filter(|_| !K::NAMES.is_group);
        let all = groups.map(Cache::all).unwrap_or_default();
        all.into_iter().filter(move |group| group.members().iter().any(|member| self.may_be_same(member, snapshot)))
    }

    /// The driver's id of the group whose content lists this snapshot.
    pub fn listed_group(&self, snapshot: &str) -> Option<String> {
        facts::handle(&*self.group_of(snapshot)?).map(str::to_owned)
    }

    /// The groups that are being deleted and that the snapshot of `content` is of.
    pub fn going_groups_of(&self, content: &VolumeSnapshotContent) -> Vec<Arc<K>> {
        let snapshot = facts::handle(content);
        let holds = |group: &Arc<K>| {
            let is_member =
                || group.members().iter().any(|member| snapshot.is_some_and(|own| self.may_be_same(member, own)));
            let is_told = || facts::handle(&**group).is_some_and(|group| across::is_of(content, group));
            facts::is_deleting(&**group) && (is_told() || is_member())
        };
        let mut groups = self.stores.contents.own();
        groups.retain(holds);
        groups
    }

    /// A snapshot of the group of `now` that another content needs; and a content whose `VolumeSnapshot` must be read before this is known.
    /// `found`: the group of a content that is gone.
    pub fn needed_member(
        &self,
        now: &Objects<K>,
        found: Option<&Found>,
        owners: Option<&Owners>,
    ) -> (Option<Needed>, Option<OwnerNeed>) {
        let found = found.filter(|_| !now.exists);
        let handle = found.map_or_else(|| facts::handle(&*now.content), |found| Some(found.handle.as_str()));
        let is_over = !now.exists || facts::is_deleting(&*now.content);
        let Some(handle) = handle.filter(|_| K::NAMES.is_group && is_over) else { return (None, None) };
        let group = DoomedGroup { handle, owner: now.content.owner() };
        let members = found.map_or_else(|| now.content.members(), Found::member_ids);
        keepers::needed(&self.contents_of(&members, group, now.content.driver()), group, owners)
    }

    /// The contents that name a member of a group, and those that name the group: its own content may list no members.
    fn contents_of(&self, members: &[String], group: DoomedGroup<'_>, driver: &str) -> Vec<Arc<VolumeSnapshotContent>> {
        let snapshots = &self.stores.across.snapshots;
        let of_member =
            |snapshot: &String| snapshots.find(BY_HANDLE, &IdKind::Snapshot.key(&self.rules.request.driver, snapshot));
        let mut contents: Vec<_> = members.iter().flat_map(of_member).collect();
        let is_of =
            |content: &Arc<VolumeSnapshotContent>| content.driver() == driver && across::is_of(content, group.handle);
        contents.extend(snapshots.own().into_iter().filter(is_of));
        contents.retain(|content| facts::handle(&**content).is_some());
        contents
    }

    /// Waits for a list of all contents that a deletion depends on.
    pub async fn listed(&self, is_once_enough: bool) {
        let (contents, snapshots) = (&self.stores.caches.contents, &self.stores.across.snapshots);
        if is_once_enough {
            self.stores.contents.list().await;
        } else if K::NAMES.is_group && !snapshots.is_absent() {
            futures::join!(contents.relisted(), snapshots.relisted());
        } else {
            contents.relisted().await;
        }
    }
}

/// A content of another owner than `content`, if the driver was asked for it by this name without a final answer.
fn asker<K: Content>(call: Option<&Unanswered<K>>, content: &K, name: &str) -> Option<String> {
    let is_asker =
        |call: &&Unanswered<K>| call.content.owner().uid != content.owner().uid && call.asked.request.name == name;
    call.filter(is_asker).map(|call| described(&*call.content))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::VolumeSnapshotContent;
    use crate::roles::snapshotter::content::record::fixtures::{asked, content};

    #[test]
    fn the_driver_is_asked_by_a_name_for_the_contents_of_one_owner_at_a_time() {
        let made = |uid: &str, owner: &str| -> Arc<VolumeSnapshotContent> {
            let change = json!({ "metadata": { "uid": uid }, "spec": { "volumeSnapshotRef": { "uid": owner } } });
            Arc::new(content(change))
        };
        let (first, again, other) = (made("a", "one"), made("b", "one"), made("c", "two"));
        let mut memory = Memory::default();
        let rival = |memory: &Memory<_>, content: &VolumeSnapshotContent, name: &str| {
            asker(memory.unanswered.as_ref(), content, name)
        };
        let name = &asked().request.name;
        assert_eq!(rival(&memory, &other, name), None);
        memory.ask(&first, &asked());
        assert_eq!(rival(&memory, &again, name), None, "another content of the same owner");
        assert_eq!(rival(&memory, &other, name).as_deref(), Some("VolumeSnapshotContent content-1"));
        assert_eq!(rival(&memory, &other, "another"), None);
    }
}
