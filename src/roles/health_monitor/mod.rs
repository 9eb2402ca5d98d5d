//! Asks the driver for the health of its volumes, and reports it on their claims: what external-health-monitor does, in both generations
//! of CSI, and what it should have done (node-and-health spec C1 to C7).
//!
//! ```text
//! rounds ──┬─ a list of what is not healthy ──> pass ──┐        (CSI 1.13)
//!          ├─ a list of all volumes, shared ──> pass ──┤        (before)
//!          └─ each volume in its turn ────────────────>├─> queue of handles ──> reconcile ──> policy (P) ──> status, Events
//! claims and volumes that are bound ──> triggers ──────┘
//! nodes and pods, with `nodeWatch` ──> node_watch ──> node_failures (P) ──────────────────────────────> Events
//! ```
//!
//! - A key is the driver's id of a volume: one question, whatever the number of its claims.
//! - Only an answer of the driver makes a volume healthy again, and only one that came after the last bad news. Errors, absences and
//!   kinds of faults that are not known never do (I1).
//! - The claim's status, or an Event, holds what was reported. If the term's memory is lost, the role asks the driver once more.
//! - Lease, Events and metrics have the names of external-health-monitor, so that either can take over from the other.

pub mod condition;
mod config;
pub mod context;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod cuts_tests;
pub mod gauges;
pub mod metrics;
pub mod names;
pub mod node_failures;
pub mod node_watch;
mod older_events;
mod pass;
pub mod policy;
mod reconcile;
mod report;
mod rules;
mod serve;
pub mod sidecar;
pub mod source;
pub mod view;

use serde_json::{Value, json};

use crate::cluster::Fields;
use crate::config::RoleSection;

pub use self::config::{HealthMonitorSection, Report};
use self::node_watch::NodeCaches;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<HealthMonitorSection>(NAME),
    sidecar: Some(&sidecar::SIDECAR),
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: &[],
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease: |_| LeasePolicy::Sidecar(names::lease),
        event_source: names::event_source,
        sandbox: |_| Some(json!({ "interval": "500ms", "listInterval": "500ms" })),
        load,
    }),
};

const NAME: &str = "healthMonitor";

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: HealthMonitorSection = RoleSection::read(section)?;
    let volumes = wiring.cache_with(Fields::MIGRATION);
    let claims = wiring.cache_with(Fields::HEALTH);
    wiring.needs_all(rules::rules(&section));
    let nodes = section.node_watch.then(|| NodeCaches::wire(wiring));
    Ok(Box::new(serve::HealthMonitor { section, volumes, claims, nodes }))
}
