//! What became of the Go sidecars' flags: for people who move over. `docs/flags.md` is these tables; a test compares them.

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

/// One flag of a sidecar.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What replaces it.
    pub now: Now,
    /// What differs, or why there is nothing.
    pub note: &'static str,
}

const fn flag(name: &'static str, now: Now, note: &'static str) -> Flag {
    Flag { name, now, note }
}

use Now::{Gone, Key, Verb};

/// Every flag of csi-attacher v4.12, and those that it once had.
pub const FLAGS: &[Flag] = &[
    flag("csi-address", Key("csi.endpoint"), "also as a bare path"),
    flag("kubeconfig", Key("kubernetes.kubeconfig"), "null also looks at `$KUBECONFIG` and `~/.kube/config`"),
    flag("timeout", Key("csi.timeout"), "one RPC; a page of ListVolumes has `roles.reconciler.pageTimeout`"),
    flag("retry-interval-start", Key("roles.attacher.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Key("roles.attacher.retry.max"),
        "same default; codes that mean \"soon\" are retried sooner",
    ),
    flag(
        "worker-threads",
        Key("roles.attacher.workers"),
        "100 instead of 10: tasks, not threads; detaches have `roles.attacher.detachWorkers`",
    ),
    flag("max-entries", Key("roles.reconciler.pageSize"), "same default"),
    flag("reconcile-sync", Key("roles.reconciler.interval"), "same default"),
    flag("resync", Key("roles.attacher.resync"), "same default; never cuts a back-off short"),
    flag("default-fstype", Key("roles.attacher.defaultFsType"), "same default"),
    flag("max-grpc-log-length", Key("csi.maxLogLength"), "8192 instead of no limit; no limit is null, not -1"),
    flag("leader-election", Key("leaderElection.enabled"), "true instead of false"),
    flag("leader-election-namespace", Key("leaderElection.namespace"), "same default"),
    flag("leader-election-lease-duration", Key("leaderElection.leaseDuration"), "same default"),
    flag("leader-election-renew-deadline", Key("leaderElection.renewDeadline"), "same default"),
    flag("leader-election-retry-period", Key("leaderElection.retryPeriod"), "same default"),
    flag("leader-election-labels", Key("leaderElection.labels"), "a mapping instead of `key:value,…`"),
    flag(
        "kube-api-qps",
        Gone,
        "the server's own fairness (429 and Retry-After) is obeyed instead; `kubernetes.maxInFlight` caps what is under way",
    ),
    flag("kube-api-burst", Gone, "see `kube-api-qps`"),
    flag("http-endpoint", Key("diagnostics.listen"), "on by default: `0.0.0.0:8080`; the host may not be left out"),
    flag("metrics-address", Key("diagnostics.listen"), "deprecated there already"),
    flag("metrics-path", Gone, "always `/metrics`: probes and the status page have fixed paths on the same server too"),
    flag("automaxprocs", Key("runtime.workerThreads"), "null, the default, follows the container's CPU quota"),
    flag(
        "feature-gates",
        Gone,
        "`ReleaseLeaderElectionOnExit` is always on; `MutableCSINodeAllocatableCount` is `roles.attacher.errorCodes`; the other gates have no effect there either",
    ),
    flag("version", Verb("version"), "also as `--version`"),
    flag("v", Key("telemetry.logs.level"), "by name: 2 is `info`, 4 is `debug`, 5 is `trace`"),
    flag("vmodule", Key("telemetry.logs.level"), "`info,csi_control_plane::csi=debug`"),
    flag("logging-format", Key("telemetry.logs.format"), "json instead of text"),
    flag("log-flush-frequency", Gone, "every line is written at once"),
    flag("log-text-split-stream", Gone, "all lines go to the standard error stream; a collector splits by level"),
    flag("log-json-split-stream", Gone, "see `log-text-split-stream`"),
    flag("log-text-info-buffer-size", Gone, "every line is written at once"),
    flag("log-json-info-buffer-size", Gone, "every line is written at once"),
    flag(
        "leader-election-identity",
        Gone,
        "removed there as well; always generated, because two processes may share everything else",
    ),
    flag("leader-election-type", Gone, "removed there as well; always a Lease"),
    flag(
        "connection-timeout",
        Gone,
        "removed there as well; the daemon waits for the driver, and says so on its status page",
    ),
    flag("dummy", Gone, "removed there as well; a driver without the publish capability is noticed"),
];

/// A sidecar and its flags.
#[derive(Debug, Clone, Copy)]
pub struct Sidecar {
    /// Its name.
    pub name: &'static str,
    /// All that it takes.
    pub flags: &'static [Flag],
}

/// The sidecars that this daemon can take over from.
pub const SIDECARS: &[Sidecar] =
    &[Sidecar { name: "csi-attacher", flags: FLAGS }, Sidecar { name: "csi-provisioner", flags: PROVISIONER_FLAGS }];

/// Every flag of csi-provisioner v6.3.
pub const PROVISIONER_FLAGS: &[Flag] = &[
    flag("csi-address", Key("csi.endpoint"), "also as a bare path"),
    flag("master", Gone, "a kubeconfig names the server"),
    flag("kubeconfig", Key("kubernetes.kubeconfig"), "null also looks at `$KUBECONFIG` and `~/.kube/config`"),
    flag("timeout", Key("csi.timeout"), "15s instead of 10s; one RPC"),
    flag("volume-name-prefix", Key("roles.provisioner.volumeNamePrefix"), "same default"),
    flag("volume-name-uuid-length", Key("roles.provisioner.volumeNameUuidLength"), "the whole uid is null, not -1"),
    flag("retry-interval-start", Key("roles.provisioner.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Key("roles.provisioner.retry.max"),
        "same default; claims that the driver calls invalid have `roles.provisioner.retry.infeasible`",
    ),
    flag(
        "worker-threads",
        Key("roles.provisioner.workers"),
        "same default: tasks, not threads; deletions have `roles.provisioner.deleteWorkers`",
    ),
    flag("cloning-protection-threads", Gone, "letting go of a source is rare and quick: a few workers do for all"),
    flag("snapshot-orphan-sweep-interval", Key("roles.provisioner.snapshotSweepInterval"), "same default; clones, too"),
    flag("capacity-threads", Key("roles.provisioner.capacity.workers"), "10 instead of 1: tasks, not threads"),
    flag("strict-topology", Key("roles.provisioner.strictTopology"), "same default"),
    flag("immediate-topology", Key("roles.provisioner.immediateTopology"), "same default"),
    flag("extra-create-metadata", Key("roles.provisioner.extraCreateMetadata"), "same default"),
    flag("enable-pprof", Gone, "Go's profiler; traces tell where time goes: `telemetry.traces.endpoint`"),
    flag("default-fstype", Key("roles.provisioner.defaultFsType"), "same default"),
    flag(
        "kube-api-qps",
        Gone,
        "the server's own fairness (429 and Retry-After) is obeyed instead; `kubernetes.maxInFlight` caps what is under way",
    ),
    flag("kube-api-burst", Gone, "see `kube-api-qps`"),
    flag("kube-api-capacity-qps", Gone, "see `kube-api-qps`; `roles.provisioner.capacity.workers` bounds the refresh"),
    flag("kube-api-capacity-burst", Gone, "see `kube-api-capacity-qps`"),
    flag("enable-capacity", Key("roles.provisioner.capacity.enabled"), "same default"),
    flag("capacity-for-immediate-binding", Key("roles.provisioner.capacity.immediateBinding"), "same default"),
    flag("capacity-poll-interval", Key("roles.provisioner.capacity.pollInterval"), "same default"),
    flag("capacity-ownerref-level", Key("roles.provisioner.capacity.ownerLevel"), "same default"),
    flag("node-deployment", Key("roles.provisioner.nodeDeployment.enabled"), "same default; `NODE_NAME` as there"),
    flag("node-deployment-immediate-binding", Key("roles.provisioner.nodeDeployment.immediateBinding"), "same default"),
    flag("node-deployment-base-delay", Key("roles.provisioner.nodeDeployment.baseDelay"), "same default"),
    flag("node-deployment-max-delay", Key("roles.provisioner.nodeDeployment.maxDelay"), "same default"),
    flag("controller-publish-readonly", Key("roles.provisioner.publishReadonly"), "same default"),
    flag("prevent-volume-mode-conversion", Key("roles.provisioner.preventVolumeModeConversion"), "same default"),
    flag(
        "feature-gates",
        Gone,
        "`Topology` is `roles.provisioner.topology`, `CrossNamespaceVolumeDataSource` is `roles.provisioner.crossNamespaceSources`; \
         `VolumeAttributesClass`, `HonorPVReclaimPolicy`, `CSINodeExpandSecret` and `ReleaseLeaderElectionOnExit` are always on",
    ),
    flag("leader-election", Key("leaderElection.enabled"), "true instead of false"),
    flag("leader-election-namespace", Key("leaderElection.namespace"), "same default"),
    flag("leader-election-lease-duration", Key("leaderElection.leaseDuration"), "same default"),
    flag("leader-election-renew-deadline", Key("leaderElection.renewDeadline"), "same default"),
    flag("leader-election-retry-period", Key("leaderElection.retryPeriod"), "same default"),
    flag("leader-election-labels", Key("leaderElection.labels"), "a mapping instead of `key:value,…`"),
    flag("http-endpoint", Key("diagnostics.listen"), "on by default: `0.0.0.0:8080`; the host may not be left out"),
    flag("metrics-address", Key("diagnostics.listen"), "deprecated there already"),
    flag("metrics-path", Gone, "always `/metrics`: probes and the status page have fixed paths on the same server too"),
    flag("automaxprocs", Key("runtime.workerThreads"), "null, the default, follows the container's CPU quota"),
    flag("version", Verb("version"), "also as `--version`"),
    flag("v", Key("telemetry.logs.level"), "by name: 2 is `info`, 4 is `debug`, 5 is `trace`"),
    flag("vmodule", Key("telemetry.logs.level"), "`info,csi_control_plane::csi=debug`"),
    flag("logging-format", Key("telemetry.logs.format"), "json instead of text"),
];

/// The flags that an argument such as `-csi-address=/x` or `--timeout` sets, by the sidecar that has them.
pub fn find(argument: &str) -> Vec<(&'static str, &'static Flag)> {
    let Some(name) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { return Vec::new() };
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    SIDECARS
        .iter()
        .filter_map(|sidecar| Some((sidecar.name, sidecar.flags.iter().find(|flag| flag.name == name)?)))
        .collect()
}

impl Sidecar {
    /// Its table as Markdown rows.
    pub fn rows(&self) -> impl Iterator<Item = String> + use<> {
        self.flags.iter().map(|Flag { name, now, note }| {
            let now = match now {
                Key(key) => format!("`{key}`"),
                Verb(verb) => format!("verb `{verb}`"),
                Gone => "—".to_owned(),
            };
            format!("| `--{name}` | {now} | {note} |")
        })
    }
}
