//! external-health-monitor-controller v0.18 and v0.19: how `migrate` recognises it, and which keys replace its flags.

use std::time::Duration;

use crate::config::changes::{Change, KLOG, LEASE_TIMES, change};
use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Sidecar, Signs};

/// external-health-monitor-controller.
pub const SIDECAR: Sidecar = Sidecar {
    name: "external-health-monitor-controller",
    signs: Signs {
        words: &["csi-external-health-monitor-controller", "external-health-monitor-controller"],
        flags: &["list-volumes-interval", "enable-node-watcher", "monitor-interval", "volume-list-add-interval"],
    },
    roles: &[super::NAME],
    flags: FLAGS,
    // No gate: its only one is `ReleaseLeaderElectionOnExit`, and no version has a flag that could switch it (node-and-health spec C5).
    timeout: Duration::from_secs(15),
    changes: CHANGES,
    ..Sidecar::PLAIN
};

/// What its versions brought and took away: the program text at each of its releases.
const CHANGES: &[Change] = &[
    change(0, 2, &["http-endpoint"], &[]),
    change(0, 4, LEASE_TIMES, &[]),
    change(0, 10, &["logging-format"], KLOG),
    change(0, 15, &["automaxprocs"], &[]),
    change(0, 17, &["kube-api-burst", "kube-api-qps", "leader-election-labels"], &[]),
    change(0, 19, &[], &["enable-node-watcher", "node-list-add-interval"]),
];

/// What it has of its own, and once had.
const FLAGS: &[Flag] = &[
    flag(
        "monitor-interval",
        Time,
        Key("roles.healthMonitor.interval"),
        "same default; each volume is asked for once in this time, where v0.18 asks for one per worker",
    ),
    flag(
        "list-volumes-interval",
        Time,
        Key("roles.healthMonitor.listInterval"),
        "same default; where the reconciler lists the volumes, its passes count, too",
    ),
    flag("worker-threads", Count, Key("roles.healthMonitor.workers"), "same default; tasks, not threads"),
    flag(
        "timeout",
        Time,
        Key("roles.healthMonitor.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, with the same default. A page of a list has `roles.healthMonitor.pageTimeout`; v0.18 \
         has one deadline for all pages",
    ),
    flag(
        "volume-list-add-interval",
        Time,
        Gone,
        "volumes are watched: one that binds is monitored at once, where it is found in the next list there, or never",
    ),
    flag("resync", Time, Gone, "each volume is asked for once per interval anyway"),
    flag(
        "enable-node-watcher",
        Switch,
        Key("roles.healthMonitor.nodeWatch"),
        "same default; v0.19 has no node watcher. That of v0.18 misses pods that had no node when it saw them",
    ),
    flag("node-list-add-interval", Time, Gone, "nodes and pods are watched"),
];
