//! The metrics of this role. Its calls count in `csi_sidecar_operations_seconds` like every call to the driver.

use crate::telemetry::names::{Foreign, Kind, NOT_HERE, NOT_HERE_UNTIL_1_36, metrics};

/// From a driver that answers from memory to one that asks its backend; livenessprobe's default limit is 3 s.
const CHECK_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0];

/// The metrics of livenessprobe that the daemon does not have.
pub const FOREIGN: &[&[Foreign]] = &[NOT_HERE, NOT_HERE_UNTIL_1_36];

metrics! {
    /// The last answer.
    DRIVER_HEALTHY = "csi_control_plane_driver_healthy", Kind::Gauge, [],
        "1 if the driver passed its last liveness check, 0 if it did not.";
    /// Checks of the driver.
    CHECK_DURATION = "csi_control_plane_driver_check_seconds", Kind::Histogram(CHECK_BUCKETS), ["result"],
        "Seconds that a liveness check of the driver took, by result: ok, notReady, noConnection, failed or noAnswer.";
}
