//! The metrics of the resizer.

use crate::telemetry::names::{Foreign, Kind, NOT_HERE, metrics};

/// From a fast change to one that took several back-offs, or a pause.
const CHANGE_BUCKETS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The metrics of csi-resizer that the daemon does not have.
pub const FOREIGN: &[&[Foreign]] = &[NOT_HERE, REQUESTS];
/// client-go's own, which no other sidecar serves.
const REQUESTS: &[Foreign] =
    &[Foreign { name: "rest_client_*", why: "csi_control_plane_api_requests_total counts the daemon's requests" }];

metrics! {
    /// The time until the controller has done its part of a change.
    CHANGE_DURATION = "csi_control_plane_claim_change_duration_seconds", Kind::Histogram(CHANGE_BUCKETS), ["driver_name", "operation"],
        "Seconds from the moment a claim was seen to want a change (expand or modify) until it was done, or left to its node, retries included.";
    /// Failed attempts.
    CHANGE_ERRORS = "csi_control_plane_claim_change_errors_total", Kind::Counter, ["driver_name", "operation", "error"],
        "Attempts to expand or modify the volume of a claim that failed, by the error's label.";
    /// The claims that wait, by reason.
    CLAIMS_WAITING = "csi_control_plane_claims_waiting", Kind::Gauge, ["driver_name", "reason"],
        "Claims whose volume is not yet as they want it, by what they wait for: infeasible, inUse, node, classMissing or backoff.";
}
