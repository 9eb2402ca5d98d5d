//! Which contents wait, or are kept although they are being deleted, and why: gauges, a table on the status page, and an Event after
//! a minute (snapshotter spec 8). Snapshots and groups wait together.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::EventTarget;
use crate::diagnostics::{Cell, Column, Table};
use crate::process::Clock;
use crate::roles::snapshotter::metrics;
use crate::telemetry::Meter;

/// A content that waits longer has an Event that says what for.
const WORTH_AN_EVENT: Duration = Duration::from_secs(60);
/// The status page's table.
pub const TABLE: Table = Table {
    name: "waitingSnapshots",
    title: "Snapshots that wait",
    columns: &[
        Column::text("content", "content"),
        Column::text("snapshot", "snapshot"),
        Column::text("operation", "operation"),
        Column::text("waitsFor", "waits for"),
        Column::seconds("waitingSeconds", "since"),
        Column::count("failedTries", "failed tries"),
        Column::error("why", "why"),
    ],
};
/// The operations, as metrics call them.
const OPERATIONS: [&str; 5] = ["create", "ready", "delete", "group_create", "group_delete"];

/// What a content waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The next attempt after a failed one.
    Failed,
    /// The driver, until the snapshot is ready.
    NotReady,
    /// Somebody else: the snapshot-controller, or people.
    Others,
}

impl Reason {
    fn label(self) -> &'static str {
        match self {
            Self::Failed => "retry",
            Self::NotReady => "readiness",
            Self::Others => "others",
        }
    }
}

/// A content that waits.
#[derive(Debug, Clone)]
pub struct Who {
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// The object that users made, with its namespace.
    pub owner: String,
    /// Where its Events go.
    pub targets: Vec<EventTarget>,
}

/// The contents that wait.
#[derive(Debug)]
pub struct Waiting {
    meter: Meter,
    driver: String,
    clock: Clock,
    contents: Mutex<BTreeMap<String, Entry>>,
    unanswered: Mutex<BTreeMap<&'static str, usize>>,
}

#[derive(Debug, Clone)]
struct Entry {
    who: Who,
    operation: &'static str,
    reason: Reason,
    since: Instant,
    failed: usize,
    says: String,
    is_told: bool,
}

impl Waiting {
    /// None.
    pub fn new(meter: Meter, driver: String, clock: Clock) -> Self {
        let waiting = Self { meter, driver, clock, contents: Mutex::default(), unanswered: Mutex::default() };
        waiting.show(&waiting.lock());
        waiting
    }

    /// A content waits, and `says` why. The time counts from when it first did, for whatever reason.
    pub fn note(&self, who: Who, operation: &'static str, reason: Reason, says: &str) {
        let mut contents = self.lock();
        let held = contents.get(&who.uid).filter(|held| held.operation == operation);
        let since = held.map_or_else(|| self.clock.now(), |held| held.since);
        let failed = held.map_or(0, |held| held.failed) + usize::from(reason == Reason::Failed);
        // A failure has Events of its own.
        let is_told = held.is_some_and(|held| held.is_told && held.reason == reason) || reason == Reason::Failed;
        let says = says.to_owned();
        contents.insert(who.uid.clone(), Entry { who, operation, reason, since, failed, says, is_told });
        self.show(&contents);
    }

    /// So many contents of a kind have no final answer.
    pub fn show_unanswered(&self, of: &'static str, count: usize) {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.insert(of, count);
        let all = unanswered.values().sum();
        self.meter.gauge(&metrics::SNAPSHOTS_UNANSWERED, &[("driver_name", self.driver.as_str())]).set(as_gauge(all));
    }

    /// It waits no more.
    pub fn forget(&self, uid: &str) {
        let mut contents = self.lock();
        if contents.remove(uid).is_some() {
            self.show(&contents);
        }
    }

    /// The term is over: what waits now is told by whoever leads.
    pub fn retire(&self) {
        let mut contents = self.lock();
        contents.clear();
        self.show(&contents);
        drop(contents);
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.show_unanswered("", 0);
    }

    /// The contents that have waited for a minute without an Event, with what they wait for. Each is returned once.
    pub fn worth_an_event(&self) -> Vec<(Vec<EventTarget>, String)> {
        let (now, mut found) = (self.clock.now(), Vec::new());
        let mut contents = self.lock();
        for entry in contents.values_mut() {
            if !entry.is_told && now.saturating_duration_since(entry.since) >= WORTH_AN_EVENT {
                entry.is_told = true;
                found.push((entry.who.targets.clone(), entry.says.clone()));
            }
        }
        self.show(&contents);
        found
    }

    /// The rows of the status page, those that have waited longest first.
    pub fn rows(&self) -> Vec<Vec<Cell>> {
        let now = self.clock.now();
        let contents = self.lock();
        let mut entries: Vec<&Entry> = contents.values().collect();
        entries.sort_by_key(|entry| entry.since);
        let row = |entry: &Entry| {
            vec![
                entry.who.name.clone().into(),
                entry.who.owner.clone().into(),
                entry.operation.into(),
                entry.reason.label().into(),
                now.saturating_duration_since(entry.since).into(),
                entry.failed.into(),
                entry.says.clone().into(),
            ]
        };
        entries.into_iter().map(row).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, contents: &BTreeMap<String, Entry>) {
        let driver = ("driver_name", self.driver.as_str());
        for operation in OPERATIONS {
            let is_failing = |entry: &&Entry| entry.operation == operation && entry.reason == Reason::Failed;
            let count = contents.values().filter(is_failing).count();
            let labels = [driver, ("operation", operation)];
            self.meter.gauge(&metrics::SNAPSHOTS_FAILING, &labels).set(as_gauge(count));
        }
        let unready = contents.values().filter(|entry| entry.reason == Reason::NotReady).count();
        self.meter.gauge(&metrics::SNAPSHOTS_NOT_READY, &[driver]).set(as_gauge(unready));
        let oldest = contents.values().map(|entry| entry.since).min();
        let age = oldest.map_or(Duration::ZERO, |since| self.clock.now().saturating_duration_since(since));
        self.meter.gauge(&metrics::SNAPSHOTS_OLDEST_PENDING, &[driver]).set(age.as_secs_f64());
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 contents")]
fn as_gauge(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_minute_is_told_once_and_a_failure_has_events_of_its_own() {
        let waiting = Waiting::new(Meter::new(), "demo".to_owned(), Clock::system());
        let who = || Who { uid: "u".into(), name: "n".into(), owner: "shop/s".into(), targets: Vec::new() };
        let rows = || {
            waiting
                .rows()
                .into_iter()
                .map(|row| row[2..].iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        waiting.note(who(), "ready", Reason::NotReady, "uploading");
        assert!(waiting.worth_an_event().is_empty());
        tokio::time::advance(Duration::from_secs(70)).await;
        waiting.note(who(), "ready", Reason::NotReady, "still uploading");
        assert_eq!(rows(), ["ready readiness 1m10s 0 still uploading"]);
        assert_eq!(waiting.worth_an_event().len(), 1);
        waiting.note(who(), "ready", Reason::NotReady, "still uploading");
        assert!(waiting.worth_an_event().is_empty());
        for _ in 0..2 {
            waiting.note(who(), "ready", Reason::Failed, "no");
        }
        assert_eq!(rows(), ["ready retry 1m10s 2 no"]);
        waiting.note(who(), "delete", Reason::Others, "its VolumeSnapshot");
        assert_eq!(rows(), ["delete others 0s 0 its VolumeSnapshot"], "another operation begins to wait anew");
        waiting.forget("u");
        assert_eq!(rows(), Vec::<String>::new());
    }
}
