//! The metrics of the snapshotter.

use crate::telemetry::names::{Foreign, Kind, NOT_HERE, metrics};

/// From a cut on an idle machine to an upload that takes hours.
const SNAPSHOT_BUCKETS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0];

/// What csi-snapshotter has, and we do not.
pub const FOREIGN: &[&[Foreign]] = &[NOT_HERE];

metrics! {
    /// From the need to the end of an operation.
    SNAPSHOT_DURATION = "csi_control_plane_snapshot_duration_seconds", Kind::Histogram(SNAPSHOT_BUCKETS), ["driver_name", "operation"],
        "Seconds until a snapshot was cut (create), from then until it was ready to use (ready), and until it was deleted (delete), retries included; groups have group_create, ready and group_delete.";
    /// Failed attempts.
    SNAPSHOT_ERRORS = "csi_control_plane_snapshot_errors_total", Kind::Counter, ["driver_name", "operation", "error"],
        "Attempts to create, look up or delete a snapshot that failed, by the error's label.";
    /// What fails.
    SNAPSHOTS_FAILING = "csi_control_plane_snapshots_failing", Kind::Gauge, ["driver_name", "operation"],
        "Snapshots whose last attempt failed, by operation (create, ready, delete, group_create or group_delete).";
    /// What waits longest.
    SNAPSHOTS_OLDEST_PENDING = "csi_control_plane_snapshots_oldest_pending_age_seconds", Kind::Gauge, ["driver_name"],
        "Age of the longest pending snapshot: one that is not ready to use, or not deleted as it should be.";
    /// What is cut and not ready.
    SNAPSHOTS_NOT_READY = "csi_control_plane_snapshots_not_ready", Kind::Gauge, ["driver_name"],
        "Snapshots that are cut and not yet ready to use.";
    /// Calls without a final answer of the driver.
    SNAPSHOTS_UNANSWERED = "csi_control_plane_snapshots_unanswered", Kind::Gauge, ["driver_name"],
        "Snapshots that the driver was asked for without a final answer yet: they may exist although no object has their handle.";
    /// What an earlier term has left.
    SNAPSHOTS_RESUMED = "csi_control_plane_snapshots_resumed_total", Kind::Counter, ["driver_name", "result"],
        "Requests for a snapshot that an earlier leader has left without a final answer, by what the driver answered in the end (created or refused).";
    /// What no object stands for.
    SNAPSHOTS_ORPHANED = "csi_control_plane_snapshots_orphaned_total", Kind::Counter, ["driver_name", "result"],
        "Snapshots of the driver that no content names: deleted or left after their content was removed by force, or another id than the one before (otherId).";
}
