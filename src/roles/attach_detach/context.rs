//! What the attempts and the triggers of a term share: the stores, what is remembered, and what is found out of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::{
    BY_NODE, CsiDriver, CsiNode, EventKind, EventTarget, NodeState, ObjectName, PersistentVolume,
    PersistentVolumeClaim, Pod, VolumeAttachment,
};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::{Memory, Store, TermScope};

use super::config::AttachDetachSection;
use super::guard::{Guard, Permit};
use super::memory::{KnownAttachment, NodeMemory, OrphanMemory, Phase, VolumeMemory};
use super::names;
use super::volume_id::VolumeId;
use super::wishes::{self, Facts, PodWishes};

/// The caches of a term.
#[derive(Debug)]
pub struct Stores {
    /// Every pod, with what it uses.
    pub pods: Store<Pod>,
    /// Every claim, with its controller.
    pub claims: Store<PersistentVolumeClaim>,
    /// Every `PersistentVolume`, whatever its driver.
    pub volumes: Store<PersistentVolume>,
    /// Every node, with its volumes.
    pub nodes: Store<NodeState>,
    /// Every `CSIDriver`.
    pub drivers: Store<CsiDriver>,
    /// Every `CSINode`, with the names of its drivers.
    pub csi_nodes: Store<CsiNode>,
    /// Every attachment.
    pub attachments: Store<VolumeAttachment>,
}

/// The queues of a term. Clones share them.
#[derive(Debug, Clone)]
pub struct Queues {
    /// Volumes.
    pub volumes: WorkQueue<VolumeId>,
    /// Nodes, by name.
    pub nodes: WorkQueue<String>,
    /// Attachments of unknown volumes, by name.
    pub orphans: WorkQueue<String>,
}

impl Queues {
    /// Something has changed for a volume.
    pub fn wake_volume(&self, id: &VolumeId) {
        self.volumes.add(id.clone(), Activation::of(Cause::Changed));
    }

    /// Something has changed for the status of a node.
    pub fn wake_node(&self, name: &str) {
        self.nodes.add(name.to_owned(), Activation::of(Cause::Changed));
    }

    /// Something has changed for an attachment of an unknown volume.
    pub fn wake_orphan(&self, name: &str) {
        self.orphans.add(name.to_owned(), Activation::of(Cause::Changed));
    }
}

/// What a term remembers.
#[derive(Debug, Default)]
pub struct Memories {
    /// What pods want, by their uids.
    pub pods: Memory<PodWishes>,
    /// Volumes, by their names.
    pub volumes: Memory<VolumeMemory>,
    /// Attachments, by their uids.
    pub attachments: Memory<KnownAttachment>,
    /// Nodes, by their names.
    pub nodes: Memory<NodeMemory>,
    /// Attachments of unknown volumes, by their uids.
    pub orphans: Memory<OrphanMemory>,
}

/// What the attempts and the triggers of a term share.
pub struct Context {
    /// The term, and its clients.
    pub scope: Arc<TermScope>,
    /// The configuration.
    pub section: AttachDetachSection,
    /// The caches.
    pub stores: Stores,
    /// The queues.
    pub queues: Queues,
    /// What it remembers.
    pub memory: Memories,
    /// Whether another such controller is active.
    pub guard: Guard,
    /// Drivers whose object is gone, and since when, if their volumes were not attached.
    unattached: Mutex<BTreeMap<Arc<str>, Instant>>,
}

impl Context {
    /// What a term begins with.
    pub fn new(scope: TermScope, section: AttachDetachSection, stores: Stores, queues: Queues) -> Self {
        let guard = Guard::new(section.exclusive_check, scope.clock.now());
        let (memory, unattached) = (Memories::default(), Mutex::default());
        Self { scope: Arc::new(scope), section, stores, queues, memory, guard, unattached }
    }

    /// What may be done now.
    pub fn permit(&self) -> Permit {
        self.guard.permit(self.scope.clock.now())
    }

