//! What feeds the provisioner's queues: changes of the cluster, and a look at everything now and then.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::{
    BY_CLASS, BY_SELECTED_NODE, BY_SOURCE, Change, CsiNode, IndexName, ObjectName, PersistentVolume,
    PersistentVolumeClaim, Subscription, source_key,
};
use crate::queue::{Activation, Cause, WorkItem, WorkQueue, epoch_of};

use super::claim::{ClaimKey, is_guarded};
use super::decide::waits_for_consumer;
use super::desk::Desk;
use super::interest::{self, Wake};
use super::protection;
use super::protection::decide::{SourceKey, is_user};
use super::waits::Awaited;

/// How often the figures of what waits are brought up to date, and what is odd about nodes is told: not while they are listed.
const FIGURES: Duration = Duration::from_secs(1);

/// What a term works with.
#[derive(Clone)]
pub(super) struct Shift {
    pub(super) desk: Arc<Desk>,
    pub(super) claims: WorkQueue<ClaimKey>,
    pub(super) volumes: WorkQueue<String>,
    pub(super) sources: WorkQueue<SourceKey>,
}

/// The queues have one lane each, and a claim's key holds its uid.
fn activation(cause: Cause) -> Activation {
    Activation { cause, lane: 0, epoch: 0 }
}

