//! The provisioner's metrics.

use std::time::Duration;

use crate::roles::provisioner::metrics;
use crate::telemetry::Meter;

/// The provisioner's metrics.
#[derive(Debug)]
pub struct Reporter {
    meter: Meter,
    driver: String,
}

impl Reporter {
    /// Metrics labelled with the driver's name.
    pub fn new(meter: Meter, driver: String) -> Self {
        let reporter = Self { meter, driver };
        reporter.show(Duration::ZERO, (0, 0));
        reporter
    }

    /// The term is over: the next leader reports what waits now.
    pub(super) fn retire(&self) {
        self.show(Duration::ZERO, (0, 0));
    }

    pub(super) fn provisioned(&self, class: &str, source: &str, took: Duration) {
        let labels = [("class", class), ("source", source)];
        self.meter.counter(&metrics::PROVISION_TOTAL, &labels).increment(1);
        self.meter.histogram(&metrics::PROVISION_DURATION, &labels).record(took.as_secs_f64());
    }

    pub(super) fn provision_failed(&self, class: &str, source: &str) {
        self.meter.counter(&metrics::PROVISION_FAILED, &[("class", class), ("source", source)]).increment(1);
    }

    pub(super) fn resumed(&self, result: &str) {
        self.meter
            .counter(&metrics::VOLUMES_RESUMED, &[("driver_name", &self.driver), ("result", result)])
            .increment(1);
    }

    pub(super) fn reclaimed(&self) {
        self.meter.counter(&metrics::VOLUMES_RECLAIMED, &[("driver_name", &self.driver)]).increment(1);
    }

    /// The oldest claim without its volume, how many volumes are unsaved, and how many answers are outstanding.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 claims")]
    pub(super) fn show(&self, oldest: Duration, (unsaved, outstanding): (usize, usize)) {
        let labels = [("driver_name", self.driver.as_str())];
        self.meter.gauge(&metrics::CLAIMS_OLDEST, &labels).set(oldest.as_secs_f64());
        self.meter.gauge(&metrics::UNSAVED_VOLUMES, &labels).set(unsaved as f64);
        self.meter.gauge(&metrics::CLAIMS_IN_BACKGROUND, &labels).set(outstanding as f64);
    }
}
