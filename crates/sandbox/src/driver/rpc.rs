//! The RPCs as one table: which request is about what, and which decision of [`State`] answers it. Pure.

use jiff::Timestamp;

use super::lies::Answer;
use super::method::Method;
use super::profile::Profile;
use super::refusal::Refusal;
use super::state::State;
use base::proto::controller_service_capability::{Rpc as ControllerRpc, Type as ControllerType};
use base::proto::group_controller_service_capability::{Rpc as GroupRpc, Type as GroupType};
use base::proto::plugin_capability::{Service, Type as PluginType, VolumeExpansion};
use base::proto::volume_content_source::Type as Source;
use base::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse, GetSnapshotRequest,
    GetSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, PluginCapability,
    ProbeRequest, ProbeResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};

/// A request and what is known about its RPC.
pub(super) trait Rpc: std::fmt::Debug + Send + Sync + 'static {
    /// Which RPC it is.
    const METHOD: Method;
    /// Its answer.
    type Answer: Answer;

    /// The decision.
    fn serve(&self, state: &mut State, profile: &Profile, now: Timestamp) -> Result<Self::Answer, Refusal>;

    /// The volume that it is about.
    fn volume(&self) -> Option<&str> {
        None
    }

    /// The name of the volume that it is to make.
    fn name(&self) -> Option<&str> {
        None
    }

    /// The node that it is about.
    fn node(&self) -> Option<&str> {
        None
    }

    /// The snapshot that it is about, by its ID; by its name where it is to be cut.
    fn snapshot(&self) -> Option<&str> {
        None
    }

    /// Whether it brings secrets.
    fn has_secrets(&self) -> bool {
        false
    }

    /// The object that it changes: one call at a time may. `None`: it changes nothing.
    fn subject(&self) -> Option<String> {
        None
    }

    /// The same where it changes several things at once.
    fn subjects(&self) -> Vec<String> {
        self.subject().into_iter().filter(|subject| !subject.is_empty()).collect()
    }

    /// The object that it reads: no call may change it meanwhile.
    fn reads(&self) -> Option<String> {
        None
    }

    /// The request of a publish without its secrets, for the record.
    fn publish(&self) -> Option<Box<ControllerPublishVolumeRequest>> {
        None
    }

    /// The request of a creation without its secrets, for the record.
    fn create(&self) -> Option<Box<CreateVolumeRequest>> {
        None
    }

    /// The request of an expansion without its secrets, for the record.
    fn expand(&self) -> Option<Box<ControllerExpandVolumeRequest>> {
        None
    }

    /// The request of a modification without its secrets, for the record.
    fn modify(&self) -> Option<Box<ControllerModifyVolumeRequest>> {
        None
    }

    /// The question for capacity, for the record.
    fn capacity(&self) -> Option<Box<GetCapacityRequest>> {
        None
    }

    /// The request of a snapshot without its secrets, for the record.
    fn cut(&self) -> Option<Box<CreateSnapshotRequest>> {
        None
    }

    /// The request of a group of snapshots without its secrets, for the record.
    fn cut_group(&self) -> Option<Box<CreateVolumeGroupSnapshotRequest>> {
        None
    }

    /// The snapshots that it names as a group's.
    fn members(&self) -> Vec<String> {
        Vec::new()
    }

    /// The question for snapshots without its secrets, for the record.
    fn list(&self) -> Option<Box<ListSnapshotsRequest>> {
        None
    }
}

macro_rules! rpc {
    ($method:ident: $request:ty => $answer:ty = |$this:ident, $state:ident, $profile:ident, $now:ident| $serve:expr;
     $($items:item)*) => {
        impl Rpc for $request {
            const METHOD: Method = Method::$method;
            type Answer = $answer;

            fn serve(&self, $state: &mut State, $profile: &Profile, $now: Timestamp) -> Result<$answer, Refusal> {
                let $this = self;
                $serve
            }

            $($items)*
        }
    };
}

pub(super) use rpc;

