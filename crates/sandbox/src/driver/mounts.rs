//! Where the volumes are mounted on a node of the driver's node service. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message;
use base::proto::VolumeCapability;

/// A volume and a path.
pub(super) type Place = (String, String);

/// Where volumes are on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Mounts {
    pub(super) staged: BTreeMap<Place, Staged>,
    pub(super) targets: BTreeMap<Place, Target>,
}

/// A volume at a staging path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Staged {
    #[serde(with = "message")]
    pub(super) capability: VolumeCapability,
}

/// A volume at the path of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) staging: String,
    #[serde(with = "message")]
    pub(super) capability: VolumeCapability,
    pub(super) readonly: bool,
}
