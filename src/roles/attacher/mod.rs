//! Attaches and detaches volumes, as external-attacher does, without its known faults.
//!
//! ```text
//! cluster caches ──> predicates (P) ──> queue of attachments ──> reconcile ──> policy (P) ──> perform
//!          triggers ────┘    └────────> queue of volumes ──────> volumes       (removes our finalizer)
//! csi::VolumeListings ──> drift (P) ──> queue of attachments, as a cause that lasts until it is settled
//! ```
//!
//! Names, finalizers, annotations, the Lease and the semantics of the status are those of external-attacher v4.13, so
//! that each can take over from the other at any time.

pub mod attachment;
mod config;
pub mod context;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod cuts_tests;
pub mod drift;
mod drift_watch;
mod driver_object;
pub mod error;
pub mod failure;
pub mod metrics;
pub mod migration;
pub mod names;
mod perform;
pub mod policy;
pub mod predicates;
pub mod progress;
mod reconcile;
mod report;
mod rules;
mod serve;
pub mod sidecar;
pub mod trace_link;
mod triggers;
mod volumes;

use serde_json::{Value, json};

use crate::cluster::Fields;
use crate::config::RoleSection;

pub use self::config::AttacherSection;
use super::kit::EventsMode;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<AttacherSection>(NAME),
    sidecar: Some(&sidecar::SIDECAR),
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease: |_| LeasePolicy::Sidecar(names::lease),
        event_source: names::event_source,
        sandbox: |driver| Some(json!({ "retry": { "initial": "250ms", "max": "5s" }, "events": driver.events() })),
        load,
    }),
};

const NAME: &str = "attacher";

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: AttacherSection = RoleSection::read(section)?;
    let caches = context::Caches {
        attachments: wiring.cache(),
        volumes: wiring.cache_with(Fields::MIGRATION),
        nodes: wiring.cache(),
    };
    wiring.needs_all(rules::rules(&section));
    let (own, events) = (section.clone(), section.events != EventsMode::None);
    wiring.expects(driver_object::ALL, move |object, driver| driver_object::misfits(object, driver, &own), events);
    Ok(Box::new(serve::Attacher { section, caches }))
}
