//! `roles.snapshotter:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Need, RoleSection};
use crate::process::{Faults, Section, duration};
use crate::queue::{Backoff, DriverRetrySection};
use crate::roles::kit::templates::is_subdomain;
use crate::roles::kit::{EventsMode, checks};

/// The snapshotter: its concurrency, its requests to the driver, and its retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SnapshotterSection {
    /// Deadline of one RPC of this role to the driver, except those of `call_timeout`. null: `csi.timeout`.
    #[serde(with = "duration::OrNull")]
    pub timeout: Option<Duration>,
    /// How many snapshots are taken or looked up at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: usize,
    /// How many snapshots are deleted at once, beside the others. null: as many as `workers`.
    #[schemars(range(min = 1, max = 10_000))]
    pub delete_workers: Option<usize>,
    /// How many groups of snapshots are taken or looked up at once, and as many deleted. null: as many as `workers`.
    #[schemars(range(min = 1, max = 10_000))]
    pub group_workers: Option<usize>,
    /// Deadline of the calls that take and delete snapshots and groups: a driver answers once the snapshot is cut. Other calls have `timeout`.
    #[serde(with = "duration::Text")]
    pub call_timeout: Duration,
    /// The back-off of a failed snapshot or deletion.
    pub retry: DriverRetrySection,
    /// The pauses between two looks at a snapshot that is cut and not yet ready to use.
    pub ready_check: ReadyCheckSection,
    /// Pause after which the snapshotter checks every content again. 0s: never.
    #[serde(with = "duration::Text")]
    pub resync: Duration,
    /// The prefix of snapshot names, before a `-` and the uid of the `VolumeSnapshot`.
    pub snapshot_name_prefix: String,
    /// How many of the uid's 32 digits the name contains. null: the whole uid, with its dashes.
    #[schemars(range(min = 1, max = 32))]
    pub snapshot_name_uuid_length: Option<usize>,
    /// Whether groups of snapshots are served, if cluster and driver have them.
    pub group_snapshots: bool,
    /// The prefix of the names of groups, before a `-` and the uid of the `VolumeGroupSnapshot`.
    pub group_snapshot_name_prefix: String,
    /// How many of the uid's 32 digits the name contains. null: the whole uid, with its dashes.
    #[schemars(range(min = 1, max = 32))]
    pub group_snapshot_name_uuid_length: Option<usize>,
    /// Whether requests contain the names of the `VolumeSnapshot` and of its content.
    pub extra_create_metadata: bool,
    /// Which Events are written.
    pub events: EventsMode,
    /// Whether a snapshot is deleted without its secret if that is missing or not text. One that the daemon may not read is waited for.
    pub delete_without_secret: bool,
    /// The namespaces that the secrets which contents name may be in. Empty: any.
    pub deletion_secret_namespaces: Vec<String>,
    /// One daemon per node, each for the contents of its own node.
    pub node_deployment: NodeDeploymentSection,
}

/// The pauses between two looks at a snapshot that is cut and not yet ready to use. They double from `initial` up to `max`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReadyCheckSection {
    /// The first pause.
    #[serde(with = "duration::Text")]
    pub initial: Duration,
    /// The longest pause.
    #[serde(with = "duration::Text")]
    pub max: Duration,
}

/// One daemon per node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeDeploymentSection {
    /// Whether each node has its own daemon, which serves only the contents that the snapshot-controller has labelled with that
    /// node. There is no Lease then.
    pub enabled: bool,
}

impl ReadyCheckSection {
    /// The pauses.
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: self.initial, max: self.max }
    }
}

impl SnapshotterSection {
    /// How many deletions run at once.
    pub fn delete_workers(&self) -> usize {
        self.delete_workers.unwrap_or(self.workers)
    }

    /// How many groups are worked at once.
    pub fn group_workers(&self) -> usize {
        self.group_workers.unwrap_or(self.workers)
    }
}

impl Default for ReadyCheckSection {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(30) }
    }
}

impl Default for SnapshotterSection {
    fn default() -> Self {
        Self {
            timeout: None,
            workers: 100,
            delete_workers: None,
            group_workers: None,
            call_timeout: Duration::from_secs(60),
            retry: DriverRetrySection::default(),
            ready_check: ReadyCheckSection::default(),
            resync: Duration::from_secs(900),
            snapshot_name_prefix: "snapshot".to_owned(),
            snapshot_name_uuid_length: None,
            group_snapshots: true,
            group_snapshot_name_prefix: "groupsnapshot".to_owned(),
            group_snapshot_name_uuid_length: None,
            extra_create_metadata: false,
            events: EventsMode::Changes,
            delete_without_secret: false,
            deletion_secret_namespaces: Vec::new(),
            node_deployment: NodeDeploymentSection::default(),
        }
    }
}

