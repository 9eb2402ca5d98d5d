//! Classes: of volumes, and of their changeable attributes. A foreign `StorageClass` keeps its metadata and whose it is. With
//! [`Fields::MIGRATION`], that of the in-tree plugin that our driver has taken over is kept whole, and untranslated. Pure.

use std::collections::BTreeMap;

use base::InTree;

use crate::cluster::meta::Meta;

use super::group::VERSIONS;
use super::{Cached, Fields, IndexName, received, trim_meta};

received! {
    /// How volumes of a kind are made.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct StorageClass {
        /// Name, uid, version and deletion.
        pub metadata: Meta,
        /// The driver that makes them.
        pub provisioner: String = default,
        /// What the driver wants to be told, and which Secrets it needs.
        pub parameters: BTreeMap<String, String> = default,
        /// What becomes of a volume when its claim is gone; unset for `Delete`.
        pub reclaim_policy: Option<String>,
        /// Mount options, in their order.
        pub mount_options: Vec<String> = default,
        /// `Immediate` or `WaitForFirstConsumer`; unset for the former.
        pub volume_binding_mode: Option<String>,
        /// Where volumes may be; empty for everywhere.
        pub allowed_topologies: Vec<TopologySelectorTerm> = default,
    }

    /// Places: those that satisfy every expression.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TopologySelectorTerm {
        /// The expressions.
        pub match_label_expressions: Vec<TopologyExpression> = default,
    }

    /// The values that a label of a place may have.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TopologyExpression {
        /// The label.
        pub key: String = default,
        /// The values.
        pub values: Vec<String> = default,
    }
}

impl StorageClass {
    /// Whether a volume is made only once a pod wants it.
    pub fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

impl Cached for StorageClass {
    const KIND: &'static str = "StorageClass";

    fn trim(&mut self, driver: &str, fields: Fields) {
        trim_meta(&mut self.metadata, &[]);
        self.metadata.annotations = None;
        // A class of the plugin that the driver has taken over is the driver's as well (migration spec 11).
        let is_migrated = || InTree::of_plugin(&self.provisioner).is_some_and(|source| source.successor() == driver);
        let is_ours = self.provisioner == driver || fields.contains(Fields::MIGRATION) && is_migrated();
        if !is_ours {
            let (metadata, provisioner) = (std::mem::take(&mut self.metadata), std::mem::take(&mut self.provisioner));
            *self = Self { metadata, provisioner, ..Self::default() };
        }
    }

    fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
}

/// A class with parameters for a driver, under the name that the API has for the driver's name. A foreign driver's keeps its metadata and
/// whose it is. A cluster may lack each of them.
macro_rules! class {
    ($(#[$about:meta])* $class:ident, $driver:literal, $versions:expr) => {
        received! {
            $(#[$about])*
            #[derive(Debug, Clone, Default, PartialEq)]
            pub struct $class {
                /// Name, uid and version.
                pub metadata: Meta,
                /// The driver that understands the parameters.
                #[serde(rename = $driver)]
                pub driver: String = default,
                /// What the driver wants to be told, and which Secrets it needs.
                pub parameters: BTreeMap<String, String> = default,
            }
        }

        impl Cached for $class {
            const KIND: &'static str = stringify!($class);
            const OPTIONAL: bool = true;
            const VERSIONS: &'static [&'static str] = $versions;

            fn trim(&mut self, driver: &str, _fields: Fields) {
                trim_meta(&mut self.metadata, &[]);
                self.metadata.annotations = None;
                if self.driver != driver {
                    self.parameters = BTreeMap::new();
                }
            }

            fn index(&self, _add: &mut dyn FnMut(IndexName, &str)) {}
        }
    };
}

class! {
    /// A volume's attributes that can be changed while it is used. Kubernetes has it since 1.34, where it can be switched off.
    VolumeAttributesClass, "driverName", &[]
}
class! {
    /// How snapshots are taken.
    VolumeSnapshotClass, "driver", &[]
}
class! {
    /// How groups of snapshots are taken.
    VolumeGroupSnapshotClass, "driver", VERSIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_mode_that_is_not_known_waits_for_no_consumer() {
        for (mode, expected) in [
            (Some("WaitForFirstConsumer"), true),
            (Some("Immediate"), false),
            (Some("waitforfirstconsumer"), false),
            (Some("New"), false),
            (Some(""), false),
            (None, false),
        ] {
            let class = StorageClass { volume_binding_mode: mode.map(Into::into), ..StorageClass::default() };
            assert_eq!(class.waits_for_consumer(), expected, "{mode:?}");
        }
    }
}
