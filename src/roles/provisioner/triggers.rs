//! Fills the provisioner's queues: from changes of the cluster, and from a look at everything now and then.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::cluster::{
    BY_CLASS, BY_SELECTED_NODE, BY_SOURCE, Change, CsiNode, IndexName, Node, ObjectName, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, source_key,
};
use crate::journal::Opened;
use crate::queue::{Activation, Cause, WorkItem, WorkQueue, epoch_of};
use crate::roles::kit::{Controllers, Memory, look_at_each};

use crate::roles::provisioner::claim::ClaimKey;
use crate::roles::provisioner::claims::decide::waits_for_consumer;
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::claims::memory::{ClaimMemory, Dependency, freed, take};
use crate::roles::provisioner::claims::phase::Phase;
use crate::roles::provisioner::claims::state::ClaimState;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::predicates::{self, Wake};
use crate::roles::provisioner::reporter::Reporter;
use crate::roles::provisioner::sources;
use crate::roles::provisioner::sources::protection::{SourceKey, is_user};

/// How often the metrics of waiting work, and the warning about topology keys, are updated: not with each change of a
/// first list.
const FIGURES: Duration = Duration::from_secs(1);

/// The queues of a term.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    pub(super) claims: WorkQueue<ClaimKey>,
    pub(super) volumes: WorkQueue<String>,
    pub(super) sources: WorkQueue<SourceKey>,
}

/// The queues have one lane each, and a claim's key holds its uid.
fn activation(cause: Cause) -> Activation {
    Activation { cause, lane: 0, epoch: 0 }
}

impl Queues {
    /// What the term remembers of claims: nothing yet. A source that none of them needs any more is looked at.
    pub(super) fn memory_of_claims(&self) -> Memory<ClaimMemory> {
        let sources = self.sources.clone();
        Memory::marking(move |mark| {
            if let Some(source) = freed(&mark) {
                sources.add(source, activation(Cause::Changed));
            }
        })
    }

