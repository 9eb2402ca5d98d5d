//! The demo driver's identity and capabilities. Pure data, which can change between two calls or two restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::Code;

use super::refusal::Refusal;
use base::proto::controller_service_capability::rpc::Type as Rpc;
use base::proto::group_controller_service_capability::rpc::Type as GroupRpc;
use base::proto::plugin_capability::{service, volume_expansion};

/// One gibibyte.
pub const GIB: i64 = 1 << 30;

/// The driver's identity, capabilities, nodes and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub struct Profile {
    /// The name in the answer of `GetPluginInfo`.
    pub name: String,
    /// The version in the answer of `GetPluginInfo`.
    pub vendor_version: String,
    /// The plugin's services, as numbers: a newer driver may have one that no one knows yet.
    pub services: BTreeSet<i32>,
    /// Whether the socket has a node service. Many drivers have it on another socket, in another process.
    pub node_service: bool,
    /// The node that the node service stands on. `None`: the first.
    pub here: Option<String>,
    /// The folder that keeps the state and the volumes' content, for all processes of the driver: then the node service mounts
    /// volumes where it is asked to. `None`: the state is in memory, and the node service notes where volumes would be mounted.
    pub storage: Option<PathBuf>,
    /// The file that every call is recorded in, as lines of JSON without secrets. `None`: calls are in memory alone.
    pub record: Option<PathBuf>,
    /// Whether its nodes make volumes larger though its controller does not.
    pub node_only_expansion: bool,
    /// Whether volumes can grow while they are in use (ONLINE) or only when they are not (OFFLINE).
    pub expansion: Option<i32>,
    /// The controller's capabilities, as numbers.
    pub controller: BTreeSet<i32>,
    /// The group controller's capabilities, as numbers.
    pub group_controller: BTreeSet<i32>,
    /// The nodes that exist, by node ID.
    pub nodes: BTreeMap<String, Node>,
    /// Publishing to an unknown node registers it.
    pub accept_unknown_nodes: bool,
    /// Publishing an unknown volume registers it, as for statically provisioned volumes of a story or a simulation.
    pub accept_unknown_volumes: bool,
    /// A call for a volume that another operation still works on is answered with ABORTED. When off, it is served.
    pub abort_while_pending: bool,
    /// The secret that publish and unpublish need, if any.
    pub required_secrets: Secrets,
    /// The secret that creating and deleting volumes needs, if any.
    pub provision_secrets: Secrets,
    /// The topology segments that volumes can be in. Empty: everywhere.
    pub segments: Vec<BTreeMap<String, String>>,
    /// Places with storage of their own, in place of `segments` and `capacity`.
    pub pools: Vec<Pool>,
    /// A volume's id is its requested name, as with many drivers.
    pub names_are_ids: bool,
    /// The keys that `mutable_parameters` may have.
    pub mutable_parameters: BTreeSet<String>,
    /// The pool's size in bytes.
    pub capacity: i64,
    /// The largest volume in bytes.
    pub max_volume_size: i64,
    /// The smallest volume in bytes.
    pub min_volume_size: i64,
    /// Whether `GetCapacity` reports the largest and the smallest size of a volume.
    pub tells_volume_sizes: bool,
    /// The driver's own limit of entries on a page, below the caller's. 0: none.
    pub page_limit: usize,
    /// How long a snapshot is not ready to use after it was cut.
    #[serde(with = "base::process::duration::Text")]
    pub snapshot_ready_after: Duration,
    /// The number of answers that say that a snapshot is not ready to use yet.
    pub snapshot_ready_polls: u32,
    /// No snapshot is ready to use until [`super::Driver::finish_snapshot`] says so.
    pub snapshots_wait: bool,
    /// The secret that cutting and deleting snapshots needs, if any.
    pub snapshot_secrets: Secrets,
    /// The secret that looking up snapshots needs, if any.
    pub snapshot_list_secrets: Secrets,
}

/// A place with storage of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pool {
    /// Where it is.
    pub segments: BTreeMap<String, String>,
    /// Its size in bytes.
    pub capacity: i64,
    /// Its largest volume in bytes. 0: the driver's.
    pub max_volume_size: i64,
    /// The parameters that a volume in this pool must have, such as a kind of storage.
    pub parameters: BTreeMap<String, String>,
}

/// A node that volumes can be published to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Node {
    /// The number of volumes that can be published to it. 0: no limit.
    pub max_volumes: usize,
    /// Where it is.
    pub segments: BTreeMap<String, String>,
}

