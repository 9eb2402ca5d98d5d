//! How much room there is, told for many segments and classes: until all objects are there, and a second pass by a process that
//! finds them all right.

use std::time::Duration;

use csi_control_plane::process::Clock;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::burst::{Before, tell};
use super::{Bout, FOR_EVER, PATIENCE, Scenario, Scene};
use crate::Figures;
use crate::contender::Contender;
use crate::counted;
use crate::stage::Stage;
use crate::workload::Workload;

/// Between two looks at how often the driver was asked.
const LOOK: Duration = Duration::from_millis(100);

/// All objects of the workload, made and then found to be right.
pub(crate) struct Refresh {
    pub(crate) segments: usize,
    pub(crate) bound: Option<Duration>,
}

impl Scenario for Refresh {
    fn name(&self) -> String {
        format!("refresh-{}", self.segments)
    }

    fn estimate(&self, contender: &dyn Contender) -> f64 {
        let objects = self.segments as f64 * 3.0;
        let tidying = 10.0 + objects / 200.0;
        if contender.is_throttled() {
            // One write in a second.
            return tidying + objects.min(self.bound.unwrap_or(FOR_EVER).as_secs_f64());
        }
        tidying + 2.0 * (objects / 150.0 + 3.0)
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        self.measure(scene).boxed_local()
    }
}

/// Where a phase begins that the contender's start begins: there is nothing else that would tell it when.
async fn unbegun(stage: &Stage, workload: &dyn Workload) -> Before {
    let requests = stage.requests_so_far(workload, true).await;
    let warnings = stage.warnings().await;
    Before { requests, warnings, cpu: 0.0, start: Clock::system().now() }
}

impl Refresh {
    async fn measure(&self, scene: Scene<'_>) -> Figures {
        let Scene { stage, workload, .. } = scene;
        let ([forth, again], wanted) = (workload.facts().verbs, workload.size());
        let mut figures = Figures::new();
        let start = unbegun(stage, workload).await;
        let began = start.start;
        let bout = Bout::begin(scene, Duration::ZERO, self.bound).await;
        let is_whole = bout.timeline.within(bout.limit, |counts| counts.done >= wanted).await;
        let mut spans = bout.timeline.forth();
        // An object is wanted from the beginning.
        for (from, _) in &mut spans {
            *from = began;
        }
        tell(&bout, forth, &spans, wanted, start, is_whole, &mut figures).await;
        let calls = bout.backend.driver.calls_of(workload.facts().methods[0]).len();
        figures.insert(format!("{forth}.calls_each"), calls as f64 / spans.len() as f64);
        figures.insert("peak_rss_bytes".to_owned(), bout.crew.memory().peak);
        if is_whole {
            return self.again(bout, scene, again, figures).await;
        }
        bout.end().await;
        figures
    }

    /// Another process finds what the first has left: it asks for all of it, and has nothing to write.
    async fn again(&self, bout: Bout<'_>, scene: Scene<'_>, verb: &str, mut figures: Figures) -> Figures {
        let Bout { stage, workload, crew, backend, timeline, .. } = bout;
        crew.stop().await;
        backend.stop().await;
        drop(timeline);
        let start = unbegun(stage, workload).await;
        let bout = Bout::begin(scene, Duration::ZERO, self.bound).await;
        let asked = || bout.backend.driver.calls_of(workload.facts().methods[0]).len();
        let all = async {
            while asked() < workload.size() {
                tokio::time::sleep(LOOK).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "it asks for {} of {}", asked(), workload.size());
        // The look at the driver is a rough one, its own clock is not.
        let calls = bout.backend.driver.calls_of(workload.facts().methods[0]);
        let last = calls.iter().take(workload.size()).map(|call| call.started).max().unwrap_or_default();
        let took = bout.backend.born - start.start + last;
        let requests = stage.requests_so_far(workload, true).await;
        // What was refused has written nothing: theirs finds out about the API's version by an invalid object.
        let is_write = |request: &str| !request.starts_with("GET ") && !request.starts_with("LIST ");
        let sent = counted::since(requests, &start.requests);
        let writes: f64 = sent
            .iter()
            .filter(|(request, _)| is_write(request) && !request.contains('→'))
            .map(|(_, count)| count)
            .sum::<f64>()
            // The sum of nothing is a negative zero.
            + 0.0;
        for (name, value) in [
            ("took_s", took.as_secs_f64()),
            ("writes", writes),
            ("calls", asked() as f64),
            ("cpu_s", bout.cpu() / 1000.0),
            ("rss_bytes", bout.crew.memory().now),
        ] {
            figures.insert(format!("{verb}.{name}"), value);
        }
        bout.end().await;
        figures
    }
}
