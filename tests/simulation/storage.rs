//! The storage objects of a run: classes, claims, pods, segments and snapshots, as JSON.

use csi_control_plane::proto::plugin_capability::service;
use csi_control_plane::sandbox::driver::{Node, Profile};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::world::{DRIVER, node_id, node_name};

/// How often a node may be set up anew; what comes after has no place.
const LIVES: u32 = 64;

/// The key of a node's place.
pub(crate) const ZONE: &str = "topology.example.com/zone";
/// The provisioner's Lease.
pub(crate) const PROVISIONER_LEASE: &str = "demo-csi-example-com";
/// The node that was chosen for a claim.
pub(crate) const SELECTED: &str = "volume.kubernetes.io/selected-node";
/// The provisioner's finalizer on volumes.
pub(crate) const RECLAIM: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The provisioner's finalizer on claims that others are made from.
pub(crate) const CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// The same on snapshots.
pub(crate) const FROM_SNAPSHOT: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// The secret of the driver for making and deleting volumes.
pub(crate) const PROVISION_SECRET: &str = "provision";

/// One class.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(crate) struct Class {
    pub(crate) retain: bool,
    pub(crate) waits: bool,
    pub(crate) secret: bool,
    /// Volumes in the first zone only.
    pub(crate) confined: bool,
}

/// The source of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Nothing,
    Claim(usize),
    Snapshot(usize),
}

/// One claim, each time that it is made.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) class: usize,
    pub(crate) source: Source,
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    pub(crate) classes: Vec<Class>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) snapshots: usize,
    /// How many zones the nodes are in; none: the driver knows no places.
    pub(crate) zones: usize,
    strict: bool,
    immediate_capacity: bool,
    names_are_ids: bool,
}

impl Storage {
    /// The world of a seed.
    pub(crate) fn of(seed: u64, nodes: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x57a6_e000);
        let zones = if rng.random_bool(0.75) { rng.random_range(1..=nodes) } else { 0 };
        let classes: Vec<Class> = (0..rng.random_range(2..=4))
            .map(|_| Class {
                retain: rng.random_bool(0.25),
                waits: rng.random_bool(0.5),
                secret: rng.random_bool(0.3),
                confined: rng.random_bool(0.2) && zones > 0,
            })
            .collect();
        let claims: Vec<Claim> = (0..rng.random_range(3..=8))
            .map(|index| Claim {
                class: rng.random_range(0..classes.len()),
                source: match rng.random_range(0..10) {
                    0..2 if index > 0 => Source::Claim(rng.random_range(0..index)),
                    2 => Source::Snapshot(rng.random_range(0..2)),
                    _ => Source::Nothing,
                },
            })
            .collect();
        let (strict, immediate_capacity) = (rng.random_bool(0.3), rng.random_bool(0.5));
        let names_are_ids = rng.random_bool(0.3);
        Self { classes, claims, snapshots: 2, zones, strict, immediate_capacity, names_are_ids }
    }

    /// The driver that fits.
    pub(crate) fn profile(&self, nodes: usize, profile: Profile) -> Profile {
        let mut profile = Profile { names_are_ids: self.names_are_ids, ..profile };
        for (node, life) in (0..nodes).flat_map(|node| (0..LIVES).map(move |life| (node, life))) {
            let segments = if self.zones > 0 { [(ZONE.to_owned(), self.zone(node))].into() } else { [].into() };
            profile.nodes.insert(node_id(node, life), Node { segments, ..Node::default() });
        }
        if self.zones > 0 {
            profile.services.insert(service::Type::VolumeAccessibilityConstraints as i32);
            profile.segments = (0..self.zones).map(|zone| [(ZONE.to_owned(), format!("z{zone}"))].into()).collect();
        }
        profile
    }

    /// The provisioner's part of the configuration.
    pub(crate) fn config(&self) -> String {
        format!(
            "\x20 provisioner:\n\
             \x20   workers: 3\n\
             \x20   deleteWorkers: 2\n\
             \x20   retry: {{ initial: 500ms, max: 20s, infeasible: 30s }}\n\
             \x20   resync: 60s\n\
             \x20   snapshotSweepInterval: 60s\n\
             \x20   strictTopology: {}\n\
             \x20   capacity: {{ enabled: true, ownerLevel: -1, pollInterval: 20s, workers: 2, immediateBinding: {} }}\n",
            self.strict, self.immediate_capacity
        )
    }

    /// The topology keys of each node.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        if self.zones > 0 { vec![ZONE] } else { Vec::new() }
    }

    /// Whether the class's capacity is published for the scheduler.
    pub(crate) fn counts(&self, class: usize) -> bool {
        self.classes[class].waits || self.immediate_capacity
    }

    /// The zone of a node.
    pub(crate) fn zone(&self, node: usize) -> String {
        format!("z{}", if self.zones > 0 { node % self.zones } else { 0 })
    }

    /// A node's object.
    pub(crate) fn node(&self, node: usize) -> Value {
        json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": node_name(node), "labels": { ZONE: self.zone(node) } }, "spec": {} })
    }

    /// A class's object.
    pub(crate) fn class(&self, index: usize) -> Value {
        let class = &self.classes[index];
        let mut object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class_name(index) },
            "provisioner": DRIVER,
            "reclaimPolicy": if class.retain { "Retain" } else { "Delete" },
            "volumeBindingMode": if class.waits { "WaitForFirstConsumer" } else { "Immediate" },
            "parameters": { "type": format!("kind-{index}"), "csi.storage.k8s.io/fstype": "ext4" },
        });
        if class.secret {
            object["parameters"]["csi.storage.k8s.io/provisioner-secret-name"] = PROVISION_SECRET.into();
            object["parameters"]["csi.storage.k8s.io/provisioner-secret-namespace"] = "kube-system".into();
        }
        if class.confined {
            object["allowedTopologies"] = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["z0"] }] }]);
        }
        object
    }

    /// A claim's object.
    pub(crate) fn claim(&self, index: usize) -> Value {
        let claim = &self.claims[index];
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": class_name(claim.class),
            "resources": { "requests": { "storage": "1Gi" } },
        });
        match claim.source {
            Source::Nothing => {}
            Source::Claim(of) => {
                spec["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": claim_name(of) });
            }
            Source::Snapshot(of) => {
                spec["dataSource"] = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                    "name": snapshot_name(of) });
            }
        }
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": "default", "name": claim_name(index) }, "spec": spec })
    }

    /// The object of the pod that uses a claim.
    pub(crate) fn pod(index: usize) -> Value {
        let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim_name(index) } });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "default", "name": pod_name(index) },
            "spec": { "containers": [{ "name": "main", "image": "example.com/main" }], "volumes": [volume] } })
    }
}

pub(crate) fn class_name(index: usize) -> String {
    format!("class-{index}")
}

pub(crate) fn claim_name(index: usize) -> String {
    format!("data-{index}")
}

pub(crate) fn pod_name(index: usize) -> String {
    format!("pod-{index}")
}

pub(crate) fn snapshot_name(index: usize) -> String {
    format!("snapshot-{index}")
}

/// The uid of the claim that a volume is named for.
pub(crate) fn uid_of(volume: &str) -> &str {
    volume.split_once('-').map_or(volume, |(_, uid)| uid)
}
