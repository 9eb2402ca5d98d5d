//! The state of the storage backend, and the nodes of published volumes. Pure: every decision of publish and unpublish.
//!
//! The other operations on volumes are in `volumes` and `health`, those on snapshots in `snapshots` and `groups`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tonic::Code;

use super::message;
use super::mounts::Mounts;
use super::profile::{GIB, Node, Profile};
use super::refusal::Refusal;
use super::validate;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::volume_capability::access_mode::Mode;
use base::proto::volume_health::VolumeHealthEntry;
use base::proto::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, VolumeCapability, VolumeContentSource,
};

/// Everything that outlives a restart of the driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(super) volumes: BTreeMap<String, Volume>,
    pub(super) snapshots: BTreeMap<String, Snapshot>,
    pub(super) groups: BTreeMap<String, Group>,
    /// By the ID of the node.
    pub(super) mounts: BTreeMap<String, Mounts>,
    /// Numbers for IDs: never given twice.
    next: u64,
    /// How long the IDs are at least that are given from now on.
    id_length: usize,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The name that it was created by.
    pub name: String,
    /// The volume that it was cut from.
    pub source: String,
    /// The parameters that it was created with.
    pub parameters: BTreeMap<String, String>,
    /// The volume's size then, in bytes.
    pub size: i64,
    /// When it was cut.
    pub created: Timestamp,
    /// How many answers contained it. A profile may make it ready only after some.
    pub told: u32,
    /// Whether it is ready to use, by the operator's word; none: as the profile says.
    pub ready: Option<bool>,
    /// The group that it was cut with; empty: none.
    pub group: String,
}

/// One group of snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The name that it was created by.
    pub name: String,
    /// The volumes that it was cut from.
    pub sources: BTreeSet<String>,
    /// The parameters that it was created with.
    pub parameters: BTreeMap<String, String>,
    /// When it was cut.
    pub created: Timestamp,
}

/// One volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The name that it was created by; empty for one that was there before.
    pub name: String,
    /// Its size in bytes.
    pub capacity: i64,
    /// The capabilities that it was provisioned for. Empty: any.
    #[serde(with = "message")]
    pub capabilities: Vec<VolumeCapability>,
    /// The parameters that it was created with.
    pub parameters: BTreeMap<String, String>,
    /// The mutable parameters that it was created with.
    pub created_with: BTreeMap<String, String>,
    /// The mutable parameters that it has now.
    pub mutable: BTreeMap<String, String>,
    /// The source of its content.
    #[serde(with = "message")]
    pub source: Option<VolumeContentSource>,
    /// The pool that it lies in, if the driver has pools.
    pub pool: Option<usize>,
    /// Where it is. Empty: everywhere.
    pub segments: BTreeMap<String, String>,
    /// Its volume context.
    pub context: BTreeMap<String, String>,
    /// What is wrong with it. Empty: nothing.
    #[serde(with = "message")]
    pub health: Vec<VolumeHealthEntry>,
    /// Its content, as a workload has written it. Only [`State::write`] changes it.
    pub content: String,
    /// Where it is published, by node ID.
    pub published: BTreeMap<String, Publication>,
}

/// One volume's publication to one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Publication {
    /// The capability of the publish call. Unknown for a volume that was attached without a call.
    #[serde(with = "message")]
    pub capability: Option<VolumeCapability>,
    /// Whether it is read-only there.
    pub readonly: bool,
    /// The answer's publish context.
    pub context: BTreeMap<String, String>,
}

impl State {
    /// Registers a volume that was there before, of 1 GiB and good for any use.
    pub fn seed(&mut self, id: &str) -> &mut Volume {
        self.volumes.entry(id.to_owned()).or_insert_with(|| Volume { capacity: GIB, ..Volume::default() })
    }

    /// The volumes, by ID.
    pub fn volumes(&self) -> &BTreeMap<String, Volume> {
        &self.volumes
    }

    /// The snapshots, by ID.
    pub fn snapshots(&self) -> &BTreeMap<String, Snapshot> {
        &self.snapshots
    }

    /// The groups of snapshots, by ID.
    pub fn groups(&self) -> &BTreeMap<String, Group> {
        &self.groups
    }

    /// One snapshot, to be changed as an operator at the storage console would.
    pub fn snapshot_mut(&mut self, id: &str) -> Option<&mut Snapshot> {
        self.snapshots.get_mut(id)
    }

