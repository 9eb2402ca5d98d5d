//! The status report: the data of `/status.json` and of the page. Pure.
//!
//! `started` and `now` are wall-clock times; everything else is an age, because ages come from the monotonic clock and
//! stay correct when the machine's clock is changed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::configuration::ConfigurationReport;
use super::shown::Age;
use super::table::TableReport;

/// The version of the report's format, which docs/status.md describes. It is raised when a field goes away, or gets another type or
/// meaning. New fields come without that, so programs must ignore fields that they do not know.
///
/// 2: the cells of tables have types and their columns' names; tables have a name.
pub const FORMAT_VERSION: u32 = 2;

/// How much of what a role has done is in a report, and how many of the objects that a search finds.
pub(super) const DONE_SHOWN: usize = 20;

/// The complete status at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// The version of this format, [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The program's version.
    pub version: String,
    /// The overall state.
    pub overall: Overall,
    /// When the process started.
    pub started: Timestamp,
    /// When this report was made.
    pub now: Timestamp,
    /// How long the process runs.
    #[serde(rename = "uptimeSeconds")]
    pub uptime: Age,
    /// The driver; `None` until it is registered.
    pub driver: Option<DriverReport>,
    /// The Kubernetes API; `None`: no role needs it.
    pub api: Option<ApiReport>,
    /// What `/readyz` checks.
    pub readiness: Vec<ConditionReport>,
    /// The roles.
    pub roles: Vec<RoleReport>,
    /// The caches of Kubernetes objects.
    pub caches: Vec<CacheReport>,
    /// The work queues.
    pub queues: Vec<QueueReport>,
    /// The search in the work items and tables (all its words). `None`: no search.
    pub find: Option<String>,
    /// The cached objects that the search finds: at most `DONE_SHOWN`. Empty without a search.
    pub objects: Vec<ObjectReport>,
    /// The number of all cached objects that the search finds.
    pub objects_total: usize,
    /// The work items: failing first, then oldest. Limited, with items from each queue in turn; the totals are not
    /// limited.
    pub work: Vec<WorkReport>,
    /// The number of work items.
    pub work_total: usize,
    /// The number of work items whose last attempt failed.
    pub work_failing: usize,
    /// The work items by state; the numbers add up to `work_total`.
    pub work_states: WorkCounts,
    /// What was done last, newest first: at most `DONE_SHOWN` of each role, of those that match the search.
    pub done: Vec<DoneReport>,
    /// The tasks that run.
    pub tasks: Vec<String>,
    /// The last tasks that ended unexpectedly, newest first.
    pub task_failures: Vec<TaskFailureReport>,
    /// How many tasks ended unexpectedly since the start.
    pub task_failures_total: u64,
    /// The state of the configuration file.
    pub configuration: Option<ConfigurationReport>,
    /// Warnings about the configuration or the environment.
    pub warnings: Vec<String>,
    /// The roles' own tables.
    pub tables: Vec<TableReport>,
}

/// The overall state. The later one is worse: of two parts, the worse one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Overall {
    /// What this process has to do is done, and nothing fails.
    Healthy,
    /// The same, but another replica leads all roles of the cluster.
    Standby,
    /// Not ready yet, and nothing is wrong yet.
    Starting,
    /// Something fails.
    Degraded,
    /// The driver cannot be used from here, or only a restart helps.
    Failing,
}

/// The connection to the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverReport {
    /// Its state.
    pub state: DriverStatus,
    /// Its name; unknown before the first handshake.
    pub name: Option<String>,
    /// The version that its vendor gives it.
    pub vendor_version: Option<String>,
    /// Where it is reached.
    pub endpoint: String,
    /// How long it is in this state.
    #[serde(rename = "forSeconds")]
    pub since: Age,
    /// Why it can't be reached.
    pub last_error: Option<String>,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// Counts changes of the capabilities.
    pub generation: u64,
    /// Connections made since the start.
    pub connections: u64,
}

impl DriverReport {
    /// Whether roles need it, and it does not answer.
    pub(super) fn is_missed(&self) -> bool {
        !matches!(self.state, DriverStatus::Ready | DriverStatus::NotNeeded)
    }
}

/// State of the connection to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriverStatus {
    /// Never reached so far.
    Connecting,
    /// Connected and ready.
    Ready,
    /// Was ready; being looked for.
    Lost,
    /// Came back as another driver.
    Fatal,
    /// No role needs one.
    NotNeeded,
}

/// The Kubernetes API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiReport {
    /// How long it has not answered; `None`: it answers.
    #[serde(rename = "lostForSeconds")]
    pub lost: Option<Age>,
    /// Requests that have failed since then.
    pub failures: u64,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionReport {
    /// What must hold.
    pub name: String,
    /// Why it does not.
    pub failure: Option<String>,
}

