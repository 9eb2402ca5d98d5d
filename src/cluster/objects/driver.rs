//! `CSIDriver` objects: what the cluster is told of a driver. A foreign one keeps its metadata alone. Pure.

use serde::{Deserialize, Deserializer};

use super::{Cached, Fields, IndexName, or_default, trim_meta};
use crate::cluster::meta::Meta;

/// What the cluster is told of a driver. The object has the driver's name.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiDriver {
    /// Name, uid, version and deletion.
    pub metadata: Meta,
    /// Whether volumes must be attached before a node can use them: `spec.attachRequired`, by default true (attach-detach spec 2).
    /// Of a foreign driver it says nothing.
    pub attach_required: bool,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    attach_required: Option<bool>,
}

impl<'de> Deserialize<'de> for CsiDriver {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(from)?;
        Ok(Self { metadata, attach_required: spec.attach_required.unwrap_or(true) })
    }
}

impl Cached for CsiDriver {
    const KIND: &'static str = "CSIDriver";

    fn trim(&mut self, driver: &str, _fields: Fields) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        self.metadata.finalizers = None;
        self.metadata.creation_timestamp = None;
        if *self.metadata.name != *driver {
            self.attach_required = true;
        }
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}
