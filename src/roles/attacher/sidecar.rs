//! csi-attacher v4.13: how `migrate` recognises it, and which keys replace its flags. The flags of its reconciler are
//! keys of the role `reconciler`.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, LEASE_TIMES, changes};
use crate::config::defaults::{OldDefault, Version, defaults};
use crate::config::flags::{Flag, flags};
use crate::config::sidecar::{Gate, RELEASED_AT_EXIT, Sidecar, Signs};

/// csi-attacher.
pub const SIDECAR: Sidecar = Sidecar {
    name: "csi-attacher",
    signs: Signs { words: &["csi-attacher", "external-attacher"], flags: &["reconcile-sync", "max-entries"] },
    roles: &[super::NAME, "reconciler"],
    flags: FLAGS,
    gates: &[Gate { name: "MutableCSINodeAllocatableCount", key: "roles.attacher.errorCodes" }],
    locked_gates: &[RELEASED_AT_EXIT],
    timeout: Duration::from_secs(15),
    defaults: DEFAULTS,
    changes: CHANGES,
    // external-attacher CHANGELOG-2.0: "Leader election uses lease object now".
    lease_since: Version(2, 0),
    ..Sidecar::PLAIN
};

/// Its defaults that are, or were, not the daemon's.
const DEFAULTS: &[OldDefault] = defaults! {
    "--worker-threads", Key("roles.attacher.workers"), [0, 0, Count(10), "external-attacher CHANGELOG-2.0"];
    "--default-fstype", Key("roles.attacher.defaultFsType"),
        [0, 0, Text("ext4"), "external-attacher CHANGELOG-4.0"], [4, 0, Text(""), "external-attacher CHANGELOG-4.0"];
    "--feature-gates=MutableCSINodeAllocatableCount", Key("roles.attacher.errorCodes"),
        [0, 0, Switch(false), "external-attacher pkg/features/features.go: beta and off in v4.10"],
        [4, 12, Switch(true), "attacher spec 1.5: on in v4.12"];
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    3, 1, &["http-endpoint"], &[];
    3, 2, &["kube-api-burst", "kube-api-qps"], &[];
    3, 3, LEASE_TIMES, &[];
    3, 5, &["default-fstype"], &[];
    4, 2, &["max-grpc-log-length"], &[];
    4, 4, &["max-entries"], &[];
    4, 6, &["logging-format"], KLOG;
    4, 9, &["automaxprocs"], &[];
    4, 10, &["MutableCSINodeAllocatableCount", "ReleaseLeaderElectionOnExit", "feature-gates"], &[];
    4, 11, &["leader-election-labels"], &[];
    4, 13, &[], GATES_UNTIL_1_36;
};

/// Its own flags, current and removed.
const FLAGS: &[Flag] = flags! {
    "timeout", Time, Key("roles.attacher.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, with the same default. A page of ListVolumes has `roles.reconciler.pageTimeout`";
    "retry-interval-start", Time, Key("roles.attacher.retry.initial"), "same default";
    "retry-interval-max", Time, Key("roles.attacher.retry.max"), "same default; codes that mean \"soon\" are retried sooner";
    "worker-threads", Count, Key("roles.attacher.workers"),
        "100 instead of 10: tasks, not threads; detaches have `roles.attacher.detachWorkers`";
    "max-entries", Count, Key("roles.reconciler.pageSize"), "same default";
    "reconcile-sync", Time, Key("roles.reconciler.interval"), "same default";
    "resync", Time, Key("roles.attacher.resync"), "same default; never cuts a back-off short";
    "default-fstype", Text, Key("roles.attacher.defaultFsType"), "same default";
    "feature-gates", Text, Gone,
        "`ReleaseLeaderElectionOnExit` is always on; `MutableCSINodeAllocatableCount` is `roles.attacher.errorCodes`; the other gates have \
         no effect in csi-attacher either";
    "dummy", Switch, Gone, "also removed from the sidecars; a driver without the publish capability is noticed";
};
