//! Creates volumes for claims and deletes them again, as external-provisioner does, but without leaks.
//!
//! ```text
//! cluster caches ──> triggers, predicates (P) ──> queue of claims ──> admission ──> claims ──> decide (P), transition (P)
//!                                         ├────> queue of volumes ──> deletion ──> policy (P)
//!                                         └────> queue of sources ──> unprotect ──> policy (P)
//! claim + class + source + topology ──> request (P), the same until the driver's final answer
//! ```
//!
//! Each room has a context of its own, and needs only what stands right of it. `contexts.rs`, `serve.rs` and `triggers.rs` know all rooms.
//!
//! ```text
//! admission, deletion, unprotect ──> claims ──> context.rs ──> node, sources, capacity ──> claim.rs, class.rs, volume.rs, finality.rs
//!                                                              topology, parameters
//! ```
//!
//! Names, finalizers, annotations, the Lease and the volume objects are those of external-provisioner v6.4, so that either
//! can take over from the other at any moment.
//!
//! # Nothing leaks
//!
//! A volume that may exist at the driver can always be found from Kubernetes. Before the driver is called, the journal
//! ([`crate::journal`]) has the whole request. The entry leaves the journal once the PersistentVolume exists, the
//! volume was deleted again, or the driver's final answer is that no volume exists. So the next leader, after a crash
//! at any point, sends the same request until the answer is final, and then stores the PersistentVolume or deletes the
//! volume. One write to the journal saves the requests of many claims, and the journal writes nothing on a claim.

pub mod admission;
pub mod capacity;
pub mod claim;
pub mod claims;
pub mod class;
mod config;
pub mod context;
mod contexts;
pub mod deletion;
mod driver_object;
pub mod finality;
#[cfg(test)]
mod fixtures;
mod journal;
pub mod metrics;
pub mod names;
pub mod node;
pub mod parameters;
pub mod predicates;
pub mod reporter;
mod rules;
mod serve;
pub mod sidecar;
pub mod sources;
pub mod topology;
mod triggers;
pub mod unknown;
pub mod unprotect;
pub mod volume;

use serde_json::{Value, json};

use crate::cluster::{Fields, Need};
use crate::config::RoleSection;

pub use self::config::{NodeDeploymentSection, ProvisionerSection};
use super::kit::EventsMode;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role, SandboxDriver};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<ProvisionerSection>(NAME).with_needs(config::needs),
    sidecar: Some(&sidecar::SIDECAR),
    // With one daemon per node, another deployment with another account has the rights.
    restart_keys: &["nodeDeployment.enabled"],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease,
        event_source: names::event_source,
        sandbox: |driver| Some(sandbox(driver)),
        load,
    }),
};

const NAME: &str = "provisioner";

/// No Lease with one daemon per node, because all of them work. Otherwise the sidecar's Lease, also without a readable
/// section: [`load`] reports what is wrong with it.
fn lease(section: &Value) -> LeasePolicy {
    let section: Option<ProvisionerSection> = RoleSection::read(section).ok();
    LeasePolicy::unless_per_node(section.is_some_and(|section| section.node_deployment.enabled), names::lease)
}

/// The sandbox's section. Without topology the driver creates volumes anywhere. Capacity objects have no owner, because
/// there is no pod.
fn sandbox(driver: SandboxDriver) -> Value {
    json!({
        "retry": { "initial": "250ms", "max": "5s" },
        "topology": driver.has_topology,
        "capacity": { "enabled": driver.tells_room, "ownerLevel": -1 },
        "events": driver.events(),
    })
}

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    Ok(Box::new(provisioner(section, wiring)?))
}

fn provisioner(section: &Value, wiring: &mut Wiring<'_>) -> Result<serve::Provisioner, serde_json::Error> {
    let section: ProvisionerSection = RoleSection::read(section)?;
    let watches_nodes = (section.topology || section.capacity.enabled) && !section.node_deployment.enabled;
    let per_node = section.node_deployment.enabled;
    let caches = context::Caches {
        claims: wiring.cache_with(if per_node { Fields::SELECTED_NODE } else { Fields::NONE }),
        volumes: wiring.cache_with(if section.capacity.enabled {
            // A volume that grows leaves less room.
            Fields::MIGRATION | Fields::RESIZE
        } else {
            Fields::MIGRATION
        }),
        classes: wiring.cache_with(Fields::MIGRATION),
        attachments: wiring.cache(),
        snapshots: wiring.cache(),
        contents: wiring.hosts("snapshotter").then(|| wiring.cache()),
        nodes: watches_nodes.then(|| (wiring.cache_for_feature(), wiring.cache_for_feature())),
        capacities: section.capacity.enabled.then(|| wiring.cache_in(capacity::scope(per_node), Need::Feature)),
    };
    wiring.needs_all(rules::rules(&section).into_iter().chain(capacity::rules(&section.capacity)));
    if section.durable_intent {
        wiring.needs_of(if per_node { journal::rules_per_node } else { journal::rules });
    }
    let (own, events) = (section.clone(), section.events != EventsMode::None);
    wiring.expects(driver_object::ALL, move |object, driver| driver_object::misfits(object, driver, &own), events);
    let beside_attacher = wiring.hosts("attacher");
    Ok(serve::Provisioner { section, caches, beside_attacher })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_of_nodes_do_not_share_a_lease_whatever_the_key_is_called() {
        for (enabled, leads) in [(false, true), (true, false)] {
            let node_deployment = NodeDeploymentSection { enabled, ..NodeDeploymentSection::default() };
            let section = ProvisionerSection { node_deployment, ..ProvisionerSection::default() };
            let policy = lease(&serde_json::to_value(section).unwrap());
            assert_eq!(matches!(policy, LeasePolicy::Sidecar(_)), leads, "{policy:?}");
        }
        assert!(matches!(lease(&Value::Null), LeasePolicy::Sidecar(_)), "what it usually is");
    }
}
