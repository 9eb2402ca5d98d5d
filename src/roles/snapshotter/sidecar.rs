//! csi-snapshotter v8.7: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, change};
use crate::config::defaults::DefaultValue::{Count as Number, Switch as Gated};
use crate::config::defaults::{Kept, OldDefault, Version, always, since};
use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Gate, RELEASED_AT_EXIT, Sidecar, Signs};

/// csi-snapshotter.
pub const SIDECAR: Sidecar = Sidecar {
    name: "csi-snapshotter",
    signs: Signs {
        words: &["csi-snapshotter", "external-snapshotter"],
        flags: &["snapshot-name-prefix", "snapshot-name-uuid-length"],
    },
    roles: &[super::NAME],
    flags: FLAGS,
    gates: &[Gate { name: "CSIVolumeGroupSnapshot", key: "roles.snapshotter.groupSnapshots" }],
    locked_gates: &[RELEASED_AT_EXIT],
    // Of the calls that `csi.timeout` is for here. Its own `--timeout` is the deadline of the two long calls.
    timeout: Duration::from_secs(15),
    defaults: DEFAULTS,
    changes: CHANGES,
    // external-snapshotter CHANGELOG-1.3: since then the name of the Lease has the driver's name.
    lease_since: Version(1, 3),
    per_node: Some("roles.snapshotter.nodeDeployment.enabled"),
    ..Sidecar::PLAIN
};

/// Its defaults that are, or were, not the daemon's.
const DEFAULTS: &[OldDefault] = &[
    OldDefault {
        flag: "--worker-threads",
        kept: Kept::Key("roles.snapshotter.workers"),
        values: &[always(Number(10), "snapshotter spec 1.3")],
    },
    OldDefault {
        flag: "--feature-gates=CSIVolumeGroupSnapshot",
        kept: Kept::Key("roles.snapshotter.groupSnapshots"),
        values: &[
            since(0, 0, Gated(false), "external-snapshotter CHANGELOG-8.2"),
            since(8, 7, Gated(true), "external-snapshotter CHANGELOG-8.7"),
        ],
    },
];

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = &[
    change(4, 0, &["extra-create-metadata", "http-endpoint"], &[]),
    change(
        4,
        2,
        &[
            "leader-election-lease-duration",
            "leader-election-renew-deadline",
            "leader-election-retry-period",
            "retry-interval-max",
            "retry-interval-start",
        ],
        &[],
    ),
    change(5, 0, &["kube-api-burst", "kube-api-qps", "node-deployment"], &[]),
    change(
        6,
        3,
        &["enable-volume-group-snapshots", "groupsnapshot-name-prefix", "groupsnapshot-name-uuid-length"],
        &[],
    ),
    change(8, 2, &["CSIVolumeGroupSnapshot", "feature-gates"], &["enable-volume-group-snapshots"]),
    change(8, 3, &["automaxprocs", "logging-format"], KLOG),
    change(8, 4, &["ReleaseLeaderElectionOnExit"], &[]),
    change(8, 5, &["leader-election-labels"], &[]),
    change(8, 7, &[], GATES_UNTIL_1_36),
];

/// What it has of its own, and once had.
const FLAGS: &[Flag] = &[
    flag(
        "timeout",
        Time,
        Key("roles.snapshotter.callTimeout"),
        "same default; of csi-snapshotter alone, for CreateSnapshot and DeleteSnapshot; its other calls have `roles.snapshotter.timeout`",
    ),
    flag(
        "worker-threads",
        Count,
        Key("roles.snapshotter.workers"),
        "100 instead of 10: tasks, not threads; deletions have `roles.snapshotter.deleteWorkers`",
    ),
    flag("retry-interval-start", Time, Key("roles.snapshotter.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Time,
        Key("roles.snapshotter.retry.max"),
        "same default; what the driver refuses as invalid has `roles.snapshotter.retry.infeasible`, a snapshot that is not ready yet \
         `roles.snapshotter.readyCheck`",
    ),
    flag("resync-period", Time, Key("roles.snapshotter.resync"), "same default; never cuts a back-off short"),
    flag("snapshot-name-prefix", Text, Key("roles.snapshotter.snapshotNamePrefix"), "same default"),
    flag(
        "snapshot-name-uuid-length",
        Count,
        Key("roles.snapshotter.snapshotNameUuidLength"),
        "the whole uid is null, not -1",
    ),
    flag("extra-create-metadata", Switch, Key("roles.snapshotter.extraCreateMetadata"), "same default"),
    flag(
        "node-deployment",
        Switch,
        Key("roles.snapshotter.nodeDeployment.enabled"),
        "same default; uses `NODE_NAME`, too",
    ),
    flag("groupsnapshot-name-prefix", Text, Key("roles.snapshotter.groupSnapshotNamePrefix"), "same default"),
    flag(
        "groupsnapshot-name-uuid-length",
        Count,
        Key("roles.snapshotter.groupSnapshotNameUuidLength"),
        "the whole uid is null, not -1",
    ),
    flag(
        "enable-volume-group-snapshots",
        Switch,
        Key("roles.snapshotter.groupSnapshots"),
        "on where cluster and driver have groups; before v8.2, when the gate of `--feature-gates` came instead, it was off",
    ),
    flag(
        "feature-gates",
        Text,
        Gone,
        "`CSIVolumeGroupSnapshot` is `roles.snapshotter.groupSnapshots`, which is on where cluster and driver have groups; \
         `ReleaseLeaderElectionOnExit` is always on",
    ),
    flag("snapshotter", Text, Gone, "also removed from the sidecars; the daemon asks the driver for its name"),
];
