//! Gauges of counts, and gauges that are 0 outside of a term.

use metrics::Gauge;

use super::meter::{Labels, Meter};
use super::names::Metric;

/// Sets a gauge to a number of things.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no process counts to 2^52")]
pub fn show_count(gauge: &Gauge, count: usize) {
    gauge.set(count as f64);
}

/// A gauge that is 0 until the term sets it, and again when it is dropped with the term: a replica that does not lead has nothing to show.
#[derive(Debug)]
pub struct TermGauge(Gauge);

impl TermGauge {
    /// The gauge of `metric` with these labels.
    pub fn new(meter: &Meter, metric: &Metric, labels: Labels<'_>) -> Self {
        let gauge = Self(meter.gauge(metric, labels));
        gauge.set(0.0);
        gauge
    }

    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Sets a number of things.
    pub fn count(&self, count: usize) {
        show_count(&self.0, count);
    }
}

impl Drop for TermGauge {
    fn drop(&mut self) {
        self.set(0.0);
    }
}
