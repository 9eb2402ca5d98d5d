//! The random events and their generator: a seed's schedule is drawn before the run.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults as api;
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use csi_control_plane::sandbox::network::Cut;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tonic::Code;

use crate::errands::Errand;
use crate::world::{DAEMONS, MARKER, World, handle};

/// One event. Volumes, nodes and daemons are named by their index.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    CreateVolume(usize),
    DeleteVolume(usize),
    Attach {
        volume: usize,
        node: usize,
        guarded_by_others: bool,
    },
    Detach {
        volume: usize,
        node: usize,
    },
    AttachForeign {
        volume: usize,
        node: usize,
    },
    DetachForeign {
        volume: usize,
        node: usize,
    },
    /// Our driver leaves a node, and comes back under another id if one is given.
    NodeChanges {
        node: usize,
        away: Duration,
        renamed: bool,
    },
    NodeGone {
        node: usize,
        away: Duration,
    },
    SecretGone {
        volume: usize,
        away: Duration,
    },
    /// Another controller's finalizer comes or goes.
    ForeignFinalizer {
        volume: usize,
        node: Option<usize>,
        which: usize,
    },
    Label {
        volume: usize,
        node: Option<usize>,
    },
    UndoRecord {
        volume: usize,
        node: usize,
    },
    Driver(Fault),
    DriverChance {
        rate: f64,
        lasts: Duration,
    },
    DriverClear,
    DriverRestart(Duration),
    DetachBehind {
        volume: usize,
        node: usize,
    },
    AttachBehind {
        volume: usize,
        node: usize,
    },
    /// The driver gains or loses the capability of this number, and restarts.
    Capability(i32),
    Api(api::Fault),
    ApiClear,
    Compact,
    HoldWatches {
        daemon: Option<usize>,
        kind: Option<&'static str>,
        lasts: Duration,
    },
    DelayWatches {
        daemon: Option<usize>,
        by: Duration,
        lasts: Duration,
    },
    DropWatches {
        daemon: Option<usize>,
        end: api::WatchEnd,
    },
    CutConnections,
    Latency {
        daemon: usize,
        latency: Duration,
    },
    Partition {
        daemon: usize,
        api: bool,
        cut: Cut,
        direction: Direction,
        lasts: Duration,
    },
    Reset {
        daemon: usize,
        api: bool,
    },
    Kill {
        daemon: usize,
        down: Duration,
    },
    Terminate {
        daemon: usize,
        down: Duration,
    },
    DeleteLease,
    StealLease,
    /// Around claims.
    Storage(Errand),
}

/// Which way a partition goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Both,
    ToDaemon,
    FromDaemon,
}

/// The schedule of a seed, in order.
pub(crate) fn schedule(seed: u64, world: &World) -> Vec<(Duration, Happening)> {
    let mut draw = Draw { rng: StdRng::seed_from_u64(seed), world };
    let length = draw.rng.random_range(60..=240_u64);
    let count = draw.rng.random_range(20..=90);
    // Most seeds are not hit by everything at once: what goes wrong is then easier to understand, and goes deeper.
    let kinds: Vec<u8> = (0..5).filter(|_| draw.rng.random_bool(0.55)).collect();
    let mut all: Vec<(Duration, Happening)> = (0..count)
        .map(|_| {
            let at = Duration::from_millis(draw.rng.random_range(0..length * 1000));
            let happening = if kinds.is_empty() || draw.rng.random_bool(0.45) {
                draw.people()
            } else {
                let kind = kinds[draw.rng.random_range(0..kinds.len())];
                match kind {
                    0 => draw.driver(),
                    1 => draw.api(),
                    2 => draw.watches(),
                    3 => draw.network(),
                    _ => draw.daemons(),
                }
            };
            (at, happening)
        })
        .collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

struct Draw<'a> {
    rng: StdRng,
    world: &'a World,
}

