//! A very large cluster: volumes of ours that are attached, as many of another driver, and thousands of nodes. From the start of the process
//! to the first attachment, which waits for it; memory at rest; many attachments at once.

use std::time::Duration;

use csi_control_plane::process::Clock;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::json;
use tokio::time::sleep;

use super::{LONG, PATIENCE, Scenario, Scene, seat, timeline};
use crate::Figures;
use crate::arithmetic::percentile;
use crate::contender::{Contender, Share};
use crate::stage::Stage;
use crate::support;
use crate::timeline::Limit;
use crate::workload::Workload;
use crate::workload::attach::NODES;
use crate::write::Placed;

/// The driver of the volumes that are not ours.
const OTHER: &str = "other.csi.example.com";
/// After so long every list is there, and memory is at rest.
const SETTLE: Duration = Duration::from_secs(60);

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Volumes of ours that are attached.
    pub(crate) ours: usize,
    /// The same of another driver.
    pub(crate) foreign: usize,
    pub(crate) nodes: usize,
    /// Attachments at once.
    pub(crate) burst: usize,
}

impl Scale {
    /// The number of the attachment that waits for the start. Those of the burst follow.
    fn first(&self) -> usize {
        self.ours + self.foreign
    }

    async fn make(&self, stage: &Stage, workload: &dyn Workload) {
        let node = |number: usize| {
            let mut object = support::node(number);
            object["metadata"]["name"] = json!(format!("node-{number}.example.com"));
            Placed { collection: NODES, object }
        };
        // The workload has made the first of them.
        stage.create_all((support::NODES..self.nodes).map(node)).await;
        stage.settle(workload, 0..self.ours).await;
        stage.settle_for(OTHER, workload, self.ours..self.first()).await;
        stage.before(workload, self.first()..self.first() + 1 + self.burst).await;
    }

    async fn measure(&self, scene: Scene<'_>) -> Figures {
        let Scene { stage, workload, contender, .. } = scene;
        let first = self.first();
        let backend = stage.driver(workload, Duration::ZERO).await;
        workload.seed_done(&backend.driver, 0..self.ours);
        workload.seed(&backend.driver, first..first + 1 + self.burst);
        stage.begin_one(workload, first).await;
        let timeline = timeline(stage, workload).await;
        let start = Clock::system().now();
        let crew = contender.start(&seat(stage, &backend, workload));
        assert!(timeline.until(PATIENCE, |counts| counts.done > 0).await, "it does not start");
        let first_ms = start.elapsed().as_secs_f64() * 1000.0;
        let peak_of_start = crew.memory().peak;
        sleep(SETTLE).await;
        let idle = crew.memory().now;

        let (names, cpu) = (timeline.names_done(true), crew.cpu());
        stage.undo_all(workload, &names).await;
        timeline.within(Limit::Patience(LONG), |counts| counts.gone > 0).await;
        timeline.clear();
        let began = Clock::system().now();
        let wait = timeline.within(Limit::Patience(LONG), |counts| counts.done >= self.burst);
        futures::join!(stage.begin(workload, first + 1..first + 1 + self.burst, |_| ()), wait);
        let took = began.elapsed().as_secs_f64();
        let mut latencies: Vec<f64> =
            timeline.forth().iter().map(|(from, to)| (*to - *from).as_secs_f64() * 1000.0).collect();
        latencies.sort_by(f64::total_cmp);
        let (memory, cpu) = (crew.memory(), crew.cpu() - cpu);
        stage.undo_all(workload, &timeline.names_done(true)).await;
        timeline.within(Limit::Patience(LONG), |counts| counts.gone >= self.burst).await;
        crew.stop().await;
        backend.stop().await;
        Figures::from(
            [
                ("first_ms", first_ms),
                ("start_peak_rss_bytes", peak_of_start),
                ("rss_bytes", idle),
                ("peak_rss_bytes", memory.peak),
                ("attach.rate", self.burst as f64 / took),
                ("attach.p50_ms", percentile(&latencies, 50)),
                ("attach.p99_ms", percentile(&latencies, 99)),
                ("attach.cpu_each_ms", cpu / self.burst as f64),
                ("binary_bytes", contender.size()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        )
    }
}

impl Scenario for Scale {
    fn name(&self) -> String {
        format!("scale-{}-{}-{}-{}", self.ours, self.foreign, self.nodes, self.burst)
    }

    fn takes(&self, workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // A throttle would take an hour for the burst.
        !contender.is_throttled() && (workload.facts().sidecars.len() == 1 || contender.share() != Share::Part)
    }

    fn prepare<'a>(&'a self, stage: &'a Stage, workload: &'a dyn Workload) -> LocalBoxFuture<'a, ()> {
        self.make(stage, workload).boxed_local()
    }

    fn readying(&self) -> f64 {
        (self.ours + self.foreign) as f64 / 80.0 + (self.nodes + self.burst) as f64 / 300.0
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        SETTLE.as_secs_f64() + 30.0 + self.burst as f64 / 50.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        self.measure(scene).boxed_local()
    }
}
