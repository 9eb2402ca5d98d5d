//! Lists the driver's volumes every so often and publishes what it saw for the other roles. Commands nobody.
//!
//! A page has its own deadline, a token that was seen before ends the pass (R53), and a pass that fails publishes nothing.
//! The role is served under the attacher's Lease, as the same loop is in external-attacher: who attaches also looks.

mod config;
pub mod listing;
pub mod metrics;
mod serve;

use serde_json::{Value, json};

use crate::config::RoleSection;

pub use self::config::ReconcilerSection;
use super::csi_attacher;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<ReconcilerSection>(NAME).with_warnings(config::warnings),
    // csi-attacher's table is the attacher's.
    sidecar: None,
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: &[],
    kind: Kind::Cluster(ClusterRole {
        lease: |_| LeasePolicy::Sidecar(csi_attacher::lease),
        event_source: csi_attacher::event_source,
        sandbox: |_| json!({ "interval": "500ms" }),
        load,
    }),
};

const NAME: &str = "reconciler";

fn load(section: &Value, _: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    Ok(Box::new(serve::Reconciler { section: RoleSection::read(section)? }))
}
