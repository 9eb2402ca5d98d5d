//! csi-attacher v4.13: how `migrate` recognises it, and which keys replace its flags. The flags of its reconciler are
//! keys of the role `reconciler`.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, LEASE_TIMES, change};
use crate::config::defaults::DefaultValue::{Count as Number, Switch as Gated, Text as Word};
use crate::config::defaults::{Kept, OldDefault, Version, always, since};
use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
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
const DEFAULTS: &[OldDefault] = &[
    OldDefault {
        flag: "--worker-threads",
        kept: Kept::Key("roles.attacher.workers"),
        values: &[always(Number(10), "external-attacher CHANGELOG-2.0")],
    },
    OldDefault {
        flag: "--default-fstype",
        kept: Kept::Key("roles.attacher.defaultFsType"),
        values: &[
            since(0, 0, Word("ext4"), "external-attacher CHANGELOG-4.0"),
            since(4, 0, Word(""), "external-attacher CHANGELOG-4.0"),
        ],
    },
    OldDefault {
        flag: "--feature-gates=MutableCSINodeAllocatableCount",
        kept: Kept::Key("roles.attacher.errorCodes"),
        values: &[
            since(0, 0, Gated(false), "external-attacher pkg/features/features.go: beta and off in v4.10"),
            since(4, 12, Gated(true), "attacher spec 1.5: on in v4.12"),
        ],
    },
];

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = &[
    change(3, 1, &["http-endpoint"], &[]),
    change(3, 2, &["kube-api-burst", "kube-api-qps"], &[]),
    change(3, 3, LEASE_TIMES, &[]),
    change(3, 5, &["default-fstype"], &[]),
    change(4, 2, &["max-grpc-log-length"], &[]),
    change(4, 4, &["max-entries"], &[]),
    change(4, 6, &["logging-format"], KLOG),
    change(4, 9, &["automaxprocs"], &[]),
    change(4, 10, &["MutableCSINodeAllocatableCount", "ReleaseLeaderElectionOnExit", "feature-gates"], &[]),
    change(4, 11, &["leader-election-labels"], &[]),
    change(4, 13, &[], GATES_UNTIL_1_36),
];

/// Its own flags, current and removed.
const FLAGS: &[Flag] = &[
    flag(
        "timeout",
        Time,
        Key("roles.attacher.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, with the same default. A page of ListVolumes has `roles.reconciler.pageTimeout`",
    ),
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
        "`ReleaseLeaderElectionOnExit` is always on; `MutableCSINodeAllocatableCount` is `roles.attacher.errorCodes`; the other gates have no effect in csi-attacher either",
    ),
    flag("dummy", Switch, Gone, "also removed from the sidecars; a driver without the publish capability is noticed"),
];