impl Draw<'_> {
    fn volume(&mut self) -> usize {
        self.rng.random_range(0..self.world.volumes.len())
    }

    fn node(&mut self) -> usize {
        self.rng.random_range(0..self.world.nodes)
    }

    fn daemon(&mut self) -> usize {
        self.rng.random_range(0..DAEMONS.len())
    }

    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_millis(Duration::from_secs_f64(self.rng.random_range(from..to)).as_millis().try_into().unwrap())
    }

    fn people(&mut self) -> Happening {
        let (volume, node) = (self.volume(), self.node());
        match self.rng.random_range(0..100) {
            0..30 => Happening::Attach { volume, node, guarded_by_others: self.rng.random_bool(0.15) },
            30..58 => Happening::Detach { volume, node },
            58..63 => Happening::DeleteVolume(volume),
            63..70 => Happening::CreateVolume(volume),
            70..72 => Happening::AttachForeign { volume, node },
            72..74 => Happening::DetachForeign { volume, node },
            74..79 => Happening::NodeChanges { node, away: self.seconds(0.0, 8.0), renamed: self.rng.random_bool(0.5) },
            79..81 => Happening::NodeGone { node, away: self.seconds(0.5, 20.0) },
            81..85 => Happening::SecretGone { volume, away: self.seconds(0.5, 20.0) },
            85..93 => {
                let node = self.rng.random_bool(0.6).then_some(node);
                Happening::ForeignFinalizer { volume, node, which: self.rng.random_range(0..2) }
            }
            93..97 => Happening::Label { volume, node: self.rng.random_bool(0.7).then_some(node) },
            _ => Happening::UndoRecord { volume, node },
        }
    }

    fn driver(&mut self) -> Happening {
        let (volume, node) = (self.volume(), self.node());
        match self.rng.random_range(0..100) {
            0..55 => Happening::Driver(self.driver_fault()),
            55..62 => {
                Happening::DriverChance { rate: self.rng.random_range(0.05..0.5), lasts: self.seconds(3.0, 40.0) }
            }
            62..67 => Happening::DriverClear,
            67..75 => Happening::DriverRestart(self.seconds(0.0, 12.0)),
            75..88 => Happening::DetachBehind { volume, node },
            88..92 => Happening::AttachBehind { volume, node },
            // LIST_VOLUMES, PUBLISH_READONLY, LIST_VOLUMES_PUBLISHED_NODES, GET_VOLUME.
            _ => Happening::Capability([3, 8, 10, 12][self.rng.random_range(0..4)]),
        }
    }

    fn driver_fault(&mut self) -> Fault {
        let method = match self.rng.random_range(0..10) {
            0..5 => Method::ControllerPublishVolume,
            5..8 => Method::ControllerUnpublishVolume,
            8 => Method::ListVolumes,
            _ => [Method::Probe, Method::GetPluginInfo, Method::ControllerGetCapabilities][self.rng.random_range(0..3)],
        };
        let volume = self.volume();
        // A driver can only repeat what it got: a volume's calls bring the volume's secret.
        let of_volume = matches!(method, Method::ControllerPublishVolume | Method::ControllerUnpublishVolume);
        let secret = if of_volume && self.world.volumes[volume].secret { MARKER } else { "no secret" };
        let code = Code::from_i32(self.rng.random_range(1..=16));
        let message = match self.rng.random_range(0..4) {
            0 => format!("the password {secret} is wrong"),
            1 => "é".repeat(3000),
            _ => "scripted".to_owned(),
        };
        let down = self.seconds(0.0, 6.0);
        let action = match self.rng.random_range(0..16) {
            0..5 => Action::Fail { code, message },
            5 => Action::Hang,
            6 => Action::Wedge,
            7 => Action::Delay(self.seconds(0.1, 8.0)),
            8 => Action::Late(self.seconds(0.1, 20.0)),
            9 => Action::DoneButFail { code, message },
            10 => Action::DoneButHang,
            11 => Action::Crash { down },
            12 => Action::DoneButCrash { down },
            13 => Action::AnswerThenCrash { down },
            _ => Action::Lie(self.lie()),
        };
        let method = if matches!(&action, Action::Lie(_)) { Method::ListVolumes } else { method };
        let fault = Fault::on(method, action).times(self.rng.random_range(1..=4));
        if of_volume && method != Method::ListVolumes { fault.volume(&handle(volume)) } else { fault }
    }

    fn lie(&mut self) -> Lie {
        match self.rng.random_range(0..6) {
            0 => Lie::OmitVolumes([handle(self.volume())].into()),
            1 => Lie::OmitNodes,
            2 => Lie::EntryWithoutVolume,
            3 => Lie::EntryWithoutStatus,
            4 => Lie::DuplicateEntries,
            _ => Lie::TokenLoop,
        }
    }

    fn api(&mut self) -> Happening {
        match self.rng.random_range(0..20) {
            0 => Happening::ApiClear,
            1 => Happening::Compact,
            _ => Happening::Api(self.api_fault()),
        }
    }

    fn api_fault(&mut self) -> api::Fault {
        let on = api::Matching::any();
        let on = match self.rng.random_range(0..14) {
            0..3 => on.verb("patch").resource("volumeattachments").subresource(""),
            3..6 => on.verb("patch").resource("volumeattachments").subresource("status"),
            6..8 => on.verb("patch").resource("persistentvolumes"),
            8 => on.verb("get").resource("secrets"),
            9 => on.verb("get").resource("volumeattachments"),
            10 => on.verb("list"),
            11 => on.verb("watch"),
            12 => on.resource("leases"),
            _ => on.resource("events"),
        };
        let on = if self.rng.random_bool(0.4) { on.user(DAEMONS[self.daemon()]) } else { on };
        let action = match self.rng.random_range(0..10) {
            0..4 => api::Action::Refuse(self.rejection()),
            4 => api::Action::RefuseAfter(Rejection::internal("the answer was lost")),
            5 => api::Action::DelayBefore(self.seconds(0.01, 0.5)),
            6 => api::Action::DelayAfter(self.seconds(0.01, 7.0)),
            7 => api::Action::CutBefore,
            8 => api::Action::CutAfter,
            _ => api::Action::Compact,
        };
        let fault = api::Fault::on(on, action);
        if self.rng.random_bool(0.5) {
            fault.nth(self.rng.random_range(1..=3))
        } else {
            fault.times(self.rng.random_range(1..=6))
        }
    }

    fn rejection(&mut self) -> Rejection {
        let internal = Rejection::internal("scripted");
        match self.rng.random_range(0..6) {
            0 => Rejection { code: 409, reason: "Conflict", ..internal },
            1 => Rejection { code: 422, reason: "Invalid", ..internal },
            2 => Rejection::too_many_requests(self.rng.random_range(1..=3)),
            3 => Rejection::service_unavailable("scripted"),
            4 => Rejection { code: 504, reason: "Timeout", ..internal },
            _ => internal,
        }
    }

    fn watches(&mut self) -> Happening {
        let daemon = self.rng.random_bool(0.6).then(|| self.daemon());
        let kinds = [None, Some("volumeattachments"), Some("persistentvolumes"), Some("csinodes"), Some("leases")];
        let kind = kinds[self.rng.random_range(0..kinds.len())];
        match self.rng.random_range(0..4) {
            0 => Happening::HoldWatches { daemon, kind, lasts: self.seconds(0.5, 30.0) },
            1 => Happening::DelayWatches { daemon, by: self.seconds(0.05, 4.0), lasts: self.seconds(1.0, 40.0) },
            2 => {
                let end = if self.rng.random_bool(0.5) { api::WatchEnd::Clean } else { api::WatchEnd::Cut };
                Happening::DropWatches { daemon, end }
            }
            _ => Happening::Compact,
        }
    }

    fn network(&mut self) -> Happening {
        let daemon = self.daemon();
        let api = self.rng.random_bool(0.6);
        match self.rng.random_range(0..10) {
            0..5 => {
                let cut = if self.rng.random_bool(0.5) { Cut::Hang } else { Cut::Refuse };
                let direction =
                    [Direction::Both, Direction::ToDaemon, Direction::FromDaemon][self.rng.random_range(0..3)];
                Happening::Partition { daemon, api, cut, direction, lasts: self.seconds(0.2, 25.0) }
            }
            5..7 => Happening::Reset { daemon, api },
            7 => Happening::CutConnections,
            _ => Happening::Latency { daemon, latency: self.seconds(0.0, 0.08) },
        }
    }

    fn daemons(&mut self) -> Happening {
        let daemon = self.daemon();
        match self.rng.random_range(0..10) {
            0..4 => Happening::Kill { daemon, down: self.seconds(0.0, 15.0) },
            4..8 => Happening::Terminate { daemon, down: self.seconds(0.2, 15.0) },
            8 => Happening::DeleteLease,
            _ => Happening::StealLease,
        }
    }
}
