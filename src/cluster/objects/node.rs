//! Nodes: of a `CSINode` only our driver's entry, and the names of the others if an attach/detach controller is hosted; of a `Node` only
//! its labels. Pure.

use serde::Deserialize;

use crate::cluster::meta::Meta;

use super::{Cached, Fields, IndexName, received, trim_meta};

received! {
    /// Which CSI drivers run on a node, and how they call it.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct CsiNode {
        /// Name, uid and version.
        pub metadata: Meta,
        /// The drivers.
        pub spec: CsiNodeSpec = default,
    }

    /// The drivers of a node; in a cache only our own, and with [`Fields::ATTACH`] the names of all.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct CsiNodeSpec {
        /// One entry per driver.
        pub drivers: Vec<CsiNodeDriver> = default,
    }

    /// A driver on a node.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct CsiNodeDriver {
        /// The driver's name.
        pub name: String,
        /// The driver's id of the node.
        #[serde(rename = "nodeID")]
        pub node_id: String,
        /// The node's labels that say where in the driver's topology it is.
        pub topology_keys: Vec<String> = default,
    }
}

impl CsiNode {
    /// Whether `driver` is registered on this node; from a cache of other drivers only with [`Fields::ATTACH`].
    pub fn has(&self, driver: &str) -> bool {
        self.spec.drivers.iter().any(|entry| entry.name == driver)
    }

    /// What `driver` calls this node, if it runs there.
    pub fn node_id(&self, driver: &str) -> Option<&str> {
        self.spec.drivers.iter().find(|entry| entry.name == driver).map(|entry| entry.node_id.as_str())
    }

    /// The labels that make up the node's place in `driver`'s topology, if the driver runs there.
    pub fn topology_keys(&self, driver: &str) -> Option<&[String]> {
        self.spec.drivers.iter().find(|entry| entry.name == driver).map(|entry| entry.topology_keys.as_slice())
    }
}

impl Cached for CsiNode {
    const KIND: &'static str = "CSINode";

    fn trim(&mut self, driver: &str, fields: Fields) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        self.metadata.creation_timestamp = None;
        let names_all = fields.contains(Fields::ATTACH);
        self.spec.drivers.retain(|entry| names_all || entry.name == driver);
        for other in self.spec.drivers.iter_mut().filter(|entry| entry.name != driver) {
            *other = CsiNodeDriver { name: std::mem::take(&mut other.name), ..CsiNodeDriver::default() };
        }
        self.spec.drivers.shrink_to_fit();
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}

/// A node: where it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Node {
    /// Name, uid, version, deletion and labels.
    pub metadata: Meta,
}

impl Cached for Node {
    const KIND: &'static str = "Node";

    fn trim(&mut self, _driver: &str, _fields: Fields) {
        let labels = self.metadata.labels.take();
        trim_meta(&mut self.metadata, &[]);
        self.metadata.labels = labels;
        self.metadata.annotations = None;
        self.metadata.finalizers = None;
        self.metadata.creation_timestamp = None;
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}
