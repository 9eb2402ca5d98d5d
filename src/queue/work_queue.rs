//! The queue's interface for its users: add, forget, snapshot. [`worker`](super::worker) runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Span;

use super::backoff::Backoff;
use super::cause::{Activation, Outcome};
use super::done::{Done, DoneItem};
use super::metrics::QueueMetrics;
use super::state::{Phase, Slot, State};
use crate::process::{Clock, Rng};
use crate::telemetry::Meter;

/// The bounds of a key.
pub trait Key: Ord + Clone + fmt::Display + Send + Sync + 'static {}
impl<K: Ord + Clone + fmt::Display + Send + Sync + 'static> Key for K {}

/// Makes the span that a key keeps from its first add until it settles.
pub type MakeSpan<K> = Arc<dyn Fn(&K) -> Span + Send + Sync>;

/// A queue's shape.
#[derive(Clone)]
pub struct QueueSettings<K> {
    /// The queue's name: the metrics' `name` label and the prefix of its tasks.
    pub name: String,
    /// The lanes that an [`Activation`] names by index. None at all means one lane with one worker.
    pub lanes: Vec<LaneSettings>,
    /// The delays after failures.
    pub backoff: Backoff,
    /// Makes each key's span; without it keys have none.
    pub span: Option<MakeSpan<K>>,
}

/// One lane's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSettings {
    /// The lane's name on the status page.
    pub name: String,
    /// How many of its keys run at once; zero counts as one (the configuration refuses it).
    pub workers: usize,
}

/// A key that has not settled, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkItem<K> {
    /// The key.
    pub key: K,
    /// The lane's name.
    pub lane: String,
    /// Time since it was first added.
    pub age: Duration,
    /// Number of failed runs.
    pub attempts: u32,
    /// When its back-off ends, if it waits for that. If neither this nor `running_for` is set, it waits for a worker.
    pub next_run_in: Option<Duration>,
    /// For how long its current run has run.
    pub running_for: Option<Duration>,
    /// Whether that run is parked: it waits for another run.
    pub parked: bool,
    /// The last note of its handler.
    pub note: Option<String>,
}

/// A queue of keys. Clones share it.
pub struct WorkQueue<K: Key>(pub(super) Arc<Inner<K>>);

pub(super) struct Inner<K: Key> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) metrics: QueueMetrics,
    /// Wakes the dispatcher after a change.
    pub(super) wake: Notify,
    lanes: Vec<String>,
    span: Option<MakeSpan<K>>,
    rng: Rng,
    origin: Instant,
    guarded: Mutex<Guarded<K>>,
}

pub(super) struct Guarded<K: Key> {
    pub(super) state: State<K, Span>,
    /// Parked runs that wait for a worker.
    pub(super) resumed: BTreeMap<K, Arc<Notify>>,
    pub(super) done: Done,
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue. Keys can be added at once; nothing runs before [`run`](Self::run).
    pub fn new(settings: QueueSettings<K>, meter: &Meter, clock: Clock, rng: Rng) -> Self {
        let state = State::new(settings.lanes.iter().map(|lane| lane.workers), settings.backoff);
        Self(Arc::new(Inner {
            metrics: QueueMetrics::new(meter, &settings.name),
            name: settings.name,
            clock,
            wake: Notify::new(),
            lanes: settings.lanes.into_iter().map(|lane| lane.name).collect(),
            span: settings.span,
            rng,
            origin: clock.now(),
            guarded: Mutex::new(Guarded { state, resumed: BTreeMap::new(), done: Done::default() }),
        }))
    }

    /// Adds a key; if the key already waits, only the cause is added.
    pub fn add(&self, key: K, activation: Activation) {
        let inner = &self.0;
        let now = inner.now();
        let named = inner.span.as_ref().map(|make| (make, key.clone()));
        let mut guarded = inner.lock();
        let added = guarded.state.add(now, key, activation, || named.map_or_else(Span::none, |(make, key)| make(&key)));
        inner.metrics.show_depth(guarded.state.depth());
        drop(guarded);
        if added {
            inner.metrics.adds.increment(1);
            inner.wake.notify_one();
        }
    }

    /// The object is gone or not ours: drops the pending work of its key, with count, causes and note. The outcome of a
    /// run in progress is ignored.
    pub fn forget(&self, key: &K) {
        let mut guarded = self.0.lock();
        guarded.state.forget(key);
        self.0.metrics.show_depth(guarded.state.depth());
        drop(guarded);
        self.0.wake.notify_one();
    }

    /// Every key that has not settled, in the order of keys.
    pub fn snapshot(&self) -> Vec<WorkItem<K>> {
        let now = self.0.now();
        let guarded = self.0.lock();
        guarded
            .state
            .items()
            .map(|(key, item)| {
                let (next_run_in, running_for, parked) = match &item.phase {
                    Phase::Ready { .. } => (None, None, false),
                    Phase::Delayed { at, .. } => (Some(at.saturating_sub(now)), None, false),
                    Phase::Running(run) => (None, Some(now.saturating_sub(run.since)), run.slot != Slot::Held),
                };
                WorkItem {
                    key: key.clone(),
                    lane: self.0.lanes.get(item.lane).cloned().unwrap_or_default(),
                    age: now.saturating_sub(item.since),
                    attempts: item.failures,
                    next_run_in,
                    running_for,
                    parked,
                    note: item.note.clone(),
                }
            })
            .collect()
    }

    /// What its handlers have done last, newest first.
    pub fn done(&self) -> Vec<DoneItem> {
        self.0.lock().done.items()
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl<K: Key> Inner<K> {
    /// The time since the queue was created.
    pub(super) fn now(&self) -> Duration {
        self.clock.now().duration_since(self.origin)
    }

    /// The instant of the state machine's time `at`; a far future if it overflows.
    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.origin.checked_add(at).unwrap_or_else(|| self.clock.now() + Duration::from_secs(24 * 60 * 60))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded<K>> {
        // A panic cannot leave the state machine inconsistent, because it does not panic in the middle of a change.
        self.guarded.lock()
    }

    pub(super) fn finish(&self, key: &K, run: u64, outcome: Outcome) {
        let (now, jitter) = (self.now(), self.rng.fraction());
        let mut guarded = self.lock();
        let finish = guarded.state.finish(now, key, run, outcome, jitter, || self.make_span(key));
        self.metrics.show_depth(guarded.state.depth());
        drop(guarded);
        if let Some(finish) = finish {
            self.metrics.work.record(finish.worked.as_secs_f64());
            if finish.retried {
                self.metrics.retries.increment(1);
            }
        }
        self.wake.notify_one();
    }

    fn make_span(&self, key: &K) -> Span {
        self.span.as_ref().map_or_else(Span::none, |make| make(key))
    }
}

impl<K: Key> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for QueueSettings<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSettings")
            .field("name", &self.name)
            .field("lanes", &self.lanes)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}
