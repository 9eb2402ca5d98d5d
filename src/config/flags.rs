//! What became of the Go sidecars' flags: for people who move over. `docs/flags.md` is this table; a test compares them.
//! The verb `migrate` reads command lines by it, and the command line answers whoever tries an old flag.

/// Where a flag's meaning is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// The key that replaces it.
    Key(&'static str),
    /// A verb of the command line.
    Verb(&'static str),
    /// Nowhere, for the reason given.
    Gone,
}

/// What stands behind a flag. Go's parser needs to know: a switch never takes the next argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing, or `=true` or `=false`.
    Switch,
    /// A whole number.
    Count,
    /// A duration.
    Time,
    /// Any text.
    Text,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What stands behind it.
    pub takes: Takes,
    /// What replaces it.
    pub now: Now,
    /// What differs, or why there is nothing.
    pub note: &'static str,
}

/// A Go sidecar whose work is a role here, or will be.
#[derive(Debug)]
pub struct Sidecar {
    /// Its name, as upstream spells it.
    pub name: &'static str,
    /// The role that does its work. It is only replaced by a daemon that hosts this one.
    pub role: &'static str,
    /// Roles that did part of its work there, and are roles of their own here.
    pub with: &'static [&'static str],
    /// The flags that it alone has, or that mean something else with it.
    pub own: &'static [Flag],
}

impl Sidecar {
    /// Its flag of that name, without dashes.
    pub fn flag(&self, name: &str) -> Option<&'static Flag> {
        self.own.iter().chain(SHARED).find(|flag| flag.name == name)
    }
}

const fn flag(name: &'static str, takes: Takes, now: Now, note: &'static str) -> Flag {
    Flag { name, takes, now, note }
}

use Now::{Gone, Key, Verb};
use Takes::{Count, Switch, Text, Time};

/// The sidecars whose flags are known here.
pub const SIDECARS: &[Sidecar] = &[
    Sidecar { name: "csi-attacher", role: "attacher", with: &["reconciler"], own: ATTACHER },
    Sidecar { name: "csi-provisioner", role: "provisioner", with: &[], own: PROVISIONER },
];

