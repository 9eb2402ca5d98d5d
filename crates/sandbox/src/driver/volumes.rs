//! Creating, changing, listing and deleting volumes. Pure. `pools` selects their segment.

use std::collections::BTreeMap;

use super::profile::{GIB, Profile};
use super::refusal::Refusal;
use super::state::{State, Volume};
use super::validate;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::plugin_capability::volume_expansion;
use base::proto::validate_volume_capabilities_response::Confirmed;
use base::proto::volume_content_source::Type as Source;
use base::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, ListVolumesRequest, ListVolumesResponse, Topology,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCondition, VolumeContentSource,
    controller_get_volume_response, list_volumes_response,
};

/// A place: topology keys and values.
pub(super) type Segments = BTreeMap<String, String>;

impl State {
    /// `CreateVolume`.
    pub fn create_volume(
        &mut self,
        profile: &Profile,
        request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Refusal> {
        profile.require(Rpc::CreateDeleteVolume)?;
        profile.provision_secrets.admit(&request.secrets)?;
        validate::name("name", &request.name)?;
        validate::capabilities(profile, &request.volume_capabilities)?;
        let (required, limit) = validate::range(request.capacity_range.as_ref())?;
        if !request.mutable_parameters.is_empty() && !profile.has(Rpc::ModifyVolume) {
            return Err(Refusal::invalid("mutable_parameters is set, but the driver lacks MODIFY_VOLUME"));
        }
        validate::mutable(profile, request.mutable_parameters.keys())?;
        if request.accessibility_requirements.is_some() && !profile.is_topology_aware() {
            return Err(Refusal::invalid("accessibility_requirements is set, but the driver has no topology"));
        }
        if let Some((id, volume)) = self.volumes.iter().find(|(_, v)| v.name == request.name) {
            return if volume.fits(request, required, limit) {
                Ok(CreateVolumeResponse { volume: Some(volume.describe(id)) })
            } else {
                Err(Refusal::exists(format!("volume {:?} exists and is incompatible", request.name)))
            };
        }
        let floor = match &request.volume_content_source {
            Some(source) => self.source_size(profile, source)?,
            None if required == 0 && (limit == 0 || limit >= GIB) => GIB.min(profile.max_volume_size),
            None => 0,
        };
        let capacity = validate::size(profile, required, limit, floor)?;
        let (pool, segments) = self.place(profile, request, capacity)?;
        let id = if profile.names_are_ids { request.name.clone() } else { self.next_id("volume") };
        let volume = Volume {
            name: request.name.clone(),
            capacity,
            capabilities: request.volume_capabilities.clone(),
            parameters: validate::sorted(&request.parameters),
            created_with: validate::sorted(&request.mutable_parameters),
            mutable: validate::sorted(&request.mutable_parameters),
            source: request.volume_content_source.clone(),
            pool,
            segments,
            context: BTreeMap::from([("name".to_owned(), request.name.clone())]),
            ..Volume::default()
        };
        let described = volume.describe(&id);
        self.volumes.insert(id, volume);
        Ok(CreateVolumeResponse { volume: Some(described) })
    }

    /// `DeleteVolume`. What is gone already is a success.
    pub fn delete_volume(
        &mut self,
        profile: &Profile,
        request: &DeleteVolumeRequest,
    ) -> Result<DeleteVolumeResponse, Refusal> {
        profile.require(Rpc::CreateDeleteVolume)?;
        profile.provision_secrets.admit(&request.secrets)?;
        validate::required("volume_id", &request.volume_id)?;
        let nodes = self.published(&request.volume_id);
        if let Some(node) = nodes.first() {
            return Err(Refusal::precondition(format!(
                "volume {:?} is in use: it is published to node {node:?}",
                request.volume_id
            )));
        }
        self.volumes.remove(&request.volume_id);
        Ok(DeleteVolumeResponse {})
    }

    /// `ValidateVolumeCapabilities`. A pure question: an unsupported use is an answer, not an error.
    pub fn validate_volume_capabilities(
        &self,
        profile: &Profile,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Refusal> {
        validate::required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Refusal::invalid("volume_capabilities is required"));
        }
        if request.volume_capabilities.iter().any(|c| c.access_type.is_none() || c.access_mode.is_none()) {
            return Err(Refusal::invalid("volume_capability needs an access_type and an access_mode"));
        }
        let volume = self.existing(&request.volume_id)?;
        let unconfirmed =
            |message: &str| Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message: message.to_owned() });
        if let Err(refusal) = validate::capabilities(profile, &request.volume_capabilities) {
            return unconfirmed(&refusal.message);
        }
        if !request.volume_capabilities.iter().all(|c| validate::covers(&volume.capabilities, c)) {
            return unconfirmed("the volume was not made for that use");
        }
        let differs = |given: &Segments, have: &Segments| !given.is_empty() && given != have;
        if differs(&validate::sorted(&request.volume_context), &volume.context)
            || differs(&validate::sorted(&request.parameters), &volume.parameters)
            || differs(&validate::sorted(&request.mutable_parameters), &volume.mutable)
        {
            return unconfirmed("the volume has another context or other parameters");
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context.clone(),
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
        };
        Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
    }

    /// `ListVolumes`, in the order of the IDs.
    pub fn list_volumes(
        &self,
        profile: &Profile,
        request: &ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Refusal> {
        profile.require(Rpc::ListVolumes)?;
        let items = self.volumes.iter().map(|(id, volume)| (id, (id, volume)));
        let (page, next_token) =
            validate::page(items, &request.starting_token, request.max_entries, profile.page_limit)?;
        let entries = page
            .into_iter()
            .map(|(id, volume)| {
                let (published_node_ids, volume_condition) = volume.status(profile);
                let tells = profile.has(Rpc::ListVolumesPublishedNodes) || profile.has(Rpc::VolumeCondition);
                let status =
                    tells.then_some(list_volumes_response::VolumeStatus { published_node_ids, volume_condition });
                list_volumes_response::Entry { volume: Some(volume.describe(id)), status }
            })
            .collect();
        Ok(ListVolumesResponse { entries, next_token })
    }

    /// `ControllerGetVolume`.
    pub fn get_volume(
        &self,
        profile: &Profile,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Refusal> {
        profile.require(Rpc::GetVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        let volume = self.existing(&request.volume_id)?;
        let (published_node_ids, volume_condition) = volume.status(profile);
        let status = controller_get_volume_response::VolumeStatus { published_node_ids, volume_condition };
        Ok(ControllerGetVolumeResponse { volume: Some(volume.describe(&request.volume_id)), status: Some(status) })
    }

    /// `ControllerExpandVolume`. A volume that is large enough already is a success.
    pub fn expand_volume(
        &mut self,
        profile: &Profile,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Refusal> {
        profile.require(Rpc::ExpandVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(Refusal::invalid("capacity_range is required"));
        }
        let (required, limit) = validate::range(request.capacity_range.as_ref())?;
        if required == 0 && limit == 0 {
            return Err(Refusal::invalid("capacity_range needs required_bytes or limit_bytes"));
        }
        if request.volume_capability.is_some() {
            validate::capability(profile, request.volume_capability.as_ref())?;
        }
        let available = self.room_beside(profile, &request.volume_id);
        let volume = self.existing_mut(&request.volume_id)?;
        let capacity = validate::size(profile, required, limit, volume.capacity)?;
        if capacity > volume.capacity {
            if profile.expansion == Some(volume_expansion::Type::Offline as i32) && !volume.published.is_empty() {
                return Err(Refusal::precondition("a volume that is published cannot grow"));
            }
            if capacity - volume.capacity > available {
                return Err(Refusal::out_of_range("the pool is full"));
            }
            volume.capacity = capacity;
        }
        let is_block = request.volume_capability.as_ref().is_some_and(validate::is_block);
        Ok(ControllerExpandVolumeResponse { capacity_bytes: volume.capacity, node_expansion_required: !is_block })
    }

    /// `ControllerModifyVolume`: changes the given keys and no other.
    pub fn modify_volume(
        &mut self,
        profile: &Profile,
        request: &ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Refusal> {
        profile.require(Rpc::ModifyVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        let volume = self.existing_mut(&request.volume_id)?;
        if request.mutable_parameters.is_empty() {
            return Err(Refusal::invalid("mutable_parameters is required"));
        }
        validate::mutable(profile, request.mutable_parameters.keys())?;
        volume.mutable.extend(validate::sorted(&request.mutable_parameters));
        Ok(ControllerModifyVolumeResponse {})
    }

    pub(super) fn existing(&self, id: &str) -> Result<&Volume, Refusal> {
        self.volumes.get(id).ok_or_else(|| Refusal::not_found("volume", id))
    }

    fn existing_mut(&mut self, id: &str) -> Result<&mut Volume, Refusal> {
        self.volumes.get_mut(id).ok_or_else(|| Refusal::not_found("volume", id))
    }

    /// The smallest size of a volume from `source`.
    fn source_size(&self, profile: &Profile, source: &VolumeContentSource) -> Result<i64, Refusal> {
        match &source.r#type {
            Some(Source::Snapshot(snapshot)) => {
                if !profile.has(Rpc::CreateDeleteSnapshot) {
                    return Err(Refusal::invalid("the driver cannot make a volume from a snapshot"));
                }
                validate::required("snapshot_id", &snapshot.snapshot_id)?;
                let found = self.snapshots.get(&snapshot.snapshot_id);
                Ok(found.ok_or_else(|| Refusal::not_found("snapshot", &snapshot.snapshot_id))?.size)
            }
            Some(Source::Volume(volume)) => {
                if !profile.has(Rpc::CloneVolume) {
                    return Err(Refusal::invalid("the driver cannot clone a volume"));
                }
                validate::required("volume_id", &volume.volume_id)?;
                Ok(self.existing(&volume.volume_id)?.capacity)
            }
            None => Err(Refusal::invalid("volume_content_source.type is required")),
        }
    }
}

impl Volume {
    /// The volume as the specification describes it.
    fn describe(&self, id: &str) -> base::proto::Volume {
        let topology = Topology { segments: self.segments.clone().into_iter().collect() };
        base::proto::Volume {
            capacity_bytes: self.capacity,
            volume_id: id.to_owned(),
            volume_context: self.context.clone().into_iter().collect(),
            content_source: self.source.clone(),
            accessible_topology: if self.segments.is_empty() { Vec::new() } else { vec![topology] },
        }
    }

    /// Where the volume is published and how it is, as far as the driver can tell.
    fn status(&self, profile: &Profile) -> (Vec<String>, Option<VolumeCondition>) {
        let tells_nodes = profile.has(Rpc::ListVolumesPublishedNodes);
        let nodes = if tells_nodes { self.published.keys().cloned().collect() } else { Vec::new() };
        (nodes, profile.has(Rpc::VolumeCondition).then(|| self.condition()))
    }

    /// Whether a repeated creation asks for this volume.
    fn fits(&self, request: &CreateVolumeRequest, required: i64, limit: i64) -> bool {
        let place = match &request.accessibility_requirements {
            Some(wanted) if !wanted.requisite.is_empty() => {
                wanted.requisite.iter().any(|topology| lies_in(&self.segments, topology))
            }
            _ => true,
        };
        self.capacity >= required
            && (limit == 0 || self.capacity <= limit)
            && self.parameters == validate::sorted(&request.parameters)
            && self.created_with == validate::sorted(&request.mutable_parameters)
            && self.source == request.volume_content_source
            && request.volume_capabilities.iter().all(|c| validate::covers(&self.capabilities, c))
            && place
    }
}

/// Whether a place has all of a topology's segments.
pub(super) fn lies_in(segments: &Segments, topology: &Topology) -> bool {
    topology.segments.iter().all(|(key, value)| segments.get(key) == Some(value))
}
