//! csi-provisioner v6.4: how it is recognised, and what its settings are here.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::changes::{Change, KLOG, LEASE_TIMES, changes};
use crate::config::defaults::{OldDefault, Version, defaults};
use crate::config::flags::{Flag, flags};
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
const DEFAULTS: &[OldDefault] = defaults! {
    "--feature-gates=Topology", Key("roles.provisioner.topology"),
        [0, 0, Switch(false), "external-provisioner CHANGELOG-5.0"], [5, 0, Switch(true), "external-provisioner CHANGELOG-5.0"];
    "--prevent-volume-mode-conversion", Key("roles.provisioner.preventVolumeModeConversion"),
        [0, 0, Switch(false), "external-provisioner CHANGELOG-4.0"], [4, 0, Switch(true), "external-provisioner CHANGELOG-4.0"];
    "--default-fstype", Key("roles.provisioner.defaultFsType"),
        [0, 0, Text("ext4"), "external-provisioner CHANGELOG-2.0"], [2, 0, Text(""), "external-provisioner CHANGELOG-2.0"];
    "--feature-gates=HonorPVReclaimPolicy", Key("roles.provisioner.honorReclaimPolicy"),
        [0, 0, Switch(false), "external-provisioner CHANGELOG-5.0"], [5, 0, Switch(true), "external-provisioner CHANGELOG-5.0"];
    "--feature-gates=VolumeAttributesClass", Key("roles.provisioner.attributesClasses"),
        [0, 0, Switch(false), "external-provisioner CHANGELOG-4.0"], [6, 0, Switch(true), "external-provisioner CHANGELOG-6.0"];
};

/// What its versions brought and took away: the change logs of its releases.
const CHANGES: &[Change] = changes! {
    0, 0, &[], &["CSINodeExpandSecret"];
    2, 0,
        &["capacity-controller-deployment-mode", "capacity-for-immediate-binding", "capacity-ownerref-level", "capacity-poll-interval",
          "capacity-threads", "default-fstype", "kube-api-burst", "kube-api-qps", "leader-election"],
        &["connection-timeout", "enable-leader-election", "leader-election-type", "provisioner"];
    2, 1,
        &["enable-capacity", "http-endpoint", "immediate-topology", "node-deployment", "node-deployment-base-delay",
          "node-deployment-immediate-binding", "node-deployment-max-delay"],
        &["capacity-controller-deployment-mode"];
    3, 0, &["controller-publish-readonly"], &[];
    3, 0, LEASE_TIMES, &[];
    3, 1, &["HonorPVReclaimPolicy"], &[];
    3, 2, &["enable-pprof", "kube-api-capacity-burst", "kube-api-capacity-qps", "prevent-volume-mode-conversion"], &[];
    3, 4, &["CrossNamespaceVolumeDataSource"], &[];
    4, 0, &["VolumeAttributesClass"], &[];
    5, 2, &["logging-format"], KLOG;
    5, 3, &["automaxprocs"], &[];
    6, 0, &["ReleaseLeaderElectionOnExit", "snapshot-orphan-sweep-interval"], &[];
    6, 2, &["leader-election-labels"], &["HonorPVReclaimPolicy"];
};

/// What it has of its own, and once had.
const FLAGS: &[Flag] = flags! {
    "timeout", Time, Key("roles.provisioner.timeout"), "of this sidecar alone; unset: `csi.timeout`, which is 15s instead of 10s";
    "worker-threads", Count, Key("roles.provisioner.workers"),
        "same default: tasks, not threads; deletions have `roles.provisioner.deleteWorkers`";
    "retry-interval-start", Time, Key("roles.provisioner.retry.initial"), "same default";
    "retry-interval-max", Time, Key("roles.provisioner.retry.max"),
        "same default; claims that the driver rejects as invalid have `roles.provisioner.retry.infeasible`";
    "volume-name-prefix", Text, Key("roles.provisioner.volumeNamePrefix"), "same default";
    "volume-name-uuid-length", Count, Key("roles.provisioner.volumeNameUuidLength"), "the whole uid is null, not -1";
    "default-fstype", Text, Key("roles.provisioner.defaultFsType"), "same default";
    "strict-topology", Switch, Key("roles.provisioner.strictTopology"), "same default";
    "immediate-topology", Switch, Key("roles.provisioner.immediateTopology"), "same default";
    "extra-create-metadata", Switch, Key("roles.provisioner.extraCreateMetadata"), "same default";
    "controller-publish-readonly", Switch, Key("roles.provisioner.publishReadonly"), "same default";
    "prevent-volume-mode-conversion", Switch, Key("roles.provisioner.preventVolumeModeConversion"), "same default";
    "snapshot-orphan-sweep-interval", Time, Key("roles.provisioner.snapshotSweepInterval"), "same default; clones, too";
    "cloning-protection-threads", Count, Gone, "removing a source's finalizer is rare and quick: a few workers are enough";
    "enable-capacity", Switch, Key("roles.provisioner.capacity.enabled"), "same default";
    "capacity-controller-deployment-mode", Text, Key("roles.provisioner.capacity.enabled"), "the flag of v2.0: `central` is true";
    "capacity-for-immediate-binding", Switch, Key("roles.provisioner.capacity.immediateBinding"), "same default";
    "capacity-poll-interval", Time, Key("roles.provisioner.capacity.pollInterval"), "same default";
    "capacity-ownerref-level", Count, Key("roles.provisioner.capacity.ownerLevel"), "same default";
    "capacity-threads", Count, Key("roles.provisioner.capacity.workers"), "10 instead of 1: tasks, not threads";
    "kube-api-capacity-qps", Text, Gone, "see `kube-api-qps`; `roles.provisioner.capacity.workers` bounds the refresh";
    "kube-api-capacity-burst", Count, Gone, "see `kube-api-capacity-qps`";
    "node-deployment", Switch, Key("roles.provisioner.nodeDeployment.enabled"), "same default; uses `NODE_NAME`, too";
    "node-deployment-immediate-binding", Switch, Key("roles.provisioner.nodeDeployment.immediateBinding"), "same default";
    "node-deployment-base-delay", Time, Key("roles.provisioner.nodeDeployment.baseDelay"), "same default";
    "node-deployment-max-delay", Time, Key("roles.provisioner.nodeDeployment.maxDelay"), "same default";
    "enable-pprof", Switch, Gone, "Go's profiler; traces show where time is spent: `telemetry.traces.endpoint`";
    "feature-gates", Text, Gone,
        "`Topology` is `roles.provisioner.topology`, `CrossNamespaceVolumeDataSource` is `roles.provisioner.crossNamespaceSources`, \
         `HonorPVReclaimPolicy` is `roles.provisioner.honorReclaimPolicy`, `VolumeAttributesClass` is \
         `roles.provisioner.attributesClasses`: such a class is read when a claim names it, and where the API has no `storage.k8s.io/v1` of \
         the kind, that claim waits instead of being provisioned without it; `ReleaseLeaderElectionOnExit` is always on, and \
         `CSINodeExpandSecret` is no gate of csi-provisioner, which does not start with it";
    "provisioner", Text, Gone, "also removed from the sidecars; the daemon asks the driver for its name";
};
