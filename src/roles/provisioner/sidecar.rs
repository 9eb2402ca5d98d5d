//! csi-provisioner v6.4: how it is recognised, and what its settings are here.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::changes::{Change, KLOG, change};
use crate::config::defaults::DefaultValue::{Switch as Gated, Text as Word};
use crate::config::defaults::{Kept, OldDefault, Version, since};
use crate::config::flags::Now::{Gone, Key};
use crate::config::flags::Takes::{Count, Switch, Text, Time};
use crate::config::flags::{Flag, flag};
use crate::config::sidecar::{Advice, Gate, LockedGate, MadeAnew, Moved, RELEASED_AT_EXIT, Return, Sidecar, Signs};

use super::names;

/// csi-provisioner.
pub const SIDECAR: Sidecar = Sidecar {
    name: "csi-provisioner",
    signs: Signs {
        words: &["csi-provisioner", "external-provisioner"],
        flags: &["volume-name-prefix", "strict-topology", "immediate-topology", "enable-capacity", "node-deployment"],
    },
    roles: &[super::NAME],
    flags: FLAGS,
    gates: &[
        Gate { name: "Topology", key: "roles.provisioner.topology" },
        Gate { name: "CrossNamespaceVolumeDataSource", key: "roles.provisioner.crossNamespaceSources" },
        Gate { name: "HonorPVReclaimPolicy", key: "roles.provisioner.honorReclaimPolicy" },
        Gate { name: "VolumeAttributesClass", key: "roles.provisioner.attributesClasses" },
    ],
    locked_gates: &[
        RELEASED_AT_EXIT,
        LockedGate {
            name: "CSINodeExpandSecret",
            why: "always on here, as in Kubernetes since 1.29: a PersistentVolume names the secret for its expansion on a node, if its \
                  class does",
            matters: false,
        },
    ],
    timeout: Duration::from_secs(10),
    defaults: DEFAULTS,
    changes: CHANGES,
    // external-provisioner CHANGELOG-2.0: the flag `leader-election-type`, whose default was `endpoints`, is gone.
    lease_since: Version(2, 0),
    per_node: Some("roles.provisioner.nodeDeployment.enabled"),
    returns: RETURNS,
    advice,
    ..Sidecar::PLAIN
};

/// It reads no journal, and its versions before 3.1 know nothing of the finalizer that keeps a `PersistentVolume` until its volume is
/// deleted.
const RETURNS: &[Return] = &[
    Return {
        before: None,
        unless_off: None,
        why: "until the journal is empty: csi-provisioner does not read it, and the volume that the driver is creating for a deleted \
              claim would be leaked",
        first: Some(
            "until kubectl get configmap{place} -l csi-control-plane.io/journal={driver} -o json | jq -e '([.items[].data // {} | length] \
             | add // 0) == 0'; do sleep 5; done",
        ),
        // Where the daemon was killed in the middle, an entry may be left, and with it a volume that nothing else knows of.
        last: Some(
            "kubectl get configmap{place} -l csi-control-plane.io/journal={driver} -o json | jq '.items |= map(select((.data // {}) == \
             {}))' | kubectl delete -f - # one with entries stays: move over again, and back later",
        ),
    },
    Return {
        before: Some(Version(3, 1)),
        unless_off: Some("honorReclaimPolicy"),
        why: "csi-provisioner before v3.1 never removes this finalizer: a PersistentVolume that has it would stay for ever once it is \
              deleted",
        first: None,
        last: Some(
            "kubectl get pv -o json | jq '.items |= map(select((.spec.csi.driver == \"{driver}\" or \
             .metadata.annotations[\"pv.kubernetes.io/migrated-to\"] == \"{driver}\") and any(.metadata.finalizers[]?; . == \
             \"external-provisioner.volume.kubernetes.io/finalizer\")) | .metadata.finalizers -= \
             [\"external-provisioner.volume.kubernetes.io/finalizer\"])' | kubectl replace -f -",
        ),
    },
];

