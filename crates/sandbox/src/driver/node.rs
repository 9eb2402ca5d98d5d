//! The driver's node service: which volume may be mounted where. Pure: it notes where volumes are to be mounted. If the driver has a
//! storage, that mounts them.

use jiff::Timestamp;
use tonic::Code;

use super::lies::Answer;
use super::method::Method;
use super::mounts::{Mounts, Place, Staged, Target};
use super::profile::{Node, Profile};
use super::refusal::Refusal;
use super::rpc::{Rpc, rpc};
use super::state::State;
use super::validate;
use base::proto::controller_service_capability::rpc::Type as ControllerCapability;
use base::proto::node_service_capability::rpc::Type as NodeCapability;
use base::proto::node_service_capability::{Rpc as NodeRpc, Type as CapabilityType};
use base::proto::volume_capability::access_mode::Mode;
use base::proto::volume_usage::Unit;
use base::proto::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, Topology, VolumeCapability, VolumeUsage,
};

impl Profile {
    /// The node that the driver's process stands on.
    pub(super) fn here(&self) -> Result<(&String, &Node), Refusal> {
        let here = match &self.here {
            Some(id) => self.nodes.get_key_value(id),
            None => self.nodes.first_key_value(),
        };
        here.ok_or_else(|| Refusal::precondition("the driver stands on no node: it has none"))
    }

    fn node_info(&self) -> Result<NodeGetInfoResponse, Refusal> {
        let (id, node) = self.here()?;
        let segments = node.segments.clone().into_iter().collect();
        Ok(NodeGetInfoResponse {
            node_id: id.clone(),
            max_volumes_per_node: i64::try_from(node.max_volumes).unwrap_or(i64::MAX),
            accessible_topology: self.is_topology_aware().then_some(Topology { segments }),
        })
    }

