//! Two of a kind share a Lease, and the leader goes: how long until the other has done what is wanted from then on.

use std::time::Duration;

use csi_control_plane::process::Clock;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::time::sleep;

use super::{PATIENCE, Scenario, seat, timeline};
use crate::Figures;
use crate::contender::{Contender, Seat};
use crate::stage::Stage;
use crate::workload::Workload;

/// The standby gets so long to be one.
const SETTLE: Duration = Duration::from_secs(3);

/// The leader gets this signal.
pub(crate) struct Failover {
    pub(crate) signal: &'static str,
}

impl Scenario for Failover {
    fn name(&self) -> String {
        format!("failover-{}", self.signal.to_lowercase())
    }

    fn takes(&self, contender: &dyn Contender) -> bool {
        // It is the same Lease, throttled or not.
        !contender.is_throttled()
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        if self.signal == "KILL" { 25.0 } else { 30.0 }
    }

    fn run<'a>(
        &'a self,
        stage: &'a Stage,
        workload: &'a dyn Workload,
        contender: &'a dyn Contender,
    ) -> LocalBoxFuture<'a, Figures> {
        async move {
            stage.before(workload, 0..2).await;
            let backend = stage.driver(workload, Duration::ZERO).await;
            workload.seed(&backend.driver, 0..2);
            let timeline = timeline(stage, workload).await;
            let alone = seat(stage, &backend, workload);
            // The first to come leads, as its first work shows.
            let leader = contender.start(&Seat { leader_election: true, host: "first", ..alone.clone() });
            stage.begin(workload, 0..1).await;
            assert!(timeline.until(PATIENCE, |counts| counts.done == 1).await, "nobody leads");
            let standby = contender.start(&Seat { leader_election: true, host: "second", ..alone });
            sleep(SETTLE).await;

            let start = Clock::system().now();
            leader.signal(self.signal);
            stage.begin(workload, 1..2).await;
            assert!(timeline.until(PATIENCE, |counts| counts.done == 2).await, "nobody takes over");
            let took = start.elapsed().as_secs_f64();
            leader.stop().await;
            standby.stop().await;
            backend.stop().await;
            stage.clear(workload).await;
            Figures::from([("took_s".to_owned(), took)])
        }
        .boxed_local()
    }
}
