//! external-health-monitor-controller v0.18 and v0.19: how `migrate` recognises it, and which keys replace its flags.

use std::time::Duration;

use crate::config::changes::{Change, KLOG, LEASE_TIMES, changes};
use crate::config::flags::{Flag, flags};
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
const CHANGES: &[Change] = changes! {
    0, 2, &["http-endpoint"], &[];
    0, 4, LEASE_TIMES, &[];
    0, 10, &["logging-format"], KLOG;
    0, 15, &["automaxprocs"], &[];
    0, 17, &["kube-api-burst", "kube-api-qps", "leader-election-labels"], &[];
    0, 19, &[], &["enable-node-watcher", "node-list-add-interval"];
};

/// What it has of its own, and once had.
const FLAGS: &[Flag] = flags! {
    "monitor-interval", Time, Key("roles.healthMonitor.interval"),
        "same default; each volume is asked for once in this time, where v0.18 asks for one per worker";
    "list-volumes-interval", Time, Key("roles.healthMonitor.listInterval"),
        "same default; where the reconciler lists the volumes, its passes count, too";
    "worker-threads", Count, Key("roles.healthMonitor.workers"), "same default; tasks, not threads";
    "timeout", Time, Key("roles.healthMonitor.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, with the same default. A page of a list has `roles.healthMonitor.pageTimeout`; v0.18 \
         has one deadline for all pages";
    "volume-list-add-interval", Time, Gone,
        "volumes are watched: one that binds is monitored at once, where it is found in the next list there, or never";
    "resync", Time, Gone, "each volume is asked for once per interval anyway";
    "enable-node-watcher", Switch, Key("roles.healthMonitor.nodeWatch"),
        "same default; v0.19 has no node watcher. That of v0.18 misses pods that had no node when it saw them";
    "node-list-add-interval", Time, Gone, "nodes and pods are watched";
};
