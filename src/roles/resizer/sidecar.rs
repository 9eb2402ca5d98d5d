//! csi-resizer v2.2: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Gate, LockedGate, OtherDefault, Sidecar, Signs};

/// csi-resizer.
pub const SIDECAR: Sidecar = Sidecar {
    name: "csi-resizer",
    signs: Signs {
        words: &["csi-resizer", "external-resizer"],
        flags: &["handle-volume-inuse-error", "extra-modify-metadata"],
    },
    roles: &[super::NAME],
    flags: FLAGS,
    gates: &[
        Gate { name: "VolumeAttributesClass", key: "roles.resizer.modify" },
        Gate { name: "AnnotateFsResize", key: "roles.resizer.annotatePreResize" },
    ],
    locked_gates: &[LockedGate {
        name: "RecoverVolumeExpansionFailure",
        why: "the algorithm without it is not hosted: Kubernetes has locked it on since 1.34",
    }],
    timeout: Duration::from_secs(10),
    defaults: &[OtherDefault {
        key: "roles.resizer.workers",
        told: "--workers was 10 for each of two controllers; roles.resizer.workers is 100 for both together",
    }],
    per_node: None,
    advice: |_| None,
};

/// What it has of its own, and once had.
const FLAGS: &[Flag] = &[
    flag(
        "workers",
        Count,
        Key("roles.resizer.workers"),
        "100 for expansions and modifications together instead of 10 for each: tasks, not threads",
    ),
    flag("retry-interval-start", Time, Key("roles.resizer.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Time,
        Key("roles.resizer.retry.max"),
        "same default; the pause after a refusal for good is `roles.resizer.retry.infeasible`; codes that mean \"soon\" are retried \
         sooner",
    ),
    flag("resync-period", Time, Key("roles.resizer.resync"), "same default; never cuts a back-off short"),
    flag(
        "handle-volume-inuse-error",
        Switch,
        Key("roles.resizer.inUseCheck"),
        "same default; pods are watched only in the namespaces of claims that wait for them",
    ),
    flag("extra-modify-metadata", Switch, Key("roles.resizer.extraModifyMetadata"), "same default"),
    flag(
        "feature-gates",
        Text,
        Gone,
        "`VolumeAttributesClass` is `roles.resizer.modify`; `AnnotateFsResize` is `roles.resizer.annotatePreResize`; \
         `RecoverVolumeExpansionFailure` and `ReleaseLeaderElectionOnExit` are always on",
    ),
    flag("csiTimeout", Time, Key("csi.timeout"), "removed there as well"),
];