    /// From now on IDs have at least so many characters.
    pub fn lengthen_ids(&mut self, length: usize) {
        self.id_length = length;
    }

    /// Loses a snapshot, as an operator at the storage console would. Says whether it was there.
    pub fn lose_snapshot(&mut self, id: &str) -> bool {
        self.snapshots.remove(id).is_some()
    }

    /// Writes to a volume, as a workload does. Says whether it was there.
    pub fn write(&mut self, id: &str, content: &str) -> bool {
        self.volumes.get_mut(id).map(|volume| content.clone_into(&mut volume.content)).is_some()
    }

    /// The nodes that a volume is published to.
    pub fn published(&self, volume: &str) -> BTreeSet<String> {
        self.volumes.get(volume).map(|v| v.published.keys().cloned().collect()).unwrap_or_default()
    }

    /// Detaches without a call, as an operator at the storage console would. Returns whether it was attached.
    pub fn detach_behind(&mut self, volume: &str, node: &str) -> bool {
        self.volumes.get_mut(volume).is_some_and(|v| v.published.remove(node).is_some())
    }

    /// Attaches without a call.
    pub fn attach_behind(&mut self, volume: &str, node: &str) {
        let context = self.publish_context(volume);
        self.seed(volume).published.insert(node.to_owned(), Publication { context, ..Publication::default() });
    }

    /// The next number for an ID of this kind.
    pub(super) fn next_id(&mut self, kind: &str) -> String {
        self.next += 1;
        let digits = self.id_length.saturating_sub(kind.len() + 1).max(6);
        format!("{kind}-{:0digits$}", self.next)
    }

    /// Each publication has its own context, so that a test can distinguish a stale one from a fresh one.
    fn publish_context(&mut self, volume: &str) -> BTreeMap<String, String> {
        let attachment = self.next_id("attachment");
        BTreeMap::from([("device".to_owned(), format!("/dev/demo/{volume}")), ("attachment".to_owned(), attachment)])
    }

