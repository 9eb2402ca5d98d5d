//! Which contents wait, or are kept although they are being deleted, and why: gauges, a table on the status page, and an Event after
//! a minute (snapshotter spec 8). Snapshots and groups wait together.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::EventTarget;
use crate::diagnostics::{Cell, Table, table};
use crate::roles::kit::AttemptError;
use crate::roles::snapshotter::content::policy::Who;
use crate::roles::snapshotter::content::record::{ContentError, InvalidSnapshot, Wait};
use crate::roles::snapshotter::metrics;
use crate::telemetry::{Meter, show_count};

/// A content that waits longer has an Event that says what for.
const WORTH_AN_EVENT: Duration = Duration::from_secs(60);
/// The status page's table.
pub const TABLE: Table = table! {
    "waitingSnapshots", "Snapshots that wait":
        text("content", "content"), text("snapshot", "snapshot"), text("operation", "operation"),
        text("waitsFor", "waits for"), seconds("waitingSeconds", "since"), count("failedTries", "failed tries"),
        error("why", "why")
};
/// The reason of those that wait for the next attempt after a failed one.
const RETRY: &str = "retry";
/// The group of contents whose call has no final answer.
pub const UNANSWERED: &str = "unanswered";
/// The group of snapshots that are not ready.
const NOT_READY: &str = "readiness";
/// The group of those that wait for people, or for the snapshot-controller.
const OTHERS: &str = "others";
/// What contents are counted by: the operations that fail, as metrics call them, and what else they wait for.
pub const GROUPS: [&str; 8] =
    ["create", "ready", "delete", "group_create", "group_delete", NOT_READY, OTHERS, UNANSWERED];

/// What a content waits for, in one word: the next attempt after a failed one, the driver, or others.
pub fn reason(error: &ContentError) -> &'static str {
    match error {
        AttemptError::Reason(InvalidSnapshot::Waits(Wait::NotReady, _)) => NOT_READY,
        AttemptError::Reason(InvalidSnapshot::Waits(..)) => OTHERS,
        _ => RETRY,
    }
}

/// What a content waits for, and since when.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    who: Who,
    operation: &'static str,
    reason: &'static str,
    /// Since when, for whatever reason.
    pub since: Instant,
    failed: usize,
    says: String,
    is_told: bool,
}

impl Waiting {
    /// It waits after this one, and `says` why. Another operation begins to wait anew.
    pub fn next(
        held: Option<Self>,
        who: Who,
        (operation, reason): (&'static str, &'static str),
        now: Instant,
        says: String,
    ) -> Self {
        let held = held.filter(|held| held.operation == operation);
        let (since, before) = held.as_ref().map_or((now, 0), |held| (held.since, held.failed));
        let failed = before + usize::from(reason == RETRY);
        // A failure has Events of its own.
        let is_told = held.is_some_and(|held| held.is_told && held.reason == reason) || reason == RETRY;
        Self { who, operation, reason, since, failed, says, is_told }
    }

    /// As what it is counted.
    pub fn group(&self) -> &'static str {
        if self.reason == RETRY { self.operation } else { self.reason }
    }

    /// Where the Event goes that it has waited for a minute, and what that says. Each is returned once.
    pub fn event(&mut self, now: Instant) -> Option<(Vec<EventTarget>, String)> {
        if self.is_told || now.saturating_duration_since(self.since) < WORTH_AN_EVENT {
            return None;
        }
        self.is_told = true;
        Some((self.who.targets.clone(), self.says.clone()))
    }

    fn row(self, now: Instant) -> Vec<Cell> {
        vec![
            self.who.name.into(),
            self.who.owner.into(),
            self.operation.into(),
            self.reason.into(),
            now.saturating_duration_since(self.since).into(),
            self.failed.into(),
            self.says.into(),
        ]
    }
}