/// The capacity objects may belong to the workload's `ReplicaSet`, and each roll-out brings another one. csi-provisioner enters
/// its owner beside the one that it finds, which the API refuses each time.
fn advice(moved: &Moved<'_>) -> Option<Advice> {
    let capacity = moved.section.get("capacity");
    let says = |key: &str, value: Value| capacity.and_then(|capacity| capacity.get(key)) == Some(&value);
    (moved.kind == "Deployment" && says("enabled", json!(true)) && says("ownerLevel", json!(1))).then(|| Advice {
        note: "--capacity-ownerref-level is 1, and the workload a Deployment: the CSIStorageCapacity objects belong to a ReplicaSet, \
               and each roll-out brings another. The daemon puts itself in its place; csi-provisioner can't, so that what it tells \
               grows old after a roll-out of its own and after the way back: use level 2 before the move, or delete the objects \
               after the way back, and it makes new ones"
            .to_owned(),
        made_anew: Some(MadeAnew { resource: "csistoragecapacities", label: names::LABEL_DRIVER_NAME }),
    })
}

/// The flags whose default is, or was, another one than the daemon's.
const DEFAULTS: &[OldDefault] = &[
    OldDefault {
        flag: "--feature-gates=Topology",
        kept: Kept::Key("roles.provisioner.topology"),
        values: &[
            since(0, 0, Gated(false), "external-provisioner CHANGELOG-5.0"),
            since(5, 0, Gated(true), "external-provisioner CHANGELOG-5.0"),
        ],
    },
    OldDefault {
        flag: "--prevent-volume-mode-conversion",
        kept: Kept::Key("roles.provisioner.preventVolumeModeConversion"),
        values: &[
            since(0, 0, Gated(false), "external-provisioner CHANGELOG-4.0"),
            since(4, 0, Gated(true), "external-provisioner CHANGELOG-4.0"),
        ],
    },
    OldDefault {
        flag: "--default-fstype",
        kept: Kept::Key("roles.provisioner.defaultFsType"),
        values: &[
            since(0, 0, Word("ext4"), "external-provisioner CHANGELOG-2.0"),
            since(2, 0, Word(""), "external-provisioner CHANGELOG-2.0"),
        ],
    },
    OldDefault {
        flag: "--feature-gates=HonorPVReclaimPolicy",
        kept: Kept::Key("roles.provisioner.honorReclaimPolicy"),
        values: &[
            since(0, 0, Gated(false), "external-provisioner CHANGELOG-5.0"),
            since(5, 0, Gated(true), "external-provisioner CHANGELOG-5.0"),
        ],
    },
    OldDefault {
        flag: "--feature-gates=VolumeAttributesClass",
        kept: Kept::Key("roles.provisioner.attributesClasses"),
        values: &[
            since(0, 0, Gated(false), "external-provisioner CHANGELOG-4.0"),
            since(6, 0, Gated(true), "external-provisioner CHANGELOG-6.0"),
        ],
    },
];

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = &[
    change(0, 0, &[], &["CSINodeExpandSecret"]),
    change(
        2,
        0,
        &[
            "capacity-controller-deployment-mode",
            "capacity-for-immediate-binding",
            "capacity-ownerref-level",
            "capacity-poll-interval",
            "capacity-threads",
            "default-fstype",
            "kube-api-burst",
            "kube-api-qps",
            "leader-election",
        ],
        &["connection-timeout", "enable-leader-election", "leader-election-type", "provisioner"],
    ),
    change(
        2,
        1,
        &[
            "enable-capacity",
            "http-endpoint",
            "immediate-topology",
            "node-deployment",
            "node-deployment-base-delay",
            "node-deployment-immediate-binding",
            "node-deployment-max-delay",
        ],
        &["capacity-controller-deployment-mode"],
    ),
    change(
        3,
        0,
        &[
            "controller-publish-readonly",
            "leader-election-lease-duration",
            "leader-election-renew-deadline",
            "leader-election-retry-period",
        ],
        &[],
    ),
    change(3, 1, &["HonorPVReclaimPolicy"], &[]),
    change(
        3,
        2,
        &["enable-pprof", "kube-api-capacity-burst", "kube-api-capacity-qps", "prevent-volume-mode-conversion"],
        &[],
    ),
    change(3, 4, &["CrossNamespaceVolumeDataSource"], &[]),
    change(4, 0, &["VolumeAttributesClass"], &[]),
    change(5, 2, &["logging-format"], KLOG),
    change(5, 3, &["automaxprocs"], &[]),
    change(6, 0, &["ReleaseLeaderElectionOnExit", "snapshot-orphan-sweep-interval"], &[]),
    change(6, 2, &["leader-election-labels"], &["HonorPVReclaimPolicy"]),
];