    /// Fills the queues from the caches, beginning with what they hold already.
    pub(super) fn follow(&self, cx: &Arc<Context>, controllers: &mut Controllers) {
        let known = &cx.stores;
        let with = || (self.clone(), Arc::clone(cx));
        let (queues, shared) = with();
        controllers.on(&known.claims, move |change| queues.claim_changed(&shared, change));
        let (queues, shared) = with();
        controllers.on(&known.volumes, move |change| queues.volume_changed(&shared, change));
        let (queues, shared) = with();
        controllers.on(&known.attachments, move |change| {
            if let Some(volume) = predicates::volume_detached(change) {
                queues.wake_detached(&shared, volume);
            }
        });
        let (queues, shared) = with();
        controllers.on(&known.classes, move |change| {
            let name = change.new.as_deref().map(|class| &*class.metadata.name);
            if predicates::class_unblocks(change)
                && let Some(name) = name
            {
                queues.wake_claims(&shared, BY_CLASS, name);
                queues.wake_volumes(&shared, name);
            }
        });
        let (queues, shared) = with();
        controllers.on(&known.snapshots, move |change| {
            if predicates::snapshot_unblocks(change)
                && let Some(snapshot) = change.new.as_deref().or(change.old.as_deref())
            {
                queues.wake_users(&shared, "VolumeSnapshot", &ObjectName::of(snapshot));
            }
        });
        if let Some(contents) = &known.contents {
            let (queues, shared) = with();
            controllers.on(contents, move |change| {
                if predicates::content_unblocks(change)
                    && let Some(content) = change.new.as_deref().or(change.old.as_deref())
                {
                    let ObjectReference { namespace, name, .. } = &content.snapshot_ref;
                    queues.wake_users(&shared, "VolumeSnapshot", &ObjectName::namespaced(namespace, name));
                }
            });
        }
        let Some((nodes, csi_nodes)) = &known.nodes else { return };
        let (queues, shared) = with();
        controllers.on(nodes, move |change| {
            let labels = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.metadata.labels.clone());
            if labels(&change.old) != labels(&change.new) {
                let node = change.new.as_deref().or(change.old.as_deref());
                queues.node_changed(&shared, node.map(|node| &*node.metadata.name));
            }
        });
        let (queues, shared) = with();
        controllers.on(csi_nodes, move |change| {
            see_keys(&shared, change);
            if predicates::csi_node_unblocks(change, &shared.scope.driver_name) {
                let node = change.new.as_deref().or(change.old.as_deref());
                queues.node_changed(&shared, node.map(|node| &*node.metadata.name));
            }
        });
    }

    fn claim_changed(&self, cx: &Context, change: &Change<PersistentVolumeClaim>) {
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let replaced = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid);
        if let Some(old) = replaced {
            self.claim_gone(cx, ClaimKey::of(old));
        }
        let key = ClaimKey::of(object);
        let is_begun = cx.claims.memory.read(&key.uid, ClaimMemory::is_begun);
        match predicates::claim_wake(change, &cx.claims.rules.driver, is_begun, cx.deployment.node()) {
            Wake::Now => self.claims.add(key, activation(Cause::Changed)),
            Wake::Forget => self.claim_gone(cx, key),
            Wake::No => {}
        }
        if predicates::source_claim_unblocks(change) {
            self.wake_users(cx, "PersistentVolumeClaim", &ObjectName::of(object.as_ref()));
        }
        // Whether the claim was admitted to a source of another namespace does not matter here: an extra look at a
        // source does no harm.
        let needs = |claim: &PersistentVolumeClaim| is_user(claim, false, true, &cx.claims.rules.driver);
        if let Some(old) = change.old.as_deref().filter(|old| needs(old))
            && !change.new.as_deref().is_some_and(needs)
            && let Some(source) = SourceKey::of(old)
        {
            self.sources.add(source, activation(Cause::Changed));
        }
    }

    /// Forgets a claim that is gone, but goes on working on it while the driver owes a final answer.
    fn claim_gone(&self, cx: &Context, key: ClaimKey) {
        let gone = |it: &mut ClaimMemory| {
            (it.admitted, it.is_without_volume) = (None, false);
            it.state.is_some()
        };
        if cx.claims.memory.change(&key.uid, gone) {
            self.claims.add(key, activation(Cause::Changed));
        } else {
            self.claims.forget(&key);
            cx.claims.memory.forget(&key.uid);
            cx.deployment.forget(&key);
        }
    }

    /// Continues the requests that an earlier term has left in the journal.
    pub(super) fn resume(&self, cx: &Context, Opened { content: entry, since, .. }: Opened<Entry>) {
        let key = entry.key();
        cx.claims.memory.change(&key.uid, |it| {
            if it.state.is_none() {
                it.state = Some(entry.resume(&since).into());
            }
        });
        self.claims.add(key, activation(Cause::Changed));
    }

    pub(super) fn volume_changed(&self, cx: &Context, change: &Change<PersistentVolume>) {
        let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
        if let Some(old) = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid) {
            self.volume_gone(cx, old);
        }
        match predicates::volume_wake(change, &cx.deletion.rules) {
            Wake::Now => self.wake_volume(object, Cause::Changed),
            Wake::Forget => self.volume_gone(cx, object),
            Wake::No => {}
        }
        if let Some(stored) = change.new.as_deref() {
            self.wake_unsaved(cx, stored);
        }
        if let Some(freed) = predicates::name_freed(change) {
            self.wake_waiting(cx, &Dependency::Name(freed));
            self.wake_owner(cx, object);
        }
        if let Some(handle) = predicates::handle_freed(change) {
            for twin in cx.volumes_of(handle) {
                if twin.metadata.uid != object.metadata.uid {
                    self.wake_wanted(cx, &twin);
                }
            }
        }
    }

    /// Wakes a claim whose PersistentVolume is stored although the API answered with an error. The claim must learn
    /// this before the object can be released and deleted, so that it is not stored a second time.
    fn wake_unsaved(&self, cx: &Context, stored: &PersistentVolume) {
        let Some(owner) = stored.spec.claim_ref.as_deref() else { return };
        let Some(uid) = owner.uid.as_deref().filter(|uid| cx.claims.memory.read(uid, ClaimMemory::is_unsaved)) else {
            return;
        };
        let name = ObjectName::namespaced(&owner.namespace, &owner.name);
        self.claims.add(ClaimKey { uid: uid.into(), name }, activation(Cause::Changed));
    }

    /// Wakes the claim of a PersistentVolume that went before it was bound: the claim needs another one.
    fn wake_owner(&self, cx: &Context, object: &PersistentVolume) {
        let Some(owner) = object.spec.claim_ref.as_deref() else { return };
        let name = ObjectName::namespaced(&owner.namespace, &owner.name);
        let claim = cx.stores.claims.get(&name).filter(|claim| Some(&*claim.metadata.uid) == owner.uid.as_deref());
        if let Some(claim) = claim.filter(|claim| claim.spec.volume_name.is_none()) {
            cx.claims.memory.change(&claim.metadata.uid, |it| it.is_without_volume = true);
            self.claims.add(ClaimKey::of(claim.as_ref()), activation(Cause::Changed));
        }
    }

    /// Forgets a PersistentVolume that is gone. Another object may have its name by now.
    fn volume_gone(&self, cx: &Context, object: &PersistentVolume) {
        let name = &object.metadata.name;
        self.volumes.forget(&name.to_string());
        cx.deletion.memory.forget(&object.metadata.uid);
    }

    fn wake_volume(&self, object: &PersistentVolume, cause: Cause) {
        let name = object.metadata.name.to_string();
        self.volumes.add(name, Activation { cause, lane: 0, epoch: epoch_of(&object.metadata.uid) });
    }

    fn wake_detached(&self, cx: &Context, volume: &str) {
        let Some(object) = cx.stores.volumes.get(&ObjectName::cluster(volume)) else { return };
        self.wake_wanted(cx, &object);
        // Another object with the same handle may have waited for this detach, too.
        for twin in cx.same_handle(&object) {
            self.wake_wanted(cx, &twin);
        }
    }

    /// Wakes the volumes of a class whose deletion is still queued: the class may name their secret.
    fn wake_volumes(&self, cx: &Context, class: &str) {
        for item in self.volumes.snapshot() {
            let found = cx.stores.volumes.get(&ObjectName::cluster(&item.key));
            if let Some(object) = found.filter(|it| it.spec.storage_class_name.as_deref() == Some(class)) {
                self.wake_wanted(cx, &object);
            }
        }
    }

    fn wake_wanted(&self, cx: &Context, object: &PersistentVolume) {
        if predicates::wants_work(object, &cx.deletion.rules).is_some() {
            self.wake_volume(object, Cause::Changed);
        }
    }

    fn node_changed(&self, cx: &Context, node: Option<&str>) {
        if let Some(node) = node {
            self.wake_claims(cx, BY_SELECTED_NODE, node);
        }
        self.wake_waiting(cx, &Dependency::AnyNode);
    }

    fn wake_waiting(&self, cx: &Context, what: &Dependency) {
        for key in take(&cx.claims.memory, what) {
            self.claims.add(key, activation(Cause::Changed));
        }
    }

    fn wake_users(&self, cx: &Context, kind: &str, name: &ObjectName) {
        let value = source_key(name.namespace().unwrap_or_default(), kind, name.name());
        self.wake_claims(cx, BY_SOURCE, &value);
    }

    /// Wakes the claims that the index finds, if they wait for a volume of our driver.
    fn wake_claims(&self, cx: &Context, index: IndexName, value: &str) {
        for object in cx.stores.claims.find(index, value) {
            if predicates::is_wanted(&object, &cx.claims.rules.driver) {
                self.claims.add(ClaimKey::of(&object), activation(Cause::Changed));
            }
        }
    }

    /// Looks at everything, in case a wake-up was missed. Never ends a back-off early.
    pub(super) async fn look_at_all(&self, cx: &Context) {
        let mut keys: BTreeSet<ClaimKey> = cx.claims.memory.collect(ClaimMemory::key).into_iter().collect();
        look_at_each(cx.stores.claims.own(), |object| {
            if predicates::is_wanted(&object, &cx.claims.rules.driver) {
                keys.insert(ClaimKey::of(&object));
            }
        })
        .await;
        look_at_each(keys, |key| self.claims.add(key, activation(Cause::Resync))).await;
        look_at_each(cx.stores.volumes.own(), |object| {
            if predicates::wants_work(&object, &cx.deletion.rules).is_some() {
                self.wake_volume(&object, Cause::Resync);
            }
        })
        .await;
    }

    /// Looks for sources that still have the finalizer although no claim needs them: at the start of the term, and once
    /// per interval. Snapshots that come late are looked at when they come.
    pub(super) async fn sweep(self, cx: Arc<Context>) {
        let snapshots = cx.stores.snapshots.clone();
        loop {
            let had_snapshots = snapshots.is_synced();
            for source in sources::sweep(&cx).await {
                self.sources.add(source, activation(Cause::Resync));
            }
            let every = cx.section.snapshot_sweep_interval;
            let next =
                async { if every.is_zero() { std::future::pending().await } else { tokio::time::sleep(every).await } };
            tokio::select! {
                biased;
                () = snapshots.synced(), if !had_snapshots => {}
                () = next => {}
            }
        }
    }

    /// Updates the metrics of waiting work.
    pub(super) async fn figures(self, cx: Arc<Context>, reporter: Reporter) {
        loop {
            tokio::time::sleep(FIGURES).await;
            warn_of_keys(&cx);
            let oldest = self.claims.snapshot().iter().map(|item| waits_since(&cx, item)).max();
            // How many volumes wait for their PersistentVolume, and how many requests for the driver's final answer.
            let count = |is: fn(&ClaimState) -> bool| {
                cx.claims.memory.collect(|it| it.state.as_ref().filter(|state| is(state)).map(drop)).len()
            };
            let unsaved = count(|state| matches!(state.phase(), Phase::Created(_)));
            reporter.show(oldest.unwrap_or_default(), (unsaved, count(ClaimState::is_creating)));
        }
    }
}