    /// How long it is until something may be detached (spec 11).
    pub fn until_detach(&self) -> Duration {
        self.section.settle.saturating_sub(self.guard.age(self.scope.clock.now()))
    }

    /// Whether the volumes of a node are this controller's.
    pub fn manages(&self, node: &NodeState) -> bool {
        node.is_managed || self.section.manage_all_nodes
    }

    /// Which volume a `PersistentVolume` is.
    pub fn id_of(volume: &PersistentVolume) -> Option<VolumeId> {
        wishes::id_of(volume).ok().flatten()
    }

    /// Whether an attachment attaches this volume to this node.
    pub fn is_of(&self, held: &VolumeAttachment, id: &VolumeId, node: &str) -> bool {
        let source = &held.spec.source;
        let is_volume = match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (Some(name), _) => match self.stores.volumes.named(name) {
                Some(volume) => wishes::is_volume(&volume, id),
                // Its name was computed from the volume.
                None => true,
            },
            (None, Some(spec)) => {
                let csi = spec.csi.as_ref();
                csi.is_some_and(|csi| *csi.driver == *id.driver() && *csi.volume_handle == *id.handle())
            }
            (None, None) => false,
        };
        is_volume && held.spec.attacher == id.driver() && held.spec.node_name == node
    }

    /// The volume of an attachment, which is remembered from then on, and whether its name is the one that is computed for it. `None`: the
    /// volume cannot be told.
    pub fn learn(&self, held: &VolumeAttachment) -> Option<(VolumeId, bool)> {
        let uid = &held.metadata.uid;
        if let Some(known) = self.memory.attachments.read(uid, |known| Some((known.id.clone()?, known.is_own))) {
            return Some(known);
        }
        let id = self.volume_of(held);
        let is_own = id.as_ref().is_some_and(|id| *held.metadata.name == id.attachment_name(&held.spec.node_name));
        self.memory.attachments.change(uid, |known| {
            known.name = Some(Arc::clone(&held.metadata.name));
            known.id.clone_from(&id);
            known.is_own = is_own;
        });
        Some((id?, is_own))
    }

    /// The volume of an attachment: by what it names, or else by the hash of each volume that is known on the node (spec 4, row 4, and 10).
    fn volume_of(&self, held: &VolumeAttachment) -> Option<VolumeId> {
        let (source, node) = (&held.spec.source, held.spec.node_name.as_str());
        if let Some(volume) = &source.persistent_volume_name
            && let Some(volume) = self.stores.volumes.named(volume)
        {
            return Self::id_of(&volume);
        }
        if let Some(csi) = source.inline_volume_spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
            return Some(VolumeId::new(&csi.driver, &csi.volume_handle));
        }
        let state = self.stores.nodes.named(node);
        let named = state.iter().flat_map(|state| {
            let reported = state.volumes_attached.iter().map(|volume| &volume.name);
            state.volumes_in_use.iter().chain(reported).filter_map(|name| VolumeId::of_name(name)).collect::<Vec<_>>()
        });
        let is_its =
            |id: &VolumeId| held.spec.attacher == id.driver() && *held.metadata.name == id.attachment_name(node);
        named.chain(self.wanted_on(node)).find(is_its)
    }

    /// The status of a node was written: the volumes wake that wait for their names to be in it, or out of it.
    pub fn reported(&self, name: &str, before: &NodeState, after: &NodeState) {
        let names = |node: &NodeState| node.volumes_attached.iter().map(|it| it.name.clone()).collect::<BTreeSet<_>>();
        for volume in names(before).symmetric_difference(&names(after)) {
            let Some(id) = VolumeId::of_name(volume) else { continue };
            let phase =
                self.memory.volumes.read(id.name(), |memory| memory.sites.get(name).and_then(|site| site.phase));
            if phase.is_some_and(|(phase, _)| matches!(phase, Phase::Attaching | Phase::Blocked)) {
                self.queues.wake_volume(&id);
            }
        }
    }

    /// Resolves the wishes of a pod, as far as its objects are known now, and wakes its volumes: those that it wanted and those that it
    /// wants.
    pub fn resolve(&self, pod: &Arc<Pod>) {
        let (before, now) = self.resolved(pod);
        before.iter().chain(&now).for_each(|id| self.queues.wake_volume(id));
    }

    /// The same, but only volumes wake whose wishes have changed.
    pub fn resolve_quietly(&self, pod: &Arc<Pod>) {
        let (before, now) = self.resolved(pod);
        before.symmetric_difference(&now).for_each(|id| self.queues.wake_volume(id));
    }

    fn resolved(&self, pod: &Arc<Pod>) -> (BTreeSet<VolumeId>, BTreeSet<VolumeId>) {
        let ids = |wishes: &PodWishes| wishes.ids().into_iter().collect();
        // The facts are read under the lock, so that of two that resolve a pod at once the later one has newer facts.
        let (before, now, untranslatable) = self.memory.pods.change(&pod.metadata.uid, |wishes| {
            let (before, known) = (ids(wishes), wishes.untranslatable());
            *wishes = wishes::wishes(pod, wishes, self);
            let news = wishes.untranslatable().into_iter().filter(|text| !known.contains(text)).collect::<Vec<_>>();
            (before, ids(wishes), news)
        });
        // Only people can change that, so it is told once (spec 13, row 7).
        for text in &untranslatable {
            self.warn(pod, text);
        }
        (before, now)
    }

    /// Tells a pod why it has no volume, unless another controller works.
    pub fn warn(&self, pod: &Pod, text: &str) {
        if self.section.events && self.permit() != Permit::No {
            self.scope.event(&EventTarget::of(pod), EventKind::Warning, names::ATTACH_FAILED, text);
        }
    }

    /// What pods want, once for each of them.
    pub fn wanted(&self) -> Vec<VolumeId> {
        let of_pods = self.memory.pods.collect(|wishes| Some(wishes.ids()));
        of_pods.into_iter().flatten().collect()
    }

    /// What the pods of a node want.
    pub fn wanted_on(&self, node: &str) -> Vec<VolumeId> {
        let of = |pod: &Arc<Pod>| self.memory.pods.read(&pod.metadata.uid, PodWishes::ids);
        self.stores.pods.find(BY_NODE, node).iter().flat_map(of).collect()
    }

    /// A pod is gone.
    pub fn forget(&self, pod: &Pod) {
        let wanted = self.memory.pods.read(&pod.metadata.uid, PodWishes::ids);
        self.memory.pods.forget(&pod.metadata.uid);
        for id in &wanted {
            self.queues.wake_volume(id);
        }
    }

    /// The object of a driver has changed or is gone: for a while, what it said last counts (D29).
    pub fn driver_changed(&self, old: Option<&CsiDriver>, new: Option<&CsiDriver>) {
        let now = self.scope.clock.now();
        match (old, new) {
            (_, Some(new)) => {
                self.unattached.lock().remove(&new.metadata.name);
            }
            (Some(old), None) if !old.spec.attach_required => {
                self.unattached.lock().insert(Arc::clone(&old.metadata.name), now);
            }
            _ => {}
        }
    }
}

impl Facts for Context {
    fn claim(&self, name: &ObjectName) -> Option<Arc<PersistentVolumeClaim>> {
        self.stores.claims.get(name)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.stores.volumes.named(name)
    }

    fn is_attached(&self, driver: &str) -> bool {
        if let Some(object) = self.stores.drivers.named(driver) {
            return object.spec.attach_required;
        }
        let gone = self.unattached.lock().get(driver).copied();
        let now = self.scope.clock.now();
        gone.is_none_or(|since| now.saturating_duration_since(since) >= self.section.driver_grace)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("scope", &self.scope).finish_non_exhaustive()
    }
}
