//! The sidecars' work, role by role.
//!
//! [`ROLES`] is the only list of roles: the configuration's keys, the plan that `check` prints, the Leases and the
//! loops that serve terms all follow from it. A new role is one folder and one line. The common parts of all roles are
//! in [`kit`].

pub mod attach_detach;
pub mod attacher;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "burst_tests.rs"]
mod burst;
pub mod csi_attacher;
pub mod driver_object;
pub mod health_monitor;
pub mod kit;
pub mod liveness;
pub mod metrics;
pub mod provisioner;
pub mod reconciler;
pub mod registrar;
pub mod resizer;
pub mod role;
pub mod sidecars;
pub mod snapshotter;
pub mod wiring;

use crate::config::RoleSection;

pub use csi_attacher::lease as orphans_lease;
pub use driver_object::{Expectation, Misfit, Misfits, Severity};
pub use reconciler::{KEY_OF_ORPHANS as ORPHANS_KEY, TABLE as ORPHANS};
pub use role::{
    ClusterOnRequest, ClusterRole, Instance, Kind, LeasePolicy, LoadError, LocalContext, LocalRegistration, LocalRole,
    Reader, Registration, Role, RoleContext, RoleError, SandboxDriver, SandboxNode,
};
pub use wiring::{RulesOf, Wired, Wiring};

/// What each role's block in the configuration may hold.
pub fn sections() -> Vec<RoleSection> {
    ROLES.iter().map(|role| role.section.with_sidecar(role.sidecar)).collect()
}

/// Whether any of these roles works with the cluster.
pub fn needs_cluster<'a>(roles: impl IntoIterator<Item = &'a &'static str>) -> bool {
    roles.into_iter().any(|name| ROLES.iter().any(|role| role.name == *name && role.cluster().is_some()))
}

/// Every role that this daemon can host.
pub const ROLES: &[Registration] = &[
    attacher::REGISTRATION,
    health_monitor::REGISTRATION,
    liveness::REGISTRATION,
    provisioner::REGISTRATION,
    reconciler::REGISTRATION,
    registrar::REGISTRATION,
    resizer::REGISTRATION,
    snapshotter::REGISTRATION,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_roles_events_say_whose_driver_they_are_about() {
        for (name, role) in ROLES.iter().filter_map(|role| Some((role.name, role.cluster()?))) {
            let source = (role.event_source)("demo.csi");
            // external-health-monitor writes a hyphen where all others write a space.
            let separator = if name == "healthMonitor" { '-' } else { ' ' };
            assert!(source.ends_with(&format!("{separator}demo.csi")), "{name}: {source}");
        }
    }
}
