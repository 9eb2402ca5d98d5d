//! Metrics of one journal.

use jiff::Timestamp;
use metrics::{Counter, Histogram};

use super::ledger::{Commit, Ledger, Outcome};
use crate::telemetry::{Meter, TermGauge, names};

/// The series of one driver's journal, which is open for one term.
pub(super) struct JournalMetrics {
    entries: TermGauge,
    bytes: TermGauge,
    oldest: TermGauge,
    left: TermGauge,
    foreign: TermGauge,
    commit_entries: Histogram,
    pub(super) rewritten: Counter,
    meter: Meter,
    driver: String,
}

impl JournalMetrics {
    pub(super) fn new(meter: &Meter, driver: &str) -> Self {
        let labels: &[(&'static str, &str)] = &[("driver_name", driver)];
        let gauge = |metric| TermGauge::new(meter, metric, labels);
        Self {
            entries: gauge(&names::JOURNAL_ENTRIES),
            bytes: gauge(&names::JOURNAL_BYTES),
            oldest: gauge(&names::JOURNAL_OLDEST),
            left: gauge(&names::JOURNAL_LEFT_OVER),
            foreign: gauge(&names::JOURNAL_FOREIGN),
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
    pub(super) fn show<W>(&self, ledger: &Ledger<W>, now: Timestamp) {
        self.entries.count(ledger.len());
        self.bytes.count(ledger.bytes());
        let oldest = ledger.entries().map(|(_, at, _)| at).min();
        let age = oldest.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.oldest.set(age);
        self.left.count(ledger.left().count());
        self.foreign.count(ledger.foreign().count());
    }
}
