//! The Go sidecars: those that the roles replace, and those that `migrate` recognises and keeps.

use super::ROLES;
use crate::config::sidecar::{Sidecar, Signs, Unhosted};

/// The sidecars that the roles replace.
pub fn hosted() -> Vec<&'static Sidecar> {
    ROLES.iter().filter_map(|role| role.sidecar).collect()
}

/// Whether a sidecar takes part in leader election: some of its roles work with the cluster.
pub fn leads(sidecar: &Sidecar) -> bool {
    ROLES.iter().any(|role| role.cluster().is_some() && sidecar.roles.contains(&role.name))
}

/// Why most of them stay.
const NO_ROLE: &str = "no role does its work yet";

/// The sidecars that stay. The snapshot-controller is not a sidecar, although it is in the csi-snapshotter's
/// repository.
pub const UNHOSTED: &[Unhosted] = &[Unhosted {
    name: "external-health-monitor-controller",
    signs: Signs {
        words: &["external-health-monitor-controller"],
        flags: &["enable-node-watcher", "monitor-interval"],
    },
    why: NO_ROLE,
}];
