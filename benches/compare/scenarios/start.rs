//! From the start of the process to the first object done, which waits for it.

use std::time::Duration;

use csi_control_plane::process::Clock;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::{PATIENCE, Scenario, Scene, seat, timeline};
use crate::Figures;
use crate::arithmetic::percentile;
use crate::contender::{Contender, Share};
use crate::workload::Workload;

/// Between the bench's own list and the process's first: the API server asks etcd at most each 100 ms how far a kind has come,
/// and whoever lists it within that time of somebody else waits for the rest of it.
const APART: Duration = Duration::from_secs(1);

/// So many starts.
pub(crate) struct Start {
    pub(crate) count: usize,
}

impl Scenario for Start {
    fn name(&self) -> String {
        "start".to_owned()
    }

    fn takes(&self, workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // Of several sidecars all are started.
        workload.facts().sidecars.len() == 1 || contender.share() != Share::Part
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        self.count as f64 * 2.2 + 1.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        async move {
            let Scene { stage, workload, contender, .. } = scene;
            let mut took = Vec::new();
            for number in 0..self.count {
                stage.before(workload, number..number + 1).await;
                stage.begin_one(workload, number).await;
                let backend = stage.driver(workload, Duration::ZERO).await;
                workload.seed(&backend.driver, number..number + 1);
                let timeline = timeline(stage, workload).await;
                timeline.until_quiet(APART).await;
                let start = Clock::system().now();
                let crew = contender.start(&seat(stage, &backend, workload));
                assert!(timeline.until(PATIENCE, |counts| counts.done > 0).await, "it does not start");
                took.push(start.elapsed().as_secs_f64() * 1000.0);
                crew.stop().await;
                backend.stop().await;
                stage.clear(workload).await;
            }
            took.sort_by(f64::total_cmp);
            let size = contender.size();
            Figures::from([("first_ms".to_owned(), percentile(&took, 50)), ("binary_bytes".to_owned(), size)])
        }
        .boxed_local()
    }
}