impl Shift {
    /// Feeds the queues from the caches. What the caches hold already is replayed first.
    pub(super) fn subscribe(&self) -> Vec<Subscription> {
        let known = &self.desk.known;
        let mut all = vec![
            known.claims.subscribe({
                let shift = self.clone();
                move |change| shift.claim_changed(change)
            }),
            known.volumes.subscribe({
                let shift = self.clone();
                move |change| shift.volume_changed(change)
            }),
            known.attachments.subscribe({
                let shift = self.clone();
                move |change| {
                    if let Some(volume) = interest::volume_detached(change) {
                        shift.wake_detached(volume);
                    }
                }
            }),
            known.classes.subscribe({
                let shift = self.clone();
                move |change| {
                    let name = change.new.as_deref().and_then(|class| class.metadata.name.as_deref());
                    if interest::class_unblocks(change)
                        && let Some(name) = name
                    {
                        shift.wake_claims(BY_CLASS, name);
                        shift.wake_volumes(name);
                    }
                }
            }),
            known.snapshots.subscribe({
                let shift = self.clone();
                move |change| {
                    if interest::snapshot_unblocks(change)
                        && let Some(snapshot) = change.new.as_deref().or(change.old.as_deref())
                    {
                        shift.wake_users("VolumeSnapshot", &ObjectName::of(snapshot));
                    }
                }
            }),
        ];
        if let Some((nodes, csi_nodes)) = &known.nodes {
            all.push(nodes.subscribe({
                let shift = self.clone();
                move |change| {
                    let labels = |node: &Option<Arc<crate::cluster::Node>>| {
                        node.as_ref().map(|node| node.metadata.labels.clone())
                    };
                    if labels(&change.old) != labels(&change.new) {
                        let node = change.new.as_deref().or(change.old.as_deref());
                        shift.node_changed(node.and_then(|node| node.metadata.name.as_deref()));
                    }
                }
            }));
            all.push(csi_nodes.subscribe({
                let shift = self.clone();
                move |change| {
                    shift.see_keys(change);
                    if interest::csi_node_unblocks(change, &shift.desk.rules.driver) {
                        let node = change.new.as_deref().or(change.old.as_deref());
                        shift.node_changed(node.and_then(|node| node.metadata.name.as_deref()));
                    }
                }
            }));
        }
        all
    }

    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let desk = &self.desk;
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let replaced = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid);
        if let Some(old) = replaced {
            self.claim_gone(ClaimKey::of(old));
        }
        let key = ClaimKey::of(object);
        match interest::claim_wake(change, &desk.rules.driver, &desk.rules.mark, desk.locality.node()) {
            Wake::Now => {
                if is_guarded(object, &desk.rules.mark) {
                    // Before anything is decided about sources: who uses them must be known.
                    desk.progress.note_marked(desk.parse(object.clone()));
                }
                self.claims.add(key, activation(Cause::Changed));
            }
            Wake::Forget => self.claim_gone(key),
            Wake::No => {}
        }
        if interest::source_claim_unblocks(change) {
            self.wake_users("PersistentVolumeClaim", &ObjectName::of(object.as_ref()));
        }
        // Whether it was admitted is known while it waits, and not needed here: to look at a source once more does no harm.
        let needs = |claim: &PersistentVolumeClaim| is_user(claim, false, true, &desk.rules.driver, &desk.rules.mark);
        if let Some(old) = change.old.as_deref().filter(|old| needs(old))
            && !change.new.as_deref().is_some_and(needs)
            && let Some(source) = SourceKey::of(old)
        {
            self.sources.add(source, activation(Cause::Changed));
        }
    }

    /// A claim that is gone is worked on until the driver has said its last word.
    fn claim_gone(&self, key: ClaimKey) {
        self.desk.admitted.forget(&key.uid);
        if self.desk.progress.get(&key.uid).is_some() {
            self.claims.add(key, activation(Cause::Changed));
        } else {
            self.claims.forget(&key);
            self.desk.forget(&key);
        }
    }

    pub(super) fn volume_changed(&self, change: &Change<PersistentVolume>) {
        let desk = &self.desk;
        let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
        if let Some(old) = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid) {
            self.volume_gone(old);
        }
        match interest::volume_wake(change, &desk.deletion) {
            Wake::Now => self.wake_volume(object, Cause::Changed),
            Wake::Forget => self.volume_gone(object),
            Wake::No => {}
        }
        if let Some(freed) = interest::name_freed(change) {
            self.wake_waiting(&Awaited::Name(freed));
            self.wake_owner(object);
        }
        if let Some(handle) = interest::handle_freed(change) {
            for twin in desk.volumes_of(handle) {
                if twin.metadata.uid != object.metadata.uid {
                    self.wake_wanted(&twin);
                }
            }
        }
    }

    /// A claim whose volume object goes before it was bound wants another one.
    fn wake_owner(&self, object: &PersistentVolume) {
        let Some(owner) = object.spec.claim_ref.as_deref() else { return };
        let name = ObjectName::namespaced(&owner.namespace, &owner.name);
        let claim =
            self.desk.known.claims.get(&name).filter(|claim| claim.metadata.uid.as_deref() == owner.uid.as_deref());
        if let Some(claim) = claim.filter(|claim| claim.spec.volume_name.is_none()) {
            self.claims.add(ClaimKey::of(claim.as_ref()), activation(Cause::Changed));
        }
    }

    /// A volume object is gone. Another may have its name by now.
    fn volume_gone(&self, object: &PersistentVolume) {
        let (desk, name) = (&self.desk, object.metadata.name.as_deref().unwrap_or_default());
        self.volumes.forget(&name.to_owned());
        desk.detaching.forget(name);
        desk.deleted.forget(object.metadata.uid.as_deref().unwrap_or_default());
    }

    fn wake_volume(&self, object: &PersistentVolume, cause: Cause) {
        let name = object.metadata.name.as_deref().unwrap_or_default().to_owned();
        self.volumes.add(name, Activation { cause, lane: 0, epoch: epoch_of(&object.metadata.uid) });
    }

    fn wake_detached(&self, volume: &str) {
        let Some(object) = self.desk.known.volumes.get(&ObjectName::cluster(volume)) else { return };
        self.wake_wanted(&object);
        // Another object of the same volume may have waited for that, too.
        for twin in self.desk.twins_of(&object) {
            self.wake_wanted(&twin);
        }
    }

    /// Wakes the volumes of a class whose deletion has not come to its end: the class may say where their secret is.
    fn wake_volumes(&self, class: &str) {
        for item in self.volumes.snapshot() {
            let found = self.desk.known.volumes.get(&ObjectName::cluster(&item.key));
            if let Some(object) = found.filter(|it| it.spec.storage_class_name.as_deref() == Some(class)) {
                self.wake_wanted(&object);
            }
        }
    }

    fn wake_wanted(&self, object: &PersistentVolume) {
        if interest::wants_work(object, &self.desk.deletion).is_some() {
            self.wake_volume(object, Cause::Changed);
        }
    }

    fn see_keys(&self, change: &Change<CsiNode>) {
        let desk = &self.desk;
        let driver = desk.rules.driver.as_str();
        let old = change.old.as_deref().and_then(|node| node.topology_keys(driver));
        let new = change.new.as_deref().and_then(|node| node.topology_keys(driver));
        desk.topology_keys.lock().unwrap_or_else(PoisonError::into_inner).see(old, new);
    }

    /// Says, once, that nodes tell their places in different keys: most places are then unknown to some of them.
    fn tell_keys(&self) {
        let news = self.desk.topology_keys.lock().unwrap_or_else(PoisonError::into_inner).news();
        if let Some(nodes) = news.filter(|_| self.desk.asking.topology) {
            warn!(
                nodes,
                "nodes tell the driver's topology in different keys: claims without a node are placed by those of most"
            );
        }
    }

    fn node_changed(&self, node: Option<&str>) {
        if let Some(node) = node {
            self.wake_claims(BY_SELECTED_NODE, node);
        }
        self.wake_waiting(&Awaited::AnyNode);
    }

    fn wake_waiting(&self, what: &Awaited) {
        for key in self.desk.waits.take(what) {
            self.claims.add(key, activation(Cause::Changed));
        }
    }

    fn wake_users(&self, kind: &str, name: &ObjectName) {
        let value = source_key(name.namespace().unwrap_or_default(), kind, name.name());
        self.wake_claims(BY_SOURCE, &value);
    }

    /// Wakes the claims that are found so, and that want something of us.
    fn wake_claims(&self, index: IndexName, value: &str) {
        let rules = &self.desk.rules;
        for object in self.desk.known.claims.find(index, value) {
            if interest::is_wanted(&object, &rules.driver, &rules.mark) {
                self.claims.add(ClaimKey::of(&object), activation(Cause::Changed));
            }
        }
    }

    /// Looks at everything once per interval, in case a wake-up was ever missed. Never cuts a back-off short.
    pub(super) async fn resync(self) {
        let desk = &self.desk;
        if desk.section.resync.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(desk.section.resync).await;
            debug!("resync");
            let mut keys: BTreeSet<ClaimKey> = desk.progress.all().into_iter().map(|p| p.claim.key).collect();
            for object in desk.known.claims.all() {
                if interest::is_wanted(&object, &desk.rules.driver, &desk.rules.mark) {
                    keys.insert(ClaimKey::of(&object));
                }
            }
            for key in keys {
                self.claims.add(key, activation(Cause::Resync));
            }
            for object in desk.known.volumes.all() {
                if interest::wants_work(&object, &desk.deletion).is_some() {
                    self.wake_volume(&object, Cause::Resync);
                }
            }
        }
    }

    /// Looks for sources that were left protected: when the term begins, and once per interval.
    pub(super) async fn sweep(self) {
        loop {
            for source in protection::sweep(&self.desk) {
                self.sources.add(source, activation(Cause::Resync));
            }
            let every = self.desk.section.snapshot_sweep_interval;
            if every.is_zero() {
                return std::future::pending().await;
            }
            tokio::time::sleep(every).await;
        }
    }

    /// How long a claim has waited for its volume: since it was created, whoever led then. One that had to wait for its first
    /// pod, and one that has its volume and is still to be let go of, as long as it is in the queue.
    fn waits_since(&self, item: &WorkItem<ClaimKey>) -> Duration {
        let (desk, key) = (&self.desk, &item.key);
        let claim = desk.known.claims.get(&key.name);
        let Some(claim) = claim.filter(|it| it.metadata.uid.as_deref() == Some(&*key.uid)) else { return item.age };
        let class = claim.class_name().and_then(|name| desk.known.classes.get(&ObjectName::cluster(name)));
        let waits_for_us = claim.spec.volume_name.is_none() && !class.is_some_and(|class| waits_for_consumer(&class));
        let created = claim.metadata.creation_timestamp.as_ref().filter(|_| waits_for_us);
        let age = created.and_then(|created| Duration::try_from(desk.clock.wall().duration_since(created.0)).ok());
        age.unwrap_or_default().max(item.age)
    }

    /// Keeps the figures of what waits up to date.
    pub(super) async fn figures(self) {
        loop {
            tokio::time::sleep(FIGURES).await;
            self.tell_keys();
            let oldest = self.claims.snapshot().iter().map(|item| self.waits_since(item)).max();
            let counts = self.desk.progress.count(|claim| self.desk.locality.is_anothers(claim));
            self.desk.reporter.show(oldest.unwrap_or_default(), counts);
        }
    }
}