/// How long a claim has waited for its volume: since its creation, whoever led then. A claim that waits for its first
/// pod, or that has its volume already, counts from when it entered the queue.
fn waits_since(cx: &Context, item: &WorkItem<ClaimKey>) -> Duration {
    let key = &item.key;
    let claim = cx.stores.claims.get(&key.name);
    let Some(claim) = claim.filter(|it| *it.metadata.uid == *key.uid) else { return item.age };
    let class = claim.class_name().and_then(|name| cx.stores.classes.get(&ObjectName::cluster(name)));
    let waits_for_us = claim.spec.volume_name.is_none() && !class.is_some_and(|class| waits_for_consumer(&class));
    let created = claim.metadata.creation_timestamp.filter(|_| waits_for_us);
    let age =
        created.and_then(|created| Duration::try_from(cx.scope.clock.wall().duration_since(created.timestamp())).ok());
    age.unwrap_or_default().max(item.age)
}

/// Records which topology keys a node reports.
fn see_keys(cx: &Context, change: &Change<CsiNode>) {
    let driver = cx.claims.rules.driver.as_str();
    let old = change.old.as_deref().and_then(|node| node.topology_keys(driver));
    let new = change.new.as_deref().and_then(|node| node.topology_keys(driver));
    cx.claims.topology.keys.lock().unwrap_or_else(PoisonError::into_inner).update(old, new);
}

/// Warns, once, that nodes report different topology keys: a claim without a node may get a segment of any of them.
fn warn_of_keys(cx: &Context) {
    let warning = cx.claims.topology.keys.lock().unwrap_or_else(PoisonError::into_inner).take_warning();
    if let Some(nodes) = warning.filter(|_| cx.claims.asking.topology) {
        warn!(nodes, "nodes report different topology keys: claims without a node may get a segment by any of them");
    }
}
