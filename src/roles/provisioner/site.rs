//! Which claims and volumes are for this daemon, and what it knows of where nodes are.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Cache, CsiNode, Node, ObjectName, PersistentVolume, StorageClass};

use super::claim::Claim;
use super::decide::Site;
use super::desk::Desk;
use super::topology::{Cluster, DriverOnNode};

/// Which claims and volumes are for this daemon.
#[derive(Debug, Clone)]
pub enum Locality {
    /// All: there is one daemon for the cluster.
    Cluster,
}

impl Locality {
    /// This node's name, where each node has a daemon of its own.
    pub fn node(&self) -> Option<&str> {
        None
    }

    /// Whose claim it is. `fits`: whether this node's driver has room for it; `age`: since when it is known.
    pub fn site(
        &self,
        _claim: &Claim,
        _class: &StorageClass,
        _fits: Option<bool>,
        _age: Duration,
        _desk: &Desk,
    ) -> Site {
        Site::Here
    }

    /// Whether a volume is where this daemon's driver can delete it.
    pub fn is_here(&self, _volume: &PersistentVolume) -> bool {
        true
    }

    /// Shows what is known of where nodes are.
    pub fn with_cluster<R>(&self, desk: &Desk, look: impl FnOnce(&dyn Cluster) -> R) -> R {
        look(&Cached { nodes: desk.known.nodes.as_ref(), driver: &desk.rules.driver })
    }
}

/// The cluster as the caches have it.
struct Cached<'a> {
    nodes: Option<&'a (Cache<Node>, Cache<CsiNode>)>,
    driver: &'a str,
}

impl Cluster for Cached<'_> {
    fn driver_on(&self, node: &str) -> DriverOnNode {
        let found = self.nodes.and_then(|(_, csi_nodes)| csi_nodes.get(&ObjectName::cluster(node)));
        match found.as_deref().map(|found| found.topology_keys(self.driver).map(<[String]>::to_vec)) {
            None => DriverOnNode::NoCsiNode,
            Some(None) => DriverOnNode::NotRegistered,
            Some(Some(keys)) => DriverOnNode::Keys(keys),
        }
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        let found = self.nodes.and_then(|(nodes, _)| nodes.get(&ObjectName::cluster(node)))?;
        Some(found.metadata.labels.clone().unwrap_or_default())
    }

    fn each_registration(&self, see: &mut dyn FnMut(&[String])) {
        let Some((_, csi_nodes)) = self.nodes else { return };
        for node in csi_nodes.all() {
            if let Some(keys) = node.topology_keys(self.driver) {
                see(keys);
            }
        }
    }

    fn each_node(&self, see: &mut dyn FnMut(&BTreeMap<String, String>)) {
        let Some((nodes, _)) = self.nodes else { return };
        for node in nodes.all() {
            if let Some(labels) = &node.metadata.labels {
                see(labels);
            }
        }
    }
}
