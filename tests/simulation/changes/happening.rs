//! What happens: users change their claims, pods and classes come and go, nodes, driver and API fail, daemons die.

use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST};
use rand::RngExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::objects::{
    CAPACITY, CLAIMS, CLASSES, COUNT, FOREIGN_CLASS, LEFT_ALONE, REQUESTED, SECRET, STATE, VOLUMES, claim_name, class,
    kind, pod, pod_name, size,
};
use super::play::{Play, TOO_LARGE};
use crate::stage::Undo;
use crate::world::{DAEMONS, MARKER, World, secret_name, text};

const ATTRIBUTES: &str = "volumeattributesclasses";
/// What late watches are of; claims more often than others.
const WATCHED: [&str; 5] = [CLAIMS, CLAIMS, VOLUMES, ATTRIBUTES, "pods"];

/// The end of a fault of this play alone.
#[derive(Debug, Clone)]
pub(super) enum Own {
    Class(&'static str),
    Pod(usize),
    Secret,
}

impl Play {
    pub(super) async fn undo_what_is_due(&mut self) {
        for undo in self.stage.due() {
            match undo {
                Undo::Heal { daemon, peer } => {
                    self.stage.heal(daemon, peer);
                    self.deaf_for(Duration::ZERO);
                }
                Undo::Release(fault) => self.stage.release(fault),
                Undo::Start => self.start_all().await,
                Undo::Own(Own::Class(name)) => drop(self.stage.testbed.api.create_value(class(name))),
                Undo::Own(Own::Pod(index)) => drop(self.stage.testbed.api.create_value(pod(index))),
                Undo::Own(Own::Secret) => drop(self.stage.testbed.api.create_value(World::secret(SECRET))),
            }
        }
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 44 } else { 32 };
        match self.stage.rng.random_range(0..kinds) {
            0..7 => self.wish_size(),
            7..12 => self.wish_class(),
            12..18 => {
                let fault = self.driver_fault();
                self.stage.testbed.driver.inject(fault);
            }
            18..22 => {
                let fault = self.api_fault();
                self.stage.testbed.api.faults().add(fault);
            }
            22..25 => {
                let index = self.stage.rng.random_range(0..COUNT);
                let _ = self.stage.testbed.api.delete_object(kind("", "pods"), "default", &pod_name(index));
                self.stage.after(0.5, 30.0, Undo::Own(Own::Pod(index)));
            }
            25 => self.fail_node(),
            26..28 => {
                // The last one has not been there yet, perhaps. It is taken away by force, although claims name it.
                let name = CLASSES[self.stage.rng.random_range(0..CLASSES.len())];
                let (classes, free) =
                    (kind("storage.k8s.io", ATTRIBUTES), json!({ "metadata": { "finalizers": null } }));
                let _ = self.stage.testbed.api.delete_object(classes, "", name);
                let _ = self.stage.testbed.api.patch_object(classes, "", name, PatchBody::Merge(free), false);
                self.stage.after(0.0, 40.0, Undo::Own(Own::Class(name)));
            }
            28..30 => self.stage.kill(),
            30 => {
                let name = LEFT_ALONE[self.stage.rng.random_range(0..LEFT_ALONE.len())];
                let wish = format!("{}Mi", self.stage.rng.random_range(2048..4096));
                self.edit(&claim_name(name), &json!({ "resources": { "requests": { "storage": wish } } }));
            }
            31 => self.start_all().await,
            _ => self.disturb().await,
        }
    }

    /// Users want more, sometimes less than before, sometimes more than there is.
    fn wish_size(&mut self) {
        const MEBI: i64 = 1 << 20;
        let index = self.stage.rng.random_range(0..COUNT);
        let claim = self.claim(index);
        let (has, asks) = (size(&claim, CAPACITY) / MEBI, size(&claim, REQUESTED) / MEBI);
        let wish = match self.stage.rng.random_range(0..8) {
            0 => TOO_LARGE.to_owned(),
            1 | 2 if asks > has + 1 => format!("{}Mi", self.stage.rng.random_range(has + 1..asks)),
            _ => format!("{}Mi", has + self.stage.rng.random_range(64..1500)),
        };
        self.edit(&claim_name(&index.to_string()), &json!({ "resources": { "requests": { "storage": wish } } }));
    }

    fn wish_class(&mut self) {
        let index = self.stage.rng.random_range(0..COUNT);
        let wish = match self.stage.rng.random_range(0..12) {
            0 => json!(FOREIGN_CLASS),
            // Refused where the claim has a class.
            1 => json!(null),
            _ => json!(CLASSES[self.stage.rng.random_range(0..CLASSES.len())]),
        };
        self.edit(&claim_name(&index.to_string()), &json!({ "volumeAttributesClassName": wish }));
    }