/// One role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleReport {
    /// Its name.
    pub name: String,
    /// What it works with.
    pub scope: RoleScope,
    /// Its state.
    pub state: RoleStatus,
    /// The lease that guards it, as `namespace/name`; `None` where it runs without one.
    pub lease: Option<String>,
    /// Who holds the lease.
    pub leader: Option<String>,
    /// Number of its current term here.
    pub term: Option<u64>,
    /// Age of its current term.
    #[serde(rename = "termAgeSeconds")]
    pub term_age: Option<Age>,
    /// Terms that ended in an error.
    pub restarts: u64,
    /// The last error, of the role or of its lease.
    pub last_error: Option<String>,
    /// What the role itself has found to fail.
    pub failure: Option<String>,
    /// More facts about the role.
    pub facts: Vec<Fact>,
}

/// A fact about a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much, or since when.
    pub value: String,
}

impl Fact {
    /// One fact.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

#[cfg(test)]
impl RoleReport {
    /// One that serves, without a Lease and without facts.
    pub(crate) fn serving(name: &str, scope: RoleScope) -> Self {
        Self {
            name: name.to_owned(),
            scope,
            state: RoleStatus::Serving,
            lease: None,
            leader: None,
            term: None,
            term_age: None,
            restarts: 0,
            last_error: None,
            failure: None,
            facts: Vec::new(),
        }
    }
}

impl RoleReport {
    /// Whether it stands by, and no replica is known to lead.
    pub(super) fn waits_for_a_leader(&self) -> bool {
        self.state == RoleStatus::Standby && self.lease.is_some() && self.leader.is_none()
    }
}

/// What a role works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RoleScope {
    /// The cluster and the driver.
    Cluster,
    /// The driver's socket and this machine alone.
    Local,
}

/// State of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RoleStatus {
    /// The driver is not ready.
    WaitingForDriver,
    /// Another replica leads, or nobody does yet.
    Standby,
    /// Serves a term.
    Serving,
    /// Its last term ended in an error; it waits before the next.
    Restarting,
    /// Ended for good.
    Stopped,
}

/// One cache of Kubernetes objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheReport {
    /// The kind.
    pub kind: String,
    /// Objects held.
    pub objects: usize,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Since the last event of the watch.
    #[serde(rename = "lastEventSeconds")]
    pub last_event: Option<Age>,
    /// Lists made.
    pub relists: u64,
    /// Why the watch broke last, if it has not come back since.
    pub last_error: Option<String>,
}

/// One work queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// The title of its keys, for people: `Claims in progress`.
    pub title: String,
    /// Keys that wait for a worker.
    pub depth: usize,
    /// Keys in a worker.
    pub running: usize,
    /// Keys that wait for their next try.
    pub delayed: usize,
    /// Keys whose last attempt failed.
    pub failing: usize,
    /// Keys that match the search; all keys without a search.
    #[serde(default)]
    pub found: usize,
    /// Age of the oldest key.
    #[serde(rename = "oldestAgeSeconds")]
    pub oldest_age: Option<Age>,
}

/// Work items by state. Each item is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkCounts {
    /// A worker has them.
    pub running: usize,
    /// They wait for a worker.
    pub waiting: usize,
    /// They failed, and wait for their next attempt.
    pub backing_off: usize,
    /// They wait for a time, without a failure.
    pub delayed: usize,
}

/// One work item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkReport {
    /// The role that works on it.
    pub role: String,
    /// The queue that it is in.
    pub queue: String,
    /// The object.
    pub key: String,
    /// A description for people: `pvc-1 on node-a`, because an attachment's own name is a checksum; or the object with
    /// details: `default/data: class gold, in background`.
    pub subject: Option<String>,
    /// The lane: attach, detach, …
    pub lane: String,
    /// Time since it was first added.
    #[serde(rename = "ageSeconds")]
    pub age: Age,
    /// Attempts that failed.
    pub attempts: u32,
    /// Time until the next attempt; `None` while it runs or waits for a worker.
    #[serde(rename = "nextTrySeconds")]
    pub next_try: Option<Age>,
    /// Whether a worker has it now.
    pub running: bool,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// A cached object that a search has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    /// The kind.
    pub kind: String,
    /// The object.
    pub name: String,
    /// Where it is, or how far, and whose it is, for people.
    pub state: Option<String>,
    /// What the driver calls it: rows that name it so belong to it.
    #[serde(skip)]
    pub handle: Option<String>,
    /// Why it fails, by its own status.
    pub last_error: Option<String>,
}

/// Something that a role has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoneReport {
    /// The role.
    pub role: String,
    /// The queue that it was in.
    pub queue: String,
    /// The object.
    pub key: String,
    /// A description of the object for people.
    pub subject: Option<String>,
    /// What was done: attached, detached, provisioned, …
    pub what: String,
    /// When it was done.
    pub at: Timestamp,
    /// How long it took since it was first added, with all retries.
    #[serde(rename = "tookSeconds")]
    pub took: Age,
    /// Attempts that failed before.
    pub attempts: u32,
}

/// A task that ended unexpectedly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailureReport {
    /// When.
    pub at: Timestamp,
    /// Its full name.
    pub task: String,
    /// How it ended.
    pub fate: String,
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(super) mod tests;