macro_rules! about_volume {
    (changes $method:ident: $request:ty => $answer:ty = $serve:ident $(, $own:item)?) => {
        rpc! { $method: $request => $answer = |this, state, profile, _now| state.$serve(profile, this);
            fn volume(&self) -> Option<&str> {
                Some(&self.volume_id)
            }
            fn has_secrets(&self) -> bool {
                !self.secrets.is_empty()
            }
            fn subject(&self) -> Option<String> {
                Some(self.volume_id.clone())
            }
            $($own)?
        }
    };
}

rpc! { GetPluginInfo: GetPluginInfoRequest => GetPluginInfoResponse = |_this, _state, profile, _now| {
    Ok(GetPluginInfoResponse {
        name: profile.name.clone(),
        vendor_version: profile.vendor_version.clone(),
        manifest: [("purpose".to_owned(), "demonstration".to_owned())].into_iter().collect(),
    })
}; }

rpc! { GetPluginCapabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse =
|_this, _state, profile, _now| {
    let services = profile.services.iter().map(|number| PluginType::Service(Service { r#type: *number }));
    let expansion = profile.expansion.map(|number| PluginType::VolumeExpansion(VolumeExpansion { r#type: number }));
    let capabilities = services.chain(expansion).map(|t| PluginCapability { r#type: Some(t) }).collect();
    Ok(GetPluginCapabilitiesResponse { capabilities })
}; }

rpc! { Probe: ProbeRequest => ProbeResponse = |_this, _state, _profile, _now| Ok(ProbeResponse { ready: Some(true) }); }

rpc! { ControllerGetCapabilities: ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse =
|_this, _state, profile, _now| {
    let capability = |number: &i32| ControllerServiceCapability {
        r#type: Some(ControllerType::Rpc(ControllerRpc { r#type: *number })),
    };
    Ok(ControllerGetCapabilitiesResponse { capabilities: profile.controller.iter().map(capability).collect() })
}; }

rpc! { CreateVolume: CreateVolumeRequest => CreateVolumeResponse =
|this, state, profile, _now| state.create_volume(profile, this);
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn subject(&self) -> Option<String> {
        Some(format!("name/{}", self.name))
    }
    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }
    fn reads(&self) -> Option<String> {
        match self.volume_content_source.as_ref()?.r#type.as_ref()? {
            Source::Snapshot(source) => Some(subject_of(&source.snapshot_id)),
            Source::Volume(_) => None,
        }
    }
    fn create(&self) -> Option<Box<CreateVolumeRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

rpc! { ControllerPublishVolume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse =
|this, state, profile, _now| state.publish(profile, this);
    fn volume(&self) -> Option<&str> {
        Some(&self.volume_id)
    }
    fn node(&self) -> Option<&str> {
        Some(&self.node_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn subject(&self) -> Option<String> {
        Some(self.volume_id.clone())
    }
    fn publish(&self) -> Option<Box<ControllerPublishVolumeRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

about_volume! { changes ControllerUnpublishVolume: ControllerUnpublishVolumeRequest =>
    ControllerUnpublishVolumeResponse = unpublish,
    fn node(&self) -> Option<&str> {
        Some(&self.node_id)
    }
}
about_volume! { changes DeleteVolume: DeleteVolumeRequest => DeleteVolumeResponse = delete_volume }
about_volume! { changes ControllerExpandVolume: ControllerExpandVolumeRequest =>
    ControllerExpandVolumeResponse = expand_volume,
    fn expand(&self) -> Option<Box<ControllerExpandVolumeRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}
about_volume! { changes ControllerModifyVolume: ControllerModifyVolumeRequest =>
    ControllerModifyVolumeResponse = modify_volume,
    fn modify(&self) -> Option<Box<ControllerModifyVolumeRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

rpc! { ValidateVolumeCapabilities: ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse =
|this, state, profile, _now| state.validate_volume_capabilities(profile, this);
    fn volume(&self) -> Option<&str> {
        Some(&self.volume_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
}

rpc! { ListVolumes: ListVolumesRequest => ListVolumesResponse =
|this, state, profile, _now| state.list_volumes(profile, this); }

rpc! { GetCapacity: GetCapacityRequest => GetCapacityResponse =
|this, state, profile, _now| state.get_capacity(profile, this);
    fn capacity(&self) -> Option<Box<GetCapacityRequest>> {
        Some(Box::new(self.clone()))
    }
}

rpc! { ControllerGetVolume: ControllerGetVolumeRequest => ControllerGetVolumeResponse =
|this, state, profile, _now| state.get_volume(profile, this);
    fn volume(&self) -> Option<&str> {
        Some(&self.volume_id)
    }
}

rpc! { ControllerListVolumeHealth: ControllerListVolumeHealthRequest => ControllerListVolumeHealthResponse =
|this, state, profile, _now| state.list_volume_health(profile, this);
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
}

rpc! { ControllerGetVolumeHealth: ControllerGetVolumeHealthRequest => ControllerGetVolumeHealthResponse =
|this, state, profile, _now| state.get_volume_health(profile, this);
    fn volume(&self) -> Option<&str> {
        Some(&self.volume_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
}

rpc! { CreateSnapshot: CreateSnapshotRequest => CreateSnapshotResponse =
|this, state, profile, now| state.create_snapshot(profile, this, now);
    fn volume(&self) -> Option<&str> {
        Some(&self.source_volume_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn snapshot(&self) -> Option<&str> {
        Some(&self.name)
    }
    fn subject(&self) -> Option<String> {
        Some(self.source_volume_id.clone())
    }
    fn cut(&self) -> Option<Box<CreateSnapshotRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

rpc! { DeleteSnapshot: DeleteSnapshotRequest => DeleteSnapshotResponse =
|this, state, profile, _now| state.delete_snapshot(profile, this);
    fn snapshot(&self) -> Option<&str> {
        Some(&self.snapshot_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn subject(&self) -> Option<String> {
        Some(subject_of(&self.snapshot_id))
    }
}

rpc! { ListSnapshots: ListSnapshotsRequest => ListSnapshotsResponse =
|this, state, profile, now| state.list_snapshots(profile, this, now);
    fn volume(&self) -> Option<&str> {
        Some(&self.source_volume_id)
    }
    fn snapshot(&self) -> Option<&str> {
        Some(&self.snapshot_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn list(&self) -> Option<Box<ListSnapshotsRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

rpc! { GetSnapshot: GetSnapshotRequest => GetSnapshotResponse =
|this, state, profile, now| state.get_snapshot(profile, this, now);
    fn snapshot(&self) -> Option<&str> {
        Some(&self.snapshot_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
}

rpc! { GroupControllerGetCapabilities:
GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse =
|_this, _state, profile, _now| {
    let capability = |number: &i32| GroupControllerServiceCapability {
        r#type: Some(GroupType::Rpc(GroupRpc { r#type: *number })),
    };
    let capabilities = profile.group_controller.iter().map(capability).collect();
    Ok(GroupControllerGetCapabilitiesResponse { capabilities })
}; }

rpc! { CreateVolumeGroupSnapshot: CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse =
|this, state, profile, now| state.create_group(profile, this, now);
    fn snapshot(&self) -> Option<&str> {
        Some(&self.name)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn subjects(&self) -> Vec<String> {
        self.source_volume_ids.clone()
    }
    fn cut_group(&self) -> Option<Box<CreateVolumeGroupSnapshotRequest>> {
        let mut request = self.clone();
        request.secrets.clear();
        Some(Box::new(request))
    }
}

rpc! { DeleteVolumeGroupSnapshot: DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse =
|this, state, profile, _now| state.delete_group(profile, this);
    fn snapshot(&self) -> Option<&str> {
        Some(&self.group_snapshot_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn subjects(&self) -> Vec<String> {
        self.snapshot_ids.iter().chain([&self.group_snapshot_id]).map(|id| subject_of(id)).collect()
    }
    fn members(&self) -> Vec<String> {
        self.snapshot_ids.clone()
    }
}

rpc! { GetVolumeGroupSnapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse =
|this, state, profile, now| state.get_group(profile, this, now);
    fn snapshot(&self) -> Option<&str> {
        Some(&self.group_snapshot_id)
    }
    fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }
    fn members(&self) -> Vec<String> {
        self.snapshot_ids.clone()
    }
}

/// The snapshot that a call changes or reads. A volume may have the same ID.
fn subject_of(snapshot: &str) -> String {
    format!("snapshot/{snapshot}")
}
