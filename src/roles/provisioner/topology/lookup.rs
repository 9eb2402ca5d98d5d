//! What a requirement is made of: which keys the driver uses, and where nodes are. Pure.

use std::collections::BTreeMap;

/// What the cluster says about the driver and its nodes.
pub trait Cluster {
    /// What is known of the driver on a node.
    fn driver_on(&self, node: &str) -> DriverOnNode;

    /// A node's labels; `None` if there is no such node.
    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>>;

    /// Shows the topology keys of every node that the driver is registered on, in any order.
    fn each_registration(&self, see: &mut dyn FnMut(&[String]));

    /// Shows the labels of every node, whether the driver runs there or not, in any order.
    fn each_node(&self, see: &mut dyn FnMut(&BTreeMap<String, String>));
}

/// What a node's `CSINode` says of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverOnNode {
    /// There is no `CSINode`: the node is gone, or has not told of any driver yet.
    NoCsiNode,
    /// The driver is not in its list.
    NotRegistered,
    /// The keys that the driver uses there, perhaps none.
    Keys(Vec<String>),
}

/// The keys that most nodes of the driver have; of equally many, those that come first by name.
///
/// The Go sidecar takes a random node's (its issue 1582). Nodes without keys don't vote: the driver was asked before it
/// knew where it is.
pub fn vote(cluster: &dyn Cluster) -> Option<Vec<String>> {
    let mut votes: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    cluster.each_registration(&mut |keys| {
        if !keys.is_empty() {
            *votes.entry(sorted(keys)).or_default() += 1;
        }
    });
    // The first of the greatest: `max_by_key` would take the last.
    votes.into_iter().rev().max_by_key(|(_, nodes)| *nodes).map(|(keys, _)| keys)
}

pub(super) fn sorted(keys: &[String]) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys
}

/// A cluster of one node, whose place the driver itself told: that of an instance that provisions for its own node
/// only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTopology {
    /// The node's name.
    pub name: String,
    /// What the driver's `NodeGetInfo` says of its place.
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
