//! The Go sidecars: those that the roles replace, and those that `migrate` recognises and keeps.

use super::ROLES;
use crate::config::sidecar::{Sidecar, Signs, Unhosted};

/// The sidecars that the roles replace.
pub fn hosted() -> Vec<&'static Sidecar> {
    ROLES.iter().filter_map(|role| role.sidecar).collect()
}

/// Why most of them stay.
const NO_ROLE: &str = "no role does its work yet";

/// The sidecars that stay. The snapshot-controller is not a sidecar, although it is in the csi-snapshotter's
/// repository.
pub const UNHOSTED: &[Unhosted] = &[
    Unhosted {
        name: "csi-snapshotter",
        signs: Signs {
            words: &["csi-snapshotter", "external-snapshotter"],
            flags: &["snapshot-name-prefix", "snapshot-name-uuid-length"],
        },
        why: NO_ROLE,
    },
    Unhosted {
        name: "livenessprobe",
        signs: Signs { words: &["livenessprobe", "liveness-probe"], flags: &["health-port"] },
        why: "it answers for the driver, not for a sidecar",
    },
    Unhosted {
        name: "node-driver-registrar",
        signs: Signs { words: &["node-driver-registrar"], flags: &["kubelet-registration-path"] },
        why: "it registers the node's driver with the kubelet",
    },
    Unhosted {
        name: "external-health-monitor-controller",
        signs: Signs {
            words: &["external-health-monitor-controller"],
            flags: &["enable-node-watcher", "monitor-interval"],
        },
        why: NO_ROLE,
    },
];
