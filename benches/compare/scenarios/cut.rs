//! Every connection to the API is cut in the middle of a burst, several times: nothing may be lost, nothing done twice.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::{Bout, LONG, PATIENCE, Scenario, Scene, seat, timeline};
use crate::Figures;
use crate::contender::{Contender, Seat};
use crate::timeline::Limit;
use crate::wire::Wire;
use crate::workload;
use crate::workload::Workload;

/// A burst, with all connections cut at each fifth.
pub(crate) struct Cut {
    pub(crate) count: usize,
}

impl Scenario for Cut {
    fn name(&self) -> String {
        "cut".to_owned()
    }

    fn takes(&self, _workload: &dyn Workload, contender: &dyn Contender) -> bool {
        !contender.is_throttled()
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        2.0 * self.count as f64 / 60.0 + 10.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        self.measure(scene).boxed_local()
    }
}

impl Cut {
    async fn measure(&self, scene: Scene<'_>) -> Figures {
        let (Scene { stage, workload, contender, .. }, count) = (scene, self.count);
        stage.before(workload, 0..count + 1).await;
        let wire = Wire::to(stage.address()).await;
        let backend = stage.driver(workload, Duration::ZERO).await;
        workload.seed(&backend.driver, 0..count + 1);
        let timeline = timeline(stage, workload).await;
        let kubeconfig = stage.kubeconfig_through(wire.address);
        let crew = contender.start(&Seat { kubeconfig: &kubeconfig, ..seat(stage, &backend, workload) });
        let bout = Bout {
            stage,
            workload,
            crew,
            writer: None,
            is_throttled: false,
            limit: Limit::Patience(LONG),
            backend,
            timeline,
        };
        bout.warm_up(count).await;

        let start = tokio::time::Instant::now();
        let cuts = async {
            for part in 1..5 {
                bout.timeline.until(PATIENCE, |counts| counts.done >= count * part / 5).await;
                wire.cut();
            }
        };
        futures::join!(bout.create(0..count), cuts);
        bout.timeline.until(PATIENCE, |counts| counts.done >= count).await;
        let attached = start.elapsed();
        let done = bout.timeline.forth().len();
        let [forth, _] = workload.facts().methods;
        let duplicates = workload::duplicates(&bout.backend.driver, forth);

        let names = bout.timeline.names_done(true);
        let start = tokio::time::Instant::now();
        let cuts = async {
            for part in 1..5 {
                bout.timeline.until(PATIENCE, |counts| counts.gone >= names.len() * part / 5).await;
                wire.cut();
            }
        };
        futures::join!(stage.undo_all(workload, &names), cuts);
        bout.timeline.until(PATIENCE, |counts| counts.gone >= names.len()).await;
        let (detached, gone) = (start.elapsed(), bout.timeline.back().len());
        bout.end().await;
        let [forth, back] = workload.facts().verbs;
        Figures::from([
            (format!("{forth}.lost"), (count - done) as f64),
            (format!("{forth}.took_s"), attached.as_secs_f64()),
            (format!("{forth}.duplicates"), duplicates as f64),
            (format!("{back}.lost"), (names.len() - gone) as f64),
            (format!("{back}.took_s"), detached.as_secs_f64()),
        ])
    }
}
