//! The events of a run, in order and with simulated times; and the violations.

use std::fmt::Arguments;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::invariants::Invariant;

/// More lines than these at one moment are no progress: two parties answer each other at once, for ever.
pub(crate) const RESTLESS: usize = 20_000;

/// The record of one run. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    start: Instant,
    lines: Arc<Mutex<Lines>>,
    restless: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Lines {
    all: Vec<String>,
    violations: Vec<(Invariant, String)>,
    /// The moment of the last line, and how many lines it has.
    moment: (Duration, usize),
}

impl Trace {
    /// An empty record that begins now.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default(), restless: Arc::default() }
    }

    /// How long the run has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Writes one line.
    pub(crate) fn note(&self, who: &str, what: Arguments<'_>) {
        let age = self.age();
        let mut lines = self.lines();
        lines.all.push(format!("{:>10.3}s {who:<9} {what}", age.as_secs_f64()));
        let (moment, count) = lines.moment;
        lines.moment = (age, if moment == age { count + 1 } else { 1 });
        if lines.moment.1 == RESTLESS {
            drop(lines);
            self.violate(
                Invariant::I11,
                format_args!("{RESTLESS} things happened at one moment, and there is no end to them"),
            );
            self.restless.notify_one();
        }
    }

    /// When too much has happened at one moment: time would never go on.
    pub(crate) async fn restless(&self) {
        self.restless.notified().await;
    }

    /// Writes down that an invariant does not hold.
    pub(crate) fn violate(&self, invariant: Invariant, what: Arguments<'_>) {
        let line = format!("{:>10.3}s VIOLATION {invariant}: {what}", self.age().as_secs_f64());
        let mut lines = self.lines();
        lines.all.push(line.clone());
        lines.violations.push((invariant, line));
    }

    /// Whether an invariant was broken.
    pub(crate) fn is_broken(&self) -> bool {
        !self.lines().violations.is_empty()
    }

    /// The violations so far.
    pub(crate) fn violations(&self) -> Vec<(Invariant, String)> {
        self.lines().violations.clone()
    }

    /// All lines so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lines().all.clone()
    }

    /// A number for the whole record: the same record, the same number.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for line in &self.lines().all {
            hasher.write(line.as_bytes());
        }
        hasher.finish()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
