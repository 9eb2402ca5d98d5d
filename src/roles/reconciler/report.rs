//! Reports the passes: facts and a table on the status page, metrics, and a line in the log when orphans come.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::info;

use crate::csi::VolumeListing;
use crate::diagnostics::{Age, Cell, Fact, Table, table};
use crate::telemetry::Meter;

use super::metrics;
use super::orphans::{Candidate, Orphans};

/// The status page's table of orphans, the oldest first.
pub const TABLE: Table = table! {
    "orphans", "Orphans: the driver lists them, and nothing in this cluster knows them":
        text("kind", "kind"), text("handle", "handle"), text("name", "name"), bytes("capacityBytes", "size"),
        seconds("ageSeconds", "age, at least")
};

/// The kinds, as the table and the metrics have them.
const VOLUME: &str = "volume";
const SNAPSHOT: &str = "snapshot";

/// The passes since the last one that ended with a listing.
#[derive(Debug, Default)]
pub(super) struct Failing {
    pub(super) passes: u64,
    pub(super) error: String,
}

/// What is unknown to the cluster.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) volumes: Orphans,
    pub(super) snapshots: Orphans,
}

impl Findings {
    /// The rows of [`TABLE`].
    pub(super) fn rows(&self, now: Instant, wall: Timestamp) -> Vec<Vec<Cell>> {
        let kinds = [(VOLUME, &self.volumes), (SNAPSHOT, &self.snapshots)];
        let shown = kinds.into_iter().flat_map(|(kind, orphans)| orphans.shown().map(move |orphan| (kind, orphan)));
        let mut shown: Vec<_> = shown.map(|(kind, orphan)| (age(orphan, now, wall), kind, &orphan.item)).collect();
        // By handle where they are of one age.
        shown.sort_by(|(one, ..), (other, ..)| other.cmp(one));
        let row = |(age, kind, item): (Duration, &str, &super::orphans::Item)| {
            vec![
                kind.into(),
                item.handle.clone().into(),
                item.name.clone().into(),
                item.bytes.map_or(Cell::Nothing, Cell::Number),
                age.into(),
            ]
        };
        shown.into_iter().map(row).collect()
    }

    /// A line for each kind.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let kinds = [("orphaned volumes", &self.volumes), ("orphaned snapshots", &self.snapshots)];
        kinds.map(|(name, orphans)| Fact::new(name, summary(orphans))).into()
    }
}

/// How old an orphan is at least: CSI does not say when a volume was made, so what counts is since when it is unknown.
fn age(orphan: &Candidate, now: Instant, wall: Timestamp) -> Duration {
    let unknown = now.saturating_duration_since(orphan.seen);
    let taken = orphan.item.created.and_then(|created| Duration::try_from(wall.duration_since(created)).ok());
    taken.unwrap_or(unknown).max(unknown)
}

fn summary(orphans: &Orphans) -> String {
    let listed = match (&orphans.unclear, orphans.listed) {
        (Some(why), _) => format!("not told: {why}"),
        (None, None) => "not listed yet".to_owned(),
        (None, Some(listed)) => format!("{} of {listed}", orphans.shown().count()),
    };
    let waiting = orphans.waiting();
    let waiting = (waiting > 0).then(|| format!("{waiting} more are unknown for less than an hour"));
    let undecided = orphans.undecided();
    let undecided =
        (undecided > 0).then(|| format!("{undecided} may be of a request in the journal, and do not count yet"));
    let failed = orphans.failed.as_ref().map(|error| format!("the last listing failed: {error}"));
    [Some(listed), waiting, undecided, failed].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What the driver lists, as far as a role has a use for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists {
    /// Where its volumes are published.
    pub(super) published: bool,
    /// Its volumes.
    pub(super) volumes: bool,
    /// Its snapshots.
    pub(super) snapshots: bool,
}

/// The facts about the passes.
pub(super) fn facts(lists: Lists, last: Option<&VolumeListing>, failing: &Failing, now: Instant) -> Vec<Fact> {
    let idle = (!lists.published).then(|| {
        let name = if lists.volumes || lists.snapshots { "drift" } else { "idle" };
        Fact::new(name, "the driver does not list where its volumes are published")
    });
    let last = last.filter(|_| lists.published).map(|pass| {
        let took = Age(pass.finished.saturating_duration_since(pass.started));
        let ago = Age(now.saturating_duration_since(pass.finished));
        Fact::new("last pass", format!("{} volumes in {took}, {ago} ago", pass.volumes.len()))
    });
    let failing = (failing.passes > 0)
        .then(|| Fact::new("failed passes since", format!("{}, the last one: {}", failing.passes, failing.error)));
    [idle, last, failing].into_iter().flatten().collect()
}

/// The figures of a term's orphans. They are zero after it: another replica leads then, and shows its own.
pub(super) struct Gauges {
    pub(super) meter: Meter,
    pub(super) driver: String,
}

impl Gauges {
    /// Shows what was found. `before`: how many orphans there were of each kind; returns how many there are.
    pub(super) fn show(&self, findings: &Findings, before: [usize; 2]) -> [usize; 2] {
        let kinds = [(VOLUME, &findings.volumes), (SNAPSHOT, &findings.snapshots)];
        let now = kinds.map(|(kind, orphans)| {
            let count = orphans.shown().count();
            let bytes = orphans.shown().filter_map(|orphan| orphan.item.bytes).fold(0, u64::saturating_add);
            self.set(kind, count, bytes);
            count
        });
        if now.iter().zip(before).any(|(now, before)| *now > before) {
            let [volumes, snapshots] = now;
            info!(
                volumes,
                snapshots,
                "the driver lists what nothing in the cluster has known for an hour: the status page names it"
            );
        }
        now
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no driver lists 2^52 volumes")]
    fn set(&self, kind: &str, count: usize, bytes: u64) {
        let labels = [("driver_name", self.driver.as_str()), ("kind", kind)];
        self.meter.gauge(&metrics::ORPHANS, &labels).set(count as f64);
        self.meter.gauge(&metrics::ORPHAN_BYTES, &labels).set(bytes as f64);
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        for kind in [VOLUME, SNAPSHOT] {
            self.set(kind, 0, 0);
        }
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
