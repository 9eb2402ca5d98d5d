//! The attacher's metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::telemetry::Meter;

use super::attachment::Direction;
use super::metrics;

/// The attacher's metrics.
#[derive(Debug)]
pub struct Reporter {
    meter: Meter,
    driver: String,
    failing: Mutex<Failing>,
}

/// The attachments whose last attempt failed, counted as they come and go: in an outage there are thousands.
#[derive(Debug, Default)]
struct Failing {
    names: BTreeMap<String, Direction>,
    attaches: usize,
    detaches: usize,
}

impl Failing {
    fn insert(&mut self, name: &str, direction: Direction) {
        self.remove(name);
        self.names.insert(name.to_owned(), direction);
        *self.count(direction) += 1;
    }

    fn remove(&mut self, name: &str) -> bool {
        let removed = self.names.remove(name);
        if let Some(direction) = removed {
            *self.count(direction) -= 1;
        }
        removed.is_some()
    }

    fn count(&mut self, direction: Direction) -> &mut usize {
        match direction {
            Direction::Attach => &mut self.attaches,
            Direction::Detach => &mut self.detaches,
        }
    }
}

impl Reporter {
    /// Metrics with the driver's name as label.
    pub fn new(meter: Meter, driver: String) -> Self {
        let reporter = Self { meter, driver, failing: Mutex::default() };
        reporter.show_failing(&Failing::default());
        reporter
    }

    /// An attachment is gone, or is not ours.
    pub fn forget(&self, name: &str) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.remove(name) {
            self.show_failing(&failing);
        }
    }

    /// The term is over: the next leader reports failures.
    pub(super) fn retire(&self) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        *failing = Failing::default();
        self.show_failing(&failing);
    }

    pub(super) fn failed(&self, name: &str, direction: Direction, label: &str) {
        self.meter
            .counter(
                &metrics::OPERATION_ERRORS,
                &[("driver_name", &self.driver), ("operation", direction.label()), ("error", label)],
            )
            .increment(1);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.insert(name, direction);
        self.show_failing(&failing);
    }

    /// A mismatch between the recorded state and the driver was confirmed.
    pub(super) fn drifted(&self, direction: Direction) {
        self.meter
            .counter(&metrics::DRIFT, &[("driver_name", &self.driver), ("direction", direction.label())])
            .increment(1);
    }

    pub(super) fn took(&self, direction: Direction, age: Duration) {
        self.meter
            .histogram(&metrics::OPERATION_DURATION, &[("driver_name", &self.driver), ("operation", direction.label())])
            .record(age.as_secs_f64());
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 attachments")]
    fn show_failing(&self, failing: &Failing) {
        for (direction, count) in [(Direction::Attach, failing.attaches), (Direction::Detach, failing.detaches)] {
            self.meter
                .gauge(&metrics::OPERATION_FAILING, &[("driver_name", &self.driver), ("operation", direction.label())])
                .set(count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_gauge_follows_each_attachment_through_its_directions() {
        let (mut failing, counts) = (Failing::default(), |failing: &Failing| (failing.attaches, failing.detaches));
        failing.insert("a", Direction::Attach);
        failing.insert("a", Direction::Attach);
        failing.insert("b", Direction::Attach);
        assert_eq!(counts(&failing), (2, 0));
        failing.insert("a", Direction::Detach);
        assert_eq!(counts(&failing), (1, 1));
        assert!(failing.remove("a") && !failing.remove("a"));
        assert_eq!(counts(&failing), (1, 0));
    }
}
