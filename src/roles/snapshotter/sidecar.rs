//! csi-snapshotter v8.7: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, LEASE_TIMES, changes};
use crate::config::defaults::{OldDefault, Version, defaults};
use crate::config::flags::{Flag, flags};
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
const DEFAULTS: &[OldDefault] = defaults! {
    "--worker-threads", Key("roles.snapshotter.workers"), [0, 0, Count(10), "snapshotter spec 1.3"];
    "--feature-gates=CSIVolumeGroupSnapshot", Key("roles.snapshotter.groupSnapshots"),
        [0, 0, Switch(false), "external-snapshotter CHANGELOG-8.2"], [8, 7, Switch(true), "external-snapshotter CHANGELOG-8.7"];
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    4, 0, &["extra-create-metadata", "http-endpoint"], &[];
    4, 2, LEASE_TIMES, &[];
    4, 2, &["retry-interval-max", "retry-interval-start"], &[];
    5, 0, &["kube-api-burst", "kube-api-qps", "node-deployment"], &[];
    6, 3, &["enable-volume-group-snapshots", "groupsnapshot-name-prefix", "groupsnapshot-name-uuid-length"], &[];
    8, 2, &["CSIVolumeGroupSnapshot", "feature-gates"], &["enable-volume-group-snapshots"];
    8, 3, &["automaxprocs", "logging-format"], KLOG;
    8, 4, &["ReleaseLeaderElectionOnExit"], &[];
    8, 5, &["leader-election-labels"], &[];
    8, 7, &[], GATES_UNTIL_1_36;
};

/// What it has of its own, and once had.
const FLAGS: &[Flag] = flags! {
    "timeout", Time, Key("roles.snapshotter.callTimeout"),
        "same default; of csi-snapshotter alone, for CreateSnapshot and DeleteSnapshot; its other calls have `roles.snapshotter.timeout`";
    "worker-threads", Count, Key("roles.snapshotter.workers"),
        "100 instead of 10: tasks, not threads; deletions have `roles.snapshotter.deleteWorkers`";
    "retry-interval-start", Time, Key("roles.snapshotter.retry.initial"), "same default";
    "retry-interval-max", Time, Key("roles.snapshotter.retry.max"),
        "same default; what the driver refuses as invalid has `roles.snapshotter.retry.infeasible`, a snapshot that is not ready yet \
         `roles.snapshotter.readyCheck`";
    "resync-period", Time, Key("roles.snapshotter.resync"), "same default; never cuts a back-off short";
    "snapshot-name-prefix", Text, Key("roles.snapshotter.snapshotNamePrefix"), "same default";
    "snapshot-name-uuid-length", Count, Key("roles.snapshotter.snapshotNameUuidLength"), "the whole uid is null, not -1";
    "extra-create-metadata", Switch, Key("roles.snapshotter.extraCreateMetadata"), "same default";
    "node-deployment", Switch, Key("roles.snapshotter.nodeDeployment.enabled"), "same default; uses `NODE_NAME`, too";
    "groupsnapshot-name-prefix", Text, Key("roles.snapshotter.groupSnapshotNamePrefix"), "same default";
    "groupsnapshot-name-uuid-length", Count, Key("roles.snapshotter.groupSnapshotNameUuidLength"), "the whole uid is null, not -1";
    "enable-volume-group-snapshots", Switch, Key("roles.snapshotter.groupSnapshots"),
        "on where cluster and driver have groups; before v8.2, when the gate of `--feature-gates` came instead, it was off";
    "feature-gates", Text, Gone,
        "`CSIVolumeGroupSnapshot` is `roles.snapshotter.groupSnapshots`, which is on where cluster and driver have groups; \
         `ReleaseLeaderElectionOnExit` is always on";
    "snapshotter", Text, Gone, "also removed from the sidecars; the daemon asks the driver for its name";
};
