//! Where the volumes are mounted on the node of the driver's node service. Pure.

use std::collections::BTreeMap;

use crate::proto::VolumeCapability;

/// A volume and a path.
pub(super) type Place = (String, String);

/// Where volumes are on the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Mounts {
    pub(super) staged: BTreeMap<Place, VolumeCapability>,
    pub(super) targets: BTreeMap<Place, Target>,
}

/// A volume at the path of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) staging: String,
    pub(super) capability: VolumeCapability,
    pub(super) readonly: bool,
}
