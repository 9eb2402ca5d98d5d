//! Draws what happens around claims: which events, when, and how.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults as api;
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tonic::Code;

use crate::errands::Errand;
use crate::happening::Happening;
use crate::keeping::Keep;
use crate::meddling::{Meddling, Restore};
use crate::storage::Storage;
use crate::world::{MARKER, World};

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
        .chain(drawn(0x4ee9_0000).keeping(length))
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
        // A caller without the secret cannot send it.
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

    /// The faults of the journal, in most seeds.
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

    /// Users who keep their data, in most seeds; often the leader is lost soon after, or an old journal comes back.
    fn keeping(&mut self, length: u64) -> Vec<(Duration, Happening)> {
        let count = if self.rng.random_bool(0.7) { self.rng.random_range(1..=6) } else { 0 };
        (0..count).flat_map(|_| self.kept(length)).collect()
    }

    fn kept(&mut self, length: u64) -> Vec<(Duration, Happening)> {
        let at = Duration::from_millis(self.rng.random_range(0..length * 1000));
        let how = [Keep::Retain, Keep::RetainByForce, Keep::ByForce][self.rng.random_range(0..3)];
        let mut all = vec![(at, Happening::Storage(Errand::Keep { rank: self.rng.random_range(0..64), how }))];
        let soon = at + self.seconds(0.0, 4.0);
        match self.rng.random_range(0..4) {
            0 => all.push((soon, Happening::Storage(Errand::MeddleWithLease { steal: self.rng.random_bool(0.5) }))),
            1 => {
                let (daemon, down) = (self.rng.random_range(0..2), self.seconds(0.0, 6.0));
                all.push((soon, Happening::Kill { daemon, down }));
            }
            _ => {}
        }
        if self.rng.random_bool(0.4) {
            let place = [Restore::There, Restore::Anew, Restore::Elsewhere][self.rng.random_range(0..3)];
            let restore = Meddling::Restore { rank: self.rng.random_range(0..256), place };
            all.push((at + self.seconds(0.0, 60.0), Happening::Storage(Errand::MeddleWithJournal(restore))));
        }
        all
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
