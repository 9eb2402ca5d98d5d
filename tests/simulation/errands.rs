//! What users do around claims. Which of these happens when is drawn in `drawn`.

use std::collections::BTreeSet;
use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::pure::resources;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use serde_json::{Value, json};

use crate::keeping::Keep;
use crate::meddling::Meddling;
use crate::play::{Play, Step};
use crate::storage::{PROVISION_SECRET, PROVISIONER_LEASE, Storage, claim_name, class_name, pod_name, snapshot_name};
use crate::world::{DRIVER, LEASE, World, is_deleting, node_name, text};

/// One event around claims. Claims, classes, nodes and snapshots are named by their index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Errand {
    CreateClaim(usize),
    DeleteClaim(usize),
    CreatePod(usize),
    DeletePod(usize),
    /// A user deletes one of the provisioned PersistentVolumes.
    DeleteVolume(usize),
    ClassGone {
        class: usize,
        away: Duration,
    },
    /// A node leaves with all that it has, and joins again.
    NodeLeaves {
        node: usize,
        away: Duration,
    },
    Cut {
        snapshot: usize,
        claim: usize,
    },
    DeleteSnapshot(usize),
    /// A user keeps the data of one of the volumes that were provisioned.
    Keep {
        rank: usize,
        how: Keep,
    },
    SecretGone(Duration),
    /// A claim is changed in a way that concerns no daemon.
    Touch(usize),
    MeddleWithLease {
        steal: bool,
    },
    MeddleWithJournal(Meddling),
}

impl Play {
    /// Something happens around claims.
    pub(crate) fn run_errand(&mut self, errand: Errand) {
        let Some(storage) = self.world.storage.clone() else { return };
        match errand {
            Errand::CreateClaim(claim) => self.create(storage.claim(claim)),
            Errand::DeleteClaim(claim) => self.delete_claim(&claim_name(claim)),
            Errand::CreatePod(claim) => self.create(Storage::pod(claim)),
            Errand::DeletePod(claim) => self.delete_pod(&pod_name(claim)),
            Errand::DeleteVolume(rank) => {
                let made: Vec<String> = self.model().made().map(|(name, _)| name.clone()).collect();
                if !made.is_empty() {
                    let _ = self.api().delete::<PersistentVolume>("", &made[rank % made.len()]);
                }
            }
            Errand::ClassGone { class, away } => {
                let _ = self.api().delete::<StorageClass>("", &class_name(class));
                self.after(away, Step::ClassBack(class));
            }
            Errand::NodeLeaves { node, away } => {
                let _ = self.api().delete::<CSINode>("", &node_name(node));
                let _ = self.api().delete::<Node>("", &node_name(node));
                self.wake_node(node);
                self.after(away, Step::NodeBack(node));
            }
            Errand::Cut { snapshot, claim } => self.cut(snapshot, &claim_name(claim)),
            Errand::DeleteSnapshot(snapshot) => {
                if let Some(kind) = resources::find("snapshot.storage.k8s.io", "v1", "volumesnapshots") {
                    let _ = self.api().delete_object(kind, "default", &snapshot_name(snapshot));
                }
            }
            Errand::Keep { rank, how } => self.keep(rank, how),
            Errand::SecretGone(away) => {
                let _ = self.api().delete::<Secret>("kube-system", PROVISION_SECRET);
                self.after(away, Step::ProvisionSecretBack);
            }
            Errand::Touch(claim) => {
                let at = format!("{:.0}", self.trace.age().as_secs_f64());
                let body = PatchBody::Merge(json!({ "metadata": { "annotations": { "touched-at": at } } }));
                let _ = self.api().patch::<PersistentVolumeClaim>("default", &claim_name(claim), body);
            }
            Errand::MeddleWithJournal(meddling) => self.meddle(meddling),
            Errand::MeddleWithLease { steal } => {
                self.model().confuse();
                if steal {
                    let body = PatchBody::Merge(json!({ "spec": { "holderIdentity": "thief" } }));
                    let _ = self.api().patch::<Lease>(LEASE.0, PROVISIONER_LEASE, body);
                } else {
                    let _ = self.api().delete::<Lease>(LEASE.0, PROVISIONER_LEASE);
                }
            }
        }
    }

    pub(crate) fn delete_claim(&self, name: &str) {
        let _ = self.api().delete::<PersistentVolumeClaim>("default", name);
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        let _ = self.api().delete::<Pod>("default", name);
    }

    /// The objects that all need before there are claims.
    pub(crate) fn furnish(&self) {
        let Some(storage) = &self.world.storage else { return };
        for class in 0..storage.classes.len() {
            self.create(storage.class(class));
        }
        self.create(World::provision_secret());
        for node in 0..self.world.nodes {
            self.node_joins(node);
        }
    }

    /// A class is there again.
    pub(crate) fn class_back(&self, class: usize) {
        if let Some(storage) = &self.world.storage {
            self.create(storage.class(class));
        }
    }

