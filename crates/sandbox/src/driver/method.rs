//! The RPCs by their names. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The RPCs of the Identity, Controller, `GroupController` and Node services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the specification's names")]
pub enum Method {
    GetPluginInfo,
    GetPluginCapabilities,
    Probe,
    CreateVolume,
    DeleteVolume,
    ControllerPublishVolume,
    ControllerUnpublishVolume,
    ValidateVolumeCapabilities,
    ListVolumes,
    GetCapacity,
    ControllerGetCapabilities,
    CreateSnapshot,
    DeleteSnapshot,
    ListSnapshots,
    GetSnapshot,
    ControllerExpandVolume,
    ControllerGetVolume,
    ControllerListVolumeHealth,
    ControllerGetVolumeHealth,
    ControllerModifyVolume,
    GroupControllerGetCapabilities,
    CreateVolumeGroupSnapshot,
    DeleteVolumeGroupSnapshot,
    GetVolumeGroupSnapshot,
    NodeGetInfo,
    NodeGetCapabilities,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    NodeExpandVolume,
    NodeGetVolumeStats,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Method {
    /// The full name of the RPC, such as `/csi.v1.Identity/Probe`.
    pub fn path(self) -> String {
        let service = match self {
            Self::GetPluginInfo | Self::GetPluginCapabilities | Self::Probe => "Identity",
            Self::NodeGetInfo
            | Self::NodeGetCapabilities
            | Self::NodeStageVolume
            | Self::NodeUnstageVolume
            | Self::NodePublishVolume
            | Self::NodeUnpublishVolume
            | Self::NodeExpandVolume
            | Self::NodeGetVolumeStats => "Node",
            Self::GroupControllerGetCapabilities
            | Self::CreateVolumeGroupSnapshot
            | Self::DeleteVolumeGroupSnapshot
            | Self::GetVolumeGroupSnapshot => "GroupController",
            _ => "Controller",
        };
        format!("/csi.v1.{service}/{self}")
    }
}
