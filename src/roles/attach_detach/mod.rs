//! Turns scheduled pods into VolumeAttachments, and takes those away when the pods are gone and the node has let go: what the
//! attach/detach controller of kube-controller-manager does (attach-detach spec).
//!
//! ```text
//! pods, claims, volumes, drivers ──> wishes (P) ──┐
//! attachments, nodes ─────────────────────────────┴─> queue of volumes ──> volume (P: gate, multi_attach) ──> VolumeAttachments
//!                                                          │   ^
//!                                       withdraw, restore  v   │ confirmed
//!                                                     queue of nodes ──> node_status (P) ──> volumesAttached
//! attachments of no known volume ──> queue of orphans ──> orphans (P)
//! ```
//!
//! - It makes no RPC, and serves the volumes of all drivers: a key is a driver and its id of a volume. One per cluster.
//! - Nothing is deleted whose name may be in the status of its node: the volume asks, the writer of the status confirms.
//! - State is nowhere but in attachments, nodes and pods. What a term remembers are times, and what it has asked for.
//! - It keeps away where kube-controller-manager's controller works (`guard`), and begins again once that is gone (`other`).
//! - A daemon whose other roles need no driver hosts it without one.

pub mod config;
pub mod context;
mod counts;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod cuts_tests;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "fixtures_tests.rs"]
mod fixtures;
pub mod guard;
pub mod memory;
pub mod metrics;
pub mod names;
pub mod node_status;
pub mod orphans;
mod other;
mod rules;
mod serve;
mod triggers;
mod unresolved;
pub mod volume;
pub mod volume_id;
mod waiting;
pub mod wishes;

use serde_json::Value;

use crate::config::RoleSection;

use self::config::AttachDetachSection;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<AttachDetachSection>(NAME).with_warnings(config::warnings),
    sidecar: None,
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: &[],
    kind: Kind::Cluster(ClusterRole {
        needs_driver: false,
        lease: |_| LeasePolicy::Sidecar(names::lease),
        event_source: names::event_source,
        // The sandbox has the controllers of a cluster.
        sandbox: |_| None,
        load,
    }),
};

const NAME: &str = "attachDetach";

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: AttachDetachSection = RoleSection::read(section)?;
    wiring.needs_all(rules::rules(&section));
    Ok(Box::new(serve::AttachDetach { section, caches: serve::Caches::wire(wiring) }))
}
