//! The claims that wait for a change of their volume, and the reasons: a metric, and a table on the status page.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::cluster::ObjectName;
use crate::diagnostics::{Cell, Column, Table};
use crate::process::Clock;
use crate::telemetry::Meter;

use super::memory::Job;
use super::metrics;

/// The status page's table.
pub const TABLE: Table = Table {
    name: "waitingChanges",
    title: "Claims waiting for a change of their volume",
    columns: &[
        Column::text("claim", "claim"),
        Column::text("change", "change"),
        Column::text("waitsFor", "waits for"),
        Column::seconds("waitingSeconds", "since"),
        Column::error("why", "why"),
    ],
};

/// What a claim waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The driver has refused the size or the class as infeasible: for another request of the user, or the end of the pause.
    Infeasible,
    /// For the end of the pods that use its volume.
    InUse,
    /// For its node, which has to expand the file system.
    Node,
    /// For a `VolumeAttributesClass` that can be used.
    ClassMissing,
    /// For the next attempt after a failed one.
    Backoff,
}

impl Reason {
    const ALL: [Self; 5] = [Self::Infeasible, Self::InUse, Self::Node, Self::ClassMissing, Self::Backoff];

    fn label(self) -> &'static str {
        match self {
            Self::Infeasible => "infeasible",
            Self::InUse => "inUse",
            Self::Node => "node",
            Self::ClassMissing => "classMissing",
            Self::Backoff => "backoff",
        }
    }

    /// Whether the status page shows the text as a problem.
    fn is_trouble(self) -> bool {
        self != Self::Node
    }
}

/// The claims that wait.
#[derive(Debug)]
pub struct Waiting {
    meter: Meter,
    driver: String,
    clock: Clock,
    claims: Mutex<BTreeMap<(String, Job), Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    claim: ObjectName,
    reason: Reason,
    since: Instant,
    says: String,
}

impl Waiting {
    /// No claim waits.
    pub fn new(meter: Meter, driver: String, clock: Clock) -> Self {
        let waiting = Self { meter, driver, clock, claims: Mutex::default() };
        waiting.show(&waiting.lock());
        waiting
    }

    /// A claim waits for this reason; `says` explains it. The time counts from the first note with this reason.
    pub fn note(&self, claim: &ObjectName, uid: &str, job: Job, reason: Reason, says: &str) {
        let mut claims = self.lock();
        let key = (uid.to_owned(), job);
        let same = claims.get(&key).filter(|held| held.reason == reason);
        let since = same.map_or_else(|| self.clock.now(), |held| held.since);
        claims.insert(key, Entry { claim: claim.clone(), reason, since, says: says.to_owned() });
        self.show(&claims);
    }

    /// The claim no longer waits.
    pub fn forget(&self, uid: &str, job: Job) {
        let mut claims = self.lock();
        if claims.remove(&(uid.to_owned(), job)).is_some() {
            self.show(&claims);
        }
    }

    /// The term is over: the next leader reports the claims.
    pub fn retire(&self) {
        let mut claims = self.lock();
        claims.clear();
        self.show(&claims);
    }

    /// The rows of the status page, those that have waited longest first.
    pub fn rows(&self) -> Vec<Vec<Cell>> {
        let now = self.clock.now();
        let claims = self.lock();
        let mut entries: Vec<(&Entry, Job)> = claims.iter().map(|((_, job), entry)| (entry, *job)).collect();
        entries.sort_by_key(|(entry, _)| entry.since);
        let row = |(entry, job): (&Entry, Job)| {
            vec![
                entry.claim.to_string().into(),
                job.label().into(),
                entry.reason.label().into(),
                now.saturating_duration_since(entry.since).into(),
                entry.reason.is_trouble().then(|| entry.says.clone()).into(),
            ]
        };
        entries.into_iter().map(row).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Job), Entry>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 claims")]
    fn show(&self, claims: &BTreeMap<(String, Job), Entry>) {
        for reason in Reason::ALL {
            let count = claims.values().filter(|entry| entry.reason == reason).count();
            let labels = [("driver_name", self.driver.as_str()), ("reason", reason.label())];
            self.meter.gauge(&metrics::CLAIMS_WAITING, &labels).set(count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_waits_for_something_else_begins_to_wait_anew() {
        let waiting = Waiting::new(Meter::new(), "demo".to_owned(), Clock::system());
        let claim = ObjectName::namespaced("shop", "data");
        let rows = || {
            waiting
                .rows()
                .into_iter()
                .map(|row| row[2..].iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        waiting.note(&claim, "u1", Job::Expand, Reason::Backoff, "no room");
        tokio::time::advance(Duration::from_secs(70)).await;
        waiting.note(&claim, "u1", Job::Expand, Reason::Backoff, "still no room");
        assert_eq!(rows(), ["backoff 1m10s still no room"]);
        waiting.note(&claim, "u1", Job::Expand, Reason::Node, "its node has to act");
        waiting.note(&claim, "u1", Job::Modify, Reason::ClassMissing, "no class");
        assert_eq!(rows(), ["node 0s ", "classMissing 0s no class"]);
        waiting.forget("u1", Job::Expand);
        assert_eq!(rows(), ["classMissing 0s no class"]);
        waiting.retire();
        assert_eq!(rows(), Vec::<String>::new());
    }
}
