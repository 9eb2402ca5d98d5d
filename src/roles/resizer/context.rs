//! What the attempts of a term share, and the view of a change, as read from the caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::cluster::{Cache, PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};
use crate::roles::kit::{Memory, Store, TermScope};
use crate::translation::csi_form;

use super::in_use::InUse;
use super::job::{Job, WorkKey};
use super::predicates;
use super::progress;
use super::view::{Class, Expansion, Partner, Pods, Rules, View};

/// The caches that the resizer reads.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Every claim, with what a resizer reads of those that have a volume.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Cache<PersistentVolume>,
    /// Every `VolumeAttributesClass`, where volumes are modified.
    pub classes: Option<Cache<VolumeAttributesClass>>,
}

/// The same during a term, as far as it writes to them.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Every claim, with what a resizer reads of those that have a volume.
    pub claims: Store<PersistentVolumeClaim>,
    /// Every `PersistentVolume`.
    pub volumes: Store<PersistentVolume>,
}

/// What the attempts of a term share.
#[derive(Debug)]
pub struct Context {
    /// The term, its clients, the volume locks.
    pub scope: Arc<TermScope>,
    /// The rules of the term.
    pub rules: Arc<Rules>,
    /// The caches.
    pub stores: Stores,
    /// Every `VolumeAttributesClass`, where volumes are modified.
    pub classes: Option<Cache<VolumeAttributesClass>>,
    /// How the driver expands volumes.
    pub expansion: HowVolumesGrow,
    /// The pods of claims whose volumes the driver expands only while no pod uses them.
    pub in_use: InUse,
    /// What the term remembers of changes.
    pub memory: Arc<Memory<progress::Memory>>,
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

impl Context {
    /// Reads what there is of a change.
    pub fn view(&self, key: &WorkKey) -> Option<View> {
        let (job, claim) = (key.job, self.stores.claims.get(&key.claim)?);
        let (uid, volume) = (&claim.metadata.uid, self.volume_of(&claim));
        let form = volume.as_deref().and_then(|volume| csi_form(volume, &self.rules.driver).ok());
        let handle = form.and_then(|spec| Some(spec.csi.as_ref()?.volume_handle.clone()));
        let id = job.id(uid);
        let memory = self.memory.read(&id, Clone::clone);
        let mut view = View {
            rules: Arc::clone(&self.rules),
            expansion: self.expansion.get(),
            pods: memory.in_use.as_ref().map_or(Pods::None, |claim| self.in_use.pods(claim)),
            wanted: self.class(claim.spec.volume_attributes_class_name.as_deref()),
            begun: Class::Missing,
            partner: self.rules.pairs.then(|| self.partner(&claim, volume.as_deref(), job.other())),
            is_confirmed: self.stores.claims.is_confirmed(&claim),
            now: self.scope.clock.wall(),
            at: self.scope.clock.now(),
            job,
            id,
            handle,
            memory,
            claim,
            volume,
        };
        view.begun = self.class(view.begun_name());
        Some(view)
    }

    /// The claim's PersistentVolume.
    pub fn volume_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        self.stores.volumes.named(claim.spec.volume_name.as_deref()?)
    }

    /// Whether there is work, or something to wait for.
    pub fn wants(&self, claim: &PersistentVolumeClaim, volume: Option<&PersistentVolume>, job: Job) -> bool {
        predicates::wants(claim, volume, job, &self.rules.driver, self.expansion.get())
    }

    fn partner(&self, claim: &PersistentVolumeClaim, volume: Option<&PersistentVolume>, job: Job) -> Partner {
        let is_wanted = self.wants(claim, volume, job);
        self.memory.read(&job.id(&claim.metadata.uid), |memory| Partner {
            is_wanted,
            is_at_work: memory.is_at_work,
            pairing: memory.pairing.clone(),
        })
    }

    fn class(&self, name: Option<&str>) -> Class {
        let Some(name) = name else { return Class::Missing };
        let Some(classes) = self.classes.as_ref().filter(|classes| classes.is_synced() && !classes.is_absent()) else {
            return Class::Unknown;
        };
        classes.named(name).map_or(Class::Missing, Class::Known)
    }
}
