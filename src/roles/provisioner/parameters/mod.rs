//! The parameters of a class: which are ours, which are the driver's, and what ours say. Pure.
//!
//! | key under `csi.storage.k8s.io/` | deprecated, kept for the driver | is |
//! |---|---|---|
//! | `fstype` | `fstype` in any case | the file system |
//! | `secret-name`, `secret-namespace` | | the default for every row below |
//! | `provisioner-secret-…` | `csiProvisionerSecret…` | for `CreateVolume` and `DeleteVolume` |
//! | `controller-publish-secret-…` | `csiControllerPublishSecret…` | for the attacher |
//! | `node-stage-secret-…` | `csiNodeStageSecret…` | for the kubelet |
//! | `node-publish-secret-…` | `csiNodePublishSecret…` | for the kubelet |
//! | `controller-expand-secret-…` | | for the resizer |
//! | `node-expand-secret-…` | | for the kubelet |
//! | `controller-modify-secret-…` | | for the resizer |
//!
//! Any other key under the prefix is an error: it is a typing error, or it asks for something that this version does
//! not know. Passed on, it would create a volume that lacks what the class wants.

pub mod secrets;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The prefix of the keys that are not the driver's.
pub const PREFIX: &str = "csi.storage.k8s.io/";
/// The file system's key.
pub const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// Sent to the driver with `extraCreateMetadata`: the claim's name.
pub const CLAIM_NAME: &str = "csi.storage.k8s.io/pvc/name";
/// Sent to the driver with `extraCreateMetadata`: the claim's namespace.
pub const CLAIM_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
/// Sent to the driver with `extraCreateMetadata`: the PersistentVolume's name.
pub const VOLUME_NAME: &str = "csi.storage.k8s.io/pv/name";

/// Why the parameters of a class cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// An unknown key under the prefix.
    #[error(
        "StorageClass parameter \"{0}\" is unknown, and csi.storage.k8s.io/ is reserved: correct the key, or remove it from the class"
    )]
    UnknownKey(String),
    /// Two keys name the file system.
    #[error("StorageClass parameters \"{first}\" and \"{second}\" both name a file system: keep {FS_TYPE} alone")]
    TwoFileSystems {
        /// One key.
        first: String,
        /// The other key.
        second: String,
    },
    /// Two keys give a secret's name or namespace.
    #[error(
        "StorageClass parameters \"{deprecated}\" and \"{key}\" both name the {secret} secret: keep \"{key}\" alone"
    )]
    TwoKeys {
        /// The secret's use.
        secret: &'static str,
        /// The old key.
        deprecated: &'static str,
        /// The key that should stay.
        key: &'static str,
    },
    /// A secret's name without its namespace, or the reverse.
    #[error("the {secret} secret needs both a name and a namespace: StorageClass parameter \"{missing}\" is missing")]
    Half {
        /// The secret's use.
        secret: &'static str,
        /// The missing key.
        missing: &'static str,
    },
    /// A key without a value.
    #[error("StorageClass parameter \"{0}\" is empty: set it, or remove the keys of this secret")]
    Empty(&'static str),
}

/// The use of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretUse {
    /// `CreateVolume` and `DeleteVolume`.
    Provisioner,
    /// `ControllerPublishVolume`.
    ControllerPublish,
    /// `NodeStageVolume`.
    NodeStage,
    /// `NodePublishVolume`.
    NodePublish,
    /// `ControllerExpandVolume`.
    ControllerExpand,
    /// `NodeExpandVolume`.
    NodeExpand,
    /// `ControllerModifyVolume`.
    ControllerModify,
}

/// The keys of one secret.
#[derive(Debug, Clone, Copy)]
struct Keys {
    secret: &'static str,
    name: Key,
    namespace: Key,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    key: &'static str,
    deprecated: Option<&'static str>,
}

/// The row of a secret: without deprecated keys, or with those that begin with the third word.
macro_rules! keys {
    ($secret:literal, $key:literal) => {
        Keys {
            secret: $secret,
            name: Key { key: concat!("csi.storage.k8s.io/", $key, "-name"), deprecated: None },
            namespace: Key { key: concat!("csi.storage.k8s.io/", $key, "-namespace"), deprecated: None },
        }
    };
    ($secret:literal, $key:literal, $deprecated:literal) => {
        Keys {
            secret: $secret,
            name: Key {
                key: concat!("csi.storage.k8s.io/", $key, "-name"),
                deprecated: Some(concat!($deprecated, "Name")),
            },
            namespace: Key {
                key: concat!("csi.storage.k8s.io/", $key, "-namespace"),
                deprecated: Some(concat!($deprecated, "Namespace")),
            },
        }
    };
}

