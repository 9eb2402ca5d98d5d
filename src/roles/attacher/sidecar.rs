//! csi-attacher v4.12: how `migrate` recognises it, and which keys replace its flags. The flags of its reconciler are
//! keys of the role `reconciler`.

use std::time::Duration;

use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Gate, OtherDefault, Sidecar, Signs};

/// csi-attacher.
pub const SIDECAR: Sidecar = Sidecar {
    name: "csi-attacher",
    signs: Signs { words: &["csi-attacher", "external-attacher"], flags: &["reconcile-sync", "max-entries"] },
    roles: &[super::NAME, "reconciler"],
    flags: FLAGS,
    gates: &[Gate { name: "MutableCSINodeAllocatableCount", key: "roles.attacher.errorCodes" }],
    locked_gates: &[],
    timeout: Duration::from_secs(15),
    defaults: &[OtherDefault {
        key: "roles.attacher.workers",
        told: "--worker-threads was 10; roles.attacher.workers is 100",
    }],
    per_node: None,
    advice: |_| None,
};

/// Its own flags, current and removed.
const FLAGS: &[Flag] = &[
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
