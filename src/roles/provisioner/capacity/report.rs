//! Reports slots beside the log: a table on the status page, and metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::diagnostics::{Cell, Registered, Table, table};
use crate::roles::provisioner::{NAME, metrics};
use crate::telemetry::{Meter, TermGauge};

use super::context::{CapacityContext, Shared};
use super::desired::Slot;
use super::index::Counts;
use super::progress::Memory;

/// The pause between two updates of the metrics.
const COUNT_PAUSE: Duration = Duration::from_secs(1);
/// How long the update after that waits for a change, because the capacities age without one. As often as Prometheus scrapes, or more often.
const AGE_PAUSE: Duration = Duration::from_secs(10);

/// The status page's table.
pub const TABLE: Table = table! {
    "capacity", "Capacity by segment":
        text("class", "class"), text("segment", "segment"), bytes("capacityBytes", "capacity"),
        bytes("largestVolumeBytes", "largest volume"), seconds("askedSeconds", "asked before"),
        error("lastError", "last error")
};

/// The status page's rows: the wanted slots.
pub(super) fn rows(shared: &Shared) -> Vec<Vec<Cell>> {
    let mut slots: Vec<Slot> = shared.index().desired().all().collect();
    slots.sort();
    let now = shared.cx.scope.clock.now();
    let row = |slot: &Slot| {
        shared.memory.read(&slot.to_string(), |held| {
            row(slot, held, held.capacity.map(|(at, _)| now.saturating_duration_since(at)))
        })
    };
    slots.iter().map(row).collect()
}

/// The row of a wanted slot. `asked_before`: how old the driver's answer is.
fn row(slot: &Slot, memory: &Memory, asked_before: Option<Duration>) -> Vec<Cell> {
    let answer = memory.capacity.map(|(_, capacity)| capacity);
    // The driver's answer with a negative size was refused.
    let bytes = |bytes: i64| Cell::Number(bytes.unsigned_abs());
    vec![
        slot.class.to_string().into(),
        slot.segment.to_string().into(),
        answer.map(|capacity| bytes(capacity.available)).into(),
        answer.and_then(|capacity| capacity.maximum_volume_size).map(bytes).into(),
        asked_before.into(),
        memory.error.clone().into(),
    ]
}

/// Shows why no capacity is published.
pub(super) fn show_reason(cx: &CapacityContext, reason: impl Fn() -> String + Send + Sync + 'static) -> Registered {
    let nothing = [Cell::Nothing, Cell::Nothing, Cell::Nothing, Cell::Nothing, Cell::Nothing];
    cx.board.table(NAME, &TABLE, move || vec![nothing.iter().cloned().chain([reason().into()]).collect()])
}

/// Updates the metrics after changes, at most once per [`COUNT_PAUSE`], and without one after [`AGE_PAUSE`].
pub(super) async fn update_gauges(shared: Arc<Shared>) {
    let scope = &shared.cx.scope;
    let gauges = Gauges::new(&scope.meter, &scope.driver_name);
    loop {
        let counts = shared.index().counts();
        gauges.set(counts, oldest(&shared, scope.clock.now()));
        tokio::time::sleep(COUNT_PAUSE).await;
        // Either is a reason to go on.
        let _ = tokio::time::timeout(AGE_PAUSE, shared.counts_changed.notified()).await;
    }
}

/// The age of the oldest capacity of a wanted slot.
fn oldest(shared: &Shared, now: Instant) -> Duration {
    let slots: Vec<Slot> = shared.index().desired().all().collect();
    let ages = slots.iter().filter_map(|slot| shared.memory.read(&slot.to_string(), |held| held.age(now)));
    ages.max().unwrap_or_default()
}

/// The metrics of one term.
struct Gauges {
    oldest: TermGauge,
    goal: TermGauge,
    current: TermGauge,
    obsolete: TermGauge,
}

impl Gauges {
    fn new(meter: &Meter, driver: &str) -> Self {
        let gauge = |metric| TermGauge::new(meter, metric, &[]);
        Self {
            oldest: TermGauge::new(meter, &metrics::CAPACITY_OLDEST, &[("driver_name", driver)]),
            goal: gauge(&metrics::CAPACITY_GOAL),
            current: gauge(&metrics::CAPACITY_CURRENT),
            obsolete: gauge(&metrics::CAPACITY_OBSOLETE),
        }
    }

    fn set(&self, counts: Counts, oldest: Duration) {
        self.oldest.set(oldest.as_secs_f64());
        self.goal.count(counts.goal);
        self.current.count(counts.current);
        self.obsolete.count(counts.obsolete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;
    use crate::roles::provisioner::capacity::diff::Capacity;
    use crate::roles::provisioner::topology::Segment;

    #[test]
    fn an_error_stands_beside_the_last_answer() {
        let slot = Slot { class: "fast".into(), segment: Arc::new(Segment::new([("zone", "z1")])) };
        let shown = |available, error: &str, age: Option<Duration>| {
            let error = Cell::from(Some(error.to_owned()).filter(|text| !text.is_empty()));
            vec!["fast".into(), "zone=z1".into(), available, Cell::Nothing, age.into(), error]
        };
        assert_eq!(row(&slot, &Memory::default(), None), shown(Cell::Nothing, "", None));
        let capacity = Capacity { available: 3, maximum_volume_size: None };
        let mut memory = Memory::default();
        memory.capacity = Some((Clock::system().now(), capacity));
        assert_eq!(row(&slot, &memory, Some(Duration::ZERO)), shown(Cell::Number(3), "", Some(Duration::ZERO)));
        memory.error = Some("offline".to_owned());
        assert_eq!(row(&slot, &memory, Some(Duration::ZERO)), shown(Cell::Number(3), "offline", Some(Duration::ZERO)));
    }
}
