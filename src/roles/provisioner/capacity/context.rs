//! What every pass of a term shares.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::{Api, Cache, CsiNode, CsiStorageCapacity, Node, ObjectName, StorageClass};
use crate::csi::Client;
use crate::diagnostics::Board;
use crate::election::Fenced;
use crate::process::{Clock, Rng};
use crate::queue::Backoff;
use crate::roles::provisioner::topology::Segment;
use crate::roles::role::Instance;
use crate::telemetry::Meter;

use super::config::CapacitySection;
use super::index::Index;

/// All that the capacity loop needs of the provisioner.
#[derive(Debug)]
pub struct CapacityContext {
    /// The role's name, for the status page.
    pub role: &'static str,
    /// Our driver.
    pub driver: String,
    /// Whether the driver has `GET_CAPACITY`.
    pub has_get_capacity: bool,
    /// The configuration.
    pub section: CapacitySection,
    /// The delays after failures.
    pub backoff: Backoff,
    /// The caches.
    pub stores: CapacityStores,
    /// Where the driver's nodes are.
    pub places: Places,
    /// The work path to the API, usable only during the term.
    pub api: Fenced<Api>,
    /// The driver, usable only during the term.
    pub client: Fenced<Client>,
    /// Where we run: the namespace of our objects, and the pod that leads to their owner.
    pub instance: Instance,
    /// The status page.
    pub board: Board,
    /// Figures.
    pub meter: Meter,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub rng: Rng,
}

/// The caches that tell what is wanted and what exists.
#[derive(Debug, Clone)]
pub struct CapacityStores {
    /// Every `StorageClass`.
    pub classes: Cache<StorageClass>,
    /// Our objects: [`super::scope`] says which.
    pub capacities: Cache<CsiStorageCapacity>,
}

/// Where the driver's nodes are.
#[derive(Debug, Clone)]
pub enum Places {
    /// All nodes of the cluster.
    Cluster {
        /// Every `Node`.
        nodes: Cache<Node>,
        /// Every `CSINode`.
        csi_nodes: Cache<CsiNode>,
    },
    /// One node whose driver told its place itself.
    Local {
        /// The node's name.
        node: String,
        /// Its place; empty for everywhere.
        place: Segment,
    },
}

impl Places {
    /// The node whose objects we manage, if it is one only.
    pub(super) fn own_node(&self) -> Option<&str> {
        match self {
            Self::Cluster { .. } => None,
            Self::Local { node, .. } => Some(node),
        }
    }

    /// Where the driver is on `node`: nowhere before it has registered and kubelet has labelled the node.
    pub(super) fn place_of(&self, driver: &str, node: &str) -> Option<Segment> {
        match self {
            Self::Cluster { nodes, csi_nodes } => {
                let name = ObjectName::cluster(node);
                let csi_node = csi_nodes.get(&name)?;
                let keys = csi_node.topology_keys(driver)?;
                let node = nodes.get(&name)?;
                Segment::of_labels(keys, node.metadata.labels.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
            }
            Self::Local { node: own, place } => (own == node).then(|| place.clone()),
        }
    }

    pub(super) async fn synced(&self) {
        if let Self::Cluster { nodes, csi_nodes } = self {
            nodes.synced().await;
            csi_nodes.synced().await;
        }
    }
}

/// The book, and the desk that it lies on.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cx: CapacityContext,
    index: Mutex<Index>,
}

impl Shared {
    pub(super) fn new(cx: CapacityContext, index: Index) -> Arc<Self> {
        Arc::new(Self { cx, index: Mutex::new(index) })
    }

    /// The book. Never held over a wait, nor while news is fed to a cache: that tells us, and we look in the book.
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
