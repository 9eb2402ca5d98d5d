//! Runs a queue: starts each due run in its own task, and drains on stop.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::cause::Outcome;
use super::ticket::{RunGuard, Ticket};
use super::work_queue::{Inner, Key, WorkQueue};
use crate::process::{TaskEnd, TaskFate, Tasks};

/// How often the metrics of ages are updated while there is work.
const TICK: Duration = Duration::from_secs(1);
/// A key that waits this long for a worker causes a warning, repeated with this period: users did not notice 45-minute
/// backlogs when only the depth was visible (external-attacher issue 706).
const BACKLOG: Duration = Duration::from_secs(60);

impl<K: Key> WorkQueue<K> {
    /// Runs keys until `stop`, then waits for the runs in progress. Other keys stay in the queue.
    ///
    /// Each run is a task of its own, named after queue and key, in a scope that this future owns: dropping the future
    /// aborts the runs, which then count as failed. One `run` at a time per queue.
    pub async fn run<H>(&self, stop: CancellationToken, handler: H)
    where
        H: Fn(Ticket<K>) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    {
        let inner = &self.0;
        let handler = Arc::new(handler);
        let (tasks, mut ends) = Tasks::new(inner.name.clone());
        let mut draining = false;
        let mut ticker = Ticker::new(inner.clock.now());
        loop {
            let running = inner.dispatch(&tasks, draining, &handler);
            if draining && running == 0 {
                return;
            }
            let due = ticker.look(inner);
            // A drain waits only for its runs: the end of a delay starts nothing.
            let timer = if draining { None } else { inner.next_timer() };
            tokio::select! {
                biased;
                () = stop.cancelled(), if !draining => draining = true,
                Some(end) = ends.next() => inner.report(&end),
                () = inner.wake.notified() => {}
                () = sleep_until(timer) => {}
                () = sleep_until(due) => {}
            }
        }
    }
}

impl<K: Key> Inner<K> {
    /// Starts and resumes all due runs; returns how many runs are in progress.
    fn dispatch<H>(self: &Arc<Self>, tasks: &Tasks, draining: bool, handler: &Arc<H>) -> usize
    where
        H: Fn(Ticket<K>) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    {
        loop {
            let mut guarded = self.lock();
            if let Some(key) = guarded.state.resume() {
                if let Some(resumed) = guarded.resumed.remove(&key) {
                    resumed.notify_one();
                }
                continue;
            }
            let now = self.now();
            let start = if draining { None } else { guarded.state.start(now) };
            self.metrics.show_depth(guarded.state.depth());
            let Some(start) = start else { return guarded.state.running() };
            drop(guarded);
            self.metrics.wait.record(start.waited.as_secs_f64());
            let (name, span) = (start.key.to_string(), start.payload.clone());
            let guard = RunGuard::new(Arc::clone(self), start.key.clone(), start.run);
            let (handler, ticket) = (Arc::clone(handler), Ticket::new(Arc::clone(self), start));
            let work = async move { handler(ticket).await }.instrument(span);
            tasks.spawn(name, async move { guard.finish(work.await) });
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.lock().state.next_timer().map(|at| self.instant(at))
    }

    fn report(&self, end: &TaskEnd) {
        if let TaskFate::Panicked(_) = end.fate {
            self.metrics.lost_runs.increment(1);
            tracing::error!(task = end.task, error = %end.fate, "a run ended without an outcome, it will be repeated");
        }
    }
}

/// When to look at the ages of all keys.
struct Ticker {
    due: Instant,
    idle: bool,
    warned: Option<Instant>,
}

impl Ticker {
    fn new(now: Instant) -> Self {
        Self { due: now, idle: true, warned: None }
    }

    /// Updates the ages if it is time. Returns the next time; `None` while the queue is empty.
    fn look<K: Key>(&mut self, inner: &Inner<K>) -> Option<Instant> {
        let now = inner.clock.now();
        let guarded = inner.lock();
        let empty = guarded.state.is_empty();
        let ran_dry = empty && !self.idle;
        self.idle = empty;
        if ran_dry || now >= self.due {
            let ages = inner.metrics.show_ages(&guarded.state, inner.now());
            self.due = now + TICK;
            let depth = guarded.state.depth();
            drop(guarded);
            if ages.longest_wait >= BACKLOG && self.warned.is_none_or(|warned| now - warned >= BACKLOG) {
                self.warned = Some(now);
                tracing::warn!(
                    queue = inner.name,
                    depth,
                    longest_wait = ?ages.longest_wait,
                    oldest = ?ages.oldest,
                    "work waits for a worker: it arrives faster than the driver or the API handles it",
                );
            }
        }
        (!empty).then_some(self.due)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => future::pending().await,
    }
}
