//! Many objects at once: done, undone, and done again by the same process, with everyone's finalizer in place already.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Action, Fault};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::time::Instant;
use tonic::Code;

use super::{Bout, FOR_EVER, PATIENCE, Scenario, Scene};
use crate::Figures;
use crate::arithmetic::{percentile, steady_rate};
use crate::contender::Contender;
use crate::counted::{self, Requests};
use crate::timeline::Limit;
use crate::workload;

/// Nothing that a throttle lets through takes as long to come.
const QUIET: Duration = Duration::from_secs(3);

/// So many are undone to the end where not all were done within the bound.
const FEW: usize = 50;

/// Many objects at once.
pub(crate) struct Burst {
    pub(crate) count: usize,
    pub(crate) latency: Duration,
    pub(crate) bound: Option<Duration>,
    /// On how many calls the driver works at once: more are refused.
    pub(crate) most: Option<usize>,
}

/// Where a phase began.
pub(super) struct Before {
    pub(super) requests: Requests,
    /// How often each Warning had been told.
    pub(super) warnings: BTreeMap<String, f64>,
    pub(super) cpu: f64,
    pub(super) start: Instant,
}

impl Scenario for Burst {
    fn name(&self) -> String {
        let kind = if self.most.is_some() { "crowded-burst" } else { "burst" };
        format!("{kind}-{}-{}ms", self.count, self.latency.as_millis())
    }

    fn takes_bare(&self) -> bool {
        // It asks no driver.
        self.latency.is_zero()
    }

    fn estimate(&self, contender: &dyn Contender) -> f64 {
        let count = self.count as f64;
        let bound = self.bound.unwrap_or(FOR_EVER).as_secs_f64();
        let tidying = 11.0 + count / 100.0;
        if contender.is_throttled() {
            // What a throttle of 5/s lets through; cut, a few are undone.
            let (forth, few) = ((count * 0.6).min(bound), if count * 0.6 > bound { 25.0 } else { count * 0.4 });
            return tidying + forth + few;
        }
        // Forth, back and forth again at some 200/s, each until there are no more requests for a while.
        tidying + 3.0 * (count / 200.0 + 2.0 + self.latency.as_secs_f64() * count / 100.0)
    }

    fn run<'a>(&'a self, scene: Scene<'a>) -> LocalBoxFuture<'a, Figures> {
        self.measure(scene).boxed_local()
    }
}

impl Burst {
    async fn measure(&self, scene: Scene<'_>) -> Figures {
        let Scene { stage, workload, .. } = scene;
        let [forth, back] = workload.facts().verbs;
        stage.before(workload, 0..self.count + 1).await;
        let bout = Bout::begin(scene, self.latency, self.bound).await;
        if let Some(most) = self.most {
            let driver = &bout.backend.driver;
            driver.clear_faults();
            let crowded = Action::Crowded { most, takes: self.latency, code: Code::ResourceExhausted };
            workload.facts().methods.into_iter().for_each(|method| driver.inject(Fault::on(method, crowded.clone())));
        }
        let mut figures = Figures::new();
        if bout.writer.is_some() {
            self.forth(&bout, forth, &mut figures).await;
            bout.end().await;
            // It is in the bench's process, whose time and memory are nobody's.
            figures.remove(&format!("{forth}.cpu_each_ms"));
            return figures;
        }
        workload.seed(&bout.backend.driver, 0..self.count + 1);
        bout.warm_up(self.count).await;

        let is_whole = self.forth(&bout, forth, &mut figures).await;
        Self::duplicates(&bout, forth, 0, &mut figures);
        self.back(&bout, back, is_whole, &mut figures).await;
        if is_whole && workload.repeats() {
            self.forth(&bout, &format!("{forth}-again"), &mut figures).await;
        }
        let memory = bout.crew.memory();
        figures.insert("peak_rss_bytes".to_owned(), memory.peak);
        figures.insert("cpu_total_s".to_owned(), bout.cpu() / 1000.0);
        bout.end().await;
        figures
    }

    /// Creates all. Says whether all were done within the bound.
    async fn forth(&self, bout: &Bout<'_>, verb: &str, figures: &mut Figures) -> bool {
        bout.timeline.clear();
        let before = before(bout).await;
        let count = self.count;
        let wait = bout.timeline.within(bout.limit, |counts| counts.done >= count);
        let ((), is_whole) = futures::join!(bout.create(0..count), wait);
        let spans = bout.timeline.forth();
        tell(bout, verb, &spans, count, before, is_whole, figures).await;
        is_whole
    }

