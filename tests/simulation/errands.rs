//! Random events of users and drivers about claims: which events, when, and how.

use std::collections::BTreeSet;
use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults as api;
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tonic::Code;

use crate::happening::Happening;
use crate::journal::Meddling;
use crate::play::{Play, Step};
use crate::storage::{PROVISION_SECRET, PROVISIONER_LEASE, Storage, claim_name, class_name, pod_name, snapshot_name};
use crate::world::{DRIVER, LEASE, MARKER, World, is_deleting, node_name, text};

/// One thing that happens around claims. Claims, classes, nodes and snapshots go by their index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Errand {
    CreateClaim(usize),
    DeleteClaim(usize),
    CreatePod(usize),
    DeletePod(usize),
    /// Somebody deletes one of the volumes that were provisioned.
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
    SecretGone(Duration),
    /// A claim is changed in a way that is nobody's business.
    Touch(usize),
    MeddleWithLease {
        steal: bool,
    },
    MeddleWithJournal(Meddling),
}

/// What happens around claims in a seed, in any order.
pub(crate) fn schedule(seed: u64, world: &World) -> Vec<(Duration, Happening)> {
    let Some(storage) = &world.storage else { return Vec::new() };
    let drawn = |salt: u64| Draw { rng: StdRng::seed_from_u64(seed ^ salt), storage, nodes: world.nodes };
    let mut draw = drawn(0xe44a_0000);
    let length = draw.rng.random_range(60..=200_u64);
    let count = draw.rng.random_range(20..=80);
    let troubles: Vec<u8> = (0..3).filter(|_| draw.rng.random_bool(0.6)).collect();
    (0..count)
        .map(|_| {
            let at = Duration::from_millis(draw.rng.random_range(0..length * 1000));
            let happening = if troubles.is_empty() || draw.rng.random_bool(0.65) {
                Happening::Storage(draw.people())
            } else {
                match troubles[draw.rng.random_range(0..troubles.len())] {
                    0 => Happening::Driver(draw.driver_fault()),
                    1 => Happening::Api(draw.api_fault()),
                    _ => draw.other(),
                }
            };
            (at, happening)
        })
        // A source of its own, so that what came later changes nothing for what was there before.
        .chain(drawn(0x70c4_0000).journal_troubles(length))
        .collect()
}

struct Draw<'a> {
    rng: StdRng,
    storage: &'a Storage,
    nodes: usize,
}

