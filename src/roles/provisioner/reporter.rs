//! Figures of waiting claims.

use std::time::Duration;

use crate::roles::provisioner::metrics;
use crate::telemetry::Meter;

/// Figures of waiting claims. When it is dropped, nothing waits: the next leader reports what waits then.
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

    /// The oldest claim without its volume, how many volumes are unsaved, and how many answers are outstanding.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 claims")]
    pub(super) fn show(&self, oldest: Duration, (unsaved, outstanding): (usize, usize)) {
        let labels = [("driver_name", self.driver.as_str())];
        self.meter.gauge(&metrics::CLAIMS_OLDEST, &labels).set(oldest.as_secs_f64());
        self.meter.gauge(&metrics::UNSAVED_VOLUMES, &labels).set(unsaved as f64);
        self.meter.gauge(&metrics::CLAIMS_IN_BACKGROUND, &labels).set(outstanding as f64);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.show(Duration::ZERO, (0, 0));
    }
}