    /// `ControllerPublishVolume`.
    pub fn publish(
        &mut self,
        profile: &Profile,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Refusal> {
        profile.require(Rpc::PublishUnpublishVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        validate::required("node_id", &request.node_id)?;
        validate::capability(profile, request.volume_capability.as_ref())?;
        if request.readonly && !profile.has(Rpc::PublishReadonly) {
            return Err(Refusal::invalid("readonly is set, but the driver lacks PUBLISH_READONLY"));
        }
        profile.authenticate(&request.secrets)?;
        let (blank, anywhere) = (Volume::default(), Node::default());
        let volume = match self.volumes.get(&request.volume_id) {
            Some(volume) => volume,
            None if profile.accept_unknown_volumes => &blank,
            None => return Err(Refusal::not_found("volume", &request.volume_id)),
        };
        let node = match profile.nodes.get(&request.node_id) {
            Some(node) => node,
            None if profile.accept_unknown_nodes => &anywhere,
            None => return Err(Refusal::not_found("node", &request.node_id)),
        };
        if let Some(publication) = volume.published.get(&request.node_id) {
            let same = publication.capability.is_none()
                || (publication.capability == request.volume_capability && publication.readonly == request.readonly);
            return if same {
                Ok(publish_response(publication))
            } else {
                Err(Refusal::exists(format!(
                    "volume {:?} is already published to node {:?} in another way",
                    request.volume_id, request.node_id
                )))
            };
        }
        volume.admit(profile, node, request)?;
        if node.max_volumes > 0 && self.count_on(&request.node_id) >= node.max_volumes {
            return Err(Refusal::new(
                Code::ResourceExhausted,
                format!("node {:?} has its maximum of {} volumes", request.node_id, node.max_volumes),
            ));
        }
        let publication = Publication {
            capability: request.volume_capability.clone(),
            readonly: request.readonly,
            context: self.publish_context(&request.volume_id),
        };
        let response = publish_response(&publication);
        self.seed(&request.volume_id).published.insert(request.node_id.clone(), publication);
        Ok(response)
    }

    /// `ControllerUnpublishVolume`. A volume or node that does not exist is surely not published: that is success.
    pub fn unpublish(
        &mut self,
        profile: &Profile,
        request: &ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Refusal> {
        profile.require(Rpc::PublishUnpublishVolume)?;
        validate::required("volume_id", &request.volume_id)?;
        profile.authenticate(&request.secrets)?;
        if let Some(volume) = self.volumes.get_mut(&request.volume_id) {
            if request.node_id.is_empty() {
                volume.published.clear();
            } else {
                volume.published.remove(&request.node_id);
            }
        }
        Ok(ControllerUnpublishVolumeResponse {})
    }

    fn count_on(&self, node: &str) -> usize {
        self.volumes.values().filter(|v| v.published.contains_key(node)).count()
    }
}

impl Volume {
    /// Whether the volume can go to one more node.
    fn admit(&self, profile: &Profile, node: &Node, request: &ControllerPublishVolumeRequest) -> Result<(), Refusal> {
        let Some(wanted) = request.volume_capability.as_ref() else { return Ok(()) };
        if !validate::covers(&self.capabilities, wanted) {
            return Err(Refusal::invalid(format!("volume {:?} was not made for that use", request.volume_id)));
        }
        let elsewhere = self.segments.iter().any(|(key, value)| node.segments.get(key) != Some(value));
        if profile.is_topology_aware() && elsewhere {
            return Err(Refusal::precondition(format!("node {:?} cannot reach the volume", request.node_id)));
        }
        let writer_wanted = validate::mode(wanted) == Mode::MultiNodeSingleWriter && !request.readonly;
        let single_wanted = validate::is_single_node(validate::mode(wanted));
        let conflict = self.published.iter().find(|(_, publication)| {
            let Some(theirs) = &publication.capability else { return single_wanted };
            let mode = validate::mode(theirs);
            let writer = mode == Mode::MultiNodeSingleWriter && !publication.readonly;
            single_wanted || validate::is_single_node(mode) || (writer_wanted && writer)
        });
        match conflict {
            None => Ok(()),
            Some((other, _)) => Err(Refusal::precondition(format!(
                "volume {:?} is already published to node {other:?}",
                request.volume_id
            ))),
        }
    }
}

fn publish_response(publication: &Publication) -> ControllerPublishVolumeResponse {
    ControllerPublishVolumeResponse { publish_context: publication.context.clone().into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state_tests::publish;
    use super::*;

    fn step() -> impl Strategy<Value = (u8, u8, u8, Mode, bool)> {
        let modes = [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter];
        let mode = prop::sample::select([&modes[..], &[Mode::MultiNodeMultiWriter]].concat());
        (0..8_u8, 0..2_u8, 0..3_u8, mode, any::<bool>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn single_node_volumes_are_never_on_two_nodes(steps in prop::collection::vec(step(), 1..60)) {
            let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes(["n0", "n1", "n2"]) };
            let mut state = State::default();
            for (what, volume, node, mode, readonly) in steps {
                let (volume, node) = (format!("v{volume}"), format!("n{node}"));
                match what {
                    0..5 => {
                        let before = state.clone();
                        let first = state.publish(&profile, &publish(&volume, &node, mode, readonly));
                        if first.is_ok() {
                            let again = state.publish(&profile, &publish(&volume, &node, mode, readonly));
                            prop_assert_eq!(again, first);
                            prop_assert!(state.published(&volume).contains(&node));
                        } else {
                            prop_assert_eq!(&state, &before, "a refusal changes nothing");
                        }
                    }
                    5..7 => {
                        let request = ControllerUnpublishVolumeRequest {
                            volume_id: volume.clone(),
                            node_id: node.clone(),
                            ..ControllerUnpublishVolumeRequest::default()
                        };
                        prop_assert!(state.unpublish(&profile, &request).is_ok());
                        prop_assert!(!state.published(&volume).contains(&node));
                    }
                    _ => {
                        state.detach_behind(&volume, &node);
                    }
                }
                for volume in state.volumes().values().filter(|volume| volume.published.len() > 1) {
                    let mode_of = |p: &Publication| p.capability.as_ref().map_or(Mode::Unknown, validate::mode);
                    let writers = volume.published.values().filter(|p| {
                        mode_of(p) == Mode::MultiNodeSingleWriter && !p.readonly
                    });
                    prop_assert!(writers.count() <= 1);
                    prop_assert!(volume.published.values().all(|p| !validate::is_single_node(mode_of(p))));
                }
            }
        }
    }
}
