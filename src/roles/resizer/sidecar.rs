//! csi-resizer v2.3: how it is recognised, and what its settings are here.

use std::time::Duration;

use crate::config::changes::{Change, GATES_UNTIL_1_36, KLOG, LEASE_TIMES, change};
use crate::config::defaults::DefaultValue::{Count as Number, Switch as Gated};
use crate::config::defaults::{Kept, OldDefault, always, since};
use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
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
const DEFAULTS: &[OldDefault] = &[
    OldDefault {
        flag: "--workers",
        kept: Kept::Key("roles.resizer.workers"),
        values: &[always(Number(10), "resizer spec 1.3")],
    },
    OldDefault {
        flag: "--feature-gates=VolumeAttributesClass",
        kept: Kept::Key("roles.resizer.modify"),
        values: &[
            since(0, 0, Gated(false), "external-resizer pkg/features/features.go before v2.0"),
            since(2, 0, Gated(true), "external-resizer CHANGELOG-2.0"),
        ],
    },
    OldDefault {
        flag: "--feature-gates=AnnotateFsResize",
        kept: Kept::Key("roles.resizer.annotatePreResize"),
        values: &[
            since(0, 0, Gated(false), "external-resizer pkg/features/features.go: alpha and off"),
            since(2, 3, Gated(true), "external-resizer CHANGELOG-2.3"),
        ],
    },
    OldDefault {
        flag: "--feature-gates=RecoverVolumeExpansionFailure",
        kept: Kept::Never("a claim whose expansion failed may be set to a smaller size"),
        values: &[
            since(0, 0, Gated(false), "external-resizer CHANGELOG-1.13"),
            since(1, 13, Gated(true), "external-resizer CHANGELOG-1.13"),
        ],
    },
];

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = &[
    change(1, 1, &["http-endpoint"], &[]),
    change(1, 2, &["AnnotateFsResize", "feature-gates"], &[]),
    change(1, 3, LEASE_TIMES, &[]),
    change(1, 4, &["RecoverVolumeExpansionFailure"], &[]),
    change(1, 10, &["VolumeAttributesClass", "logging-format"], KLOG),
    change(1, 13, &["extra-modify-metadata"], &[]),
    change(1, 14, &["automaxprocs"], &[]),
    change(2, 0, &["ReleaseLeaderElectionOnExit"], &[]),
    change(2, 2, &["leader-election-labels"], &[]),
    change(2, 3, &["modify-timeout", "resize-timeout"], &["RecoverVolumeExpansionFailure"]),
    change(2, 3, &[], GATES_UNTIL_1_36),
];

/// What it has of its own, and once had.
const FLAGS: &[Flag] = &[
    flag(
        "timeout",
        Time,
        Key("roles.resizer.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, which is 15s instead of 10s",
    ),
    flag(
        "resize-timeout",
        Time,
        Key("roles.resizer.resizeTimeout"),
        "unset: `roles.resizer.timeout`; there `--timeout` counts if both are given, here this",
    ),
    flag(
        "modify-timeout",
        Time,
        Key("roles.resizer.modifyTimeout"),
        "unset: `roles.resizer.timeout`; there `--timeout` counts if both are given, here this",
    ),
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
         `RecoverVolumeExpansionFailure`, with which v2.3 does not start, and `ReleaseLeaderElectionOnExit` are always on",
    ),
    flag("csiTimeout", Time, Key("roles.resizer.timeout"), "removed there as well"),
];
