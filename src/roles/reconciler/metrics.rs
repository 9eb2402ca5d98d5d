//! The metrics of the reconciler.

use crate::telemetry::names::{Kind, RPC_BUCKETS, metrics};

metrics! {
    /// Reconciler passes.
    RECONCILE_PASSES = "csi_control_plane_reconcile_passes_total", Kind::Counter, ["driver_name", "result"],
        "Passes of ListVolumes over the driver, by result.";
    /// Duration of a pass.
    RECONCILE_DURATION = "csi_control_plane_reconcile_duration_seconds", Kind::Histogram(RPC_BUCKETS), ["driver_name"],
        "Seconds that one complete pass of ListVolumes took.";
    /// Volumes and snapshots that nothing in the cluster knows.
    ORPHANS = "csi_control_plane_orphans", Kind::Gauge, ["driver_name", "kind"],
        "Volumes and snapshots that the driver lists and nothing in the cluster has known for an hour.";
    /// Their sizes.
    ORPHAN_BYTES = "csi_control_plane_orphan_bytes", Kind::Gauge, ["driver_name", "kind"],
        "Sum of the sizes of the orphans, as far as the driver tells them.";
}
