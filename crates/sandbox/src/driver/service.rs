//! The gRPC services: thin, each RPC is [`Driver::answer`] of its request.

use std::convert::Infallible;

use tonic::{Request, Response, Status};
use tower::ServiceExt as _;

use super::Driver;
use base::proto::controller_server::{Controller, ControllerServer};
use base::proto::group_controller_server::{GroupController, GroupControllerServer};
use base::proto::identity_server::{Identity, IdentityServer};
use base::proto::node_server::{Node, NodeServer};
use base::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeGroupSnapshotRequest,
    CreateVolumeGroupSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse, GetSnapshotRequest,
    GetSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, NodeExpandVolumeRequest, NodeExpandVolumeResponse,
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetStorageHealthRequest, NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, ProbeRequest, ProbeResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};

/// The number of the connection that a request came through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection(pub(super) u64);

impl Driver {
    /// Routes one HTTP request to its gRPC service.
    pub(super) async fn dispatch(
        self,
        request: http::Request<hyper::body::Incoming>,
    ) -> Result<http::Response<tonic::body::Body>, Infallible> {
        let path = request.uri().path();
        if path.starts_with("/csi.v1.Identity/") {
            IdentityServer::new(self).oneshot(request).await
        } else if path.starts_with("/csi.v1.Controller/") {
            ControllerServer::new(self).oneshot(request).await
        } else if path.starts_with("/csi.v1.GroupController/") && self.has_group_service() {
            GroupControllerServer::new(self).oneshot(request).await
        } else if path.starts_with("/csi.v1.Node/") && self.has_node_service() {
            NodeServer::new(self).oneshot(request).await
        } else {
            Ok(Status::unimplemented("the demo driver has no such service").into_http())
        }
    }
}

/// `!`: an RPC that the demo driver does not have.
macro_rules! service {
    (
        $service:ident: $($name:ident: $request:ty => $response:ty;)*
        $(! $absent:ident: $asked:ty => $never:ty;)*
    ) => {
        #[tonic::async_trait]
        impl $service for Driver {
            $(async fn $name(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                self.answer(request).await
            })*
            $(async fn $absent(&self, _: Request<$asked>) -> Result<Response<$never>, Status> {
                Err(Status::unimplemented("the demo driver has no such RPC"))
            })*
        }
    };
}

service! { Identity:
    get_plugin_info: GetPluginInfoRequest => GetPluginInfoResponse;
    get_plugin_capabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse;
    probe: ProbeRequest => ProbeResponse;
}

service! { Controller:
    create_volume: CreateVolumeRequest => CreateVolumeResponse;
    delete_volume: DeleteVolumeRequest => DeleteVolumeResponse;
    controller_publish_volume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    controller_unpublish_volume: ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    list_volumes: ListVolumesRequest => ListVolumesResponse;
    get_capacity: GetCapacityRequest => GetCapacityResponse;
    controller_get_capabilities: ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse;
    create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse;
    delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse;
    list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse;
    get_snapshot: GetSnapshotRequest => GetSnapshotResponse;
    controller_expand_volume: ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    controller_modify_volume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
    controller_list_volume_health: ControllerListVolumeHealthRequest => ControllerListVolumeHealthResponse;
    controller_get_volume_health: ControllerGetVolumeHealthRequest => ControllerGetVolumeHealthResponse;
}

service! { GroupController:
    group_controller_get_capabilities:
        GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse;
    create_volume_group_snapshot: CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse;
    delete_volume_group_snapshot: DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse;
    get_volume_group_snapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse;
}

service! { Node:
    node_get_info: NodeGetInfoRequest => NodeGetInfoResponse;
    node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
    node_stage_volume: NodeStageVolumeRequest => NodeStageVolumeResponse;
    node_unstage_volume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    node_publish_volume: NodePublishVolumeRequest => NodePublishVolumeResponse;
    node_unpublish_volume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    node_expand_volume: NodeExpandVolumeRequest => NodeExpandVolumeResponse;
    node_get_volume_stats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    ! node_get_volume_health: NodeGetVolumeHealthRequest => NodeGetVolumeHealthResponse;
    ! node_get_storage_health: NodeGetStorageHealthRequest => NodeGetStorageHealthResponse;
}
