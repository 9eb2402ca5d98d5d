//! `CSIStorageCapacity` objects, which we write ourselves: what must be compared with what is wanted. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::cluster::meta::Meta;
use smol_str::SmolStr;

use super::{Cached, Fields, IndexName, quantity, received, trim_meta};

/// How much room there is for volumes of a class in a segment of the topology.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsiStorageCapacity {
    /// Name, uid, version, deletion, labels and owners.
    pub metadata: Meta,
    /// The class.
    pub storage_class_name: String,
    /// The segment by the labels of its nodes: `None` if the object has none, which means "nowhere".
    pub node_topology: Option<BTreeMap<String, String>>,
    /// Whether the segment is also given in a way that we never write.
    pub node_topology_odd: bool,
    /// The room that is left, a quantity.
    pub capacity: Option<SmolStr>,
    /// The largest single volume, a quantity.
    pub maximum_volume_size: Option<SmolStr>,
}

received! {
    struct Wire {
        metadata: Meta,
        storage_class_name: String = default,
        node_topology: Option<WireSelector>,
        #[serde(default, deserialize_with = "quantity")]
        capacity: Option<SmolStr>,
        #[serde(default, deserialize_with = "quantity")]
        maximum_volume_size: Option<SmolStr>,
    }

    struct WireSelector {
        match_labels: BTreeMap<String, String> = default,
        match_expressions: Vec<serde::de::IgnoredAny> = default,
    }
}

impl<'de> Deserialize<'de> for CsiStorageCapacity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(from)?;
        Ok(Self {
            metadata: wire.metadata,
            storage_class_name: wire.storage_class_name,
            node_topology_odd: wire
                .node_topology
                .as_ref()
                .is_some_and(|selector| !selector.match_expressions.is_empty()),
            node_topology: wire.node_topology.map(|selector| selector.match_labels),
            capacity: wire.capacity,
            maximum_volume_size: wire.maximum_volume_size,
        })
    }
}

impl Cached for CsiStorageCapacity {
    const KIND: &'static str = "CSIStorageCapacity";

    fn trim(&mut self, _driver: &str, _fields: Fields) {
        let (labels, owners) = (self.metadata.labels.take(), self.metadata.owner_references.take());
        trim_meta(&mut self.metadata, &[]);
        (self.metadata.labels, self.metadata.owner_references) = (labels, owners);
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}
