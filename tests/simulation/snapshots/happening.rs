//! What happens: users make and delete snapshots, people and controllers meddle, the driver and the API fail, daemons die.

use std::time::Duration;

use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, FaultId, Matching, WatchEnd};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use csi_control_plane::sandbox::network::Cut;
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST};
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;

use super::checks::{CONTENTS, INTENT, MARK, SNAPSHOTS, is_member};
use super::force_happening::KEPT;
use super::play::{CLASSES, Play, SECRET, VOLUMES, class, handle, kind};
use crate::world::{DAEMONS, MARKER, finalizers, text};

/// How many names of snapshots there are.
const NAMES: usize = 6;

/// Faults that end by themselves.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Heal {
        daemon: usize,
        peer: &'static str,
    },
    Release(FaultId),
    Start,
    Class(&'static str),
    Habits,
    Secret,
    /// Somebody removes a content of this kind and name by force.
    Force(&'static str, String),
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
                }
                Undo::Release(fault) => self.testbed.api.faults().remove(fault),
                Undo::Start => self.start_all().await,
                Undo::Class(name) => {
                    self.made += 1;
                    let again = class(name, self.made, self.setting.is_secretive);
                    let _ = self.testbed.api.create_value(again);
                }
                Undo::Habits => drop(self.habits.send_replace(SnapshotHabits::default())),
                Undo::Force(plural, name) => self.remove_by_force(plural, &name),
                Undo::Secret => drop(self.testbed.api.create_value(crate::world::World::secret(SECRET))),
            }
        }
    }

    /// Something happens.
    pub(super) async fn happen(&mut self) {
        let kinds = if self.setting.is_rough { 44 } else { 30 };
        match self.rng.random_range(0..kinds) {
            0..8 => self.make_snapshot(),
            8..13 => {
                let name = format!("s-{}", self.rng.random_range(0..NAMES));
                let _ = self.testbed.api.delete_object(kind(SNAPSHOTS), "default", &name);
            }
            13 => {
                let name = CLASSES[self.rng.random_range(0..CLASSES.len())];
                let _ = self.testbed.api.delete_object(kind("volumesnapshotclasses"), "", name);
                self.after(0.0, 15.0, Undo::Class(name));
            }
            14..16 => self.make_given(),
            16..22 => {
                let fault = self.driver_fault();
                self.testbed.driver.inject(fault);
            }
            22..26 => {
                let fault = self.api_fault();
                self.testbed.api.faults().add(fault);
            }
            26..28 => {
                let daemon = self.daemon();
                if let Some(running) = self.daemons[daemon].take() {
                    running.kill();
                }
                self.after(0.0, 8.0, Undo::Start);
            }
            28 => self.handle_content(),
            29 => self.start_all().await,
            _ => self.disturb().await,
        }
    }

    fn make_snapshot(&mut self) {
        let name = format!("s-{}", self.rng.random_range(0..NAMES));
        let claim = format!("claim-{}", self.rng.random_range(0..VOLUMES));
        let class = CLASSES[usize::from(self.rng.random_bool(0.25))];
        let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": name },
            "spec": { "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } } });
        // One of that name may be there.
        let _ = self.testbed.api.create_value(snapshot);
    }

    /// A user imports an existing snapshot, perhaps for a `VolumeSnapshot`, perhaps to delete it at once.
    fn make_given(&mut self) {
        self.made += 1;
        let name = format!("given-{}", self.made);
        let volume = handle(self.rng.random_range(0..VOLUMES));
        let Some(id) = self.testbed.driver.cut_snapshot(&format!("theirs-{name}"), &volume) else { return };
        let policy = ["Delete", "Retain"][usize::from(self.rng.random_bool(0.3))];
        let is_protected = self.rng.random_bool(0.5);
        let content = self.given(&name, &id, policy, is_protected);
        self.testbed.api.create_value(content).unwrap();
        if self.rng.random_bool(0.6) {
            let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": format!("snap-{name}") },
                "spec": { "source": { "volumeSnapshotContentName": name } } });
            self.testbed.api.create_value(snapshot).unwrap();
        }
        if self.rng.random_bool(0.4) {
            let _ = self.testbed.api.delete_object(kind(CONTENTS), "", &name);
        }
    }

    fn any_content(&mut self) -> Option<std::sync::Arc<Value>> {
        let mut all = self.contents();
        all.retain(|it| !is_member(it) && !text(it, "/metadata/name").starts_with(KEPT));
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len())].clone())
    }

    /// A user changes a content's policy, or deletes it by hand or by force.
    fn handle_content(&mut self) {
        let Some(content) = self.any_content() else { return };
        let name = text(&content, "/metadata/name").to_owned();
        match self.rng.random_range(0..5) {
            0..2 => {
                let policy = ["Delete", "Retain"][self.rng.random_range(0..2)];
                self.patch_content(&name, json!({ "spec": { "deletionPolicy": policy } }));
            }
            2..4 => drop(self.testbed.api.delete_object(kind(CONTENTS), "", &name)),
            _ => {
                self.patch_content(&name, json!({ "metadata": { "finalizers": null } }));
                let _ = self.testbed.api.delete_object(kind(CONTENTS), "", &name);
            }
        }
    }

    fn driver_fault(&mut self) -> Fault {
        let calls = [Method::CreateSnapshot, Method::CreateSnapshot, Method::DeleteSnapshot, Method::ListSnapshots];
        let method = calls[self.rng.random_range(0..calls.len())];
        let code = Code::from_i32(self.rng.random_range(1..=16));
        let message = "scripted".to_owned();
        // Drivers that do it all the same answer with one of these.
        let open = [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::Cancelled, Code::ResourceExhausted];
        let down = self.seconds(0.0, 3.0);
        let action = match self.rng.random_range(0..12) {
            0..4 => Action::Fail { code, message },
            4 => Action::DoneButFail { code: open[self.rng.random_range(0..open.len())], message },
            5 => Action::DoneButHang,
            6 => Action::Hang,
            7 => Action::Late(self.seconds(0.1, 9.0)),
            8 => Action::Delay(self.seconds(0.1, 4.0)),
            9 => Action::Lie(Lie::NotReady),
            10 => Action::DoneButCrash { down },
            _ => Action::AnswerThenCrash { down },
        };
        Fault::on(method, action).times(self.rng.random_range(1..=4))
    }

    fn api_fault(&mut self) -> ApiFault {
        let conflict = Rejection::conflict(kind(CONTENTS), "scripted");
        let action = match self.rng.random_range(0..8) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            4 => ApiAction::Refuse(conflict),
            5 => ApiAction::Refuse(Rejection::unprocessable_patch()),
            6 => ApiAction::DelayAfter(self.seconds(0.1, 4.0)),
            _ => ApiAction::Refuse(Rejection::too_many_requests(1)),
        };
        let daemon = self.daemon();
        let verb = ["patch", "patch", "get"][self.rng.random_range(0..3)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(CONTENTS);
        ApiFault::on(on, action).times(self.rng.random_range(1..=3))
    }

    /// Something else happens, where it is rough.
    async fn disturb(&mut self) {
        let daemon = self.daemon();
        match self.rng.random_range(0..14) {
            0..3 => self.meddle(),
            3 => self.handle_content(),
            4..6 => self.change_habits(),
            6..8 => self.cut(daemon),
            8 => {
                let latency = self.seconds(0.0, 0.08);
                self.network.set_latency(DAEMONS[daemon], API_HOST, latency);
            }
            9..11 => self.late_watches(daemon),
            11 => {
                let down = self.seconds(0.0, 5.0);
                self.testbed.server.restart(down).await;
            }
            12 => {
                if let Some(running) = &self.daemons[daemon] {
                    running.terminate();
                }
                self.after(0.2, 8.0, Undo::Start);
            }
            _ => match self.rng.random_range(0..4) {
                0 => self.testbed.connections.cut_all(),
                1 => self.testbed.api.compact(),
                2 if self.setting.is_secretive => {
                    let secrets = csi_control_plane::sandbox::api::pure::resources::find("", "v1", "secrets").unwrap();
                    let name = crate::world::secret_name(SECRET);
                    let _ = self.testbed.api.delete_object(secrets, "kube-system", &name);
                    self.after(0.0, 20.0, Undo::Secret);
                }
                _ => {
                    // A driver that repeats what it got.
                    let message = format!("the password {MARKER} is wrong");
                    let code = Code::from_i32(self.rng.random_range(1..=16));
                    if self.setting.is_secretive {
                        let fault = Fault::on(Method::CreateSnapshot, Action::Fail { code, message });
                        self.testbed.driver.inject(fault.once());
                    }
                }
            },
        }
    }

    /// Others write to the same objects. Some replace all annotations by those that they know.
    fn meddle(&mut self) {
        let Some(content) = self.any_content() else { return };
        let name = text(&content, "/metadata/name").to_owned();
        let mark = format!("{}", self.rng.random_range(0..3));
        match self.rng.random_range(0..4) {
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
            works: self.rng.random_bool(0.8),
            finalizer_after: self.seconds(0.0, 10.0),
            is_stale: self.rng.random_bool(0.6),
            deletes: self.rng.random_bool(0.8),
        };
        self.habits.send_replace(habits);
        self.after(2.0, 40.0, Undo::Habits);
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
        self.after(0.2, 15.0, Undo::Heal { daemon, peer });
    }

    fn late_watches(&mut self, daemon: usize) {
        let kinds = [CONTENTS, CONTENTS, "volumesnapshotclasses"];
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
