//! The sidecars' work, role by role.
//!
//! [`ROLES`] is the only list of roles: the configuration's keys, the plan that `check` prints, the Leases and the
//! loops that serve terms all follow from it. A new role is one folder and one line. The common parts of all roles are
//! in [`kit`].

pub mod attacher;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "burst_tests.rs"]
mod burst;
pub mod csi_attacher;
pub mod kit;
pub mod metrics;
pub mod provisioner;
pub mod reconciler;
pub mod resizer;
pub mod role;
pub mod sidecars;
pub mod wiring;

use crate::config::RoleSection;

pub use role::{Instance, LeasePolicy, LoadError, Registration, Role, RoleContext, RoleError, SandboxDriver};
pub use wiring::{RulesOf, Wired, Wiring};

/// What each role's block in the configuration may hold.
pub fn sections() -> Vec<RoleSection> {
    ROLES.iter().map(|role| role.section).collect()
}

/// Every role that this daemon can host.
pub const ROLES: &[Registration] =
    &[attacher::REGISTRATION, provisioner::REGISTRATION, reconciler::REGISTRATION, resizer::REGISTRATION];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_roles_events_say_whose_driver_they_are_about() {
        for role in ROLES {
            let source = (role.event_source)("demo.csi");
            assert!(source.ends_with(" demo.csi"), "{}: {source}", role.name);
        }
    }
}
