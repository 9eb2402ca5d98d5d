//! What every attempt at a content shares.

use std::sync::Arc;

use crate::cluster::{Api, BY_HANDLE, Cache, IdKind, ObjectName, VolumeGroupSnapshotContent, VolumeSnapshotContent};
use crate::election::TermOver;
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::freshness::ListedOnce;
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::{KeyedLock, TermScope};
use crate::roles::snapshotter::config::SnapshotterSection;

use super::across::{self, Across};
use super::decide::{Phase, phase};
use super::elsewhere::{self, Elsewhere};
use super::facts::{self, ClassView};
use super::intent;
use super::kind::Content;
use super::memory::{ContentKey, Memory};
use super::predicates;
use super::request;
use super::view::Rules;
use super::waiting::Waiting;

/// The caches that the snapshotter reads.
#[derive(Debug)]
pub struct Stores<K: Content> {
    /// Every content; of other drivers' little more than the name.
    pub contents: Cache<K>,
    /// Every class.
    pub classes: Cache<K::Class>,
}

impl<K: Content> Clone for Stores<K> {
    fn clone(&self) -> Self {
        Self { contents: self.contents.clone(), classes: self.classes.clone() }
    }
}

impl<K: Content> Stores<K> {
    /// Whether the cluster lacks one of the kinds, does not let us read it, or cannot show it.
    pub fn are_absent(&self) -> bool {
        !(self.contents.is_known() && self.classes.is_known())
    }

    /// Why kinds are absent, as text for people. `None`: neither is.
    pub fn missing(&self) -> Option<String> {
        let missing: Vec<String> = [self.contents.missing(), self.classes.missing()].into_iter().flatten().collect();
        (!missing.is_empty()).then(|| missing.join(", and "))
    }

    /// Waits until the contents were listed, and the classes, unless their lists fail: then only the contents that name one wait. Kinds
    /// that the cluster lacks are known to have no objects.
    pub async fn synced(&self) {
        self.contents.synced().await;
        self.classes.settled().await;
    }
}

/// What every attempt of a term shares.
#[derive(Debug)]
pub struct Context<K: Content> {
    /// The term, the fenced clients, the turns.
    pub scope: TermScope,
    /// The role's configuration.
    pub section: SnapshotterSection,
    /// What the cluster looks like.
    pub stores: Stores<K>,
    /// The contents of both kinds.
    pub across: Across,
    /// The rules of the decisions.
    pub rules: Rules,
    /// The contents to be worked.
    pub queue: WorkQueue<ContentKey>,
    /// Of each source volume at most one content stands in the line of the volume, so that whoever changes the volume otherwise waits
    /// for one cut at most.
    pub lines: Arc<KeyedLock<String>>,
    /// Of each source volume at most one overdue look stands in the line of the volume, so that whoever changes it otherwise waits for
    /// one of them at most.
    pub looks: Arc<KeyedLock<String>>,
    /// What the term remembers.
    pub memory: Memory<K>,
    /// Whether the contents were listed since the term began.
    pub relisted: ListedOnce,
    /// The contents of other nodes, and of none.
    pub elsewhere: Elsewhere,
    /// Contents that wait.
    pub waiting: Arc<Waiting>,
    /// Which failures are worth a line in the log.
    pub failures: FailureLog,
}

/// Shared handles to the objects that one decision was made from.
#[derive(Debug)]
pub struct Objects<K: Content> {
    /// The content.
    pub content: Arc<K>,
    /// The class that it names, if the cache has one.
    pub class: Option<Arc<K::Class>>,
    /// Whether the cache has the content.
    pub exists: bool,
    /// Why classes are not known; `None`: they are.
    pub why_no_classes: Option<String>,
}

impl<K: Content> Objects<K> {
    /// The content's uid.
    pub fn uid(&self) -> &str {
        &self.content.meta().uid
    }

    /// The content's name.
    pub fn name(&self) -> ObjectName {
        ObjectName::of(self.content.as_ref())
    }
}

