//! Figures of waiting claims.

use std::time::Duration;

use crate::roles::provisioner::metrics::{CLAIMS_IN_BACKGROUND, CLAIMS_OLDEST, UNSAVED_VOLUMES};
use crate::telemetry::{Meter, TermGauge};

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
        let gauge = |metric| TermGauge::new(meter, metric, &[("driver_name", driver)]);
        Self {
            oldest: gauge(&CLAIMS_OLDEST),
            unsaved: gauge(&UNSAVED_VOLUMES),
            in_background: gauge(&CLAIMS_IN_BACKGROUND),
        }
    }

    /// The oldest claim without its volume, how many volumes are unsaved, and how many answers are outstanding.
    pub(super) fn show(&self, oldest: Duration, (unsaved, outstanding): (usize, usize)) {
        self.oldest.set(oldest.as_secs_f64());
        self.unsaved.count(unsaved);
        self.in_background.count(outstanding);
    }
}