    /// Deletes all that are done, or a few of them if not all were. What is not done is deleted before, and does not count.
    async fn back(&self, bout: &Bout<'_>, verb: &str, is_whole: bool, figures: &mut Figures) {
        if !is_whole {
            bout.stage.give_up_all(bout.workload, &bout.timeline.names_done(false)).await;
            // What was on its way comes to its end: it is no part of the undoing.
            bout.timeline.until_quiet(QUIET).await;
        }
        let mut names = bout.timeline.names_done(true);
        let mut limit = bout.limit;
        if !is_whole {
            // A throttle lets every object wait for a request before any gets its second: cut, it would have undone nothing.
            names.truncate(FEW);
            limit = Limit::Cut(PATIENCE);
        }
        bout.timeline.clear();
        let before = before(bout).await;
        let count = names.len();
        let wait = bout.timeline.within(limit, |counts| counts.gone >= count);
        let ((), is_undone) = futures::join!(bout.stage.undo_all(bout.workload, &names), wait);
        tell(bout, verb, &bout.timeline.back(), count, before, is_undone, figures).await;
        if !is_undone {
            // It goes on with what is left; nobody waits for it.
            return;
        }
        let [_, method] = bout.workload.facts().methods;
        let calls = bout.backend.driver.calls_of(method).len();
        // The warm-up's one is not counted.
        figures.insert(format!("{verb}.calls_each"), (calls as f64 - 1.0) / count as f64);
    }

    fn duplicates(bout: &Bout<'_>, verb: &str, which: usize, figures: &mut Figures) {
        let method = bout.workload.facts().methods[which];
        let done = figures[&format!("{verb}.done")].max(1.0);
        let duplicates = workload::duplicates(&bout.backend.driver, method) as f64;
        // Without the warm-up's.
        let calls = bout.backend.driver.calls_of(method).len().saturating_sub(1) as f64;
        figures.insert(format!("{verb}.calls_each"), calls / done);
        figures.insert(format!("{verb}.duplicates_percent"), duplicates / done * 100.0);
    }
}

/// A phase begins once what came before has no more requests to send.
pub(super) async fn before(bout: &Bout<'_>) -> Before {
    let requests = bout.stage.requests_so_far(bout.workload, true).await;
    let warnings = bout.stage.warnings().await;
    Before { requests, warnings, cpu: bout.cpu(), start: Clock::system().now() }
}

/// What a phase has come to. The rate counts from the first object's beginning to the last one's end. Of a throttle's that was cut it
/// is the steady part's: one that went to its end must not be cut short, since every object's last request may come after the first
/// one of all.
pub(super) async fn tell(
    bout: &Bout<'_>,
    verb: &str,
    spans: &[(Instant, Instant)],
    wanted: usize,
    before: Before,
    is_whole: bool,
    figures: &mut Figures,
) {
    let elapsed = before.start.elapsed();
    // Events, and what is tidied up after the answer, belong to the phase whoever's they are.
    let requests = bout.stage.requests_so_far(bout.workload, is_whole).await;
    let warnings = bout.stage.warnings().await;
    let cpu = bout.cpu() - before.cpu;
    let (first, last) = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max());
    let took = match (first, last) {
        (Some(first), Some(last)) if is_whole => last - first,
        _ => elapsed,
    };
    let done = spans.len() as f64;
    let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
    let latencies = sorted(spans.iter().map(|(from, to)| since(*from, *to) * 1000.0));
    let ends = sorted(spans.iter().map(|(_, to)| since(before.start, *to)));
    let steady = if bout.is_throttled && !is_whole { steady_rate(&ends) } else { None };
    let mut put = |name: &str, value: f64| figures.insert(format!("{verb}.{name}"), value);
    put("wanted", wanted as f64);
    put("done", done);
    put("took_s", took.as_secs_f64());
    put("rate", steady.unwrap_or(done / took.as_secs_f64()));
    put("p50_ms", percentile(&latencies, 50));
    put("p99_ms", percentile(&latencies, 99));
    put("cpu_each_ms", cpu / done);
    if !is_whole {
        put("cut_after_s", elapsed.as_secs_f64());
    }
    let sent = counted::since(requests, &before.requests);
    for (request, more) in &sent {
        put(&format!("requests {request}"), more / done);
    }
    let sum = |counts: &Requests, of: fn(&str) -> bool| -> f64 {
        // The sum of nothing is a negative zero.
        counts.iter().filter(|(what, _)| of(what)).map(|(_, count)| count).sum::<f64>() + 0.0
    };
    put("requests_each", sum(&sent, |_| true) / done);
    put("writes_each", sum(&sent, counted::is_write) / done);
    put("conflicts", sum(&sent, counted::is_conflict));
    put("warnings", sum(&counted::since(warnings, &before.warnings), |_| true));
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
