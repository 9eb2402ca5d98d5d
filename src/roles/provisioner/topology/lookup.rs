//! The input of a requirement: the driver's topology keys, and the labels of the nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// The state of the driver and of the nodes.
pub trait Cluster {
    /// The state of the driver on a node.
    fn driver_on(&self, node: &str) -> DriverOnNode;

    /// A node's labels; `None` if there is no such node.
    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>>;

    /// Calls `see` with each node that the driver is registered on, in any order.
    fn each_registered(&self, see: &mut dyn FnMut(&Registered<'_>));

    /// Why none of this is known; `None`: it is.
    fn unread(&self) -> Option<String> {
        None
    }
}

/// The state of the driver by a node's `CSINode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverOnNode {
    /// There is no `CSINode`: the node is gone, or kubelet has not created it yet.
    NoCsiNode,
    /// The `CSINode` does not list the driver.
    NotRegistered,
    /// The driver's topology keys on the node. The list may be empty.
    Keys(Vec<String>),
}

/// A node that the driver is registered on.
#[derive(Debug, Clone, Copy)]
pub struct Registered<'a> {
    /// Its name.
    pub node: &'a str,
    /// The driver's topology keys there. There may be none: kubelet registered the driver before the driver knew its topology.
    pub keys: &'a [String],
    /// The node's labels; `None`: there is no such node any more.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// Each set of topology keys that the driver has on some node, once, whatever their order there. Nodes without keys add none.
pub(super) fn key_sets(cluster: &dyn Cluster) -> BTreeSet<Vec<String>> {
    let mut sets = BTreeSet::new();
    cluster.each_registered(&mut |it| {
        if !it.keys.is_empty() {
            sets.insert(sorted(it.keys));
        }
    });
    sets
}

pub(super) fn sorted(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys
}

/// A cluster of one node, for a provisioner with node deployment. The topology is the driver's answer to `NodeGetInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTopology {
    /// The node's name.
    pub name: String,
    /// The driver's topology segments there.
    pub segments: BTreeMap<String, String>,
}

impl NodeTopology {
    fn keys(&self) -> Vec<String> {
        self.segments.keys().cloned().collect()
    }
}

impl Cluster for NodeTopology {
    fn driver_on(&self, node: &str) -> DriverOnNode {
        if node == self.name { DriverOnNode::Keys(self.keys()) } else { DriverOnNode::NoCsiNode }
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        (node == self.name).then(|| self.segments.clone())
    }

    fn each_registered(&self, see: &mut dyn FnMut(&Registered<'_>)) {
        see(&Registered { node: &self.name, keys: &self.keys(), labels: Some(&self.segments) });
    }
}