/// The rows of the status page, those that have waited longest first.
pub fn rows(mut waiting: Vec<Waiting>, now: Instant) -> Vec<Vec<Cell>> {
    waiting.sort_by_key(|waiting| waiting.since);
    waiting.into_iter().map(|waiting| waiting.row(now)).collect()
}

/// The gauges of contents that wait: each is about snapshots and groups.
#[derive(Debug)]
pub struct Gauges {
    meter: Meter,
    driver: String,
    by_kind: Mutex<ByKind>,
    /// Rung when a content begins or ends to wait.
    pub turned: Notify,
}

#[derive(Debug, Default)]
struct ByKind {
    counts: BTreeMap<(&'static str, &'static str), usize>,
    oldest: BTreeMap<&'static str, Duration>,
}

impl Gauges {
    /// Nothing is counted.
    pub fn new(meter: Meter, driver: String) -> Self {
        Self { meter, driver, by_kind: Mutex::default(), turned: Notify::new() }
    }

    /// So many contents of a kind are in a group.
    pub fn show(&self, kind: &'static str, group: &'static str, count: usize) {
        let mut by_kind = self.by_kind.lock();
        by_kind.counts.insert((group, kind), count);
        let all: usize = by_kind.counts.iter().filter(|((of, _), _)| *of == group).map(|(_, count)| count).sum();
        let driver = ("driver_name", self.driver.as_str());
        let gauge = match group {
            OTHERS => return self.turned.notify_waiters(),
            NOT_READY => self.meter.gauge(&metrics::SNAPSHOTS_NOT_READY, &[driver]),
            UNANSWERED => self.meter.gauge(&metrics::SNAPSHOTS_UNANSWERED, &[driver]),
            operation => self.meter.gauge(&metrics::SNAPSHOTS_FAILING, &[driver, ("operation", operation)]),
        };
        show_count(&gauge, all);
        if group != UNANSWERED {
            self.turned.notify_waiters();
        }
    }

    /// The content of a kind that has waited longest has waited so long.
    pub fn show_oldest(&self, kind: &'static str, age: Duration) {
        let mut by_kind = self.by_kind.lock();
        by_kind.oldest.insert(kind, age);
        let oldest = by_kind.oldest.values().max().copied().unwrap_or_default();
        let driver = [("driver_name", self.driver.as_str())];
        self.meter.gauge(&metrics::SNAPSHOTS_OLDEST_PENDING, &driver).set(oldest.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;

    #[test]
    fn what_waits_for_a_minute_is_told_once_and_a_failure_has_events_of_its_own() {
        let begun = Clock::system().now();
        let later = begun + Duration::from_secs(70);
        let who = || Who { name: "n".into(), owner: "shop/s".into(), targets: Vec::new() };
        let next = |held: Option<Waiting>, of, at, says: &str| Waiting::next(held, who(), of, at, says.to_owned());
        let row = |waiting: &Waiting| {
            let row = waiting.clone().row(later);
            row[2..].iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let mut waiting = next(None, ("ready", NOT_READY), begun, "uploading");
        assert_eq!(waiting.event(begun), None);
        waiting = next(Some(waiting), ("ready", NOT_READY), later, "still uploading");
        assert_eq!(row(&waiting), "ready readiness 1m10s 0 still uploading");
        assert!(waiting.event(later).is_some());
        waiting = next(Some(waiting), ("ready", NOT_READY), later, "still uploading");
        assert_eq!(waiting.event(later), None);
        for _ in 0..2 {
            waiting = next(Some(waiting), ("ready", RETRY), later, "no");
        }
        assert_eq!(row(&waiting), "ready retry 1m10s 2 no");
        assert_eq!((waiting.event(later), waiting.group()), (None, "ready"));
        waiting = next(Some(waiting), ("delete", OTHERS), later, "its VolumeSnapshot");
        assert_eq!(row(&waiting), "delete others 0s 0 its VolumeSnapshot", "another operation begins to wait anew");
    }
}
