//! One run of one key, as its handler sees it, and the guard that reports its end even if the handler panics.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use super::cause::{Causes, Outcome};
use super::done::DoneItem;
use super::state::Start;
use super::work_queue::{Inner, Key};

/// The right to work on one key. The handler returns an [`Outcome`]; one that panics or is cancelled counts as failed.
pub struct Ticket<K: Key> {
    inner: Arc<Inner<K>>,
    start: Start<K, Span>,
}

impl<K: Key> Ticket<K> {
    pub(super) fn new(inner: Arc<Inner<K>>, start: Start<K, Span>) -> Self {
        Self { inner, start }
    }

    /// The key to work on.
    pub fn key(&self) -> &K {
        &self.start.key
    }

    /// The causes since the key last settled, including those of failed runs.
    pub fn causes(&self) -> Causes {
        self.start.causes
    }

    /// How many runs have failed since the key last settled or began a new epoch.
    pub fn attempt(&self) -> u32 {
        self.start.failures
    }

    /// The lane that runs it, as an index into the settings' lanes.
    pub fn lane(&self) -> usize {
        self.start.lane
    }

    /// The span from the key's first add until it settles, retries included. The handler already runs inside it.
    pub fn span(&self) -> &Span {
        &self.start.payload
    }

    /// Time since the key was first added.
    pub fn age(&self) -> Duration {
        self.inner.now().saturating_sub(self.start.since)
    }

    /// How long this run waited for a worker, from when it was due: a back-off does not count.
    pub fn waited(&self) -> Duration {
        self.start.waited
    }

    /// The handler is about to read what it decides from. A change that woke the key before is in what it reads, and does not
    /// run the key again.
    pub fn observes(&self) {
        self.inner.lock().state.observe(&self.start.key, self.start.run);
    }

    /// Sets the note for the status page: why the key has not settled. It stays until the key settles or the note is
    /// replaced.
    pub fn note(&self, note: impl Into<String>) {
        self.inner.lock().state.note(&self.start.key, self.start.run, note.into());
    }

    /// The handler has done something for the key, as a past participle: `attached`. The status page shows the last ones. `subject`
    /// describes the object, which may be gone when somebody reads it.
    pub fn did(&self, what: &'static str, subject: Option<String>) {
        let done = DoneItem {
            key: self.start.key.to_string(),
            what,
            subject,
            at: self.inner.clock.wall(),
            took: self.age(),
            attempts: self.start.failures,
        };
        self.inner.lock().done.note(done);
    }

    /// Waits for `future` without holding a worker of the lane, then for a worker.
    ///
    /// For waits on another run (a volume's lock), which may itself need a worker. If the wait is cancelled the run
    /// goes on at once, one over the lane's limit.
    pub async fn park<F: Future>(&mut self, future: F) -> F::Output {
        let mut parked = Parked::begin(self);
        let output = future.await;
        parked.come_back().await;
        output
    }
}

impl<K: Key> fmt::Debug for Ticket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("key", &format_args!("{}", self.start.key))
            .field("causes", &self.start.causes)
            .field("attempt", &self.start.failures)
            .finish_non_exhaustive()
    }
}

/// A run without a worker.
struct Parked<'a, K: Key> {
    ticket: &'a Ticket<K>,
    back: bool,
}

impl<'a, K: Key> Parked<'a, K> {
    fn begin(ticket: &'a Ticket<K>) -> Self {
        ticket.inner.lock().state.park(&ticket.start.key, ticket.start.run);
        ticket.inner.wake.notify_one();
        Self { ticket, back: false }
    }

    async fn come_back(&mut self) {
        let Ticket { inner, start } = self.ticket;
        let resumed = Arc::new(Notify::new());
        {
            let mut guarded = inner.lock();
            guarded.resumed.insert(start.key.clone(), Arc::clone(&resumed));
            guarded.state.ask(&start.key, start.run);
        }
        inner.wake.notify_one();
        resumed.notified().await;
        self.back = true;
    }
}

impl<K: Key> Drop for Parked<'_, K> {
    fn drop(&mut self) {
        if self.back {
            return;
        }
        let Ticket { inner, start } = self.ticket;
        let mut guarded = inner.lock();
        guarded.resumed.remove(&start.key);
        guarded.state.seize(&start.key, start.run);
    }
}

/// Ends a run exactly once: with the handler's outcome, or as a failure if there is none.
pub(super) struct RunGuard<K: Key> {
    inner: Arc<Inner<K>>,
    key: K,
    run: u64,
    outcome: Option<Outcome>,
}

impl<K: Key> RunGuard<K> {
    pub(super) fn new(inner: Arc<Inner<K>>, key: K, run: u64) -> Self {
        Self { inner, key, run, outcome: None }
    }

    pub(super) fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl<K: Key> Drop for RunGuard<K> {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or_else(|| {
            let how = if std::thread::panicking() { "panicked" } else { "was cancelled" };
            self.inner.lock().state.note(&self.key, self.run, format!("the last run {how}"));
            Outcome::Retry { cap: None }
        });
        self.inner.finish(&self.key, self.run, outcome);
    }
}
