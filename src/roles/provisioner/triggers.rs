//! Fills the provisioner's queues: from changes of the cluster, and from a look at everything now and then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::cluster::{
    BY_CLASS, BY_SELECTED_NODE, BY_SOURCE, Change, CsiNode, IndexName, Node, Object, ObjectName, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment, VolumeSnapshot, VolumeSnapshotContent,
    source_key,
};
use crate::journal::Opened;
use crate::queue::{Activation, Cause, WorkItem, WorkQueue, epoch_of};
use crate::roles::kit::{Controllers, Memory, Wake, look_at_each, with};

use super::claim::ClaimKey;
use super::claims::context::ClaimsContext;
use super::claims::entry::Entry;
use super::claims::memory::{ClaimMemory, Dependency, freed, take};
use super::claims::phase::Phase;
use super::claims::state::ClaimState;
use super::context::Context;
use super::deletion::context::DeletionContext;
use super::predicates;
use super::reporter::Reporter;
use super::sources::protection::{SourceKey, is_user};
use super::unprotect;

/// How often the metrics of waiting work, and the warning about topology keys, are updated: not with each change of a
/// first list.
const FIGURES: Duration = Duration::from_secs(1);

/// The queues of a term. They have one lane each, and a claim's key holds its uid.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    pub(super) claims: WorkQueue<ClaimKey>,
    pub(super) volumes: WorkQueue<String>,
    pub(super) sources: WorkQueue<SourceKey>,
}

/// What fills the queues of a term. It knows all rooms.
#[derive(Debug)]
pub(super) struct Triggers {
    pub(super) queues: Queues,
    pub(super) shared: Arc<Context>,
    pub(super) claims: Arc<ClaimsContext>,
    pub(super) deletion: Arc<DeletionContext>,
}

impl Queues {
    /// What the term remembers of claims: nothing yet. A source that none of them needs any more is looked at.
    pub(super) fn memory_of_claims(&self) -> Memory<ClaimMemory> {
        let sources = self.sources.clone();
        Memory::marking(move |mark| {
            if let Some(source) = freed(&mark) {
                sources.add(source, Activation::of(Cause::Changed));
            }
        })
    }
}

impl Triggers {
    /// Fills the queues from the caches, beginning with what they hold already.
    pub(super) fn follow(self: &Arc<Self>, controllers: &mut Controllers) {
        let caches = &self.shared.caches;
        controllers.on(&caches.claims, with(self, Self::claim_changed));
        controllers.on(&caches.volumes, with(self, Self::volume_changed));
        controllers.on(&caches.attachments, with(self, Self::attachment_changed));
        controllers.on(&caches.classes, with(self, Self::class_changed));
        controllers.on(&caches.snapshots, with(self, Self::snapshot_changed));
        if let Some(contents) = &caches.contents {
            controllers.on(contents, with(self, Self::content_changed));
        }
        if let Some((nodes, csi_nodes)) = &caches.nodes {
            controllers.on(nodes, with(self, Self::node_changed));
            controllers.on(csi_nodes, with(self, Self::csi_node_changed));
        }
    }

    fn attachment_changed(&self, change: &Change<VolumeAttachment>) {
        if let Some(volume) = predicates::volume_detached(change) {
            self.wake_detached(volume);
        }
    }

    fn class_changed(&self, change: &Change<StorageClass>) {
        if let Some(class) = change.new.as_deref().filter(|_| predicates::class_unblocks(change)) {
            self.wake_claims(BY_CLASS, &class.metadata.name);
            self.wake_volumes(&class.metadata.name);
        }
    }

    fn snapshot_changed(&self, change: &Change<VolumeSnapshot>) {
        if let Some(snapshot) = change.last().filter(|_| predicates::snapshot_unblocks(change)) {
            self.wake_users("VolumeSnapshot", &ObjectName::of(snapshot));
        }
    }

    fn content_changed(&self, change: &Change<VolumeSnapshotContent>) {
        if let Some(content) = change.last().filter(|_| predicates::content_unblocks(change)) {
            let ObjectReference { namespace, name, .. } = &content.snapshot_ref;
            self.wake_users("VolumeSnapshot", &ObjectName::namespaced(namespace, name));
        }
    }