    fn change_status(&self, claim: &str, status: &Value) {
        let body = PatchBody::Strategic(json!({ "status": status }));
        let _ = self.stage.testbed.api.patch_object(kind("", CLAIMS), "default", claim, body, true);
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
        let method = jobs[self.stage.rng.random_range(0..jobs.len())];
        let code = Code::from_i32(self.stage.rng.random_range(1..=16));
        let down = self.stage.seconds(0.0, 3.0);
        // A driver that repeats what it got.
        let tells = self.setting.is_secretive && self.stage.rng.random_bool(0.3);
        let message = if tells { format!("the password {MARKER} is wrong") } else { "scripted".to_owned() };
        let action = match self.stage.rng.random_range(0..12) {
            0..5 => Action::Fail { code, message },
            5 => Action::DoneButFail { code: Code::Unavailable, message },
            6 => Action::DoneButHang,
            7 => Action::Hang,
            8 => Action::Late(self.stage.seconds(0.1, 9.0)),
            9 => Action::Delay(self.stage.seconds(0.1, 4.0)),
            10 => Action::DoneButCrash { down },
            _ => Action::AnswerThenCrash { down },
        };
        Fault::on(method, action).times(self.stage.rng.random_range(1..=5))
    }

    fn api_fault(&mut self) -> ApiFault {
        let plural = [CLAIMS, VOLUMES][self.stage.rng.random_range(0..2)];
        let action = self.stage.api_action(Rejection::conflict(kind("", plural), "scripted"));
        let daemon = self.stage.daemon();
        let verb = ["patch", "patch", "patch", "get"][self.stage.rng.random_range(0..4)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(plural);
        ApiFault::on(on, action).times(self.stage.rng.random_range(1..=3))
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.stage.daemon();
        match self.stage.rng.random_range(0..16) {
            13..16 => self.burst(daemon),
            0..3 => self.meddle(),
            3..6 => self.cut(daemon),
            6 => self.stage.slow_down(daemon),
            7..9 => self.stage.late_watches(daemon, &WATCHED),
            9 => {
                let down = self.stage.seconds(0.0, 5.0);
                self.stage.testbed.server.restart(down).await;
                self.deaf_for(down);
            }
            10 => self.stage.terminate(daemon),
            11 => self.stage.testbed.connections.cut_all(),
            _ if self.setting.is_secretive && self.stage.rng.random_bool(0.5) => {
                let _ = self.stage.testbed.api.delete_object(kind("", "secrets"), "kube-system", &secret_name(SECRET));
                self.stage.after(0.0, 20.0, Undo::Own(Own::Secret));
            }
            _ => self.stage.testbed.api.compact(),
        }
    }

    /// A user, a scheduler and others write to a claim, its volume and the classes at once, while the driver refuses. Each kind's events
    /// arrive with a delay of their own, so in any order between the steps of the attempts that they cause.
    fn burst(&mut self, daemon: usize) {
        for method in [Method::ControllerExpandVolume, Method::ControllerModifyVolume] {
            let code = [Code::Internal, Code::InvalidArgument, Code::Aborted][self.stage.rng.random_range(0..3)];
            let action = Action::Fail { code, message: "scripted".to_owned() };
            let times = self.stage.rng.random_range(1..=4);
            self.stage.testbed.driver.inject(Fault::on(method, action).times(times));
        }
        let latency = self.stage.seconds(0.0, 0.05);
        self.stage.network.set_latency(DAEMONS[daemon], API_HOST, latency);
        for plural in [CLAIMS, VOLUMES, ATTRIBUTES] {
            let delay = Duration::from_millis(self.stage.rng.random_range(0..600));
            let on = Matching::any().user(DAEMONS[daemon]).resource(plural);
            let fault = self.stage.testbed.api.faults().clone().delay_watches(on, delay);
            self.stage.after(1.0, 5.0, Undo::Release(fault));
        }
        for _ in 0..self.stage.rng.random_range(2..7) {
            match self.stage.rng.random_range(0..4) {
                0 => self.wish_size(),
                1 => self.wish_class(),
                _ => self.meddle(),
            }
        }
    }

    /// Others write to the same objects: conditions, resources, annotations and finalizers of theirs.
    fn meddle(&mut self) {
        let index = self.stage.rng.random_range(0..COUNT);
        let name = claim_name(&index.to_string());
        let mark = format!("{}", self.stage.rng.random_range(0..3));
        match self.stage.rng.random_range(0..4) {
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
                let _ = self.stage.testbed.api.patch_object(kind("", CLAIMS), "default", &name, body, false);
            }
            _ => {
                let theirs = json!({ "annotations": { "example.com/a": mark }, "labels": { "example.com/l": mark } });
                let body = PatchBody::Merge(json!({ "metadata": theirs }));
                let _ = self.stage.testbed.api.patch_object(kind("", VOLUMES), "", &format!("pv-{index}"), body, false);
            }
        }
    }

    /// A daemon and what it talks to do not hear each other.
    fn cut(&mut self, daemon: usize) {
        let peer = self.stage.cut(daemon);
        if peer == DRIVER_HOST {
            self.checks().driver_cut = Some(self.stage.testbed.driver.age());
        } else {
            self.checks().deaf_until = Duration::MAX;
        }
    }

    /// The answers to renewals may be lost for so long. A leader that heard none gives up at its renew deadline, and leads again after a
    /// retry.
    pub(super) fn deaf_for(&self, lasts: Duration) {
        let until = self.stage.testbed.driver.age() + lasts + Duration::from_secs(5);
        self.checks().deaf_until = until;
    }
}
