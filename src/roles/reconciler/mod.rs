//! Lists the driver's volumes every so often and publishes what it saw for the other roles. It commands no role.
//!
//! ```text
//! ListVolumes ──> csi::VolumePasses ──> entries (P) ──┬──> csi::VolumeListings: the attacher finds drift
//! ListSnapshots ──────────────────────────────────────┴──> known ──> orphans (P) ──> report        only with `orphans: true`
//! ```
//!
//! The passes over the volumes are shared with the other roles of the process that want them: a pass that one of them makes serves here.
//!
//! Orphans are shown and never deleted: a backend may serve several clusters, each of which knows only its own.
//!
//! A page has its own deadline, a token that was seen before ends the pass (R53), and a pass that fails publishes nothing.
//! The role is served under the attacher's Lease, as the same loop is in external-attacher: who attaches also looks.

mod config;
pub mod entries;
mod known;
pub mod metrics;
pub mod orphans;
mod report;
mod serve;

use serde_json::{Value, json};

use crate::config::RoleSection;

pub use self::config::ReconcilerSection;
pub use self::report::TABLE;
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
        needs_driver: true,
        lease: |_| LeasePolicy::Sidecar(csi_attacher::lease),
        event_source: csi_attacher::event_source,
        sandbox: |_| Some(json!({ "interval": "500ms", "orphans": true })),
        load,
    }),
};

const NAME: &str = "reconciler";

/// The key that lets orphans be looked for.
pub const KEY_OF_ORPHANS: &str = "roles.reconciler.orphans";

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: ReconcilerSection = RoleSection::read(section)?;
    let objects = section.orphans.then(|| known::Objects::wire(wiring));
    Ok(Box::new(serve::Reconciler { section, objects }))
}
