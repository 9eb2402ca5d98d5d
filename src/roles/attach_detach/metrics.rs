//! The metrics of the attach/detach controller (attach-detach spec 15).

use crate::telemetry::names::{Kind, metrics};

/// Whose metrics these are.
const THEIRS: &str = "kube-controller-manager";

/// From a kubelet that unmounts at once to a node that does not come back.
const WAIT_BUCKETS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 120.0, 360.0, 1200.0, 3600.0];

metrics! {
    /// Volumes that are wanted, and those that are attached.
    TOTAL_VOLUMES = "attachdetach_controller_total_volumes", Kind::Gauge, ["plugin_name", "state"],
        "Number of volumes in A/D Controller", of THEIRS;
    /// Volumes of nodes.
    IN_USE = "storage_count_attachable_volumes_in_use", Kind::Gauge, ["node", "volume_plugin"],
        "Measure number of volumes in use", of THEIRS;
    /// Volumes that were taken from nodes that may still use them.
    FORCED = "attach_detach_controller_attachdetach_controller_forced_detaches", Kind::Counter, ["reason"],
        "Number of times the A/D Controller performed a forced detach", of THEIRS;
    /// How long a gate was shut.
    GATE_WAIT = "csi_control_plane_attach_detach_gate_wait_seconds", Kind::Histogram(WAIT_BUCKETS), ["reason"],
        "Seconds that a volume waited until it could be detached from a node (in-use, timer) or attached to it (multi-attach).";
    /// Attachments of unknown volumes.
    ORPHANS = "csi_control_plane_attach_detach_orphans_total", Kind::Counter, ["action"],
        "VolumeAttachments of unknown volumes: deleted, or kept because a pod may want it, or recovered.";
    /// Writes of the status of nodes.
    STATUS_WRITES = "csi_control_plane_attach_detach_node_status_writes_total", Kind::Counter, ["result"],
        "Writes of the attached volumes into the status of a node, by result: ok, conflict, gone or error.";
}
