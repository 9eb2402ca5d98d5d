//! Makes volumes larger and changes their attributes: what external-resizer does, and what it should have done.
//!
//! ```text
//! cluster caches ──> predicates (P) ──> queue of (claim, job) ──> reconcile ──> policy (P) ─┬─> expand (P) ─┬─> perform
//!          triggers ────┘                                                                   └─> modify (P) ─┘
//! pods of a namespace ──> in_use ──> the same queue: only where the driver refuses volumes that are in use
//! ```
//!
//! - A claim has two jobs: to expand its volume and to modify it. Each job has its own key in the queue and its own memory, and so its
//!   own failures and pauses. The jobs change a volume in turn, or together if the driver needs that, and then with one write for both
//!   (`pairing.rs`).
//! - The claim's status has everything that must survive a crash. The term's memory (`progress.rs`) only saves calls, and may be lost.
//! - While a call runs, the claim does not say that it was refused. So before a call that repeats one whose refusal the claim tells, one
//!   write says that it runs, and the next leader asks for what the user wants by then only if nothing can be running.
//! - Names, conditions, annotations, Events and the Lease are those of external-resizer v2.3, so that either can take over from the
//!   other at any moment.

pub mod claim;
mod config;
pub mod context;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod cuts_tests;
pub mod error;
pub mod expand;
#[cfg(test)]
mod fixtures;
pub mod in_use;
pub mod job;
pub mod metrics;
pub mod modify;
pub mod names;
pub mod pairing;
#[cfg(test)]
mod pairing_tests;
mod perform;
pub mod policy;
pub mod predicates;
pub mod progress;
#[cfg(test)]
mod progress_tests;
mod reconcile;
mod report;
mod rules;
mod serve;
pub mod sidecar;
pub mod step;
mod triggers;
pub mod unknown;
pub mod view;
pub mod waiting;
mod writes;

use serde_json::{Value, json};

use crate::cluster::Fields;
use crate::config::RoleSection;

pub use self::config::{PairCalls, ResizerSection};
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<ResizerSection>(NAME),
    sidecar: Some(&sidecar::SIDECAR),
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease: |_| LeasePolicy::Sidecar(names::lease),
        event_source: names::event_source,
        sandbox: |driver| {
            let retry = json!({ "initial": "250ms", "max": "5s", "infeasible": "10s" });
            Some(json!({ "retry": retry, "events": driver.events() }))
        },
        load,
    }),
};

const NAME: &str = "resizer";

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: ResizerSection = RoleSection::read(section)?;
    let caches = context::Caches {
        claims: wiring.cache_with(Fields::RESIZE),
        volumes: wiring.cache_with(Fields::RESIZE | Fields::MIGRATION),
        classes: section.modify.then(|| wiring.cache()),
    };
    wiring.needs_all(rules::rules(&section));
    Ok(Box::new(serve::Resizer { section, caches, namespaces: wiring.namespaces() }))
}
