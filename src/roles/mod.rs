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
    Reader, Registration, Role, RoleContext, RoleError, SandboxDriver, SandboxNode, Serve,
};
pub use wiring::{RulesOf, Wired, Wiring};

/// What each role's block in the configuration may hold.
pub fn sections() -> Vec<RoleSection> {
    ROLES.iter().map(|role| role.section.with_sidecar(role.sidecar)).collect()
}

/// Whether any of these roles works with the cluster.
pub fn needs_cluster<'a>(roles: impl IntoIterator<Item = &'a &'static str>) -> bool {
    any_of_cluster(roles, |_| true)
}

/// Whether any of these roles works with the cluster and the driver of the daemon. A local role has a connection of its own.
pub fn needs_driver<'a>(roles: impl IntoIterator<Item = &'a &'static str>) -> bool {
    any_of_cluster(roles, |role| role.needs_driver)
}

fn any_of_cluster<'a>(roles: impl IntoIterator<Item = &'a &'static str>, is_one: fn(&ClusterRole) -> bool) -> bool {
    let found = |name: &str| ROLES.iter().find(|role| role.name == name).and_then(Registration::cluster);
    roles.into_iter().filter_map(|name| found(name)).any(is_one)
}

/// Every role that this daemon can host.
pub const ROLES: &[Registration] = &[
    attach_detach::REGISTRATION,
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
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{File, Sources, load};

    #[test]
    fn each_roles_events_say_whose_driver_they_are_about() {
        for (name, role) in of_cluster().filter(|(_, role)| role.needs_driver) {
            let source = (role.event_source)("demo.csi");
            // external-health-monitor writes a hyphen where all others write a space.
            let separator = if name == "healthMonitor" { '-' } else { ' ' };
            assert!(source.ends_with(&format!("{separator}demo.csi")), "{name}: {source}");
        }
    }

    #[test]
    fn a_block_that_is_given_in_part_keeps_the_defaults_of_its_role() {
        let section = |role: &Registration, given: Value| -> Value {
            let text = json!({ "roles": { role.name: given } }).to_string();
            let file = File { name: "config.yaml".to_owned(), text };
            let loaded = load(&Sources { file: Some(file), ..Sources::default() }, &sections());
            loaded.unwrap_or_else(|rejected| panic!("{}: {rejected}", role.name)).roles[role.name].clone()
        };
        let mut blocks = 0;
        for role in ROLES {
            let given =
                if role.name == "registrar" { json!({ "kubeletRegistrationPath": "/x/y.sock" }) } else { json!({}) };
            let whole = section(role, given.clone());
            for (key, _) in whole.as_object().unwrap().iter().filter(|(_, value)| value.is_object()) {
                let mut given = given.clone();
                given[key] = json!({});
                assert_eq!(section(role, given), whole, "roles.{}.{key}", role.name);
                blocks += 1;
            }
        }
        assert!(blocks > 5, "{blocks}");
    }

    fn of_cluster() -> impl Iterator<Item = (&'static str, &'static ClusterRole)> {
        ROLES.iter().filter_map(|role| Some((role.name, role.cluster()?)))
    }

    #[test]
    fn a_role_for_all_drivers_has_the_same_lease_and_events_whatever_the_driver_is_called() {
        for (name, role) in of_cluster().filter(|(_, role)| !role.needs_driver) {
            let called = |driver| ((role.event_source)(driver), (role.lease)(&serde_json::Value::Null).name(driver));
            assert_eq!(called("demo.csi"), called(""), "{name}");
            assert!(!needs_driver([&name]) && needs_cluster([&name]) && needs_driver([&name, &"attacher"]));
        }
    }
}
