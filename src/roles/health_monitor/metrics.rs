//! The metrics of the health monitor.

use crate::telemetry::names::{Kind, RPC_BUCKETS, metrics};

/// Whose metrics these are: the rewrite for CSI 1.13.
const MONITOR: &str = "external-health-monitor (0.19)";

/// From a few volumes to rounds that take longer than their interval.
const ROUND_BUCKETS: &[f64] = &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

metrics! {
    /// Questions and pages.
    PROBES = "csi_volume_health_probe_total", Kind::Counter, ["method", "result"],
        "Calls to the driver about the health of volumes, by RPC and result: a gRPC code, or NoAnswer if it says nothing of the volume.", of MONITOR;
    /// How long they took.
    PROBE_DURATION = "csi_volume_health_probe_duration_seconds", Kind::Histogram(RPC_BUCKETS), ["method"],
        "Seconds that one call to the driver about the health of volumes took.", of MONITOR;
    /// What is wrong with the volume of a claim.
    HEALTH_STATUS = "csi_controller_volume_health_status", Kind::Gauge, ["namespace", "persistentvolumeclaim", "status"],
        "1 while the volume of the claim is not healthy, by what is wrong: Degraded, Inaccessible, DataLoss, Unknown, or Abnormal from a driver that says no kind; 0 from then on.", of MONITOR;
    /// Writes in vain.
    WRITES_DROPPED = "csi_volume_health_status_writes_dropped_total", Kind::Counter, [],
        "Writes of a claim's health that the API server accepted without storing it: its feature gate CSIVolumeHealth is off.", of MONITOR;
    /// Kinds that are not known.
    UNKNOWN_CONDITIONS = "csi_volume_health_unknown_condition_total", Kind::Counter, ["status"],
        "Kinds of faults that the driver reported and that are not known here, by their number.", of MONITOR;
    /// Rounds.
    ROUND_DURATION = "csi_control_plane_volume_health_round_seconds", Kind::Histogram(ROUND_BUCKETS), ["driver_name"],
        "Seconds in which each volume was asked for once, or in which one list of those that are not healthy was read.";
}
