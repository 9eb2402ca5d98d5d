//! What happens: users make and delete snapshots, people and controllers meddle, the driver and the API fail, daemons die.

use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use rand::RngExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::checks::{CONTENTS, INTENT, MARK, SNAPSHOTS, is_member};
use super::force_happening::KEPT;
use super::play::{CLASSES, Play, SECRET, VOLUMES, class, handle, kind};
use crate::stage::Undo;
use crate::world::{DAEMONS, MARKER, World, finalizers, text};

/// What late watches are of; contents more often than others.
const WATCHED: [&str; 3] = [CONTENTS, CONTENTS, "volumesnapshotclasses"];
/// How many names of snapshots there are.
const NAMES: usize = 6;

/// The end of a fault of this play alone.
#[derive(Debug, Clone)]
pub(super) enum Own {
    Class(&'static str),
    Habits,
    Secret,
    /// Somebody removes a content of this kind and name by force.
    Force(&'static str, String),
}

impl Play {
    pub(super) async fn undo_what_is_due(&mut self) {
        for undo in self.stage.due() {
            match undo {
                Undo::Heal { daemon, peer } => self.stage.heal(daemon, peer),
                Undo::Release(fault) => self.stage.release(fault),
                Undo::Start => self.start_all().await,
                Undo::Own(Own::Class(name)) => {
                    self.made += 1;
                    let again = class(name, self.made, self.setting.is_secretive);
                    let _ = self.stage.testbed.api.create_value(again);
                }
                Undo::Own(Own::Habits) => drop(self.habits.send_replace(SnapshotHabits::default())),
                Undo::Own(Own::Force(plural, name)) => self.remove_by_force(plural, &name),
                Undo::Own(Own::Secret) => drop(self.stage.testbed.api.create_value(World::secret(SECRET))),
            }
        }
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 44 } else { 30 };
        match self.stage.rng.random_range(0..kinds) {
            0..8 => self.make_snapshot(),
            8..13 => {
                let name = format!("s-{}", self.stage.rng.random_range(0..NAMES));
                let _ = self.stage.testbed.api.delete_object(kind(SNAPSHOTS), "default", &name);
            }
            13 => {
                let name = CLASSES[self.stage.rng.random_range(0..CLASSES.len())];
                let _ = self.stage.testbed.api.delete_object(kind("volumesnapshotclasses"), "", name);
                self.stage.after(0.0, 15.0, Undo::Own(Own::Class(name)));
            }
            14..16 => self.make_given(),
            16..22 => {
                let fault = self.driver_fault();
                self.stage.testbed.driver.inject(fault);
            }
            22..26 => {
                let fault = self.api_fault();
                self.stage.testbed.api.faults().add(fault);
            }
            26..28 => self.stage.kill(),
            28 => self.handle_content(),
            29 => self.start_all().await,
            _ => self.disturb().await,
        }
    }

    fn make_snapshot(&mut self) {
        let name = format!("s-{}", self.stage.rng.random_range(0..NAMES));
        let claim = format!("claim-{}", self.stage.rng.random_range(0..VOLUMES));
        let class = CLASSES[usize::from(self.stage.rng.random_bool(0.25))];
        let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": name },
            "spec": { "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } } });
        // One of that name may be there.
        let _ = self.stage.testbed.api.create_value(snapshot);
    }

    /// A user imports an existing snapshot, perhaps for a `VolumeSnapshot`, perhaps to delete it at once.
    fn make_given(&mut self) {
        self.made += 1;
        let name = format!("given-{}", self.made);
        let volume = handle(self.stage.rng.random_range(0..VOLUMES));
        let Some(id) = self.stage.testbed.driver.cut_snapshot(&format!("theirs-{name}"), &volume) else { return };
        let policy = ["Delete", "Retain"][usize::from(self.stage.rng.random_bool(0.3))];
        let is_protected = self.stage.rng.random_bool(0.5);
        let content = self.given(&name, &id, policy, is_protected);
        self.stage.testbed.api.create_value(content).unwrap();
        if self.stage.rng.random_bool(0.6) {
            let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": format!("snap-{name}") },
                "spec": { "source": { "volumeSnapshotContentName": name } } });
            self.stage.testbed.api.create_value(snapshot).unwrap();
        }
        if self.stage.rng.random_bool(0.4) {
            let _ = self.stage.testbed.api.delete_object(kind(CONTENTS), "", &name);
        }
    }

    fn any_content(&mut self) -> Option<std::sync::Arc<Value>> {
        let mut all = self.contents();
        all.retain(|it| !is_member(it) && !text(it, "/metadata/name").starts_with(KEPT));
        (!all.is_empty()).then(|| all[self.stage.rng.random_range(0..all.len())].clone())
    }

    /// A user changes a content's policy, or deletes it by hand or by force.
    fn handle_content(&mut self) {
        let Some(content) = self.any_content() else { return };
        let name = text(&content, "/metadata/name").to_owned();
        match self.stage.rng.random_range(0..5) {
            0..2 => {
                let policy = ["Delete", "Retain"][self.stage.rng.random_range(0..2)];
                self.patch_content(&name, json!({ "spec": { "deletionPolicy": policy } }));
            }
            2..4 => drop(self.stage.testbed.api.delete_object(kind(CONTENTS), "", &name)),
            _ => {
                self.patch_content(&name, json!({ "metadata": { "finalizers": null } }));
                let _ = self.stage.testbed.api.delete_object(kind(CONTENTS), "", &name);
            }
        }
    }