    /// A node is there, and ready.
    pub(crate) fn node_joins(&self, node: usize) {
        let Some(storage) = &self.world.storage else { return };
        self.create(storage.node(node));
        let body = PatchBody::Merge(json!({ "spec": { "taints": null } }));
        let _ = self.api().patch::<Node>("", &node_name(node), body);
    }

    /// Cuts a snapshot of a claim's volume, as a snapshot controller and its sidecar would; unless there is one.
    fn cut(&self, snapshot: usize, claim: &str) {
        let Ok(source) = self.api().get::<PersistentVolumeClaim>("default", claim) else { return };
        let volume = source.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        let handle = self.model().volumes.get(&volume).map(|it| text(it, "/spec/csi/volumeHandle").to_owned());
        let Some(handle) = handle else { return };
        let name = snapshot_name(snapshot);
        let kind = resources::find("snapshot.storage.k8s.io", "v1", "volumesnapshots");
        if kind.and_then(|kind| self.api().object(kind, "default", &name)).is_some() {
            return;
        }
        let Some(id) = self.testbed.driver.cut_snapshot(&name, &handle) else { return };
        let content = format!("content-{id}");
        let group = "snapshot.storage.k8s.io/v1";
        let made = self.api().create_value(json!({ "apiVersion": group, "kind": "VolumeSnapshot",
            "metadata": { "namespace": "default", "name": name },
            "spec": { "source": { "persistentVolumeClaimName": claim } } }));
        let Ok(made) = made else { return };
        self.create(json!({ "apiVersion": group, "kind": "VolumeSnapshotContent", "metadata": { "name": content },
            "spec": { "driver": DRIVER, "deletionPolicy": "Retain", "source": { "volumeHandle": handle },
                "volumeSnapshotRef": { "namespace": "default", "name": name, "uid": text(&made, "/metadata/uid") } } }));
        self.model().supply.snapshot_of.insert(id.clone(), name.clone());
        let size = 1_i64 << 30;
        self.status(
            "volumesnapshotcontents",
            "",
            &content,
            &json!({ "readyToUse": true, "restoreSize": size, "snapshotHandle": id }),
        );
        self.status(
            "volumesnapshots",
            "default",
            &name,
            &json!({ "readyToUse": true, "restoreSize": size.to_string(), "boundVolumeSnapshotContentName": content }),
        );
    }

    fn status(&self, plural: &str, namespace: &str, name: &str, status: &Value) {
        if let Some(kind) = resources::find("snapshot.storage.k8s.io", "v1", plural) {
            let body = PatchBody::Merge(json!({ "status": status }));
            let _ = self.api().patch_object(kind, namespace, name, body, true);
        }
    }

    /// The users come to their senses about claims: what cannot be is wanted no more.
    pub(crate) fn decide_claims(&self) {
        if self.world.storage.is_none() {
            return;
        }
        let (claims, pods): (Vec<String>, Vec<String>) = {
            let model = self.model();
            let supply = &model.supply;
            let is_bound = |claim: &Value| text(claim, "/status/phase") == "Bound";
            let by_name = |name: &str| supply.claims.values().find(|it| text(it, "/metadata/name") == name);
            let hopeless = |claim: &&Value| {
                let volume = model.volumes.get(text(claim, "/spec/volumeName"));
                let source = text(claim, "/spec/dataSource/name");
                let source_is_fine = match text(claim, "/spec/dataSource/kind") {
                    "" => true,
                    "PersistentVolumeClaim" => by_name(source).is_some_and(|it| is_bound(it) && !is_deleting(it)),
                    _ => supply.snapshots.get(source).is_some_and(|it| !is_deleting(it)),
                };
                is_deleting(claim)
                    || text(claim, "/status/phase") == "Lost"
                    || volume.is_some_and(is_deleting)
                    || (!is_bound(claim) && !source_is_fine)
            };
            let mut names: BTreeSet<&str> =
                supply.claims.values().filter(hopeless).map(|it| text(it, "/metadata/name")).collect();
            // With a source goes what has not been made from it yet.
            loop {
                let follows = |it: &&Value| {
                    let source = text(it, "/spec/dataSource/name");
                    !is_bound(it)
                        && text(it, "/spec/dataSource/kind") == "PersistentVolumeClaim"
                        && names.contains(source)
                };
                let followers: Vec<&str> =
                    supply.claims.values().filter(follows).map(|it| text(it, "/metadata/name")).collect();
                let before = names.len();
                names.extend(followers);
                if names.len() == before {
                    break;
                }
            }
            let pods = names.iter().map(|name| name.replace("data-", "pod-")).collect();
            (names.into_iter().map(str::to_owned).collect(), pods)
        };
        for name in &pods {
            self.delete_pod(name);
        }
        for name in &claims {
            self.delete_claim(name);
        }
    }

    /// Everything around claims is deleted.
    pub(crate) fn delete_supply(&self) {
        let Some(storage) = &self.world.storage else { return };
        for claim in 0..storage.claims.len() {
            self.delete_pod(&pod_name(claim));
            self.delete_claim(&claim_name(claim));
        }
    }
}
