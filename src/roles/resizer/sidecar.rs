//! csi-resizer v2.3: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, LEASE_TIMES, changes};
use crate::config::defaults::{OldDefault, defaults};
use crate::config::flags::{Flag, flags};
use crate::config::sidecar::{Gate, LockedGate, RELEASED_AT_EXIT, Sidecar, Signs};

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
    locked_gates: &[
        RELEASED_AT_EXIT,
        LockedGate {
            name: "RecoverVolumeExpansionFailure",
            why: "the algorithm without it is not hosted: Kubernetes has locked it on since 1.34, and csi-resizer v2.3 does not start with \
                  the gate, whatever its value",
            matters: true,
        },
    ],
    timeout: Duration::from_secs(10),
    defaults: DEFAULTS,
    changes: CHANGES,
    overruled: &[("resize-timeout", "timeout"), ("modify-timeout", "timeout")],
    ..Sidecar::PLAIN
};

/// Its defaults that are, or were, not the daemon's.
const DEFAULTS: &[OldDefault] = defaults! {
    "--workers", Key("roles.resizer.workers"), [0, 0, Count(10), "resizer spec 1.3"];
    "--feature-gates=VolumeAttributesClass", Key("roles.resizer.modify"),
        [0, 0, Switch(false), "external-resizer pkg/features/features.go before v2.0"],
        [2, 0, Switch(true), "external-resizer CHANGELOG-2.0"];
    "--feature-gates=AnnotateFsResize", Key("roles.resizer.annotatePreResize"),
        [0, 0, Switch(false), "external-resizer pkg/features/features.go: alpha and off"],
        [2, 3, Switch(true), "external-resizer CHANGELOG-2.3"];
    "--feature-gates=RecoverVolumeExpansionFailure", Never("a claim whose expansion failed may be set to a smaller size"),
        [0, 0, Switch(false), "external-resizer CHANGELOG-1.13"], [1, 13, Switch(true), "external-resizer CHANGELOG-1.13"];
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    1, 1, &["http-endpoint"], &[];
    1, 2, &["AnnotateFsResize", "feature-gates"], &[];
    1, 3, LEASE_TIMES, &[];
    1, 4, &["RecoverVolumeExpansionFailure"], &[];
    1, 10, &["VolumeAttributesClass", "logging-format"], KLOG;
    1, 13, &["extra-modify-metadata"], &[];
    1, 14, &["automaxprocs"], &[];
    2, 0, &["ReleaseLeaderElectionOnExit"], &[];
    2, 2, &["leader-election-labels"], &[];
    2, 3, &["modify-timeout", "resize-timeout"], &["RecoverVolumeExpansionFailure"];
    2, 3, &[], GATES_UNTIL_1_36;
};

/// What it has of its own, and once had.
const FLAGS: &[Flag] = flags! {
    "timeout", Time, Key("roles.resizer.timeout"), "of this sidecar alone; unset: `csi.timeout`, which is 15s instead of 10s";
    "resize-timeout", Time, Key("roles.resizer.resizeTimeout"),
        "unset: `roles.resizer.timeout`; there `--timeout` counts if both are given, here this";
    "modify-timeout", Time, Key("roles.resizer.modifyTimeout"),
        "unset: `roles.resizer.timeout`; there `--timeout` counts if both are given, here this";
    "workers", Count, Key("roles.resizer.workers"),
        "100 for expansions and modifications together instead of 10 for each: tasks, not threads";
    "retry-interval-start", Time, Key("roles.resizer.retry.initial"), "same default";
    "retry-interval-max", Time, Key("roles.resizer.retry.max"),
        "same default; the pause after a refusal for good is `roles.resizer.retry.infeasible`; codes that mean \"soon\" are retried sooner";
    "resync-period", Time, Key("roles.resizer.resync"), "same default; never cuts a back-off short";
    "handle-volume-inuse-error", Switch, Key("roles.resizer.inUseCheck"),
        "same default; pods are watched only in the namespaces of claims that wait for them";
    "extra-modify-metadata", Switch, Key("roles.resizer.extraModifyMetadata"), "same default";
    "feature-gates", Text, Gone,
        "`VolumeAttributesClass` is `roles.resizer.modify`; `AnnotateFsResize` is `roles.resizer.annotatePreResize`; \
         `RecoverVolumeExpansionFailure`, with which v2.3 does not start, and `ReleaseLeaderElectionOnExit` are always on";
    "csiTimeout", Time, Key("roles.resizer.timeout"), "removed there as well";
};