    fn node_changed(&self, change: &Change<Node>) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if old.map(|node| &node.metadata.labels) != new.map(|node| &node.metadata.labels) {
            self.wake_node(change.last());
        }
    }

    /// Records which topology keys the node reports, and wakes the claims that waited for them.
    fn csi_node_changed(&self, change: &Change<CsiNode>) {
        let driver = self.claims.rules.driver.as_str();
        let old = change.old.as_deref().and_then(|node| node.topology_keys(driver));
        let new = change.new.as_deref().and_then(|node| node.topology_keys(driver));
        self.claims.topology.keys().update(old, new);
        if predicates::csi_node_unblocks(change, driver) {
            self.wake_node(change.last());
        }
    }

    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let Some(object) = change.last() else { return };
        let replaced = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid);
        if let Some(old) = replaced {
            self.claim_gone(ClaimKey::of(old));
        }
        let key = ClaimKey::of(object);
        let is_begun = self.claims.memory.read(&key.uid, ClaimMemory::is_begun);
        match predicates::claim_wake(change, &self.claims.rules.driver, is_begun, self.shared.deployment.node()) {
            Wake::Now => self.wake_claim(key),
            Wake::Forget => self.claim_gone(key),
            Wake::No => {}
        }
        if predicates::source_claim_unblocks(change) {
            self.wake_users("PersistentVolumeClaim", &ObjectName::of(object));
        }
        // Whether the claim was admitted to a source of another namespace does not matter here: an extra look at a
        // source does no harm.
        let needs = |claim: &PersistentVolumeClaim| is_user(claim, false, true, &self.claims.rules.driver);
        if let Some(old) = change.old.as_deref().filter(|old| needs(old))
            && !change.new.as_deref().is_some_and(needs)
            && let Some(source) = SourceKey::of(old)
        {
            self.queues.sources.add(source, Activation::of(Cause::Changed));
        }
    }

    /// Forgets a claim that is gone, but goes on working on it while the driver owes a final answer.
    fn claim_gone(&self, key: ClaimKey) {
        let gone = |it: &mut ClaimMemory| {
            (it.admitted, it.is_without_volume) = (None, false);
            it.state.is_some()
        };
        if self.claims.memory.change(&key.uid, gone) {
            self.wake_claim(key);
        } else {
            self.queues.claims.forget(&key);
            self.claims.memory.forget(&key.uid);
            self.shared.deployment.forget(&key);
        }
    }

    /// Continues the requests that an earlier term has left in the journal.
    pub(super) fn resume(&self, Opened { content: entry, since, .. }: Opened<Entry>) {
        let key = entry.key();
        self.claims.memory.change(&key.uid, |it| {
            if it.state.is_none() {
                it.state = Some(entry.resume(&since).into());
            }
        });
        self.wake_claim(key);
    }

    pub(super) fn volume_changed(&self, change: &Change<PersistentVolume>) {
        let Some(object) = change.last() else { return };
        if let Some(old) = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid) {
            self.volume_gone(old);
        }
        match predicates::volume_wake(change, &self.deletion.rules) {
            Wake::Now => self.wake_volume(object, Cause::Changed),
            Wake::Forget => self.volume_gone(object),
            Wake::No => {}
        }
        if let Some(stored) = change.new.as_deref() {
            self.wake_unsaved(stored);
        }
        if let Some(freed) = predicates::name_freed(change) {
            self.wake_waiting(&Dependency::Name(freed));
            self.wake_owner(object);
        }
        if let Some(handle) = predicates::handle_freed(change) {
            for twin in self.shared.volumes_of(handle) {
                if twin.metadata.uid != object.metadata.uid {
                    self.wake_wanted(&twin);
                }
            }
        }
    }

    /// Wakes a claim whose PersistentVolume is stored although the API answered with an error. The claim must learn
    /// this before the object can be released and deleted, so that it is not stored a second time.
    fn wake_unsaved(&self, stored: &PersistentVolume) {
        let Some(owner) = stored.spec.claim_ref.as_deref() else { return };
        let Some(uid) = owner.uid.as_deref().filter(|uid| self.claims.memory.read(uid, ClaimMemory::is_unsaved)) else {
            return;
        };
        let name = ObjectName::namespaced(&owner.namespace, &owner.name);
        self.wake_claim(ClaimKey { uid: uid.into(), name });
    }

    /// Wakes the claim of a PersistentVolume that went before it was bound: the claim needs another one.
    fn wake_owner(&self, object: &PersistentVolume) {
        let Some(owner) = object.spec.claim_ref.as_deref() else { return };
        let name = ObjectName::namespaced(&owner.namespace, &owner.name);
        let claim =
            self.shared.caches.claims.get(&name).filter(|claim| Some(&*claim.metadata.uid) == owner.uid.as_deref());
        if let Some(claim) = claim.filter(|claim| claim.spec.volume_name.is_none()) {
            self.claims.memory.change(&claim.metadata.uid, |it| it.is_without_volume = true);
            self.wake_claim(ClaimKey::of(claim.as_ref()));
        }
    }

    /// Forgets a PersistentVolume that is gone. Another object may have its name by now.
    fn volume_gone(&self, object: &PersistentVolume) {
        let name = &object.metadata.name;
        self.queues.volumes.forget(&name.to_string());
        self.deletion.memory.forget(&object.metadata.uid);
    }

    fn wake_claim(&self, key: ClaimKey) {
        self.queues.claims.add(key, Activation::of(Cause::Changed));
    }

    fn wake_volume(&self, object: &PersistentVolume, cause: Cause) {
        let name = object.metadata.name.to_string();
        self.queues.volumes.add(name, Activation { cause, lane: 0, epoch: epoch_of(&object.metadata.uid) });
    }

    fn wake_detached(&self, volume: &str) {
        let Some(object) = self.shared.caches.volumes.named(volume) else { return };
        self.wake_wanted(&object);
        // Another object with the same handle may have waited for this detach, too.
        for twin in self.shared.same_handle(&object) {
            self.wake_wanted(&twin);
        }
    }

    /// Wakes the volumes of a class whose deletion is still queued: the class may name their secret.
    fn wake_volumes(&self, class: &str) {
        for item in self.queues.volumes.snapshot() {
            let found = self.shared.caches.volumes.named(&item.key);
            if let Some(object) = found.filter(|it| it.spec.storage_class_name.as_deref() == Some(class)) {
                self.wake_wanted(&object);
            }
        }
    }

    fn wake_wanted(&self, object: &PersistentVolume) {
        if predicates::wants_work(object, &self.deletion.rules).is_some() {
            self.wake_volume(object, Cause::Changed);
        }
    }

    fn wake_node<K: Object>(&self, node: Option<&K>) {
        if let Some(node) = node {
            self.wake_claims(BY_SELECTED_NODE, &node.meta().name);
        }
        self.wake_waiting(&Dependency::AnyNode);
    }

    fn wake_waiting(&self, what: &Dependency) {
        for key in take(&self.claims.memory, what) {
            self.wake_claim(key);
        }
    }

    fn wake_users(&self, kind: &str, name: &ObjectName) {
        let value = source_key(name.namespace().unwrap_or_default(), kind, name.name());
        self.wake_claims(BY_SOURCE, &value);
    }

    /// Wakes the claims that the index finds, if they wait for a volume of our driver.
    fn wake_claims(&self, index: IndexName, value: &str) {
        for object in self.shared.caches.claims.find(index, value) {
            if predicates::is_wanted(&object, &self.claims.rules.driver) {
                self.wake_claim(ClaimKey::of(&object));
            }
        }
    }

    /// Looks at everything, in case a wake-up was missed. Never ends a back-off early.
    pub(super) async fn look_at_all(&self) {
        let mut keys: BTreeSet<ClaimKey> = self.claims.memory.collect(ClaimMemory::key).into_iter().collect();
        look_at_each(self.shared.caches.claims.own(), |object| {
            if predicates::is_wanted(&object, &self.claims.rules.driver) {
                keys.insert(ClaimKey::of(&object));
            }
        })
        .await;
        look_at_each(keys, |key| self.queues.claims.add(key, Activation::of(Cause::Resync))).await;
        look_at_each(self.shared.caches.volumes.own(), |object| {
            if predicates::wants_work(&object, &self.deletion.rules).is_some() {
                self.wake_volume(&object, Cause::Resync);
            }
        })
        .await;
    }

    /// Looks for sources that still have the finalizer although no claim needs them: at the start of the term, and once
    /// per interval. Snapshots that come late are looked at when they come.
    pub(super) async fn sweep(&self) {
        let snapshots = self.shared.caches.snapshots.clone();
        loop {
            let had_snapshots = snapshots.is_synced();
            for source in unprotect::sweep(&self.claims).await {
                self.queues.sources.add(source, Activation::of(Cause::Resync));
            }
            let every = self.shared.section.snapshot_sweep_interval;
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
    pub(super) async fn figures(&self, reporter: Reporter) {
        loop {
            tokio::time::sleep(FIGURES).await;
            self.warn_of_keys();
            let oldest = self.queues.claims.snapshot().iter().map(|item| self.waits_since(item)).max();
            // How many volumes wait for their PersistentVolume, and how many requests for the driver's final answer.
            let count = |is: fn(&ClaimState) -> bool| {
                self.claims.memory.collect(|it| it.state.as_ref().filter(|state| is(state)).map(drop)).len()
            };
            let unsaved = count(|state| matches!(state.phase(), Phase::Created(_)));
            reporter.show(oldest.unwrap_or_default(), (unsaved, count(ClaimState::is_creating)));
        }
    }

    /// How long a claim has waited for its volume: since its creation, also under an earlier leader. A claim that waits for its first
    /// pod, or that has its volume already, counts from when it entered the queue.
    fn waits_since(&self, item: &WorkItem<ClaimKey>) -> Duration {
        let key = &item.key;
        let claim = self.shared.caches.claims.get(&key.name);
        let Some(claim) = claim.filter(|it| *it.metadata.uid == *key.uid) else { return item.age };
        let class = self.shared.class(claim.class_name());
        let waits_for_us = claim.spec.volume_name.is_none() && !class.is_some_and(|class| class.waits_for_consumer());
        let created = claim.metadata.creation_timestamp.filter(|_| waits_for_us);
        let age = created.and_then(|created| {
            Duration::try_from(self.shared.scope.clock.wall().duration_since(created.timestamp())).ok()
        });
        age.unwrap_or_default().max(item.age)
    }

    /// Warns, once, that nodes report different topology keys: a claim without a node may get a segment of any of them.
    fn warn_of_keys(&self) {
        let warning = self.claims.topology.keys().take_warning();
        if let Some(nodes) = warning.filter(|_| self.claims.asking.topology) {
            warn!(
                nodes,
                "nodes report different topology keys: claims without a node may get a segment by any of them"
            );
        }
    }
}
