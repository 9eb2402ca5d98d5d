//! Metrics of one journal.

use jiff::Timestamp;
use metrics::{Counter, Gauge, Histogram};

use super::ledger::{Commit, Ledger, Outcome};
use crate::telemetry::{Meter, names};

/// The series of one driver's journal.
pub(super) struct JournalMetrics {
    entries: Gauge,
    bytes: Gauge,
    oldest: Gauge,
    left: Gauge,
    foreign: Gauge,
    commit_entries: Histogram,
    pub(super) rewritten: Counter,
    meter: Meter,
    driver: String,
}

impl JournalMetrics {
    pub(super) fn new(meter: &Meter, driver: &str) -> Self {
        let labels: &[(&'static str, &str)] = &[("driver_name", driver)];
        Self {
            entries: meter.gauge(&names::JOURNAL_ENTRIES, labels),
            bytes: meter.gauge(&names::JOURNAL_BYTES, labels),
            oldest: meter.gauge(&names::JOURNAL_OLDEST, labels),
            left: meter.gauge(&names::JOURNAL_LEFT_OVER, labels),
            foreign: meter.gauge(&names::JOURNAL_FOREIGN, labels),
            commit_entries: meter.histogram(&names::JOURNAL_COMMIT_ENTRIES, labels),
            rewritten: meter.counter(&names::JOURNAL_REWRITTEN, labels),
            meter: meter.clone(),
            driver: driver.to_owned(),
        }
    }

    /// Counts a write that has ended.
    #[expect(clippy::cast_precision_loss, reason = "a commit has no 2^52 entries")]
    pub(super) fn wrote(&self, commit: &Commit, outcome: &Outcome) {
        let Some(result) = outcome.label() else { return };
        let labels = [("driver_name", self.driver.as_str()), ("result", result)];
        self.meter.counter(&names::JOURNAL_COMMITS, &labels).increment(1);
        if matches!(outcome, Outcome::Stored(_)) && commit.basis.is_some() && !commit.set.is_empty() {
            self.commit_entries.record(commit.set.len() as f64);
        }
    }

    /// Sets the gauges. This walks over every entry, so `run` calls it once per tick.
    #[expect(clippy::cast_precision_loss, reason = "a journal has no 2^52 entries or bytes")]
    pub(super) fn show<W>(&self, ledger: &Ledger<W>, now: Timestamp) {
        self.entries.set(ledger.len() as f64);
        self.bytes.set(ledger.bytes() as f64);
        let oldest = ledger.entries().map(|(_, at, _)| at).min();
        let age = oldest.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest.set(age);
        self.left.set(ledger.left().count() as f64);
        self.foreign.set(ledger.foreign().count() as f64);
    }
}

impl Drop for JournalMetrics {
    /// A journal is open for one term: a replica that no longer leads shows zeros.
    fn drop(&mut self) {
        for gauge in [&self.entries, &self.bytes, &self.oldest, &self.left, &self.foreign] {
            gauge.set(0.0);
        }
    }
}