/// What it has of its own, and once had.
const FLAGS: &[Flag] = &[
    flag(
        "timeout",
        Time,
        Key("roles.provisioner.timeout"),
        "of this sidecar alone; unset: `csi.timeout`, which is 15s instead of 10s",
    ),
    flag(
        "worker-threads",
        Count,
        Key("roles.provisioner.workers"),
        "same default: tasks, not threads; deletions have `roles.provisioner.deleteWorkers`",
    ),
    flag("retry-interval-start", Time, Key("roles.provisioner.retry.initial"), "same default"),
    flag(
        "retry-interval-max",
        Time,
        Key("roles.provisioner.retry.max"),
        "same default; claims that the driver rejects as invalid have `roles.provisioner.retry.infeasible`",
    ),
    flag("volume-name-prefix", Text, Key("roles.provisioner.volumeNamePrefix"), "same default"),
    flag(
        "volume-name-uuid-length",
        Count,
        Key("roles.provisioner.volumeNameUuidLength"),
        "the whole uid is null, not -1",
    ),
    flag("default-fstype", Text, Key("roles.provisioner.defaultFsType"), "same default"),
    flag("strict-topology", Switch, Key("roles.provisioner.strictTopology"), "same default"),
    flag("immediate-topology", Switch, Key("roles.provisioner.immediateTopology"), "same default"),
    flag("extra-create-metadata", Switch, Key("roles.provisioner.extraCreateMetadata"), "same default"),
    flag("controller-publish-readonly", Switch, Key("roles.provisioner.publishReadonly"), "same default"),
    flag(
        "prevent-volume-mode-conversion",
        Switch,
        Key("roles.provisioner.preventVolumeModeConversion"),
        "same default",
    ),
    flag(
        "snapshot-orphan-sweep-interval",
        Time,
        Key("roles.provisioner.snapshotSweepInterval"),
        "same default; clones, too",
    ),
    flag(
        "cloning-protection-threads",
        Count,
        Gone,
        "removing a source's finalizer is rare and quick: a few workers are enough",
    ),
    flag("enable-capacity", Switch, Key("roles.provisioner.capacity.enabled"), "same default"),
    flag(
        "capacity-controller-deployment-mode",
        Text,
        Key("roles.provisioner.capacity.enabled"),
        "the flag of v2.0: `central` is true",
    ),
    flag("capacity-for-immediate-binding", Switch, Key("roles.provisioner.capacity.immediateBinding"), "same default"),
    flag("capacity-poll-interval", Time, Key("roles.provisioner.capacity.pollInterval"), "same default"),
    flag("capacity-ownerref-level", Count, Key("roles.provisioner.capacity.ownerLevel"), "same default"),
    flag("capacity-threads", Count, Key("roles.provisioner.capacity.workers"), "10 instead of 1: tasks, not threads"),
    flag(
        "kube-api-capacity-qps",
        Text,
        Gone,
        "see `kube-api-qps`; `roles.provisioner.capacity.workers` bounds the refresh",
    ),
    flag("kube-api-capacity-burst", Count, Gone, "see `kube-api-capacity-qps`"),
    flag(
        "node-deployment",
        Switch,
        Key("roles.provisioner.nodeDeployment.enabled"),
        "same default; uses `NODE_NAME`, too",
    ),
    flag(
        "node-deployment-immediate-binding",
        Switch,
        Key("roles.provisioner.nodeDeployment.immediateBinding"),
        "same default",
    ),
    flag("node-deployment-base-delay", Time, Key("roles.provisioner.nodeDeployment.baseDelay"), "same default"),
    flag("node-deployment-max-delay", Time, Key("roles.provisioner.nodeDeployment.maxDelay"), "same default"),
    flag("enable-pprof", Switch, Gone, "Go's profiler; traces show where time is spent: `telemetry.traces.endpoint`"),
    flag(
        "feature-gates",
        Text,
        Gone,
        "`Topology` is `roles.provisioner.topology`, `CrossNamespaceVolumeDataSource` is `roles.provisioner.crossNamespaceSources`, `HonorPVReclaimPolicy` is `roles.provisioner.honorReclaimPolicy`, `VolumeAttributesClass` is `roles.provisioner.attributesClasses`: such a class is read when a claim names it, and where the API has no `storage.k8s.io/v1` of the kind, that claim waits instead of being provisioned without it; `ReleaseLeaderElectionOnExit` is always on, and `CSINodeExpandSecret` is no gate of csi-provisioner, which does not start with it",
    ),
    flag("provisioner", Text, Gone, "also removed from the sidecars; the daemon asks the driver for its name"),
];
