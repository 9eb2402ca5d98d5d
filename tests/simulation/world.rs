//! The cluster that a seed is played in: volumes, nodes, secrets, and their objects as JSON. The objects for claims are
//! in `storage`.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::mutants::Mutant;
use crate::storage::{PROVISION_SECRET, Storage};

/// The driver's name.
pub(crate) const DRIVER: &str = "demo.csi.example.com";
/// The daemons' finalizer.
pub(crate) const FINALIZER: &str = "external-attacher/demo-csi-example-com";
/// Where the Lease is.
pub(crate) const LEASE: (&str, &str) = ("kube-system", "external-attacher-leader-demo-csi-example-com");
/// Where the node's id is recorded.
pub(crate) const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// The daemons: their hosts and their users.
pub(crate) const DAEMONS: [&str; 2] = ["daemon-a", "daemon-b"];
/// Every secret's value: it must not be seen anywhere else.
pub(crate) const MARKER: &str = "hunter2-do-not-tell";
/// Other controllers' finalizers.
pub(crate) const FOREIGN: [&str; 2] = ["example.com/backup", "example.com/audit"];

/// The configuration of every daemon, up to the sections of its roles.
pub(crate) const COMMON_CONFIG: &str = "csi: { timeout: 5s }\n\
    kubernetes: { requestTimeout: 5s }\n\
    leaderElection: { leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s }\n\
    diagnostics: { listen: null }\n\
    roles:\n";

/// The shortest and the longest back-off, as configured.
pub(crate) const BACKOFF: (f64, f64) = (0.5, 20.0);

/// One volume.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(crate) struct Volume {
    pub(crate) shared: bool,
    pub(crate) secret: bool,
    pub(crate) claimed: bool,
    pub(crate) inline: bool,
    pub(crate) block: bool,
}

/// Which roles a seed is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The attacher, alone and in depth.
    Attach,
    /// Claims as well, with all that they lead to.
    Claims,
}

impl Scope {
    /// Every third seed is the attacher's.
    pub(crate) fn of(seed: u64) -> Self {
        if seed.is_multiple_of(3) { Self::Attach } else { Self::Claims }
    }
}

/// The existing objects.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) nodes: usize,
    /// How many volumes the driver lists on a page.
    pub(crate) page: usize,
    /// The objects for claims.
    pub(crate) storage: Option<Storage>,
    /// The daemons' defect, if the play must find one.
    pub(crate) mutant: Option<Mutant>,
}

