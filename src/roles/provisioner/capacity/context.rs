//! What the capacity loop works with during a term, and what its attempts and triggers share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::cluster::{Cache, CsiNode, CsiStorageCapacity, Node, PersistentVolume, StorageClass};
use crate::diagnostics::Board;
use crate::queue::{Activation, Backoff, Cause, WorkQueue, epoch_of};
use crate::roles::kit::{Memory, Store, TermScope};
use crate::roles::provisioner::topology::Segment;
use crate::roles::role::Instance;

use super::config::CapacitySection;
use super::desired::{ClassFilter, Slot};
use super::diff::ObjectTemplate;
use super::index::Index;
use super::policy::View;
use super::progress;

/// What the capacity loop works with during a term.
#[derive(Debug)]
pub struct CapacityContext {
    /// Clients, term, clock: what every handler works with.
    pub scope: Arc<TermScope>,
    /// The configuration.
    pub section: CapacitySection,
    /// The delays after failures.
    pub backoff: Backoff,
    /// The slots to refresh: [`super::queue`] makes it.
    pub queue: WorkQueue<Slot>,
    /// The caches.
    pub stores: CapacityStores,
    /// The segments of the driver's nodes.
    pub nodes: NodeSegments,
    /// Where this process runs: the namespace of the objects, and the pod that leads to their owner.
    pub instance: Instance,
    /// The status page.
    pub board: Board,
}

/// The caches of what is wanted and of what exists.
#[derive(Debug, Clone)]
pub struct CapacityStores {
    /// Every `StorageClass`.
    pub classes: Cache<StorageClass>,
    /// The driver's `CSIStorageCapacity` objects that this provisioner manages, see [`super::scope`].
    pub capacities: Cache<CsiStorageCapacity>,
    /// Every `PersistentVolume`, those of the driver with their sizes.
    pub volumes: Cache<PersistentVolume>,
}

/// Where the segments of the driver's nodes come from.
#[derive(Debug, Clone)]
pub enum NodeSegments {
    /// From all nodes of the cluster.
    Cluster {
        /// Every `Node`.
        nodes: Cache<Node>,
        /// Every `CSINode`.
        csi_nodes: Cache<CsiNode>,
    },
    /// From the driver of one node, which answered `NodeGetInfo`.
    Local {
        /// The node's name.
        node: String,
        /// Its segment; the empty one is everywhere.
        segment: Segment,
    },
}

impl NodeSegments {
    /// The only node that this process provisions for, with node deployment.
    pub(super) fn own_node(&self) -> Option<&str> {
        match self {
            Self::Cluster { .. } => None,
            Self::Local { node, .. } => Some(node),
        }
    }

    /// The driver's segment on `node`. `None` until the driver has registered there and kubelet has labelled the node.
    pub(super) fn segment_of(&self, driver: &str, node: &str) -> Option<Segment> {
        match self {
            Self::Cluster { nodes, csi_nodes } => {
                let csi_node = csi_nodes.named(node)?;
                let keys = csi_node.topology_keys(driver)?;
                let node = nodes.named(node)?;
                Segment::of_labels(keys, node.metadata.labels.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
            }
            Self::Local { node: own, segment } => (own == node).then(|| segment.clone()),
        }
    }

    pub(super) async fn synced(&self) {
        if let Self::Cluster { nodes, csi_nodes } = self {
            nodes.synced().await;
            csi_nodes.synced().await;
        }
    }
}

/// What the attempts and the triggers of a term share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cx: CapacityContext,
    /// What all objects have in common.
    pub(super) template: Arc<ObjectTemplate>,
    /// The objects.
    pub(super) capacities: Store<CsiStorageCapacity>,
    /// What the term remembers of slots.
    pub(super) memory: Memory<progress::Memory>,
    /// Wakes the task that updates the metrics.
    pub(super) counts_changed: Notify,
    index: Mutex<Index>,
}

impl Shared {
    /// Nothing is known yet.
    pub(super) fn new(cx: CapacityContext, filter: ClassFilter, template: ObjectTemplate) -> Arc<Self> {
        Arc::new(Self {
            capacities: Store::of(&cx.stores.capacities),
            cx,
            template: Arc::new(template),
            memory: Memory::default(),
            counts_changed: Notify::new(),
            index: Mutex::new(Index::new(filter)),
        })
    }

    /// The index. Drop the guard before an await: the caches' triggers lock the index.
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// What one decision about a slot is made from.
    pub(super) fn view(&self, slot: &Slot) -> View {
        let id = slot.to_string();
        let memory = self.memory.read(&id, Clone::clone);
        let index = self.index();
        let (class, shown) = (index.desired().wants(slot).cloned(), index.objects(slot));
        View { slot: slot.clone(), id, class, template: Arc::clone(&self.template), shown, memory }
    }

    /// Whether the slot is wanted or has objects. Objects that the cache shows too late count as they are.
    pub(super) fn is_there(&self, slot: &Slot) -> bool {
        let view = self.view(slot);
        view.class.is_some() || !view.shown.is_empty() || !view.objects().is_empty()
    }

    /// These slots have changed: nothing that the driver has answered is kept of one that is not wanted any more.
    pub(super) fn changed(&self, slots: impl IntoIterator<Item = Slot>) {
        let (slots, now): (Vec<Slot>, _) = (slots.into_iter().collect(), self.cx.scope.clock.now());
        for slot in &slots {
            let is_wanted = self.index().desired().wants(slot).is_some();
            self.memory.change(&slot.to_string(), |held| if is_wanted { held.wanted(now) } else { held.unwanted() });
        }
        self.wake(slots, Cause::Changed);
    }

    /// Adds the slots to the queue.
    pub(super) fn wake(&self, slots: impl IntoIterator<Item = Slot>, cause: Cause) {
        for slot in slots {
            let epoch = self.epoch_of(&slot);
            self.cx.queue.add(slot, Activation { cause, lane: 0, epoch });
        }
        self.counts_changed.notify_one();
    }

    /// The class's uid: a new class of the same name starts without the failures of the old one.
    fn epoch_of(&self, slot: &Slot) -> u64 {
        epoch_of(self.index().desired().wants(slot).map(|class| &*class.metadata.uid))
    }
}