/// Each node has its own daemon, which must know its node.
pub(super) fn needs(section: &Value) -> Vec<Need> {
    let section: Option<SnapshotterSection> = RoleSection::read(section).ok();
    let is_per_node = section.is_some_and(|section| section.node_deployment.enabled);
    is_per_node.then(|| Need::node("nodeDeployment.enabled")).into_iter().collect()
}

impl Section for SnapshotterSection {
    fn check(&self, faults: &mut Faults) {
        duration::check_deadline("timeout", self.timeout, faults);
        self.retry.check("retry", faults);
        checks::workers("workers", self.workers, faults);
        checks::own_workers("deleteWorkers", self.delete_workers, faults);
        checks::own_workers("groupWorkers", self.group_workers, faults);
        duration::check_some("callTimeout", self.call_timeout, faults);
        self.ready_check.backoff().check("readyCheck", faults);
        checks::pause("resync", self.resync, faults);
        for (key, prefix) in [
            ("snapshotNamePrefix", &self.snapshot_name_prefix),
            ("groupSnapshotNamePrefix", &self.group_snapshot_name_prefix),
        ] {
            if prefix.len() > 200 || !is_subdomain(&format!("{prefix}-0")) {
                faults.add(
                    key,
                    format_args!("{prefix:?}"),
                    "lower-case letters, digits, - and ., each . between two of the former, at most 200 of them",
                );
            }
        }
        checks::uid_digits("snapshotNameUuidLength", self.snapshot_name_uuid_length, faults);
        checks::uid_digits("groupSnapshotNameUuidLength", self.group_snapshot_name_uuid_length, faults);
        checks::secret_namespaces(&self.deletion_secret_namespaces, faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faulty_keys_with;

    fn with(change: impl FnOnce(&mut SnapshotterSection)) -> Vec<String> {
        faulty_keys_with(change)
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(with(|_| ()), Vec::<String>::new());
        assert_eq!(with(|s| s.timeout = Some(Duration::ZERO)), ["timeout"]);
        assert_eq!(with(|s| s.workers = 0), ["workers"]);
        assert_eq!(with(|s| s.delete_workers = Some(0)), ["deleteWorkers"]);
        assert_eq!(with(|s| s.group_workers = Some(0)), ["groupWorkers"]);
        assert_eq!(with(|s| s.call_timeout = Duration::ZERO), ["callTimeout"]);
        assert_eq!(with(|s| s.retry.max = Duration::ZERO), ["retry.max"]);
        assert_eq!(with(|s| s.ready_check.initial = Duration::ZERO), ["readyCheck.initial"]);
        assert_eq!(with(|s| s.ready_check.max = Duration::from_millis(5)), ["readyCheck.max"]);
        assert_eq!(with(|s| s.resync = Duration::from_millis(5)), ["resync"]);
        assert_eq!(with(|s| s.deletion_secret_namespaces = vec![String::new()]), ["deletionSecretNamespaces"]);
        for prefix in ["", "Snap", "-a", "a_b"] {
            assert_eq!(with(|s| s.snapshot_name_prefix = prefix.into()), ["snapshotNamePrefix"], "{prefix:?}");
            let group = with(|s| s.group_snapshot_name_prefix = prefix.into());
            assert_eq!(group, ["groupSnapshotNamePrefix"], "{prefix:?}");
        }
        for length in [0, 33] {
            assert_eq!(with(|s| s.snapshot_name_uuid_length = Some(length)), ["snapshotNameUuidLength"], "{length}");
            let group = with(|s| s.group_snapshot_name_uuid_length = Some(length));
            assert_eq!(group, ["groupSnapshotNameUuidLength"], "{length}");
        }
    }

    #[test]
    fn deletions_have_as_many_workers_as_the_rest_unless_said_otherwise() {
        let section = SnapshotterSection::default();
        assert_eq!((section.workers, section.delete_workers(), section.group_workers()), (100, 100, 100));
        assert_eq!(SnapshotterSection { group_workers: Some(3), ..section.clone() }.group_workers(), 3);
        assert_eq!(SnapshotterSection { delete_workers: Some(3), ..section }.delete_workers(), 3);
    }
}
