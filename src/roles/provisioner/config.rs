//! `roles.provisioner:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Need, RoleSection};
use crate::process::{Faults, Section, duration};
use crate::queue::DriverRetrySection;
use crate::roles::kit::{EventsMode, checks};

use crate::roles::kit::templates::is_subdomain;
use crate::roles::provisioner::capacity::CapacitySection;

/// The provisioner: its concurrency, its requests to the driver, and its retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the configuration")]
pub struct ProvisionerSection {
    /// Deadline of one RPC of this role to the driver. null: `csi.timeout`.
    #[serde(with = "duration::OrNull")]
    pub timeout: Option<Duration>,
    /// How many claims are provisioned at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// How many volumes are deleted at once, beside the claims. null: as many as `workers`.
    #[schemars(range(min = 1, max = 10_000))]
    pub delete_workers: Option<usize>,
    /// The back-off of a failed provisioning or deletion.
    pub retry: DriverRetrySection,
    /// Pause after which the provisioner checks every claim and volume again. 0s: never.
    #[serde(with = "duration::Text")]
    pub resync: Duration,
    /// The prefix of volume names, before a `-` and the claim's uid.
    pub volume_name_prefix: String,
    /// How many of the uid's 32 digits the name contains. null: the whole uid, with its dashes.
    #[schemars(range(min = 1, max = 32))]
    pub volume_name_uuid_length: Option<usize>,
    /// Whether requests to a driver with topology contain topology requirements.
    pub topology: bool,
    /// Whether a volume for a selected node must be in that node's own segment.
    pub strict_topology: bool,
    /// Whether the request for a volume without a selected node requires one of the cluster's segments.
    pub immediate_topology: bool,
    /// Whether requests contain the names of the claim and of the volume.
    pub extra_create_metadata: bool,
    /// File system type of a mounted volume whose class names none. Empty: the driver decides.
    pub default_fs_type: String,
    /// Whether volumes with only the access mode `ReadOnlyMany` are marked read-only.
    pub publish_readonly: bool,
    /// Whether a volume is made with the parameters of the `VolumeAttributesClass` that its claim names. Off: the name is ignored.
    pub attributes_classes: bool,
    /// Whether a PersistentVolume with the policy `Delete` takes its volume with it also if it is deleted before its claim. Each gets a
    /// finalizer for that. Off: none does, those that are there lose it, and such a volume stays with the driver.
    pub honor_reclaim_policy: bool,
    /// Whether a snapshot of a block volume is refused as a file system's source, and the reverse.
    pub prevent_volume_mode_conversion: bool,
    /// Whether a claim may name a source in another namespace, where a `ReferenceGrant` there allows it.
    pub cross_namespace_sources: bool,
    /// Which Events are written.
    pub events: EventsMode,
    /// Whether the daemon records the request in its journal before it calls the driver.
    pub durable_intent: bool,
    /// How often the daemon looks for its finalizers on unused data sources. 0s: only when a term begins.
    #[serde(with = "duration::Text")]
    pub snapshot_sweep_interval: Duration,
    /// Whether a volume is deleted without its deletion secret if that is missing or not text. One that the daemon may not read is waited for.
    pub delete_without_secret: bool,
    /// The namespaces that deletion secrets may be in. Empty: any.
    pub deletion_secret_namespaces: Vec<String>,
    /// The driver's capacity, published for the scheduler.
    pub capacity: CapacitySection,
    /// One daemon per node, each for its own node's volumes.
    pub node_deployment: NodeDeploymentSection,
}

/// One daemon per node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeDeploymentSection {
    /// Whether each node has its own daemon, which provisions only for that node. There is no Lease then.
    pub enabled: bool,
    /// Whether claims without a selected node are provisioned, too: by the first node that takes them.
    pub immediate_binding: bool,
    /// The longest first wait before a node takes such a claim; random, and doubled each time another node was faster.
    #[serde(with = "duration::Text")]
    pub base_delay: Duration,
    /// The longest wait. After one to two times this, the daemon checks whether a claim's node still exists.
    #[serde(with = "duration::Text")]
    pub max_delay: Duration,
}

impl ProvisionerSection {
    /// How many deletions run at once.
    pub fn delete_workers(&self) -> usize {
        self.delete_workers.unwrap_or(self.workers)
    }
}

impl Default for NodeDeploymentSection {
    fn default() -> Self {
        Self {
            enabled: false,
            immediate_binding: true,
            base_delay: Duration::from_secs(20),
            max_delay: Duration::from_secs(60),
        }
    }
}

impl Default for ProvisionerSection {
    fn default() -> Self {
        Self {
            timeout: None,
            workers: 100,
            delete_workers: None,
            retry: DriverRetrySection::default(),
            resync: Duration::from_secs(900),
            volume_name_prefix: "pvc".to_owned(),
            volume_name_uuid_length: None,
            topology: true,
            strict_topology: false,
            immediate_topology: true,
            extra_create_metadata: false,
            default_fs_type: String::new(),
            publish_readonly: false,
            attributes_classes: true,
            honor_reclaim_policy: true,
            prevent_volume_mode_conversion: true,
            cross_namespace_sources: false,
            events: EventsMode::Changes,
            durable_intent: true,
            snapshot_sweep_interval: Duration::from_secs(300),
            delete_without_secret: false,
            deletion_secret_namespaces: Vec::new(),
            capacity: CapacitySection::default(),
            node_deployment: NodeDeploymentSection::default(),
        }
    }
}