impl Draw<'_> {
    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_millis(Duration::from_secs_f64(self.rng.random_range(from..to)).as_millis().try_into().unwrap())
    }

    fn people(&mut self) -> Errand {
        let claim = self.rng.random_range(0..self.storage.claims.len());
        match self.rng.random_range(0..100) {
            0..32 => Errand::CreateClaim(claim),
            32..50 => Errand::DeleteClaim(claim),
            50..68 => Errand::CreatePod(claim),
            68..80 => Errand::DeletePod(claim),
            80..84 => Errand::DeleteVolume(self.rng.random_range(0..16)),
            84..87 => {
                let class = self.rng.random_range(0..self.storage.classes.len());
                Errand::ClassGone { class, away: self.seconds(0.2, 15.0) }
            }
            87..90 => Errand::NodeLeaves { node: self.rng.random_range(0..self.nodes), away: self.seconds(0.5, 25.0) },
            90..94 => Errand::Cut { snapshot: self.rng.random_range(0..self.storage.snapshots), claim },
            94..96 => Errand::DeleteSnapshot(self.rng.random_range(0..self.storage.snapshots)),
            96..98 => Errand::SecretGone(self.seconds(0.5, 15.0)),
            _ => Errand::Touch(claim),
        }
    }

    fn driver_fault(&mut self) -> Fault {
        let method = match self.rng.random_range(0..10) {
            0..6 => Method::CreateVolume,
            6..9 => Method::DeleteVolume,
            _ => Method::GetCapacity,
        };
        let code = Code::from_i32(self.rng.random_range(1..=16));
        let message = match self.rng.random_range(0..4) {
            0 => format!("the password {} is wrong", if method == Method::GetCapacity { "x" } else { MARKER }),
            _ => "scripted".to_owned(),
        };
        // Who has no secret cannot be told it.
        let message = if self.storage.classes.iter().all(|class| class.secret) { message } else { "scripted".into() };
        let down = self.seconds(0.0, 6.0);
        let action = match self.rng.random_range(0..18) {
            0..6 => Action::Fail { code, message },
            6 => Action::Hang,
            7 => Action::Wedge,
            8 => Action::Delay(self.seconds(0.1, 8.0)),
            9 => Action::Late(self.seconds(0.1, 20.0)),
            10 => Action::DoneButFail { code, message },
            11 => Action::DoneButHang,
            12 => Action::Crash { down },
            13 => Action::DoneButCrash { down },
            14 => Action::AnswerThenCrash { down },
            _ => Action::Lie(self.lie()),
        };
        let method = if let Action::Lie(lie) = &action {
            if matches!(lie, Lie::Capacity(_)) { Method::GetCapacity } else { Method::CreateVolume }
        } else {
            method
        };
        Fault::on(method, action).times(self.rng.random_range(1..=3))
    }

    fn lie(&mut self) -> Lie {
        match self.rng.random_range(0..7) {
            0 => Lie::NoVolume,
            1 => Lie::EmptyVolumeId,
            2 => Lie::Size(1),
            3 => Lie::Size(0),
            4 => Lie::ForgetSource,
            5 => Lie::Topologies(vec![[].into()]),
            _ => Lie::Capacity(self.rng.random_range(0..1 << 40)),
        }
    }

    fn api_fault(&mut self) -> api::Fault {
        let on = api::Matching::any();
        let on = match self.rng.random_range(0..10) {
            0..3 => on.verb("patch").resource("persistentvolumeclaims"),
            3..6 => on.verb("create").resource("persistentvolumes"),
            6 => on.verb("delete").resource("persistentvolumes"),
            7 => on.verb("patch").resource("persistentvolumes"),
            8 => on.verb("get").resource("persistentvolumes"),
            _ => on.resource("csistoragecapacities"),
        };
        self.failing(on)
    }

    /// A fault of these requests.
    fn failing(&mut self, on: api::Matching) -> api::Fault {
        let internal = Rejection::internal("scripted");
        let action = match self.rng.random_range(0..9) {
            0 => api::Action::Refuse(Rejection { code: 409, reason: "Conflict", ..internal }),
            1 => api::Action::Refuse(Rejection { code: 422, reason: "Invalid", ..internal }),
            2 => api::Action::Refuse(Rejection::too_many_requests(self.rng.random_range(1..=3))),
            3 => api::Action::Refuse(internal),
            4 => api::Action::RefuseAfter(Rejection::internal("the answer was lost")),
            5 => api::Action::DelayBefore(self.seconds(0.01, 0.5)),
            6 => api::Action::DelayAfter(self.seconds(0.01, 7.0)),
            7 => api::Action::CutBefore,
            _ => api::Action::CutAfter,
        };
        let fault = api::Fault::on(on, action);
        if self.rng.random_bool(0.5) {
            fault.nth(self.rng.random_range(1..=3))
        } else {
            fault.times(self.rng.random_range(1..=4))
        }
    }

    /// What goes wrong with the journal, in most seeds.
    fn journal_troubles(&mut self, length: u64) -> Vec<(Duration, Happening)> {
        let count = if self.rng.random_bool(0.7) { self.rng.random_range(1..=8) } else { 0 };
        (0..count).flat_map(|_| self.journal_trouble(length)).collect()
    }

    fn journal_trouble(&mut self, length: u64) -> Vec<(Duration, Happening)> {
        let at = Duration::from_millis(self.rng.random_range(0..length * 1000));
        let rank = self.rng.random_range(0..64);
        let meddling = |it: Meddling| Happening::Storage(Errand::MeddleWithJournal(it));
        match self.rng.random_range(0..10) {
            0..5 => vec![(at, Happening::Api(self.journal_fault()))],
            5 => vec![(at, meddling(Meddling::DropSegment(rank)))],
            6 => vec![(at, meddling(Meddling::DropEntry(rank)))],
            7 => vec![(at, meddling(Meddling::SpoilSegment { rank, away: self.seconds(0.5, 40.0) }))],
            _ => {
                // The Lease is lost in the middle of a commit.
                let verb = ["create", "patch"][self.rng.random_range(0..2)];
                let on = api::Matching::any().verb(verb).resource("configmaps");
                let slow = api::Fault::on(on, api::Action::DelayBefore(self.seconds(0.5, 6.0)));
                let lost = match self.rng.random_range(0..3) {
                    0 => Happening::Kill { daemon: self.rng.random_range(0..2), down: self.seconds(0.0, 6.0) },
                    _ => Happening::Storage(Errand::MeddleWithLease { steal: self.rng.random_bool(0.5) }),
                };
                let (times, later) = (self.rng.random_range(1..=4), self.seconds(0.2, 5.0));
                vec![(at, Happening::Api(slow.times(times))), (at + later, lost)]
            }
        }
    }

    fn journal_fault(&mut self) -> api::Fault {
        let verb = ["create", "patch", "patch", "get"][self.rng.random_range(0..4)];
        let on = api::Matching::any().verb(verb).resource("configmaps");
        self.failing(on)
    }

    fn other(&mut self) -> Happening {
        let daemon = self.rng.random_range(0..2);
        let kinds = ["persistentvolumeclaims", "persistentvolumes", "csinodes", "volumeattachments", "storageclasses"];
        match self.rng.random_range(0..8) {
            0..3 => {
                let kind = kinds[self.rng.random_range(0..kinds.len())];
                let daemon = self.rng.random_bool(0.6).then_some(daemon);
                Happening::HoldWatches { daemon, kind: Some(kind), lasts: self.seconds(0.5, 30.0) }
            }
            3..5 => Happening::Kill { daemon, down: self.seconds(0.0, 12.0) },
            5 => Happening::Terminate { daemon, down: self.seconds(0.2, 12.0) },
            6 => Happening::DriverRestart(self.seconds(0.0, 8.0)),
            _ => Happening::Storage(Errand::MeddleWithLease { steal: self.rng.random_bool(0.5) }),
        }
    }
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

    /// What everybody needs before there are claims.
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