/// Expected secrets. Their values never print.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Default for Profile {
    /// A driver that can do everything, with no node and no volume.
    fn default() -> Self {
        Self {
            name: "demo.csi.example.com".to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            services: BTreeSet::from([
                service::Type::ControllerService as i32,
                service::Type::GroupControllerService as i32,
            ]),
            node_service: true,
            here: None,
            storage: None,
            record: None,
            node_only_expansion: false,
            expansion: Some(volume_expansion::Type::Online as i32),
            controller: (Rpc::CreateDeleteVolume as i32..=Rpc::GetSnapshot as i32).collect(),
            group_controller: BTreeSet::from([GroupRpc::CreateDeleteGetVolumeGroupSnapshot as i32]),
            nodes: BTreeMap::new(),
            accept_unknown_nodes: false,
            accept_unknown_volumes: false,
            abort_while_pending: true,
            required_secrets: Secrets::default(),
            provision_secrets: Secrets::default(),
            segments: Vec::new(),
            pools: Vec::new(),
            names_are_ids: false,
            mutable_parameters: ["iops", "throughput"].into_iter().map(str::to_owned).collect(),
            capacity: 10 * 1024 * GIB,
            max_volume_size: 1024 * GIB,
            min_volume_size: 1 << 20,
            tells_volume_sizes: true,
            page_limit: 0,
            snapshot_ready_after: Duration::ZERO,
            snapshot_ready_polls: 0,
            snapshots_wait: false,
            snapshot_secrets: Secrets::default(),
            snapshot_list_secrets: Secrets::default(),
        }
    }
}

impl Pool {
    /// A pool of this size at this place.
    pub fn at<'a>(segments: impl IntoIterator<Item = (&'a str, &'a str)>, capacity: i64) -> Self {
        let segments = segments.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { segments, capacity, ..Self::default() }
    }
}

impl Profile {
    /// The default profile with these nodes.
    pub fn with_nodes<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Self {
        let nodes = nodes.into_iter().map(|id| (id.to_owned(), Node::default())).collect();
        Self { nodes, ..Self::default() }
    }

    /// The same driver with storage in these places only.
    #[must_use]
    pub fn in_pools(mut self, pools: impl IntoIterator<Item = Pool>) -> Self {
        self.services.insert(service::Type::VolumeAccessibilityConstraints as i32);
        self.pools = pools.into_iter().collect();
        self
    }

    /// The same driver without one controller capability.
    #[must_use]
    pub fn without(mut self, capability: Rpc) -> Self {
        self.controller.remove(&(capability as i32));
        self
    }

    /// The same driver as one of CSI 1.13: it lists volumes whose health is not good, and can be asked for the health of one.
    #[must_use]
    pub fn with_volume_health(mut self) -> Self {
        self.controller.remove(&(Rpc::VolumeCondition as i32));
        self.controller.extend([Rpc::GetVolumeHealth as i32, Rpc::ListVolumeHealth as i32]);
        self
    }

    /// Whether the controller has `capability`.
    pub fn has(&self, capability: Rpc) -> bool {
        self.controller.contains(&(capability as i32))
    }

    /// Whether volumes have a place.
    pub fn is_topology_aware(&self) -> bool {
        self.services.contains(&(service::Type::VolumeAccessibilityConstraints as i32))
    }

    /// Refuses a call of an RPC whose capability the driver lacks.
    pub(super) fn require(&self, capability: Rpc) -> Result<(), Refusal> {
        if self.has(capability) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unimplemented, format!("the driver lacks {}", capability.as_str_name())))
    }

    /// The same for the RPCs of groups of snapshots.
    pub(super) fn require_groups(&self) -> Result<(), Refusal> {
        let capability = GroupRpc::CreateDeleteGetVolumeGroupSnapshot;
        if self.group_controller.contains(&(capability as i32)) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unimplemented, format!("the driver lacks {}", capability.as_str_name())))
    }

    /// Whether it has a service for groups.
    pub(super) fn has_group_service(&self) -> bool {
        self.services.contains(&(service::Type::GroupControllerService as i32))
    }

    /// The same driver without groups of snapshots.
    #[must_use]
    pub fn without_groups(mut self) -> Self {
        self.services.remove(&(service::Type::GroupControllerService as i32));
        self.group_controller.clear();
        self
    }

    /// Refuses a publish or unpublish without the secrets that the driver expects.
    pub(super) fn authenticate<'a>(
        &self,
        secrets: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<(), Refusal> {
        self.required_secrets.admit(secrets)
    }
}

impl Secrets {
    /// Refuses a call without these.
    pub(super) fn admit<'a>(&self, given: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<(), Refusal> {
        let given: BTreeMap<&String, &String> = given.into_iter().collect();
        let wrong = self.0.iter().find(|(key, value)| given.get(key) != Some(value));
        match wrong {
            None => Ok(()),
            Some((key, _)) => Err(Refusal::new(Code::Unauthenticated, format!("secret {key:?} is missing or wrong"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_secrets_never_print() {
        let secrets = Secrets(BTreeMap::from([("password".to_owned(), "hunter2".to_owned())]));
        let profile = Profile { required_secrets: secrets, ..Profile::default() };
        let text = format!("{profile:?}");
        assert!(text.contains("password") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_missing_or_wrong_secret_is_unauthenticated() {
        let secret = |value: &str| BTreeMap::from([("password".to_owned(), value.to_owned())]);
        let profile = Profile { required_secrets: Secrets(secret("hunter2")), ..Profile::default() };
        for (given, fits) in [(secret("hunter2"), true), (secret("hunter3"), false), (BTreeMap::new(), false)] {
            let answer = profile.authenticate(&given);
            assert_eq!(answer.is_ok(), fits);
            assert!(answer.is_ok() || answer.unwrap_err().code == Code::Unauthenticated);
        }
    }
}