    fn driver_fault(&mut self) -> Fault {
        let calls = [Method::CreateSnapshot, Method::CreateSnapshot, Method::DeleteSnapshot, Method::ListSnapshots];
        let method = calls[self.stage.rng.random_range(0..calls.len())];
        let code = Code::from_i32(self.stage.rng.random_range(1..=16));
        let message = "scripted".to_owned();
        // Drivers that do it all the same answer with one of these.
        let open = [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::Cancelled, Code::ResourceExhausted];
        let down = self.stage.seconds(0.0, 3.0);
        let action = match self.stage.rng.random_range(0..12) {
            0..4 => Action::Fail { code, message },
            4 => Action::DoneButFail { code: open[self.stage.rng.random_range(0..open.len())], message },
            5 => Action::DoneButHang,
            6 => Action::Hang,
            7 => Action::Late(self.stage.seconds(0.1, 9.0)),
            8 => Action::Delay(self.stage.seconds(0.1, 4.0)),
            9 => Action::Lie(Lie::NotReady),
            10 => Action::DoneButCrash { down },
            _ => Action::AnswerThenCrash { down },
        };
        Fault::on(method, action).times(self.stage.rng.random_range(1..=4))
    }

    fn api_fault(&mut self) -> ApiFault {
        let conflict = Rejection::conflict(kind(CONTENTS), "scripted");
        let action = match self.stage.rng.random_range(0..8) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            4 => ApiAction::Refuse(conflict),
            5 => ApiAction::Refuse(Rejection::unprocessable_patch()),
            6 => ApiAction::DelayAfter(self.stage.seconds(0.1, 4.0)),
            _ => ApiAction::Refuse(Rejection::too_many_requests(1)),
        };
        let daemon = self.stage.daemon();
        let verb = ["patch", "patch", "get"][self.stage.rng.random_range(0..3)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(CONTENTS);
        ApiFault::on(on, action).times(self.stage.rng.random_range(1..=3))
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.stage.daemon();
        match self.stage.rng.random_range(0..14) {
            0..3 => self.meddle(),
            3 => self.handle_content(),
            4..6 => self.change_habits(),
            6..8 => drop(self.stage.cut(daemon)),
            8 => self.stage.slow_down(daemon),
            9..11 => self.stage.late_watches(daemon, &WATCHED),
            11 => {
                let down = self.stage.seconds(0.0, 5.0);
                self.stage.testbed.server.restart(down).await;
            }
            12 => self.stage.terminate(daemon),
            _ => match self.stage.rng.random_range(0..4) {
                0 => self.stage.testbed.connections.cut_all(),
                1 => self.stage.testbed.api.compact(),
                2 if self.setting.is_secretive => {
                    let secrets = csi_control_plane::sandbox::api::pure::resources::find("", "v1", "secrets").unwrap();
                    let name = crate::world::secret_name(SECRET);
                    let _ = self.stage.testbed.api.delete_object(secrets, "kube-system", &name);
                    self.stage.after(0.0, 20.0, Undo::Own(Own::Secret));
                }
                _ => {
                    // A driver that repeats what it got.
                    let message = format!("the password {MARKER} is wrong");
                    let code = Code::from_i32(self.stage.rng.random_range(1..=16));
                    if self.setting.is_secretive {
                        let fault = Fault::on(Method::CreateSnapshot, Action::Fail { code, message });
                        self.stage.testbed.driver.inject(fault.once());
                    }
                }
            },
        }
    }

    /// Others write to the same objects. Some replace all annotations by those that they know.
    fn meddle(&mut self) {
        let Some(content) = self.any_content() else { return };
        let name = text(&content, "/metadata/name").to_owned();
        let mark = format!("{}", self.stage.rng.random_range(0..3));
        match self.stage.rng.random_range(0..4) {
            0..2 => {
                let wiped = json!({ MARK: null, INTENT: null, "example.com/seen": mark });
                self.patch_content(&name, json!({ "metadata": { "annotations": wiped } }));
            }
            2 => {
                let theirs = json!({ "annotations": { "example.com/a": mark }, "labels": { "example.com/l": mark } });
                self.patch_content(&name, json!({ "metadata": theirs }));
            }
            _ => {
                let held = format!("example.com/{mark}");
                let mut all: Vec<String> = finalizers(&content).into_iter().map(str::to_owned).collect();
                if all.contains(&held) {
                    all.retain(|it| *it != held);
                } else {
                    all.push(held);
                }
                self.patch_content(&name, json!({ "metadata": { "finalizers": all } }));
            }
        }
    }

    fn change_habits(&mut self) {
        let habits = SnapshotHabits {
            works: self.stage.rng.random_bool(0.8),
            finalizer_after: self.stage.seconds(0.0, 10.0),
            is_stale: self.stage.rng.random_bool(0.6),
            deletes: self.stage.rng.random_bool(0.8),
        };
        self.habits.send_replace(habits);
        self.stage.after(2.0, 40.0, Undo::Own(Own::Habits));
    }
}