impl Section for ProvisionerSection {
    fn check(&self, faults: &mut Faults) {
        duration::check_deadline("timeout", self.timeout, faults);
        self.retry.check("retry", faults);
        checks::workers("workers", self.workers, faults);
        checks::own_workers("deleteWorkers", self.delete_workers, faults);
        checks::pause("resync", self.resync, faults);
        checks::pause("snapshotSweepInterval", self.snapshot_sweep_interval, faults);
        self.check_names(faults);
        faults.nested("capacity", &self.capacity);
        let node = &self.node_deployment;
        if node.base_delay.is_zero() {
            faults.add("nodeDeployment.baseDelay", duration::format(node.base_delay), "at least 1ms");
        }
        let base = ("nodeDeployment.baseDelay", node.base_delay);
        duration::check_not_below("nodeDeployment.maxDelay", node.max_delay, base, faults);
    }
}

/// Each node has its own daemon, which must know its node. Capacity objects go with their owner, which is found from the pod upwards.
pub(super) fn needs(section: &Value) -> Vec<Need> {
    let Ok(section) = RoleSection::read::<ProvisionerSection>(section) else { return Vec::new() };
    let capacity = &section.capacity;
    let of_node = section.node_deployment.enabled.then(|| Need::node("nodeDeployment.enabled"));
    let of_pod = (capacity.enabled && capacity.owner_level >= 0).then(|| Need::pod("capacity.ownerLevel"));
    of_node.into_iter().chain(of_pod).collect()
}

impl ProvisionerSection {
    fn check_names(&self, faults: &mut Faults) {
        let prefix = &self.volume_name_prefix;
        // What is left of the 253 characters of an object's name behind the uid.
        if prefix.len() > 200 || !is_subdomain(&format!("{prefix}-0")) {
            faults.add(
                "volumeNamePrefix",
                format_args!("{prefix:?}"),
                "what an object's name may begin with: lower-case letters, digits, - and ., each . between two of the \
                 former, at most 200 of them",
            );
        }
        checks::uid_digits("volumeNameUuidLength", self.volume_name_uuid_length, faults);
        checks::default_fs_type(&self.default_fs_type, faults);
        checks::secret_namespaces(&self.deletion_secret_namespaces, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{faulty_keys, faulty_keys_with};

    fn with(change: impl FnOnce(&mut ProvisionerSection)) -> Vec<String> {
        faulty_keys_with(change)
    }

    #[test]
    fn row_20_topology_is_on_and_the_other_defaults_are_the_go_sidecars() {
        let section = ProvisionerSection::default();
        assert_eq!(faulty_keys(&section), Vec::<String>::new());
        assert_eq!((section.workers, section.delete_workers()), (100, 100));
        assert_eq!(section.volume_name_prefix, "pvc");
        assert!(section.topology, "topology is on");
        assert!(section.attributes_classes && section.honor_reclaim_policy);
        assert!(section.immediate_topology && !section.strict_topology && section.prevent_volume_mode_conversion);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(with(|s| s.timeout = Some(Duration::ZERO)), ["timeout"]);
        assert_eq!(with(|s| s.workers = 0), ["workers"]);
        assert_eq!(with(|s| s.delete_workers = Some(0)), ["deleteWorkers"]);
        assert_eq!(with(|s| s.retry.max = Duration::ZERO), ["retry.max"]);
        assert_eq!(with(|s| s.retry.infeasible = Duration::ZERO), ["retry.infeasible"]);
        assert_eq!(with(|s| s.resync = Duration::from_millis(5)), ["resync"]);
        assert_eq!(with(|s| s.snapshot_sweep_interval = Duration::from_millis(5)), ["snapshotSweepInterval"]);
        assert_eq!(with(|s| s.default_fs_type = "ext 4".into()), ["defaultFsType"]);
        assert_eq!(with(|s| s.deletion_secret_namespaces = vec![String::new()]), ["deletionSecretNamespaces"]);
        assert_eq!(with(|s| s.node_deployment.max_delay = Duration::ZERO), ["nodeDeployment.maxDelay"]);
        assert_eq!(with(|s| s.capacity.poll_interval = Duration::ZERO), ["capacity.pollInterval"]);
    }

    #[test]
    fn a_volumes_name_must_be_a_name_and_tell_claims_apart() {
        for prefix in ["", "PVC", "-a", "a_b", "ü", "a.", "a..b", "a.-b", "a-.b"] {
            assert_eq!(with(|s| s.volume_name_prefix = prefix.into()), ["volumeNamePrefix"], "{prefix:?}");
        }
        for prefix in ["a", "0", "a-", "a.b", "a--b"] {
            assert_eq!(with(|s| s.volume_name_prefix = prefix.into()), Vec::<String>::new(), "{prefix:?}");
            let names =
                crate::roles::provisioner::claims::request::NameRule { prefix: prefix.to_owned(), uuid_length: None };
            assert!(names.volume_name("123e4567-e89b-12d3-a456-426614174000").is_ok(), "{prefix:?}");
        }
        for length in [0, 33] {
            assert_eq!(with(|s| s.volume_name_uuid_length = Some(length)), ["volumeNameUuidLength"], "{length}");
        }
        assert_eq!(with(|s| s.volume_name_uuid_length = Some(32)), Vec::<String>::new());
    }
}