    fn node_capabilities(&self) -> NodeGetCapabilitiesResponse {
        let pairs = [
            (NodeCapability::StageUnstageVolume, true),
            (NodeCapability::ExpandVolume, self.has(ControllerCapability::ExpandVolume) || self.node_only_expansion),
            (NodeCapability::GetVolumeStats, self.storage.is_some()),
            (NodeCapability::SingleNodeMultiWriter, self.has(ControllerCapability::SingleNodeMultiWriter)),
        ];
        let capability = |r#type: NodeCapability| NodeServiceCapability {
            r#type: Some(CapabilityType::Rpc(NodeRpc { r#type: r#type as i32 })),
        };
        let has = pairs.into_iter().filter(|(_, has)| *has);
        NodeGetCapabilitiesResponse { capabilities: has.map(|(r#type, _)| capability(r#type)).collect() }
    }
}

impl State {
    fn testbed(
        &mut self,
        profile: &Profile,
        request: &NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Refusal> {
        validate::required("volume_id", &request.volume_id)?;
        validate::required("staging_target_path", &request.staging_target_path)?;
        let wanted = capability(profile, request.volume_capability.as_ref())?;
        self.must_be_here(profile, &request.volume_id)?;
        let place = (request.volume_id.clone(), request.staging_target_path.clone());
        let mounts = self.mounts_here(profile)?;
        match mounts.staged.get(&place) {
            Some(staged) if staged.capability != wanted => {
                Err(Refusal::exists(format!("volume {:?} is staged there in another way", request.volume_id)))
            }
            _ => {
                mounts.staged.insert(place, Staged { capability: wanted });
                Ok(NodeStageVolumeResponse {})
            }
        }
    }

    fn unstage(
        &mut self,
        profile: &Profile,
        request: &NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Refusal> {
        validate::required("volume_id", &request.volume_id)?;
        validate::required("staging_target_path", &request.staging_target_path)?;
        let mounts = self.mounts_here(profile)?;
        let mut targets = mounts.targets.iter();
        let uses = |((volume, _), target): (&Place, &Target)| {
            *volume == request.volume_id && target.staging == request.staging_target_path
        };
        if targets.any(uses) {
            return Err(Refusal::precondition(format!("volume {:?} is still published from there", request.volume_id)));
        }
        mounts.staged.remove(&(request.volume_id.clone(), request.staging_target_path.clone()));
        Ok(NodeUnstageVolumeResponse {})
    }

    fn mount(
        &mut self,
        profile: &Profile,
        request: &NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Refusal> {
        validate::required("volume_id", &request.volume_id)?;
        validate::required("target_path", &request.target_path)?;
        let wanted = capability(profile, request.volume_capability.as_ref())?;
        self.must_be_here(profile, &request.volume_id)?;
        let staging = request.staging_target_path.clone();
        let mounts = self.mounts_here(profile)?;
        if !mounts.staged.contains_key(&(request.volume_id.clone(), staging.clone())) {
            return Err(Refusal::precondition(format!("volume {:?} is not staged at {staging:?}", request.volume_id)));
        }
        let place = (request.volume_id.clone(), request.target_path.clone());
        let target = Target { staging, capability: wanted, readonly: request.readonly };
        let mut others = mounts.targets.iter().filter(|(other, _)| other.0 == place.0 && other.1 != place.1);
        let alone = |target: &Target| validate::mode(&target.capability) == Mode::SingleNodeSingleWriter;
        if let Some((other, _)) = others.find(|(_, other)| alone(&target) || alone(other)) {
            return Err(Refusal::precondition(format!("volume {:?} is already published at {:?}", place.0, other.1)));
        }
        match mounts.targets.get(&place) {
            Some(there) if *there != target => {
                Err(Refusal::exists(format!("volume {:?} is published there in another way", place.0)))
            }
            _ => {
                mounts.targets.insert(place, target);
                Ok(NodePublishVolumeResponse {})
            }
        }
    }

    fn unmount(
        &mut self,
        profile: &Profile,
        request: &NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Refusal> {
        validate::required("volume_id", &request.volume_id)?;
        validate::required("target_path", &request.target_path)?;
        self.mounts_here(profile)?.targets.remove(&(request.volume_id.clone(), request.target_path.clone()));
        Ok(NodeUnpublishVolumeResponse {})
    }

    /// The file system grows to the volume's size.
    fn expand_mounted(
        &self,
        profile: &Profile,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Refusal> {
        profile.require(ControllerCapability::ExpandVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        validate::required("volume_path", &request.volume_path)?;
        let (required, _) = validate::range(request.capacity_range.as_ref())?;
        let volume = self.existing(&request.volume_id)?;
        self.must_be_mounted(profile, &request.volume_id, &request.volume_path)?;
        if required > volume.capacity {
            return Err(Refusal::out_of_range(format!("the volume has {} bytes: expand it first", volume.capacity)));
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes: volume.capacity })
    }

    /// The volume's size. How much of it is used, the storage knows.
    fn stats(
        &self,
        profile: &Profile,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Refusal> {
        if profile.storage.is_none() {
            return Err(Refusal::new(Code::Unimplemented, "the driver lacks GET_VOLUME_STATS"));
        }
        validate::required("volume_id", &request.volume_id)?;
        validate::required("volume_path", &request.volume_path)?;
        let total = self.existing(&request.volume_id)?.capacity;
        self.must_be_mounted(profile, &request.volume_id, &request.volume_path)?;
        let usage = VolumeUsage { total, available: total, used: 0, unit: Unit::Bytes as i32 };
        Ok(NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None })
    }

    fn mounts_here(&mut self, profile: &Profile) -> Result<&mut Mounts, Refusal> {
        Ok(self.mounts.entry(profile.here()?.0.clone()).or_default())
    }

    fn must_be_mounted(&self, profile: &Profile, volume: &str, path: &str) -> Result<(), Refusal> {
        let place = (volume.to_owned(), path.to_owned());
        let is_there = |mounts: &Mounts| mounts.targets.contains_key(&place) || mounts.staged.contains_key(&place);
        if self.mounts.get(profile.here()?.0).is_some_and(is_there) {
            return Ok(());
        }
        Err(Refusal::not_found("volume path", path))
    }

    /// Refuses what was not published to this node, if the driver has volumes published at all.
    fn must_be_here(&self, profile: &Profile, volume: &str) -> Result<(), Refusal> {
        let (here, _) = profile.here()?;
        let volume_here = self.existing(volume)?.published.contains_key(here);
        if volume_here || !profile.has(ControllerCapability::PublishUnpublishVolume) {
            return Ok(());
        }
        Err(Refusal::precondition(format!("volume {volume:?} is not published to node {here:?}")))
    }
}

fn capability(profile: &Profile, wanted: Option<&VolumeCapability>) -> Result<VolumeCapability, Refusal> {
    validate::capability(profile, wanted)?;
    wanted.cloned().ok_or_else(|| Refusal::invalid("volume_capability is required"))
}

impl Answer for NodeGetInfoResponse {}
impl Answer for NodeGetCapabilitiesResponse {}
impl Answer for NodeStageVolumeResponse {}
impl Answer for NodeUnstageVolumeResponse {}
impl Answer for NodePublishVolumeResponse {}
impl Answer for NodeUnpublishVolumeResponse {}
impl Answer for NodeExpandVolumeResponse {}
impl Answer for NodeGetVolumeStatsResponse {
    fn measured(&mut self, used: i64) {
        for usage in &mut self.usage {
            usage.used = used;
            usage.available = (usage.total - used).max(0);
        }
    }
}

macro_rules! on_node {
    ($method:ident: $request:ty => $answer:ty = |$this:ident, $state:ident, $profile:ident| $serve:expr) => {
        rpc! { $method: $request => $answer = |$this, $state, $profile, _now| $serve;
            fn volume(&self) -> Option<&str> {
                Some(&self.volume_id)
            }
            fn subject(&self) -> Option<String> {
                Some(format!("mount/{}", self.volume_id))
            }
        }
    };
}

rpc! { NodeGetInfo: NodeGetInfoRequest => NodeGetInfoResponse = |_this, _state, profile, _now| profile.node_info(); }
rpc! { NodeGetCapabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse =
|_this, _state, profile, _now| Ok(profile.node_capabilities()); }
on_node! { NodeStageVolume: NodeStageVolumeRequest => NodeStageVolumeResponse =
|this, state, profile| state.testbed(profile, this) }
on_node! { NodeUnstageVolume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse =
|this, state, profile| state.unstage(profile, this) }
on_node! { NodePublishVolume: NodePublishVolumeRequest => NodePublishVolumeResponse =
|this, state, profile| state.mount(profile, this) }
on_node! { NodeUnpublishVolume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse =
|this, state, profile| state.unmount(profile, this) }
on_node! { NodeExpandVolume: NodeExpandVolumeRequest => NodeExpandVolumeResponse =
|this, state, profile| state.expand_mounted(profile, this) }
on_node! { NodeGetVolumeStats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse =
|this, state, profile| state.stats(profile, this) }

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::state_tests::{mount, publish};
    use super::*;

    fn testbed(volume: &str, path: &str, mode: Mode) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: path.to_owned(),
            volume_capability: Some(mount(mode)),
            ..NodeStageVolumeRequest::default()
        }
    }

    fn target(volume: &str, path: &str, mode: Mode) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: "/staging".to_owned(),
            target_path: path.to_owned(),
            volume_capability: Some(mount(mode)),
            ..NodePublishVolumeRequest::default()
        }
    }

    fn code<T>(result: Result<T, Refusal>) -> Code {
        result.map_or_else(|refusal| refusal.code, |_| Code::Ok)
    }

    /// A volume that is published to the first node.
    fn published(mode: Mode) -> (Profile, State) {
        let (profile, mut state) = (Profile::with_nodes(["n0", "n1"]), State::default());
        state.seed("v");
        state.publish(&profile, &publish("v", "n0", mode, false)).unwrap();
        (profile, state)
    }

    #[test]
    fn the_service_stands_on_the_first_node() {
        let node = Node { max_volumes: 3, segments: BTreeMap::from([("zone".to_owned(), "a".to_owned())]) };
        let profile = Profile { nodes: BTreeMap::from([("n1".to_owned(), node)]), ..Profile::default() };
        let info = profile.node_info().unwrap();
        assert_eq!((info.node_id.as_str(), info.max_volumes_per_node, info.accessible_topology), ("n1", 3, None));
        assert_eq!(code(Profile::default().node_info()), Code::FailedPrecondition);
    }

    #[test]
    fn a_volume_is_published_then_staged_then_mounted_and_back() {
        let (profile, mut state) = published(Mode::SingleNodeWriter);
        let (staged, mounted) =
            (testbed("v", "/staging", Mode::SingleNodeWriter), target("v", "/pod", Mode::SingleNodeWriter));
        assert_eq!(code(state.mount(&profile, &mounted)), Code::FailedPrecondition);
        for _ in 0..2 {
            state.testbed(&profile, &staged).unwrap();
        }
        for _ in 0..2 {
            state.mount(&profile, &mounted).unwrap();
        }
        let unstage =
            NodeUnstageVolumeRequest { volume_id: "v".to_owned(), staging_target_path: "/staging".to_owned() };
        assert_eq!(code(state.unstage(&profile, &unstage)), Code::FailedPrecondition);
        let unmount = NodeUnpublishVolumeRequest { volume_id: "v".to_owned(), target_path: "/pod".to_owned() };
        for _ in 0..2 {
            state.unmount(&profile, &unmount).unwrap();
        }
        for _ in 0..2 {
            state.unstage(&profile, &unstage).unwrap();
        }
        assert_eq!(state.mounts["n0"], Mounts::default());
    }

    #[test]
    fn a_volume_of_another_node_is_not_staged() {
        let (profile, mut state) = (Profile::with_nodes(["n0", "n1"]), State::default());
        state.seed("v");
        state.publish(&profile, &publish("v", "n1", Mode::SingleNodeWriter, false)).unwrap();
        assert_eq!(
            code(state.testbed(&profile, &testbed("v", "/s", Mode::SingleNodeWriter))),
            Code::FailedPrecondition
        );
        assert_eq!(code(state.testbed(&profile, &testbed("none", "/s", Mode::SingleNodeWriter))), Code::NotFound);
    }

    #[test]
    fn a_second_use_must_be_the_same_and_a_single_writer_is_alone() {
        let (profile, mut state) = published(Mode::SingleNodeMultiWriter);
        state.testbed(&profile, &testbed("v", "/staging", Mode::SingleNodeMultiWriter)).unwrap();
        let other = testbed("v", "/staging", Mode::SingleNodeWriter);
        assert_eq!(code(state.testbed(&profile, &other)), Code::AlreadyExists);
        state.mount(&profile, &target("v", "/a", Mode::SingleNodeMultiWriter)).unwrap();
        state.mount(&profile, &target("v", "/b", Mode::SingleNodeMultiWriter)).unwrap();
        let alone = target("v", "/c", Mode::SingleNodeSingleWriter);
        assert_eq!(code(state.mount(&profile, &alone)), Code::FailedPrecondition);
        let readonly = NodePublishVolumeRequest { readonly: true, ..target("v", "/a", Mode::SingleNodeMultiWriter) };
        assert_eq!(code(state.mount(&profile, &readonly)), Code::AlreadyExists);
    }

    #[test]
    fn a_mounted_volume_grows_no_further_than_the_volume_itself() {
        let (profile, mut state) = published(Mode::SingleNodeWriter);
        state.testbed(&profile, &testbed("v", "/staging", Mode::SingleNodeWriter)).unwrap();
        let expand = |path: &str, required_bytes| NodeExpandVolumeRequest {
            volume_id: "v".to_owned(),
            volume_path: path.to_owned(),
            capacity_range: Some(base::proto::CapacityRange { required_bytes, limit_bytes: 0 }),
            ..NodeExpandVolumeRequest::default()
        };
        let gib = super::super::profile::GIB;
        assert_eq!(state.expand_mounted(&profile, &expand("/staging", gib)).unwrap().capacity_bytes, gib);
        assert_eq!(code(state.expand_mounted(&profile, &expand("/staging", gib + 1))), Code::OutOfRange);
        assert_eq!(code(state.expand_mounted(&profile, &expand("/elsewhere", gib))), Code::NotFound);
    }
}
