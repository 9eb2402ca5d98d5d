//! The input of a requirement: the driver's topology keys, and the labels of the nodes. Pure.

use std::collections::BTreeMap;

/// The state of the driver and of the nodes.
pub trait Cluster {
    /// The state of the driver on a node.
    fn driver_on(&self, node: &str) -> DriverOnNode;

    /// A node's labels; `None` if there is no such node.
    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>>;

    /// Calls `see` with the topology keys of each node that the driver is registered on, in any order.
    fn each_registration(&self, see: &mut dyn FnMut(&[String]));

    /// Calls `see` with the labels of each node, with and without the driver, in any order.
    fn each_node(&self, see: &mut dyn FnMut(&BTreeMap<String, String>));

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

/// The topology keys that most of the driver's nodes have. A tie goes to the keys that come first by name.
///
/// The Go sidecar takes the keys of a random node (its issue 1582). Nodes without keys do not vote: kubelet registered the driver
/// before the driver knew its topology.
pub fn vote(cluster: &dyn Cluster) -> Option<Vec<String>> {
    let mut votes: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    cluster.each_registration(&mut |keys| {
        if !keys.is_empty() {
            *votes.entry(sorted(keys)).or_default() += 1;
        }
    });
    // Reversed, because of equal values `max_by_key` takes the last one.
    votes.into_iter().rev().max_by_key(|(_, nodes)| *nodes).map(|(keys, _)| keys)
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

    fn each_registration(&self, see: &mut dyn FnMut(&[String])) {
        see(&self.keys());
    }

    fn each_node(&self, see: &mut dyn FnMut(&BTreeMap<String, String>)) {
        see(&self.segments);
    }
}
