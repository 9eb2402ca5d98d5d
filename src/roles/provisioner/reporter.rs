//! The gauges of a term: they are 0 before and after, because a replica that does not lead has nothing to show.

use std::time::Duration;

use metrics::Gauge;

use crate::roles::provisioner::metrics as names;
use crate::telemetry::Meter;
use crate::telemetry::names::Metric;

/// A gauge that is 0 until the term sets it, and again once the term is over.
#[derive(Debug)]
pub struct TermGauge(Gauge);

impl TermGauge {
    /// Labelled with the driver's name.
    pub fn new(meter: &Meter, metric: &Metric, driver: &str) -> Self {
        let gauge = Self(meter.gauge(metric, &[("driver_name", driver)]));
        gauge.set(0.0);
        gauge
    }

    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Sets a number of things.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 of anything")]
    pub fn count(&self, count: usize) {
        self.0.set(count as f64);
    }
}

impl Drop for TermGauge {
    fn drop(&mut self) {
        self.set(0.0);
    }
}

/// Figures of waiting claims.
#[derive(Debug)]
pub struct Reporter {
    oldest: TermGauge,
    unsaved: TermGauge,
    in_background: TermGauge,
}

impl Reporter {
    /// Nothing waits yet.
    pub fn new(meter: &Meter, driver: &str) -> Self {
        let gauge = |metric| TermGauge::new(meter, metric, driver);
        Self {
            oldest: gauge(&names::CLAIMS_OLDEST),
            unsaved: gauge(&names::UNSAVED_VOLUMES),
            in_background: gauge(&names::CLAIMS_IN_BACKGROUND),
        }
    }

    /// The oldest claim without its volume, how many volumes are unsaved, and how many answers are outstanding.
    pub(super) fn show(&self, oldest: Duration, (unsaved, outstanding): (usize, usize)) {
        self.oldest.set(oldest.as_secs_f64());
        self.unsaved.count(unsaved);
        self.in_background.count(outstanding);
    }
}
