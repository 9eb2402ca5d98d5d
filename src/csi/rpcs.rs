//! Every RPC of the Identity, Controller and `GroupController` services, and the RPCs of the Node service that are not only for kubelet.

use std::collections::HashMap;

use super::client::{Client, Method, Request};
use super::error::RpcError;
use crate::proto;

/// `secret` marks the requests with a `secrets` map; a test compares this with the protocol.
macro_rules! rpcs {
    ($($(#[$doc:meta])* $service:ident $rpc:ident = $name:ident($kind:ident $request:ident) -> $response:ident;)+) => {
        impl Client {
            $(
                $(#[$doc])*
                pub async fn $name(&self, request: proto::$request) -> Result<proto::$response, RpcError> {
                    const METHOD: Method = Method {
                        service: concat!("csi.v1.", stringify!($service)),
                        rpc: stringify!($rpc),
                        name: concat!("csi.v1.", stringify!($service), "/", stringify!($rpc)),
                        path: concat!("/csi.v1.", stringify!($service), "/", stringify!($rpc)),
                    };
                    // Boxed, because the future of a call has four to five kilobytes, and each wrapping future would
                    // copy it.
                    Box::pin(self.call(METHOD, request)).await
                }
            )+
        }

        $(
            impl Request for proto::$request {
                fn secrets(&self) -> Option<&HashMap<String, String>> {
                    rpcs!(@secrets $kind self)
                }
            }
        )+

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn exactly_the_requests_with_secrets_are_marked() {
                $(
                    let request = proto::$request::default();
                    assert_eq!(
                        format!("{request:?}").contains("secrets: "),
                        request.secrets().is_some(),
                        "{}", stringify!($request)
                    );
                )+
            }
        }
    };
    (@secrets secret $request:ident) => { Some(&$request.secrets) };
    (@secrets plain $request:ident) => { None };
}

rpcs! {
    /// Asks for the driver's name and version.
    Identity GetPluginInfo = get_plugin_info(plain GetPluginInfoRequest) -> GetPluginInfoResponse;
    /// Asks for the driver's services.
    Identity GetPluginCapabilities
        = get_plugin_capabilities(plain GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
    /// Asks whether the driver is ready.
    Identity Probe = probe(plain ProbeRequest) -> ProbeResponse;
    /// Makes a volume.
    Controller CreateVolume = create_volume(secret CreateVolumeRequest) -> CreateVolumeResponse;
    /// Deletes a volume.
    Controller DeleteVolume = delete_volume(secret DeleteVolumeRequest) -> DeleteVolumeResponse;
    /// Attaches a volume to a node.
    Controller ControllerPublishVolume
        = controller_publish_volume(secret ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
    /// Detaches a volume from a node.
    Controller ControllerUnpublishVolume
        = controller_unpublish_volume(secret ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
    /// Asks whether an existing volume can be used in some way.
    Controller ValidateVolumeCapabilities
        = validate_volume_capabilities(secret ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse;
    /// Lists a page of volumes.
    Controller ListVolumes = list_volumes(plain ListVolumesRequest) -> ListVolumesResponse;
    /// Asks how much there is left to provision.
    Controller GetCapacity = get_capacity(plain GetCapacityRequest) -> GetCapacityResponse;
    /// Asks for the Controller service's RPC groups.
    Controller ControllerGetCapabilities
        = controller_get_capabilities(plain ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
    /// Takes a snapshot.
    Controller CreateSnapshot = create_snapshot(secret CreateSnapshotRequest) -> CreateSnapshotResponse;
    /// Deletes a snapshot.
    Controller DeleteSnapshot = delete_snapshot(secret DeleteSnapshotRequest) -> DeleteSnapshotResponse;
    /// Lists a page of snapshots.
    Controller ListSnapshots = list_snapshots(secret ListSnapshotsRequest) -> ListSnapshotsResponse;
    /// Asks for one snapshot.
    Controller GetSnapshot = get_snapshot(secret GetSnapshotRequest) -> GetSnapshotResponse;
    /// Makes a volume larger.
    Controller ControllerExpandVolume
        = controller_expand_volume(secret ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
    /// Asks for one volume.
    Controller ControllerGetVolume
        = controller_get_volume(plain ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
    /// Lists a page of volumes whose health is not good.
    Controller ControllerListVolumeHealth
        = controller_list_volume_health(secret ControllerListVolumeHealthRequest) -> ControllerListVolumeHealthResponse;
    /// Asks for the health of one volume.
    Controller ControllerGetVolumeHealth
        = controller_get_volume_health(secret ControllerGetVolumeHealthRequest) -> ControllerGetVolumeHealthResponse;
    /// Changes a volume's mutable parameters.
    Controller ControllerModifyVolume
        = controller_modify_volume(secret ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
    /// Asks for the `GroupController` service's RPC groups.
    GroupController GroupControllerGetCapabilities
        = group_controller_get_capabilities(plain GroupControllerGetCapabilitiesRequest)
            -> GroupControllerGetCapabilitiesResponse;
    /// Takes snapshots of several volumes at once.
    GroupController CreateVolumeGroupSnapshot
        = create_volume_group_snapshot(secret CreateVolumeGroupSnapshotRequest) -> CreateVolumeGroupSnapshotResponse;
    /// Deletes a group of snapshots.
    GroupController DeleteVolumeGroupSnapshot
        = delete_volume_group_snapshot(secret DeleteVolumeGroupSnapshotRequest) -> DeleteVolumeGroupSnapshotResponse;
    /// Asks for a group of snapshots.
    GroupController GetVolumeGroupSnapshot
        = get_volume_group_snapshot(secret GetVolumeGroupSnapshotRequest) -> GetVolumeGroupSnapshotResponse;
    /// Asks which node the driver runs on, and where in its topology that is.
    Node NodeGetInfo = node_get_info(plain NodeGetInfoRequest) -> NodeGetInfoResponse;
    /// Asks for the Node service's RPC groups.
    Node NodeGetCapabilities
        = node_get_capabilities(plain NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
}
