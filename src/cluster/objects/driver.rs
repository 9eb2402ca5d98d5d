//! `CSIDriver` objects, which tell the cluster about a driver. Of another driver's object only the metadata is kept, and with an
//! attach/detach controller whether its volumes must be attached. Pure.

use serde::{Deserialize, Deserializer};

use super::{Cached, Fields, IndexName, received, trim_meta};
use crate::cluster::meta::Meta;

/// The object of one driver, which has the driver's name. The spec of another driver's object is the default, but for
/// `attach_required` with [`Fields::ATTACH`].
#[derive(Debug, Clone, PartialEq)]
pub struct CsiDriver {
    /// Name, uid, version and deletion.
    pub metadata: Meta,
    /// `spec`.
    pub spec: CsiDriverSpec,
}

/// What kube-scheduler, the attach/detach controller and kubelet read, with the API server's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the object")]
pub struct CsiDriverSpec {
    /// Whether volumes must be attached before a node can use them: `attachRequired` (attach-detach spec 2).
    pub attach_required: bool,
    /// Whether kubelet tells the driver which pod a volume is for, and whether it is inline: `podInfoOnMount`.
    pub pod_info: bool,
    /// Whether the scheduler reads the driver's `CSIStorageCapacity` objects: `storageCapacity`.
    pub storage_capacity: bool,
    /// Whether `volumeLifecycleModes` has `Persistent`.
    pub persistent: bool,
    /// Whether `volumeLifecycleModes` has `Ephemeral`: inline volumes.
    pub ephemeral: bool,
    /// Whether kubelet asks the driver for the node's limit again: `nodeAllocatableUpdatePeriodSeconds` is set.
    pub updates_limit: bool,
}

impl Default for CsiDriverSpec {
    fn default() -> Self {
        Self {
            attach_required: true,
            pod_info: false,
            storage_capacity: false,
            persistent: true,
            ephemeral: false,
            updates_limit: false,
        }
    }
}

received! {
    struct Wire {
        metadata: Meta,
        spec: WireSpec = default,
    }

    #[derive(Default)]
    struct WireSpec {
        attach_required: Option<bool>,
        pod_info_on_mount: Option<bool>,
        storage_capacity: Option<bool>,
        volume_lifecycle_modes: Option<Vec<String>>,
        node_allocatable_update_period_seconds: Option<i64>,
    }
}

impl From<WireSpec> for CsiDriverSpec {
    fn from(wire: WireSpec) -> Self {
        let default = Self::default();
        let modes = wire.volume_lifecycle_modes.filter(|modes| !modes.is_empty());
        let has = |mode: &str, unset| modes.as_ref().map_or(unset, |modes| modes.iter().any(|known| known == mode));
        Self {
            attach_required: wire.attach_required.unwrap_or(default.attach_required),
            pod_info: wire.pod_info_on_mount.unwrap_or(default.pod_info),
            storage_capacity: wire.storage_capacity.unwrap_or(default.storage_capacity),
            persistent: has("Persistent", default.persistent),
            ephemeral: has("Ephemeral", default.ephemeral),
            updates_limit: wire.node_allocatable_update_period_seconds.is_some(),
        }
    }
}

impl<'de> Deserialize<'de> for CsiDriver {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(from)?;
        Ok(Self { metadata, spec: spec.into() })
    }
}

impl Cached for CsiDriver {
    const KIND: &'static str = "CSIDriver";

    fn trim(&mut self, driver: &str, fields: Fields) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        self.metadata.finalizers = None;
        self.metadata.creation_timestamp = None;
        if *self.metadata.name != *driver {
            let attach_required = self.spec.attach_required || !fields.contains(Fields::ATTACH);
            self.spec = CsiDriverSpec { attach_required, ..CsiDriverSpec::default() };
        }
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}
