//! Two of a kind share a Lease, and the leader goes: how long until the other has done what is wanted from then on.

use std::time::Duration;

use csi_control_plane::process::Clock;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::time::sleep;

use super::{PATIENCE, Scenario, Scene, seat, timeline};
use crate::Figures;
use crate::arithmetic::phase;
use crate::contender::{Contender, Seat};
use crate::workload::Workload;

/// The standby gets so long to be one.
const SETTLE: Duration = Duration::from_secs(3);

/// Leader and standby come back to the Lease so often.
const RETRY: Duration = Duration::from_secs(5);
/// So many leaders of each contender go in a round, each at another moment between two renewals: how long the Lease is still good
/// for decides how long it takes.
const TIMES: usize = 3;

/// The leader gets this signal.
pub(crate) struct Failover {
    pub(crate) signal: &'static str,
    /// Of the moments at which it does.
    pub(crate) seed: u64,
}

impl Scenario for Failover {
    fn name(&self) -> String {
        format!("failover-{}", self.signal.to_lowercase())
    }

    fn takes(&self, _workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // It is the same Lease, throttled or not.
        !contender.is_throttled()
    }

    fn times(&self) -> usize {
        TIMES
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        let settle = (SETTLE + RETRY / 2).as_secs_f64();
        TIMES as f64 * (settle + if self.signal == "KILL" { 17.0 } else { 12.0 })
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        async move {
            let Scene { stage, workload, contender, nth } = scene;
            let phase = phase(self.seed, nth, TIMES, RETRY);
            stage.before(workload, 0..2).await;
            let backend = stage.driver(workload, Duration::ZERO).await;
            workload.seed(&backend.driver, 0..2);
            let timeline = timeline(stage, workload).await;
            let alone = seat(stage, &backend, workload);
            // The first to come leads, as its first work shows.
            let leader = contender.start(&Seat { leader_election: true, host: "first", ..alone.clone() });
            stage.begin_one(workload, 0).await;
            assert!(timeline.until(PATIENCE, |counts| counts.done == 1).await, "nobody leads");
            let standby = contender.start(&Seat { leader_election: true, host: "second", ..alone });
            sleep(SETTLE + phase).await;

            let start = Clock::system().now();
            leader.signal(self.signal);
            stage.begin_one(workload, 1).await;
            assert!(timeline.until(PATIENCE, |counts| counts.done == 2).await, "nobody takes over");
            let took = start.elapsed().as_secs_f64();
            leader.stop().await;
            standby.stop().await;
            backend.stop().await;
            stage.clear(workload).await;
            Figures::from([("took_s".to_owned(), took), ("phase_s".to_owned(), phase.as_secs_f64())])
        }
        .boxed_local()
    }
}
