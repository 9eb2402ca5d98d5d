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

use crate::roles::provisioner::claims::claim::{ClaimKey, is_guarded};
use crate::roles::provisioner::claims::decide::waits_for_consumer;
use crate::roles::provisioner::claims::pending_on::Dependency;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::predicates::{self, Wake};
use crate::roles::provisioner::sources;
use crate::roles::provisioner::sources::protection::{SourceKey, is_user};

/// How often the figures of what waits are brought up to date, and what is odd about nodes is told: not while they are listed.
const FIGURES: Duration = Duration::from_secs(1);

/// What a term works with.
#[derive(Clone)]
pub(super) struct Shift {
    pub(super) cx: Arc<Context>,
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
        let known = &self.cx.stores;
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
                    if let Some(volume) = predicates::volume_detached(change) {
                        shift.wake_detached(volume);
                    }
                }
            }),
            known.classes.subscribe({
                let shift = self.clone();
                move |change| {
                    let name = change.new.as_deref().and_then(|class| class.metadata.name.as_deref());
                    if predicates::class_unblocks(change)
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
                    if predicates::snapshot_unblocks(change)
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
                    if predicates::csi_node_unblocks(change, &shift.cx.rules.driver) {
                        let node = change.new.as_deref().or(change.old.as_deref());
                        shift.node_changed(node.and_then(|node| node.metadata.name.as_deref()));
                    }
                }
            }));
        }
        all
    }

    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let cx = &self.cx;
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let replaced = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid);
        if let Some(old) = replaced {
            self.claim_gone(ClaimKey::of(old));
        }
        let key = ClaimKey::of(object);
        match predicates::claim_wake(change, &cx.rules.driver, &cx.rules.mark, cx.scope.node()) {
            Wake::Now => {
                if is_guarded(object, &cx.rules.mark) {
                    // Before anything is decided about sources: who uses them must be known.
                    cx.states.note_marked(cx.parse(object.clone()));
                }
                self.claims.add(key, activation(Cause::Changed));
            }
            Wake::Forget => self.claim_gone(key),
            Wake::No => {}
        }
        if predicates::source_claim_unblocks(change) {
            self.wake_users("PersistentVolumeClaim", &ObjectName::of(object.as_ref()));
        }
        // Whether it was admitted is known while it waits, and not needed here: to look at a source once more does no harm.
        let needs = |claim: &PersistentVolumeClaim| is_user(claim, false, true, &cx.rules.driver, &cx.rules.mark);
        if let Some(old) = change.old.as_deref().filter(|old| needs(old))
            && !change.new.as_deref().is_some_and(needs)
            && let Some(source) = SourceKey::of(old)
        {
            self.sources.add(source, activation(Cause::Changed));
        }
    }

    /// A claim that is gone is worked on until the driver has said its last word.
    fn claim_gone(&self, key: ClaimKey) {
        self.cx.admitted.forget(&key.uid);
        if self.cx.states.get(&key.uid).is_some() {
            self.claims.add(key, activation(Cause::Changed));
        } else {
            self.claims.forget(&key);
            self.cx.forget(&key);
        }
    }

    pub(super) fn volume_changed(&self, change: &Change<PersistentVolume>) {
        let cx = &self.cx;
        let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
        if let Some(old) = change.old.as_deref().filter(|old| old.metadata.uid != object.metadata.uid) {
            self.volume_gone(old);
        }
        match predicates::volume_wake(change, &cx.deletion) {
            Wake::Now => self.wake_volume(object, Cause::Changed),
            Wake::Forget => self.volume_gone(object),
            Wake::No => {}
        }
        if let Some(freed) = predicates::name_freed(change) {
            self.wake_waiting(&Dependency::Name(freed));
            self.wake_owner(object);
        }
        if let Some(handle) = predicates::handle_freed(change) {
            for twin in cx.volumes_of(handle) {
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
            self.cx.stores.claims.get(&name).filter(|claim| claim.metadata.uid.as_deref() == owner.uid.as_deref());
        if let Some(claim) = claim.filter(|claim| claim.spec.volume_name.is_none()) {
            self.claims.add(ClaimKey::of(claim.as_ref()), activation(Cause::Changed));
        }
    }

    /// A volume object is gone. Another may have its name by now.
    fn volume_gone(&self, object: &PersistentVolume) {
        let (cx, name) = (&self.cx, object.metadata.name.as_deref().unwrap_or_default());
        self.volumes.forget(&name.to_owned());
        cx.detaching.forget(name);
        cx.deleted.forget(object.metadata.uid.as_deref().unwrap_or_default());
    }

    fn wake_volume(&self, object: &PersistentVolume, cause: Cause) {
        let name = object.metadata.name.as_deref().unwrap_or_default().to_owned();
        self.volumes.add(name, Activation { cause, lane: 0, epoch: epoch_of(&object.metadata.uid) });
    }

    fn wake_detached(&self, volume: &str) {
        let Some(object) = self.cx.stores.volumes.get(&ObjectName::cluster(volume)) else { return };
        self.wake_wanted(&object);
        // Another object of the same volume may have waited for that, too.
        for twin in self.cx.same_handle(&object) {
            self.wake_wanted(&twin);
        }
    }

    /// Wakes the volumes of a class whose deletion has not come to its end: the class may say where their secret is.
    fn wake_volumes(&self, class: &str) {
        for item in self.volumes.snapshot() {
            let found = self.cx.stores.volumes.get(&ObjectName::cluster(&item.key));
            if let Some(object) = found.filter(|it| it.spec.storage_class_name.as_deref() == Some(class)) {
                self.wake_wanted(&object);
            }
        }
    }

    fn wake_wanted(&self, object: &PersistentVolume) {
        if predicates::wants_work(object, &self.cx.deletion).is_some() {
            self.wake_volume(object, Cause::Changed);
        }
    }

    fn see_keys(&self, change: &Change<CsiNode>) {
        let cx = &self.cx;
        let driver = cx.rules.driver.as_str();
        let old = change.old.as_deref().and_then(|node| node.topology_keys(driver));
        let new = change.new.as_deref().and_then(|node| node.topology_keys(driver));
        cx.topology_keys.lock().unwrap_or_else(PoisonError::into_inner).update(old, new);
    }

    /// Says, once, that nodes tell their places in different keys: most places are then unknown to some of them.
    fn tell_keys(&self) {
        let warning = self.cx.topology_keys.lock().unwrap_or_else(PoisonError::into_inner).take_warning();
        if let Some(nodes) = warning.filter(|_| self.cx.asking.topology) {
            warn!(nodes, "nodes report different topology keys: claims without a node use the keys of most nodes");
        }
    }

    fn node_changed(&self, node: Option<&str>) {
        if let Some(node) = node {
            self.wake_claims(BY_SELECTED_NODE, node);
        }
        self.wake_waiting(&Dependency::AnyNode);
    }

    fn wake_waiting(&self, what: &Dependency) {
        for key in self.cx.pending_on.take(what) {
            self.claims.add(key, activation(Cause::Changed));
        }
    }

    fn wake_users(&self, kind: &str, name: &ObjectName) {
        let value = source_key(name.namespace().unwrap_or_default(), kind, name.name());
        self.wake_claims(BY_SOURCE, &value);
    }

    /// Wakes the claims that are found so, and that want something of us.
    fn wake_claims(&self, index: IndexName, value: &str) {
        let rules = &self.cx.rules;
        for object in self.cx.stores.claims.find(index, value) {
            if predicates::is_wanted(&object, &rules.driver, &rules.mark) {
                self.claims.add(ClaimKey::of(&object), activation(Cause::Changed));
            }
        }
    }

    /// Looks at everything once per interval, in case a wake-up was ever missed. Never cuts a back-off short.
    pub(super) async fn resync(self) {
        let cx = &self.cx;
        if cx.section.resync.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(cx.section.resync).await;
            debug!("resync");
            let mut keys: BTreeSet<ClaimKey> = cx.states.all().into_iter().map(|p| p.claim.key).collect();
            for object in cx.stores.claims.all() {
                if predicates::is_wanted(&object, &cx.rules.driver, &cx.rules.mark) {
                    keys.insert(ClaimKey::of(&object));
                }
            }
            for key in keys {
                self.claims.add(key, activation(Cause::Resync));
            }
            for object in cx.stores.volumes.all() {
                if predicates::wants_work(&object, &cx.deletion).is_some() {
                    self.wake_volume(&object, Cause::Resync);
                }
            }
        }
    }

    /// Looks for sources that were left protected: when the term begins, and once per interval.
    pub(super) async fn sweep(self) {
        loop {
            for source in sources::sweep(&self.cx) {
                self.sources.add(source, activation(Cause::Resync));
            }
            let every = self.cx.section.snapshot_sweep_interval;
            if every.is_zero() {
                return std::future::pending().await;
            }
            tokio::time::sleep(every).await;
        }
    }

    /// How long a claim has waited for its volume: since it was created, whoever led then. One that had to wait for its first
    /// pod, and one that has its volume and is still to be let go of, as long as it is in the queue.
    fn waits_since(&self, item: &WorkItem<ClaimKey>) -> Duration {
        let (cx, key) = (&self.cx, &item.key);
        let claim = cx.stores.claims.get(&key.name);
        let Some(claim) = claim.filter(|it| it.metadata.uid.as_deref() == Some(&*key.uid)) else { return item.age };
        let class = claim.class_name().and_then(|name| cx.stores.classes.get(&ObjectName::cluster(name)));
        let waits_for_us = claim.spec.volume_name.is_none() && !class.is_some_and(|class| waits_for_consumer(&class));
        let created = claim.metadata.creation_timestamp.as_ref().filter(|_| waits_for_us);
        let age = created.and_then(|created| Duration::try_from(cx.clock.wall().duration_since(created.0)).ok());
        age.unwrap_or_default().max(item.age)
    }

    /// Keeps the figures of what waits up to date.
    pub(super) async fn figures(self) {
        loop {
            tokio::time::sleep(FIGURES).await;
            self.tell_keys();
            let oldest = self.claims.snapshot().iter().map(|item| self.waits_since(item)).max();
            let counts = self.cx.states.count(|claim| self.cx.scope.is_anothers(claim));
            self.cx.reporter.show(oldest.unwrap_or_default(), counts);
        }
    }
}
