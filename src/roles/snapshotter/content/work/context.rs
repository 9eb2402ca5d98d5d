//! What every attempt at a content shares during a term.

use std::sync::Arc;

use crate::cluster::Cache;
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::{HeldLocks, KeyedLock, Memory, Store, TermScope};
use crate::roles::snapshotter::config::SnapshotterSection;
use crate::roles::snapshotter::content::policy::{
    Known, Objects, Observed, Phase, Progress, Rules, decide::phase, predicates,
};
use crate::roles::snapshotter::content::record::{Content, across::Across, facts, request};
use crate::roles::snapshotter::content::told::waiting::Gauges;

use super::{elsewhere::Elsewhere, memory, memory::ContentKey};

/// The caches that the snapshotter reads.
#[derive(Debug)]
pub struct Caches<K: Content> {
    /// Every content. The contents of other drivers have little more than their name.
    pub contents: Cache<K>,
    /// Every class.
    pub classes: Cache<K::Class>,
}

impl<K: Content> Clone for Caches<K> {
    fn clone(&self) -> Self {
        Self { contents: self.contents.clone(), classes: self.classes.clone() }
    }
}

impl<K: Content> Caches<K> {
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

/// What the term sees of the cluster.
#[derive(Debug)]
pub struct Stores<K: Content> {
    /// The contents, as far as the term writes to them.
    pub contents: Store<K>,
    /// The caches.
    pub caches: Caches<K>,
    /// The contents of both kinds.
    pub across: Across,
    /// The contents of other nodes, and of none.
    pub elsewhere: Elsewhere,
}

/// The lines in which calls wait. Snapshots and groups share them.
#[derive(Debug)]
pub struct Turns {
    /// At most one content waits for the lock of a source volume. So another call for the volume waits until one snapshot is cut at most.
    pub lines: KeyedLock<String>,
    /// The same of looks that are overdue.
    pub looks: KeyedLock<String>,
    /// The driver is asked by a name for one content at a time.
    pub names: KeyedLock<String>,
}

/// What every attempt of a term shares.
#[derive(Debug)]
pub struct Context<K: Content> {
    /// The term, the fenced clients, the locks.
    pub scope: Arc<TermScope>,
    /// The role's configuration.
    pub section: Arc<SnapshotterSection>,
    /// The rules of the decisions.
    pub rules: Arc<Rules>,
    /// What the cluster looks like.
    pub stores: Stores<K>,
    /// The contents to be worked.
    pub queue: WorkQueue<ContentKey>,
    /// The lines of calls.
    pub turns: Arc<Turns>,
    /// What the term remembers.
    pub memory: Memory<memory::Memory<K>>,
    /// What is counted of that. Snapshots and groups share them.
    pub gauges: Arc<Gauges>,
}

impl<K: Content> Context<K> {
    /// What an attempt knows of a content before a decision. `None`: there is nothing to do. Once the kinds are there, all contents are
    /// looked at.
    pub fn observe(&self, key: &ContentKey, progress: Option<&Progress>) -> Option<Observed<K>> {
        let mut now = self.find(key).filter(|now| !(now.exists && self.is_idle()))?;
        now.exists &= progress.is_none_or(|progress| !progress.is_gone);
        let at = self.scope.clock.now();
        let (began, longest) =
            (progress.and_then(|progress| progress.began).unwrap_or(at), self.section.ready_check.backoff().max);
        let known = self.memory.read(&key.uid, |memory| memory.known(began, longest));
        Some(Observed {
            known: self.with_neighbours(&now, known, progress),
            now,
            rules: Arc::clone(&self.rules),
            section: Arc::clone(&self.section),
            version: self.stores.caches.contents.version(),
            at,
            wall: self.scope.clock.wall(),
        })
    }

    fn with_neighbours(&self, now: &Objects<K>, known: Known, progress: Option<&Progress>) -> Known {
        let found = progress.map_or(known.found.as_ref(), |progress| progress.found.as_ref());
        let (needed_member, unread_owner) = self.needed_member(now, found, progress.map(|progress| &progress.owners));
        let (namesake, rival) = self.namesakes(now, known.unanswered.is_some());
        Known {
            is_relisted: self.stores.contents.is_listed(),
            is_ahead: self.stores.contents.is_ahead(&now.content),
            is_of_group: known.is_of_group || self.goes_with_group(now),
            is_confirmed: self.stores.contents.is_confirmed(&now.content),
            has_heir: !now.exists && self.has_heir(&now.content, found.map(|found| found.handle.as_str())),
            namesake,
            rival,
            named_by: self.named_by(now),
            needed_member,
            unread_owner,
            are_members_unseen: self.are_members_unseen(),
            has_copy: !now.exists && self.has_copy(&now.content),
            is_kind_absent: self.stores.caches.contents.is_absent(),
            ..known
        }
    }

