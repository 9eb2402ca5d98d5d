//! What every attempt of a term shares, and the view of one claim as read from the caches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cache, ObjectName, PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};
use crate::queue::Backoff;
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::{ByUid, TermScope, Told, UidSet};

use super::config::ResizerSection;
use super::expand::decide::{Answer, Expansion, Rules as ExpandRules};
use super::in_use::InUse;
use super::memory::{Job, JobOf, LastCall};
use super::modify::decide::Rules as ModifyRules;
use super::turn::Turns;
use super::waiting::Waiting;

/// The caches that the resizer reads.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Every claim, with what a resizer reads of those that have a volume.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Cache<PersistentVolume>,
    /// Every `VolumeAttributesClass`, where volumes are modified.
    pub classes: Option<Cache<VolumeAttributesClass>>,
}

/// What every attempt of a term shares.
#[derive(Debug)]
pub struct Context {
    /// The term, the fenced clients, the volume locks.
    pub scope: TermScope,
    /// The role's configuration.
    pub section: ResizerSection,
    /// The caches.
    pub stores: Stores,
    /// The rules of expansions.
    pub expand: ExpandRules,
    /// The rules of modifications.
    pub modify: ModifyRules,
    /// How the driver expands volumes.
    pub expansion: HowVolumesGrow,
    /// The turns of the jobs that change a volume.
    pub turns: Turns,
    /// Volumes that the driver expands only while no pod uses them.
    pub in_use: InUse,
    /// The answers of the driver to expansions that are not recorded yet.
    pub expanded: ByUid<Answer>,
    /// The classes that the driver has applied to volumes and that are not recorded yet.
    pub modified: ByUid<String>,
    /// The last calls of this term, but for those that succeeded.
    pub calls: Mutex<BTreeMap<JobOf, LastCall>>,
    /// The classes that claims are being changed to and that the API does not have, and since when that is known.
    pub missing: ByUid<(String, Instant)>,
    /// How often a node that has failed was asked to try again.
    pub node_retries: ByUid<NodeRetries>,
    /// The uids of the claims that the API itself has shown during the term. A standby's cache is warm, but it may be late.
    pub confirmed: UidSet,
    /// Which warnings were written as Events.
    pub told: Told<JobOf>,
    /// The claims that wait for a change of their volume.
    pub waiting: Waiting,
    /// Decides which failures are logged as warnings.
    pub failures: FailureLog,
}

/// How the driver expands volumes. If the controller does not expand volumes, this is known only after the Node service has answered.
#[derive(Debug)]
pub struct HowVolumesGrow(AtomicU8);

impl HowVolumesGrow {
    const ALL: [Expansion; 4] = [Expansion::Controller, Expansion::Node, Expansion::None, Expansion::Unknown];

    /// Starts with this value.
    pub fn new(expansion: Expansion) -> Self {
        let this = Self(AtomicU8::new(0));
        this.set(expansion);
        this
    }

    /// Sets the value.
    pub fn set(&self, expansion: Expansion) {
        let at = Self::ALL.iter().position(|it| *it == expansion).unwrap_or_default();
        self.0.store(u8::try_from(at).unwrap_or_default(), Ordering::Release);
    }

    /// The value.
    pub fn get(&self) -> Expansion {
        Self::ALL.get(usize::from(self.0.load(Ordering::Acquire))).copied().unwrap_or(Expansion::Unknown)
    }
}

/// How often a node that has failed at a size was asked to try again, and when it was asked last.
#[derive(Debug, Clone, Copy)]
pub struct NodeRetries {
    requested: i64,
    capacity: i64,
    count: u32,
    last: Instant,
}

/// Shared handles to the objects that one decision was made from.
#[derive(Debug, Clone)]
pub struct Objects {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The volume that it names.
    pub volume: Option<Arc<PersistentVolume>>,
}

impl Objects {
    /// The claim's uid.
    pub fn uid(&self) -> &str {
        &self.claim.metadata.uid
    }

    /// The claim's name.
    pub fn name(&self) -> ObjectName {
        ObjectName::of(self.claim.as_ref())
    }

    /// The volume's name.
    pub fn volume_name(&self) -> &str {
        self.claim.spec.volume_name.as_deref().unwrap_or_default()
    }
}

impl Context {
    /// Reads what the caches hold for a claim.
    pub fn find(&self, name: &ObjectName) -> Option<Objects> {
        Some(self.about(self.stores.claims.get(name)?))
    }

    /// Adds the claim's PersistentVolume from the cache.
    pub fn about(&self, claim: Arc<PersistentVolumeClaim>) -> Objects {
        let volume = claim.spec.volume_name.as_ref();
        let volume = volume.and_then(|name| self.stores.volumes.get(&ObjectName::cluster(name)));
        Objects { claim, volume }
    }

    /// The claim is gone: forgets everything about it.
    pub fn forget(&self, claim: &ObjectName, uid: &str) {
        for job in Job::ALL {
            self.told.forget(&(uid.to_owned(), job));
            self.waiting.forget(uid, job);
        }
        self.expanded.forget(uid);
        self.modified.forget(uid);
        for job in Job::ALL {
            self.note_call(uid, job, None);
        }
        self.missing.forget(uid);
        self.node_retries.forget(uid);
        self.confirmed.forget(uid);
        self.in_use.unmark(claim, uid);
    }

    /// What is known of the last call of a claim's job.
    pub fn last_call(&self, uid: &str, job: Job) -> LastCall {
        let held = self.calls.lock().unwrap_or_else(PoisonError::into_inner).get(&(uid.to_owned(), job)).copied();
        held.unwrap_or(LastCall::Earlier)
    }

    /// A call begins, or has ended. `None`: with success.
    pub fn note_call(&self, uid: &str, job: Job, call: Option<LastCall>) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match call {
            Some(call) => drop(calls.insert((uid.to_owned(), job), call)),
            None => drop(calls.remove(&(uid.to_owned(), job))),
        }
    }

    /// The API has no class of this name, to which the claim is being changed.
    pub fn note_missing(&self, uid: &str, class: &str) {
        if self.missing.get(uid).is_none_or(|(held, _)| held != class) {
            self.missing.set(uid, (class.to_owned(), self.scope.clock.now()));
        }
    }

    /// For how long it is known that there is no such class.
    pub fn missing_for(&self, uid: &str, class: &str) -> Duration {
        let since = self.missing.get(uid).filter(|(held, _)| held == class).map(|(_, since)| since);
        since.map_or(Duration::ZERO, |since| self.scope.clock.now().saturating_duration_since(since))
    }

    /// Notes that a node that has failed was asked to try again.
    pub fn note_node_retry(&self, uid: &str, requested: i64, capacity: i64) {
        let held = self.node_retries.get(uid).filter(|held| (held.requested, held.capacity) == (requested, capacity));
        let count = held.map_or(0, |held| held.count) + 1;
        self.node_retries.set(uid, NodeRetries { requested, capacity, count, last: self.scope.clock.now() });
    }

    /// The rest of the back-off before a node that has failed may be asked again.
    pub fn node_pause(&self, uid: &str, requested: i64, capacity: i64, backoff: &Backoff) -> Option<Duration> {
        let held = self.node_retries.get(uid)?;
        if (held.requested, held.capacity) != (requested, capacity) {
            return None;
        }
        let elapsed = self.scope.clock.now().saturating_duration_since(held.last);
        let left = backoff.delay(held.count, None, 0.0).saturating_sub(elapsed);
        (!left.is_zero()).then_some(left)
    }
}
