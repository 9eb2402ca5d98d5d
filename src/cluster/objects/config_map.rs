//! ConfigMaps that we write ourselves. Never cached. Pure.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::received;
use crate::cluster::meta::Meta;

received! {
    /// A ConfigMap with its content.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ConfigMap {
        /// Name, uid, version, labels and annotations.
        pub metadata: Meta,
        /// Its texts by key.
        pub data: BTreeMap<String, String> = default,
        /// The keys of its bytes. We write none.
        #[serde(default, rename = "binaryData", deserialize_with = "keys")]
        pub binary_keys: Vec<String>,
        /// Whether the server refuses each change of its content.
        #[serde(rename = "immutable")]
        pub is_immutable: bool = default,
    }

    /// A ConfigMap without its content: the answer to a write of ours.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ConfigMapMeta {
        /// Name, uid, version, labels and annotations.
        pub metadata: Meta,
    }
}

/// The keys of a map that may be missing or null.
#[expect(clippy::zero_sized_map_values, reason = "a set is read from a list, not from a map")]
fn keys<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let map = Option::<BTreeMap<String, IgnoredAny>>::deserialize(from)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}
