//! The metrics of the attacher.

use crate::telemetry::names::{Foreign, Kind, NOT_HERE, metrics};

/// From an attach on an idle machine to one with several back-offs.
const OPERATION_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// Metrics that csi-attacher has and we do not.
pub const FOREIGN: &[&[Foreign]] = &[NOT_HERE];

metrics! {
    /// From creation to attached, from deletion to detached.
    OPERATION_DURATION = "csi_control_plane_attachment_duration_seconds", Kind::Histogram(OPERATION_BUCKETS), ["driver_name", "operation"],
        "Seconds from the moment a volume attachment was seen to want an operation (attach or detach) until it was done, retries included.";
    /// Failed attempts.
    OPERATION_ERRORS = "csi_control_plane_attachment_errors_total", Kind::Counter, ["driver_name", "operation", "error"],
        "Attempts to attach or detach that failed, by the error's label.";
    /// Attachments whose last attempt failed.
    OPERATION_FAILING = "csi_control_plane_attachments_failing", Kind::Gauge, ["driver_name", "operation"],
        "Volume attachments whose last attempt to attach or detach failed.";
    /// Confirmed mismatches.
    DRIFT = "csi_control_plane_drift_total", Kind::Counter, ["driver_name", "direction"],
        "Attachments whose recorded state and the driver's answer disagreed twice with nothing in flight, by direction (attach or detach).";
}