/// A content by kind and name.
pub fn described<K: Content>(content: &K) -> String {
    format!("{} {}", K::KIND, content.meta().name)
}

impl<K: Content> Context<K> {
    /// The API, in the version in which the contents are read.
    pub fn api(&self) -> Result<Api, TermOver> {
        Ok(self.scope.api.use_now()?.in_version_of(&self.stores.contents))
    }

    /// The content of a key, and its class. One that was removed by force while a call is unanswered is what was last seen of it.
    pub fn find(&self, key: &ContentKey) -> Option<Objects<K>> {
        let held = self.stores.contents.get(&ObjectName::cluster(&key.name));
        if let Some(content) = held.filter(|content| content.meta().uid == key.uid) {
            return Some(self.about(content, true));
        }
        self.memory.unanswered(&key.uid).map(|unanswered| self.about(unanswered.content, false))
    }

    /// What the caches hold besides about a content.
    pub fn about(&self, content: Arc<K>, exists: bool) -> Objects<K> {
        let class = content.class_name().filter(|name| !name.is_empty());
        let class = class.and_then(|name| self.stores.classes.get(&ObjectName::cluster(name)));
        Objects { content, class, exists, why_no_classes: self.stores.classes.unknown() }
    }

    /// The class of a content, as the decisions see it.
    pub fn class_of<'a>(&self, now: &'a Objects<K>) -> ClassView<'a, K::Class> {
        match (ClassView::of(&*now.content, now.class.as_deref(), &self.scope.driver_name), &now.why_no_classes) {
            (ClassView::Missing(name), Some(why)) => ClassView::Unread(name, why),
            (view, _) => view,
        }
    }

    /// Whether no content is worked: the kinds of groups are served together or not at all (snapshotter spec 1.4). Snapshots are
    /// worked as far as they need no class.
    pub fn is_idle(&self) -> bool {
        K::NAMES.is_group && self.stores.are_absent()
    }

    /// The row that a content is at.
    pub fn phase_of(&self, now: &Objects<K>) -> Phase {
        let is_unanswered = self.memory.is_unanswered(now.uid());
        phase(&*now.content, self.class_of(now), &self.rules, is_unanswered)
    }

    /// Wakes the content of `now`.
    pub fn add(&self, now: &Objects<K>, cause: Cause) {
        let phase = self.phase_of(now);
        let epoch = predicates::epoch(&*now.content, phase);
        self.queue.add(ContentKey::of(&*now.content), Activation { cause, lane: predicates::lane(phase), epoch });
    }

    /// Remembers the call that an earlier leader has made for a content, if the content records it. The calls are repeated one
    /// after the other: until its turn comes, a content may be wiped or removed by force.
    pub fn resume_call_of(&self, content: &Arc<K>) {
        let now = self.about(Arc::clone(content), true);
        if facts::has_intent(&**content)
            && self.phase_of(&now) == Phase::Create
            && let Ok(asked) = request::plan(&**content, self.class_of(&now), &self.rules.request)
        {
            self.memory.ask(content, &asked);
            self.memory.resumed.note(now.uid());
        }
    }

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
            let remembered = self.memory.unanswered(&content.meta().uid);
            remembered.map_or_else(|| request::name(content, &self.rules.request), |it| it.asked.request.name)
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
        self.stores.contents.all().into_iter().find(is_heir)
    }

    /// Another content, by kind and name, whose snapshot has the name that the content of `now` is to ask by, and which belongs to
    /// another object. The driver would answer with its snapshot.
    pub fn namesake(&self, now: &Objects<K>) -> Option<String> {
        if !now.exists || facts::handle(&*now.content).is_some() || self.memory.is_unanswered(now.uid()) {
            return None;
        }
        let name = self.ambiguous_name(&*now.content)?;
        let has_begun = |other: &K| facts::stored_handle(other).is_some() || facts::has_mark(other);
        let asker = self.memory.asker(&now.content, &name);
        asker.map(|other| described(&*other)).or_else(|| self.other_of_name(&name, &now.content, has_begun))
    }

    /// The same of a content that has its snapshot.
    pub fn cut_namesake(&self, now: &Objects<K>) -> Option<String> {
        let name = self.ambiguous_name(&*now.content)?;
        self.other_of_name(&name, &now.content, |other| facts::stored_handle(other).is_some())
    }

    /// The name that `content` asks by, if another object can have it too: a few digits of two uids may be the same, whole uids never.
    fn ambiguous_name(&self, content: &K) -> Option<String> {
        let rules = &self.rules.request;
        rules.names.uuid_length.map(|_| request::name(content, rules))
    }

    fn other_of_name(&self, name: &str, content: &K, counts: impl Fn(&K) -> bool) -> Option<String> {
        let owner = content.owner().uid.as_str();
        let is_namesake = |other: &Arc<K>| {
            counts(&**other)
                && other.owner().uid != owner
                && other.driver() == content.driver()
                && facts::has_sources(&**other)
                && !intent::is_copied(&**other)
                && request::name(&**other, &self.rules.request) == name
        };
        self.stores.contents.all().into_iter().find(is_namesake).map(|other| described(&*other))
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

    /// Whether somebody has put a copy of a content that is gone into the cluster.
    pub fn has_copy(&self, gone: &K) -> bool {
        let owner = gone.owner().uid.as_str();
        let is_copy = |other: &Arc<K>| other.owner().uid == owner && intent::is_copied(&**other);
        !owner.is_empty() && self.stores.contents.all().iter().any(is_copy)
    }

    /// Hands the unanswered call of `gone` over to the content that is to get its snapshot. That content may not have asked yet, and
    /// may be deleted before it does: it then still asks, and deletes the snapshot.
    pub fn hand_over(&self, gone: &K) {
        let Some(unanswered) = self.memory.unanswered(&gone.meta().uid) else { return };
        if let Some(heir) = self.heir(gone)
            && facts::handle(&*heir).is_none()
        {
            let has_asked = self.memory.is_unanswered(&heir.meta().uid);
            self.memory.inherit(&heir, &unanswered);
            if !has_asked {
                self.add(&self.about(heir, true), Cause::Changed);
            }
        }
    }

    /// Whether the cluster shows no contents of snapshots. It is unknown then who needs the snapshots of a group.
    pub fn are_members_unseen(&self) -> bool {
        K::NAMES.is_group && !self.across.snapshots.is_known()
    }

    /// The content of the group that a snapshot with this id is of, unless the snapshots are being deleted with it.
    pub fn group_of(&self, snapshot: &str) -> Option<Arc<VolumeGroupSnapshotContent>> {
        self.groups_listing(snapshot).find(|group| elsewhere::keeps(&**group))
    }

    /// Whether the snapshot of a content that is being deleted is of a group that is being deleted as well: a driver deletes it with the
    /// group, and not by itself.
    pub fn goes_with_group(&self, now: &Objects<K>) -> bool {
        let handle = facts::handle(&*now.content).filter(|_| now.exists && facts::is_deleting(&*now.content));
        handle.is_some_and(|handle| self.groups_listing(handle).any(|group| !elsewhere::keeps(&*group)))
    }

    fn groups_listing(&self, snapshot: &str) -> impl Iterator<Item = Arc<VolumeGroupSnapshotContent>> {
        let groups = self.across.groups.as_ref().filter(|_| !K::NAMES.is_group);
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
        let mut groups = self.stores.contents.all();
        groups.retain(holds);
        groups
    }

    /// Waits for a list of all contents that a deletion depends on.
    pub async fn listed(&self) {
        if K::NAMES.is_group && !self.across.snapshots.is_absent() {
            futures::join!(self.stores.contents.relisted(), self.across.snapshots.relisted());
        } else {
            self.stores.contents.relisted().await;
        }
    }
}