const DEFAULT: Keys = keys!("default", "secret");

impl SecretUse {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Provisioner,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
    ];

    fn keys(self) -> Keys {
        match self {
            Self::Provisioner => keys!("provisioner", "provisioner-secret", "csiProvisionerSecret"),
            Self::ControllerPublish => {
                keys!("controller publish", "controller-publish-secret", "csiControllerPublishSecret")
            }
            Self::NodeStage => keys!("node stage", "node-stage-secret", "csiNodeStageSecret"),
            Self::NodePublish => keys!("node publish", "node-publish-secret", "csiNodePublishSecret"),
            Self::ControllerExpand => keys!("controller expand", "controller-expand-secret"),
            Self::NodeExpand => keys!("node expand", "node-expand-secret"),
            Self::ControllerModify => keys!("controller modify", "controller-modify-secret"),
        }
    }

    /// The secret's name in an error's text.
    pub fn label(self) -> &'static str {
        self.keys().secret
    }
}

/// The templates of a secret's name and namespace: see [`crate::roles::provisioner::parameters::secrets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template<'a> {
    /// Of its namespace.
    pub namespace: &'a str,
    /// Of its name.
    pub name: &'a str,
}

/// The templates of one secret: from its own keys, or else from the default's, or none.
pub fn template(
    parameters: &BTreeMap<String, String>,
    secret: SecretUse,
) -> Result<Option<Template<'_>>, ParameterError> {
    match pair(parameters, secret.keys())? {
        Some(own) => Ok(Some(own)),
        None => pair(parameters, DEFAULT),
    }
}

fn pair(parameters: &BTreeMap<String, String>, keys: Keys) -> Result<Option<Template<'_>>, ParameterError> {
    let half = |missing: Key| ParameterError::Half { secret: keys.secret, missing: missing.key };
    match (value(parameters, keys.secret, keys.name)?, value(parameters, keys.secret, keys.namespace)?) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(half(keys.namespace)),
        (None, Some(_)) => Err(half(keys.name)),
        (Some(name), Some(namespace)) => Ok(Some(Template { namespace, name })),
    }
}

fn value<'a>(
    parameters: &'a BTreeMap<String, String>,
    secret: &'static str,
    Key { key, deprecated }: Key,
) -> Result<Option<&'a str>, ParameterError> {
    let old = deprecated.and_then(|old| parameters.get(old).map(|value| (old, value)));
    let (key, value) = match (old, parameters.get(key)) {
        (Some((deprecated, _)), Some(_)) => return Err(ParameterError::TwoKeys { secret, deprecated, key }),
        (Some(old), None) => old,
        (None, Some(value)) => (key, value),
        (None, None) => return Ok(None),
    };
    if value.is_empty() { Err(ParameterError::Empty(key)) } else { Ok(Some(value)) }
}

/// The file system that the class names, or else `default`. If that is empty, the driver chooses.
pub fn fs_type(parameters: &BTreeMap<String, String>, default: &str) -> Result<String, ParameterError> {
    // The deprecated key is read in any case. The new key in another case is an unknown key under the prefix.
    let mut named = parameters.iter().filter(|(key, _)| *key == FS_TYPE || key.eq_ignore_ascii_case("fstype"));
    let first = named.next();
    if let (Some((first, _)), Some((second, _))) = (first, named.next()) {
        return Err(ParameterError::TwoFileSystems { first: first.clone(), second: second.clone() });
    }
    let value = first.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty());
    Ok(value.unwrap_or(default).to_owned())
}

/// The parameters for the driver: all but ours.
pub fn for_driver(parameters: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ParameterError> {
    let is_ours = |key: &str| {
        let is_of = |keys: Keys| keys.name.key == key || keys.namespace.key == key;
        key == FS_TYPE || is_of(DEFAULT) || SecretUse::ALL.into_iter().any(|secret| is_of(secret.keys()))
    };
    let mut kept = BTreeMap::new();
    for (key, value) in parameters {
        if !key.starts_with(PREFIX) {
            kept.insert(key.clone(), value.clone());
        } else if !is_ours(key) {
            return Err(ParameterError::UnknownKey(key.clone()));
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
