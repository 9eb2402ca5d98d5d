//! One object on an idle server: how long until it is done, and until it is gone.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::{Bout, Scenario, Scene};
use crate::Figures;
use crate::arithmetic::percentile;
use crate::contender::Contender;
use crate::workload::Workload;

/// One object at a time, so many times.
pub(crate) struct Single {
    pub(crate) count: usize,
}

impl Scenario for Single {
    fn name(&self) -> String {
        "single".to_owned()
    }

    fn takes(&self, _workload: &dyn Workload, contender: &dyn Contender) -> bool {
        // A throttle shows after the first few, and then it is all that shows.
        !contender.is_throttled()
    }

    fn estimate(&self, _contender: &dyn Contender) -> f64 {
        self.count as f64 * 0.1 + 3.0
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        async move {
            let Scene { stage, workload, .. } = scene;
            let [forth, back] = workload.facts().verbs;
            stage.before(workload, 0..self.count + 1).await;
            let bout = Bout::begin(scene, Duration::ZERO, None).await;
            workload.seed(&bout.backend.driver, 0..self.count + 1);
            bout.warm_up(self.count).await;
            for number in 0..self.count {
                bout.one(number).await;
            }
            let mut figures = Figures::new();
            for (verb, spans) in [(forth, bout.timeline.forth()), (back, bout.timeline.back())] {
                let mut took: Vec<f64> = spans.iter().map(|(from, to)| (*to - *from).as_secs_f64() * 1000.0).collect();
                took.sort_by(f64::total_cmp);
                figures.insert(format!("{verb}.p50_ms"), percentile(&took, 50));
                figures.insert(format!("{verb}.max_ms"), percentile(&took, 100));
            }
            bout.end().await;
            figures
        }
        .boxed_local()
    }
}