/// Flags that every sidecar of the table has, or once had, with one meaning.
pub const SHARED: &[Flag] = &[
    flag("csi-address", Text, Key("csi.endpoint"), "also as a bare path"),
    flag("kubeconfig", Text, Key("kubernetes.kubeconfig"), "null also looks at `$KUBECONFIG` and `~/.kube/config`"),
    flag("master", Text, Gone, "a kubeconfig names the server: `kubernetes.kubeconfig`"),
    flag(
        "timeout",
        Time,
        Key("csi.timeout"),
        "one RPC; 15s as in csi-attacher, instead of csi-provisioner's 10s; of several sidecars the largest counts. A page of \
         ListVolumes has `roles.reconciler.pageTimeout`",
    ),
    flag("max-grpc-log-length", Count, Key("csi.maxLogLength"), "8192 instead of no limit; no limit is null, not -1"),
    flag("leader-election", Switch, Key("leaderElection.enabled"), "true instead of false"),
    flag("enable-leader-election", Switch, Key("leaderElection.enabled"), "as it was called before `leader-election`"),
    flag("leader-election-namespace", Text, Key("leaderElection.namespace"), "same default"),
    flag("leader-election-lease-duration", Time, Key("leaderElection.leaseDuration"), "same default"),
    flag("leader-election-renew-deadline", Time, Key("leaderElection.renewDeadline"), "same default"),
    flag("leader-election-retry-period", Time, Key("leaderElection.retryPeriod"), "same default"),
    flag("leader-election-labels", Text, Key("leaderElection.labels"), "a mapping instead of `key:value,…`"),
    flag(
        "kube-api-qps",
        Text,
        Gone,
        "the server's own fairness (429 and Retry-After) is obeyed instead; `kubernetes.maxInFlight` caps what is under way",
    ),
    flag("kube-api-burst", Count, Gone, "see `kube-api-qps`"),
    flag(
        "http-endpoint",
        Text,
        Key("diagnostics.listen"),
        "on by default: `0.0.0.0:8080`; the host may not be left out",
    ),
    flag("metrics-address", Text, Key("diagnostics.listen"), "deprecated there already"),
    flag(
        "metrics-path",
        Text,
        Gone,
        "always `/metrics`: probes and the status page have fixed paths on the same server too",
    ),
    flag(
        "automaxprocs",
        Switch,
        Key("runtime.workerThreads"),
        "null, the default, follows the container's CPU quota up to 4 cores",
    ),
    flag("version", Switch, Verb("version"), "also as `--version`"),
    flag("v", Count, Key("telemetry.logs.level"), "by name: 2 is `info`, 4 is `debug`, 5 is `trace`"),
    flag("vmodule", Text, Key("telemetry.logs.level"), "`info,csi_control_plane::csi=debug`"),
    flag("logging-format", Text, Key("telemetry.logs.format"), "json instead of text"),
    flag("log-flush-frequency", Time, Gone, "every line is written at once"),
    flag(
        "log-text-split-stream",
        Switch,
        Gone,
        "all lines go to the standard error stream; a collector splits by level",
    ),
    flag("log-json-split-stream", Switch, Gone, "see `log-text-split-stream`"),
    flag("log-text-info-buffer-size", Text, Gone, "every line is written at once"),
    flag("log-json-info-buffer-size", Text, Gone, "every line is written at once"),
    flag(
        "leader-election-identity",
        Text,
        Gone,
        "removed there as well; always generated, because two processes may share everything else",
    ),
    flag("leader-election-type", Text, Gone, "removed there as well; always a Lease"),
    flag(
        "connection-timeout",
        Time,
        Gone,
        "removed there as well; the daemon waits for the driver, and says so on its status page",
    ),
    flag(
        "logtostderr",
        Switch,
        Gone,
        "klog's; logs go to the standard error stream, in the form that `telemetry.logs.format` says",
    ),
    flag("alsologtostderr", Switch, Gone, "see `logtostderr`"),
    flag("stderrthreshold", Text, Gone, "see `logtostderr`"),
    flag("log_backtrace_at", Text, Gone, "see `logtostderr`"),
    flag("log_dir", Text, Gone, "see `logtostderr`"),
    flag("log_file", Text, Gone, "see `logtostderr`"),
    flag("log_file_max_size", Count, Gone, "see `logtostderr`"),
    flag("add_dir_header", Switch, Gone, "see `logtostderr`"),
    flag("skip_headers", Switch, Gone, "see `logtostderr`"),
    flag("skip_log_headers", Switch, Gone, "see `logtostderr`"),
    flag("one_output", Switch, Gone, "see `logtostderr`"),
];