impl World {
    /// The world of a seed.
    pub(crate) fn of(seed: u64, scope: Scope, mutant: Option<Mutant>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5157_0000);
        // A source of its own, so that what came later changes nothing for the seeds of before.
        let mut later = StdRng::seed_from_u64(seed ^ 0xb10c_0000);
        let count = rng.random_range(2..=5);
        let volumes = (0..count)
            .map(|_| Volume {
                shared: rng.random_bool(0.5),
                secret: rng.random_bool(0.4),
                claimed: rng.random_bool(0.5),
                inline: rng.random_bool(0.15),
                block: later.random_bool(0.2),
            })
            .collect();
        let (nodes, page) = (rng.random_range(1..=3), rng.random_range(0..=3));
        let storage = (scope == Scope::Claims).then(|| Storage::of(seed, nodes));
        Self { volumes, nodes, page, storage, mutant }
    }

    /// The topology keys of a node.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        self.storage.as_ref().map(Storage::keys).unwrap_or_default()
    }

    /// The configuration of a daemon.
    pub(crate) fn config(&self, daemon: usize) -> String {
        let mut config = self.sound_config();
        if let Some(storage) = &self.storage {
            config.push_str(&storage.config());
        }
        match self.mutant {
            Some(mutant) => mutant.of_config(&config, daemon),
            None => config,
        }
    }

    /// The host and the user that a daemon goes by.
    pub(crate) fn host(&self, daemon: usize) -> &'static str {
        self.mutant.map_or(DAEMONS[daemon], |mutant| mutant.host(daemon))
    }

    fn sound_config(&self) -> String {
        format!(
            "{COMMON_CONFIG}\x20 attacher: {{ workers: 3, detachWorkers: 2, retry: {{ initial: 500ms, max: 20s }}, resync: 60s }}\n\
             \x20 reconciler: {{ interval: 10s, pageSize: {}, pageTimeout: 3s }}\n",
            self.page
        )
    }

    /// A volume's object.
    pub(crate) fn volume(&self, index: usize) -> Value {
        let name = volume_name(index);
        let mut spec = self.source(index);
        spec["capacity"] = json!({ "storage": "1Gi" });
        spec["persistentVolumeReclaimPolicy"] = json!("Retain");
        if self.volumes[index].claimed {
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": format!("claim-{index}"), "uid": format!("claim-uid-{index}") });
            spec["claimRef"] = claim;
        }
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name }, "spec": spec })
    }

    fn source(&self, index: usize) -> Value {
        let volume = &self.volumes[index];
        let mut csi = json!({ "driver": DRIVER, "volumeHandle": handle(index), "fsType": "ext4" });
        if volume.secret {
            csi["controllerPublishSecretRef"] = json!({ "namespace": "kube-system", "name": secret_name(index) });
        }
        let mode = if volume.block { "Block" } else { "Filesystem" };
        if volume.block
            && let Some(csi) = csi.as_object_mut()
        {
            csi.remove("fsType");
        }
        json!({ "volumeMode": mode, "accessModes": [if volume.shared { "ReadWriteMany" } else { "ReadWriteOnce" }], "csi": csi })
    }

    /// An attachment's object.
    pub(crate) fn attachment(&self, index: usize, node: usize) -> Value {
        let source = if self.volumes[index].inline {
            json!({ "inlineVolumeSpec": self.source(index) })
        } else {
            json!({ "persistentVolumeName": volume_name(index) })
        };
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": attachment_name(index, node) },
            "spec": { "attacher": DRIVER, "nodeName": node_name(node), "source": source },
        })
    }

    /// Another driver's attachment of the same volume.
    pub(crate) fn foreign_attachment(index: usize, node: usize) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": foreign_name(index, node) },
            "spec": { "attacher": "other.csi.example.com", "nodeName": node_name(node),
                "source": { "persistentVolumeName": volume_name(index) } },
        })
    }

    /// A node's object, with our driver's entry or without.
    pub(crate) fn node(&self, node: usize, id: Option<&str>) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": node_name(node) },
            "spec": { "drivers": self.drivers(id) },
        })
    }

    /// The drivers of a node.
    pub(crate) fn drivers(&self, id: Option<&str>) -> Value {
        match id {
            Some(id) => json!([{ "name": DRIVER, "nodeID": id, "topologyKeys": self.keys() }]),
            None => json!([]),
        }
    }

    /// The secret for the making of volumes.
    pub(crate) fn provision_secret() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": "kube-system", "name": PROVISION_SECRET },
            "data": { "password": STANDARD.encode(MARKER) },
        })
    }

    /// A volume's publish secret.
    pub(crate) fn secret(index: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": "kube-system", "name": secret_name(index) },
            "data": { "password": STANDARD.encode(MARKER) },
        })
    }
}

pub(crate) fn volume_name(index: usize) -> String {
    format!("pv-{index}")
}

pub(crate) fn handle(index: usize) -> String {
    format!("vol-{index}")
}

pub(crate) fn node_name(node: usize) -> String {
    format!("node-{node}")
}

pub(crate) fn secret_name(index: usize) -> String {
    format!("publish-{index}")
}

/// The driver's id of a node; a node that is set up again has another.
pub(crate) fn node_id(node: usize, life: u32) -> String {
    format!("node-{node}.{life}")
}

/// As the attach/detach controller names them: by handle and node, so that names come again.
pub(crate) fn attachment_name(index: usize, node: usize) -> String {
    attachment_of(&handle(index), &node_name(node))
}

/// The attachment that a volume on a node's id belongs to.
pub(crate) fn attachment_of(handle: &str, node_id: &str) -> String {
    let node = node_id.split('.').next().unwrap_or(node_id);
    if handle.starts_with("vol-") {
        return format!("csi-{handle}-on-{node}");
    }
    // A volume that was provisioned: its pod is attached by the controller of the sandbox.
    let digest = Sha256::digest(format!("{handle}{DRIVER}{node}"));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

pub(crate) fn foreign_name(index: usize, node: usize) -> String {
    format!("foreign-{}-on-{}", handle(index), node_name(node))
}

/// The text at a path of members, or nothing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// An object's finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// An object without these members of these maps.
pub(crate) fn without<const N: usize>(object: &Value, members: [(&str, &str); N]) -> Value {
    let mut object = object.clone();
    for (map, member) in members {
        if let Some(map) = object.pointer_mut(map).and_then(Value::as_object_mut) {
            map.remove(member);
        }
    }
    object
}

/// Whether an object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether the daemons' finalizer is on an object.
pub(crate) fn is_guarded(object: &Value) -> bool {
    finalizers(object).contains(&FINALIZER)
}