    /// The content of a key, and its class. One that was removed by force while a call is unanswered is what was last seen of it.
    pub fn find(&self, key: &ContentKey) -> Option<Objects<K>> {
        let held = self.stores.contents.named(&key.name);
        if let Some(content) = held.filter(|content| content.meta().uid == key.uid) {
            return Some(self.about(content, true));
        }
        let last_seen = |memory: &memory::Memory<K>| memory.unanswered.as_ref().map(|it| Arc::clone(&it.content));
        self.memory.read(&key.uid, last_seen).map(|content| self.about(content, false))
    }

    /// What the caches hold besides about a content.
    pub fn about(&self, content: Arc<K>, exists: bool) -> Objects<K> {
        let (class, classes) = (content.class_name().filter(|name| !name.is_empty()), &self.stores.caches.classes);
        let class = class.and_then(|name| classes.named(name));
        Objects { content, class, exists, why_no_classes: classes.unknown() }
    }

    /// Whether no content is worked: the kinds of groups are served together or not at all (snapshotter spec 1.4). Snapshots are
    /// worked as far as they need no class.
    pub fn is_idle(&self) -> bool {
        K::NAMES.is_group && self.stores.caches.are_absent()
    }

    /// Whether a call for the content has no final answer.
    pub fn is_unanswered(&self, uid: &str) -> bool {
        self.memory.read(uid, |memory| memory.unanswered.is_some())
    }

    /// The row that a content is at.
    pub fn phase_of(&self, now: &Objects<K>) -> Phase {
        let class = now.class(&self.rules.request.driver);
        phase(&*now.content, class, &self.rules, self.is_unanswered(now.uid()))
    }

    /// Wakes the content of `now`.
    pub fn add(&self, now: &Objects<K>, cause: Cause) {
        let phase = self.phase_of(now);
        let epoch = predicates::epoch(&*now.content, phase);
        self.queue.add(ContentKey::of(&*now.content), Activation { cause, lane: predicates::lane(phase), epoch });
    }

    /// Wakes the content if there is something to do. Otherwise its failures are forgotten, and it waits for nothing any more.
    pub fn wake(&self, content: &Arc<K>, cause: Cause) {
        if self.is_idle() {
            return;
        }
        let now = self.about(Arc::clone(content), true);
        let class = now.class(&self.rules.request.driver);
        if predicates::wants(&**content, class, &self.rules, self.is_unanswered(now.uid())) {
            self.add(&now, cause);
        } else {
            self.queue.forget(&ContentKey::of(&**content));
            self.memory.change(now.uid(), memory::Memory::settled);
        }
    }

    /// The content is gone: nothing of it is remembered.
    pub fn forget(&self, key: &ContentKey) {
        self.queue.forget(key);
        self.memory.forget(&key.uid);
    }

    /// Remembers the call that an earlier leader has made for a content, if the content records it. The calls are repeated one
    /// after the other: until its turn comes, a content may be wiped or removed by force.
    pub fn resume_call_of(&self, content: &Arc<K>) {
        let now = self.about(Arc::clone(content), true);
        let class = now.class(&self.rules.request.driver);
        if facts::has_intent(&**content)
            && self.phase_of(&now) == Phase::Create
            && let Ok(asked) = request::plan(&**content, class, &self.rules.request)
        {
            self.memory.change(now.uid(), |memory| {
                memory.ask(content, &asked);
                memory.facts.is_resumed = true;
            });
        }
    }

    /// Waits until the driver may be called for the source volumes: for a place in the line of each volume, then for the locks of the
    /// volumes. A content keeps its place until its call is over, so other calls for a volume come before the next content. A name that
    /// another object can have too is locked last: the attempt that holds it waits for no other lock.
    pub async fn take_turn(&self, volumes: &[String], content: &K) -> Vec<HeldLocks> {
        let lines = self.turns.lines.acquire_all(volumes).await;
        let locks = HeldLocks::of_all(&self.scope.volume_locks, volumes).await;
        let name: Vec<String> = self.ambiguous_name(content).into_iter().collect();
        vec![lines, locks, self.turns.names.acquire_all(&name).await]
    }
}
