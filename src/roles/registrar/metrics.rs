//! The metrics of this role.

use crate::telemetry::names::{Foreign, Kind, metrics};

/// node-driver-registrar has no metrics.
pub const FOREIGN: &[&[Foreign]] = &[];

metrics! {
    /// Whether the kubelet has the driver.
    REGISTERED = "csi_control_plane_registrar_registered", Kind::Gauge, [],
        "1 while the kubelet has the driver, by its last word and by what is in its directory; 0 before, from the start on.";
    /// Announcements.
    ANNOUNCEMENTS = "csi_control_plane_registrar_announcements_total", Kind::Counter, ["reason"],
        "Registration sockets put into the kubelet's directory, by reason: start, vanished, refused, renamed, returned, reconfigured or lost.";
    /// Refusals.
    REFUSALS = "csi_control_plane_registrar_refusals_total", Kind::Counter, [],
        "How often the kubelet said that it could not register the driver.";
}
