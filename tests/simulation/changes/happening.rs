//! What happens: users change their claims, pods and classes come and go, nodes, driver and API fail, daemons die.

use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, FaultId, Matching, WatchEnd};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::sandbox::network::Cut;
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST};
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;

use super::objects::{
    CAPACITY, CLAIMS, CLASSES, COUNT, FOREIGN_CLASS, LEFT_ALONE, REQUESTED, SECRET, STATE, VOLUMES, claim_name, class,
    kind, pod, pod_name, size,
};
use super::play::{Play, TOO_LARGE};
use crate::world::{DAEMONS, MARKER, World, secret_name, text};

const ATTRIBUTES: &str = "volumeattributesclasses";

/// Faults that end by themselves.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Heal { daemon: usize, peer: &'static str },
    Release(FaultId),
    Start,
    Class(&'static str),
    Pod(usize),
    Secret,
}

impl Play {
    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(self.rng.random_range(from..to))
    }

    fn after(&mut self, from: f64, to: f64, undo: Undo) {
        let wait = self.seconds(from, to);
        self.agenda.push((Instant::now() + wait, undo));
    }

    fn daemon(&mut self) -> usize {
        self.rng.random_range(0..self.daemons.len())
    }

    pub(super) async fn undo_what_is_due(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.agenda).into_iter().partition(|(at, _)| *at <= now);
        self.agenda = later;
        let due: Vec<(Instant, Undo)> = due;
        for (_, undo) in due {
            match undo {
                Undo::Heal { daemon, peer } => {
                    // Bytes that its connections held back are lost, as if the connections had timed out long ago.
                    self.network.reset(DAEMONS[daemon], peer);
                    self.network.heal(DAEMONS[daemon], peer);
                    self.deaf_for(Duration::ZERO);
                }
                Undo::Release(fault) => self.testbed.api.faults().remove(fault),
                Undo::Start => self.start_all().await,
                Undo::Class(name) => drop(self.testbed.api.create_value(class(name))),
                Undo::Pod(index) => drop(self.testbed.api.create_value(pod(index))),
                Undo::Secret => drop(self.testbed.api.create_value(World::secret(SECRET))),
            }
        }
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 44 } else { 32 };
        match self.rng.random_range(0..kinds) {
            0..7 => self.wish_size(),
            7..12 => self.wish_class(),
            12..18 => {
                let fault = self.driver_fault();
                self.testbed.driver.inject(fault);
            }
            18..22 => {
                let fault = self.api_fault();
                self.testbed.api.faults().add(fault);
            }
            22..25 => {
                let index = self.rng.random_range(0..COUNT);
                let _ = self.testbed.api.delete_object(kind("", "pods"), "default", &pod_name(index));
                self.after(0.5, 30.0, Undo::Pod(index));
            }
            25 => self.fail_node(),
            26..28 => {
                // The last one has not been there yet, perhaps. It is taken away by force, although claims name it.
                let name = CLASSES[self.rng.random_range(0..CLASSES.len())];
                let (classes, free) =
                    (kind("storage.k8s.io", ATTRIBUTES), json!({ "metadata": { "finalizers": null } }));
                let _ = self.testbed.api.delete_object(classes, "", name);
                let _ = self.testbed.api.patch_object(classes, "", name, PatchBody::Merge(free), false);
                self.after(0.0, 40.0, Undo::Class(name));
            }
            28..30 => {
                let daemon = self.daemon();
                if let Some(running) = self.daemons[daemon].take() {
                    running.kill();
                }
                self.after(0.0, 8.0, Undo::Start);
            }
            30 => {
                let name = LEFT_ALONE[self.rng.random_range(0..LEFT_ALONE.len())];
                let wish = format!("{}Mi", self.rng.random_range(2048..4096));
                self.edit(&claim_name(name), &json!({ "resources": { "requests": { "storage": wish } } }));
            }
            31 => self.start_all().await,
            _ => self.disturb().await,
        }
    }

    /// Users want more, sometimes less than before, sometimes more than there is.
    fn wish_size(&mut self) {
        const MEBI: i64 = 1 << 20;
        let index = self.rng.random_range(0..COUNT);
        let claim = self.claim(index);
        let (has, asks) = (size(&claim, CAPACITY) / MEBI, size(&claim, REQUESTED) / MEBI);
        let wish = match self.rng.random_range(0..8) {
            0 => TOO_LARGE.to_owned(),
            1 | 2 if asks > has + 1 => format!("{}Mi", self.rng.random_range(has + 1..asks)),
            _ => format!("{}Mi", has + self.rng.random_range(64..1500)),
        };
        self.edit(&claim_name(&index.to_string()), &json!({ "resources": { "requests": { "storage": wish } } }));
    }

    fn wish_class(&mut self) {
        let index = self.rng.random_range(0..COUNT);
        let wish = match self.rng.random_range(0..12) {
            0 => json!(FOREIGN_CLASS),
            // Refused where the claim has a class.
            1 => json!(null),
            _ => json!(CLASSES[self.rng.random_range(0..CLASSES.len())]),
        };
        self.edit(&claim_name(&index.to_string()), &json!({ "volumeAttributesClassName": wish }));
    }

    fn change_status(&self, claim: &str, status: &Value) {
        let body = PatchBody::Strategic(json!({ "status": status }));
        let _ = self.testbed.api.patch_object(kind("", CLAIMS), "default", claim, body, true);
    }

    /// A kubelet says that it cannot do it.
    fn fail_node(&mut self) {
        let waits = |index: &usize| text(&self.claim(*index), STATE) == "NodeResizePending";
        let Some(index) = (0..COUNT).find(waits) else { return };
        let failed = json!({ "allocatedResourceStatuses": { "storage": "NodeResizeInfeasible" },
            "conditions": [{ "type": "NodeResizeError", "status": "True", "message": "scripted" }] });
        self.change_status(&claim_name(&index.to_string()), &failed);
    }

    fn driver_fault(&mut self) -> Fault {
        let jobs = [Method::ControllerExpandVolume, Method::ControllerModifyVolume];
        let method = jobs[self.rng.random_range(0..jobs.len())];
        let code = Code::from_i32(self.rng.random_range(1..=16));
        let down = self.seconds(0.0, 3.0);
        // A driver that repeats what it got.
        let tells = self.setting.is_secretive && self.rng.random_bool(0.3);
        let message = if tells { format!("the password {MARKER} is wrong") } else { "scripted".to_owned() };
        let action = match self.rng.random_range(0..12) {
            0..5 => Action::Fail { code, message },
            5 => Action::DoneButFail { code: Code::Unavailable, message },
            6 => Action::DoneButHang,
            7 => Action::Hang,
            8 => Action::Late(self.seconds(0.1, 9.0)),
            9 => Action::Delay(self.seconds(0.1, 4.0)),
            10 => Action::DoneButCrash { down },
            _ => Action::AnswerThenCrash { down },
        };
        Fault::on(method, action).times(self.rng.random_range(1..=5))
    }

    fn api_fault(&mut self) -> ApiFault {
        let plural = [CLAIMS, VOLUMES][self.rng.random_range(0..2)];
        let conflict = Rejection::conflict(kind("", plural), "scripted");
        let action = match self.rng.random_range(0..7) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            4 => ApiAction::Refuse(conflict),
            5 => ApiAction::DelayAfter(self.seconds(0.1, 4.0)),
            _ => ApiAction::Refuse(Rejection::too_many_requests(1)),
        };
        let daemon = self.daemon();
        let verb = ["patch", "patch", "patch", "get"][self.rng.random_range(0..4)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(plural);
        ApiFault::on(on, action).times(self.rng.random_range(1..=3))
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.daemon();
        match self.rng.random_range(0..16) {
            13..16 => self.burst(daemon),
            0..3 => self.meddle(),
            3..6 => self.cut(daemon),
            6 => {
                let latency = self.seconds(0.0, 0.08);
                self.network.set_latency(DAEMONS[daemon], API_HOST, latency);
            }
            7..9 => self.late_watches(daemon),
            9 => {
                let down = self.seconds(0.0, 5.0);
                self.testbed.server.restart(down).await;
                self.deaf_for(down);
            }
            10 => {
                if let Some(running) = &self.daemons[daemon] {
                    running.terminate();
                }
                self.after(0.2, 8.0, Undo::Start);
            }
            11 => self.testbed.connections.cut_all(),
            _ if self.setting.is_secretive && self.rng.random_bool(0.5) => {
                let _ = self.testbed.api.delete_object(kind("", "secrets"), "kube-system", &secret_name(SECRET));
                self.after(0.0, 20.0, Undo::Secret);
            }
            _ => self.testbed.api.compact(),
        }
    }

    /// A user, a scheduler and others write to a claim, its volume and the classes at once, while the driver refuses. Each kind's events
    /// arrive with a delay of their own, so in any order between the steps of the attempts that they cause.
    fn burst(&mut self, daemon: usize) {
        for method in [Method::ControllerExpandVolume, Method::ControllerModifyVolume] {
            let code = [Code::Internal, Code::InvalidArgument, Code::Aborted][self.rng.random_range(0..3)];
            let action = Action::Fail { code, message: "scripted".to_owned() };
            let times = self.rng.random_range(1..=4);
            self.testbed.driver.inject(Fault::on(method, action).times(times));
        }
        let latency = self.seconds(0.0, 0.05);
        self.network.set_latency(DAEMONS[daemon], API_HOST, latency);
        for plural in [CLAIMS, VOLUMES, ATTRIBUTES] {
            let delay = Duration::from_millis(self.rng.random_range(0..600));
            let on = Matching::any().user(DAEMONS[daemon]).resource(plural);
            let fault = self.testbed.api.faults().clone().delay_watches(on, delay);
            self.after(1.0, 5.0, Undo::Release(fault));
        }
        for _ in 0..self.rng.random_range(2..7) {
            match self.rng.random_range(0..4) {
                0 => self.wish_size(),
                1 => self.wish_class(),
                _ => self.meddle(),
            }
        }
    }

    /// Others write to the same objects: conditions, resources, annotations and finalizers of theirs.
    fn meddle(&mut self) {
        let index = self.rng.random_range(0..COUNT);
        let name = claim_name(&index.to_string());
        let mark = format!("{}", self.rng.random_range(0..3));
        match self.rng.random_range(0..4) {
            0 => {
                let condition = json!({ "type": "Unused", "status": "True", "message": mark });
                self.change_status(&name, &json!({ "conditions": [condition] }));
            }
            1 => {
                let theirs = json!({ "example.com/things": mark });
                self.change_status(&name, &json!({ "allocatedResources": theirs }));
            }
            2 => {
                let theirs = json!({ "annotations": { "example.com/a": mark }, "finalizers": ["example.com/f"] });
                let body = PatchBody::Strategic(json!({ "metadata": theirs }));
                let _ = self.testbed.api.patch_object(kind("", CLAIMS), "default", &name, body, false);
            }
            _ => {
                let theirs = json!({ "annotations": { "example.com/a": mark }, "labels": { "example.com/l": mark } });
                let body = PatchBody::Merge(json!({ "metadata": theirs }));
                let _ = self.testbed.api.patch_object(kind("", VOLUMES), "", &format!("pv-{index}"), body, false);
            }
        }
    }

    /// A daemon and what it talks to do not hear each other.
    fn cut(&mut self, daemon: usize) {
        let (name, peer) = (DAEMONS[daemon], [API_HOST, DRIVER_HOST][self.rng.random_range(0..2)]);
        let cut = if self.rng.random_bool(0.5) { Cut::Hang } else { Cut::Refuse };
        match self.rng.random_range(0..3) {
            0 => self.network.partition(name, peer, cut),
            1 => self.network.partition_one_way(name, peer, cut),
            _ => self.network.partition_one_way(peer, name, cut),
        }
        if peer == DRIVER_HOST {
            self.checks().driver_cut = Some(self.testbed.driver.age());
        } else {
            self.checks().deaf_until = Duration::MAX;
        }
        self.after(0.2, 15.0, Undo::Heal { daemon, peer });
    }

    /// The answers to renewals may be lost for so long. A leader that heard none gives up at its renew deadline, and leads again after a
    /// retry.
    pub(super) fn deaf_for(&self, lasts: Duration) {
        let until = self.testbed.driver.age() + lasts + Duration::from_secs(5);
        self.checks().deaf_until = until;
    }

    fn late_watches(&mut self, daemon: usize) {
        let kinds = [CLAIMS, CLAIMS, VOLUMES, ATTRIBUTES, "pods"];
        let on = Matching::any().user(DAEMONS[daemon]).resource(kinds[self.rng.random_range(0..kinds.len())]);
        let faults = self.testbed.api.faults().clone();
        let fault = match self.rng.random_range(0..3) {
            0 => faults.hold_watches(on),
            1 => faults.delay_watches(on, Duration::from_millis(self.rng.random_range(50..4000))),
            _ => return faults.drop_watches(on, if daemon == 0 { WatchEnd::Clean } else { WatchEnd::Cut }),
        };
        self.after(0.5, 20.0, Undo::Release(fault));
    }
}