/// What csi-attacher v4.12 has of its own, and once had.
pub const ATTACHER: &[Flag] = &[
    flag("retry-interval-start", Time, Key("roles.attacher.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Time,
        Key("roles.attacher.retry.max"),
        "same default; codes that mean \"soon\" are retried sooner",
    ),
    flag(
        "worker-threads",
        Count,
        Key("roles.attacher.workers"),
        "100 instead of 10: tasks, not threads; detaches have `roles.attacher.detachWorkers`",
    ),
    flag("max-entries", Count, Key("roles.reconciler.pageSize"), "same default"),
    flag("reconcile-sync", Time, Key("roles.reconciler.interval"), "same default"),
    flag("resync", Time, Key("roles.attacher.resync"), "same default; never cuts a back-off short"),
    flag("default-fstype", Text, Key("roles.attacher.defaultFsType"), "same default"),
    flag(
        "feature-gates",
        Text,
        Gone,
        "`ReleaseLeaderElectionOnExit` is always on; `MutableCSINodeAllocatableCount` is `roles.attacher.errorCodes`; the other gates have no effect there either",
    ),
    flag("dummy", Switch, Gone, "removed there as well; a driver without the publish capability is noticed"),
];

/// What csi-provisioner v6.3 has of its own, and once had.
pub const PROVISIONER: &[Flag] = &[
    flag(
        "worker-threads",
        Count,
        Key("roles.provisioner.workers"),
        "same default: tasks, not threads; deletions have `roles.provisioner.deleteWorkers`",
    ),
    flag("retry-interval-start", Time, Key("roles.provisioner.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Time,
        Key("roles.provisioner.retry.max"),
        "same default; claims that the driver calls invalid have `roles.provisioner.retry.infeasible`",
    ),
    flag("volume-name-prefix", Text, Key("roles.provisioner.volumeNamePrefix"), "same default"),
    flag(
        "volume-name-uuid-length",
        Count,
        Key("roles.provisioner.volumeNameUuidLength"),
        "the whole uid is null, not -1",
    ),
    flag("default-fstype", Text, Key("roles.provisioner.defaultFsType"), "same default"),
    flag("strict-topology", Switch, Key("roles.provisioner.strictTopology"), "same default"),
    flag("immediate-topology", Switch, Key("roles.provisioner.immediateTopology"), "same default"),
    flag("extra-create-metadata", Switch, Key("roles.provisioner.extraCreateMetadata"), "same default"),
    flag("controller-publish-readonly", Switch, Key("roles.provisioner.publishReadonly"), "same default"),
    flag(
        "prevent-volume-mode-conversion",
        Switch,
        Key("roles.provisioner.preventVolumeModeConversion"),
        "same default",
    ),
    flag(
        "snapshot-orphan-sweep-interval",
        Time,
        Key("roles.provisioner.snapshotSweepInterval"),
        "same default; clones, too",
    ),
    flag(
        "cloning-protection-threads",
        Count,
        Gone,
        "letting go of a source is rare and quick: a few workers do for all",
    ),
    flag("enable-capacity", Switch, Key("roles.provisioner.capacity.enabled"), "same default"),
    flag("capacity-for-immediate-binding", Switch, Key("roles.provisioner.capacity.immediateBinding"), "same default"),
    flag("capacity-poll-interval", Time, Key("roles.provisioner.capacity.pollInterval"), "same default"),
    flag("capacity-ownerref-level", Count, Key("roles.provisioner.capacity.ownerLevel"), "same default"),
    flag("capacity-threads", Count, Key("roles.provisioner.capacity.workers"), "10 instead of 1: tasks, not threads"),
    flag(
        "kube-api-capacity-qps",
        Text,
        Gone,
        "see `kube-api-qps`; `roles.provisioner.capacity.workers` bounds the refresh",
    ),
    flag("kube-api-capacity-burst", Count, Gone, "see `kube-api-capacity-qps`"),
    flag(
        "node-deployment",
        Switch,
        Key("roles.provisioner.nodeDeployment.enabled"),
        "same default; `NODE_NAME` as there",
    ),
    flag(
        "node-deployment-immediate-binding",
        Switch,
        Key("roles.provisioner.nodeDeployment.immediateBinding"),
        "same default",
    ),
    flag("node-deployment-base-delay", Time, Key("roles.provisioner.nodeDeployment.baseDelay"), "same default"),
    flag("node-deployment-max-delay", Time, Key("roles.provisioner.nodeDeployment.maxDelay"), "same default"),
    flag("enable-pprof", Switch, Gone, "Go's profiler; traces tell where time goes: `telemetry.traces.endpoint`"),
    flag(
        "feature-gates",
        Text,
        Gone,
        "`Topology` is `roles.provisioner.topology`, `CrossNamespaceVolumeDataSource` is `roles.provisioner.crossNamespaceSources`; `ReleaseLeaderElectionOnExit`, `HonorPVReclaimPolicy` and `CSINodeExpandSecret` are always on; `VolumeAttributesClass` is always on, too: such a class is read when a claim names it, and where the API has no `storage.k8s.io/v1` of the kind, that claim waits instead of being made without",
    ),
    flag("provisioner", Text, Gone, "removed there as well; the driver is asked for its name"),
];

/// The flags that an argument such as `-csi-address=/x` or `--timeout` sets, by the sidecar that has them.
pub fn find(argument: &str) -> Vec<(&'static str, &'static Flag)> {
    let Some(name) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { return Vec::new() };
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    SIDECARS.iter().filter_map(|sidecar| Some((sidecar.name, sidecar.flag(name)?))).collect()
}

/// Every flag: the shared ones, then each sidecar's own.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    SHARED.iter().chain(SIDECARS.iter().flat_map(|sidecar| sidecar.own))
}

/// The tables as Markdown rows.
pub fn rows() -> impl Iterator<Item = String> {
    all().map(|Flag { name, now, note, .. }| {
        let now = match now {
            Key(key) => format!("`{key}`"),
            Verb(verb) => format!("verb `{verb}`"),
            Gone => "—".to_owned(),
        };
        format!("| `--{name}` | {now} | {note} |")
    })
}
