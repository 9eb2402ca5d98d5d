//! Nothing to do, among so many objects that are done: memory and open watches.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::time::sleep;

use super::{Scenario, Scene, seat};
use crate::Figures;
use crate::contender::{Contender, Seat, Share};
use crate::counted;
use crate::stage::Stage;
use crate::workload::Workload;

/// After so long everyone's memory is looked at, once: every list is there, and the first garbage collections are over. Go gives
/// what it has freed back to the kernel within minutes, and nobody is made to.
const SETTLE: Duration = Duration::from_secs(60);
/// For so long after that the requests of those who elect a leader are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// So many objects.
pub(crate) struct Idle {
    pub(crate) count: usize,
}

impl Scenario for Idle {
    fn name(&self) -> String {
        format!("idle-{}", self.count)
    }

    fn takes(&self, _workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // What several processes hold is what each of them holds.
        contender.share() != Share::Several
    }

    fn prepare<'a>(&'a self, stage: &'a Stage, workload: &'a dyn Workload) -> LocalBoxFuture<'a, ()> {
        stage.settle(workload, 0..self.count).boxed_local()
    }

    fn readying(&self) -> f64 {
        self.count as f64 / 80.0
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        SETTLE.as_secs_f64() + 8.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        async move {
            let Scene { stage, workload, contender, .. } = scene;
            let backend = stage.driver(workload, Duration::ZERO).await;
            workload.seed_done(&backend.driver, 0..self.count);
            let before = stage.watches().await;
            let elects = workload.elects_when_idle();
            let crew = contender.start(&Seat { leader_election: elects, ..seat(stage, &backend, workload) });
            sleep(SETTLE).await;
            let memory = crew.memory();
            let cpu = crew.cpu();
            let mut figures = Figures::new();
            if elects {
                let before = stage.requests_so_far(workload, false).await;
                sleep(MINUTE).await;
                let sent = counted::since(stage.requests_so_far(workload, false).await, &before);
                figures.insert("requests_per_minute".to_owned(), sent.values().sum());
            }
            let watches = stage.watches().await - before;
            let calls = backend.driver.calls_of(workload.facts().methods[0]).len();
            crew.stop().await;
            backend.stop().await;
            figures.extend([
                ("rss_bytes".to_owned(), memory.now),
                ("peak_rss_bytes".to_owned(), memory.peak),
                ("watches".to_owned(), watches),
                ("cpu_s".to_owned(), cpu / 1000.0),
                ("calls".to_owned(), calls as f64),
                ("binary_bytes".to_owned(), contender.size()),
            ]);
            figures
        }
        .boxed_local()
    }
}
