//! Takes snapshots of volumes and deletes them again: what csi-snapshotter, the sidecar of external-snapshotter, does, and what it
//! should have done.
//!
//! ```text
//! cluster caches ──> triggers, predicates (P) ──> queue of contents ──> next_step (P) ──> perform ──> driver, API
//! content + class ──> request, intent (P), the same until the driver's final answer
//! ```
//!
//! The role works `VolumeSnapshotContents` and `VolumeGroupSnapshotContents` ([`content`]) and nothing else: the snapshot-controller,
//! a program of the cluster, makes them and copies their status to the `VolumeSnapshots` and `VolumeGroupSnapshots`. Names, finalizer, annotations, the Lease and the texts are those of
//! external-snapshotter v8.7, so that either can take over from the other at any moment.
//!
//! # Nothing leaks
//!
//! A snapshot that may exist at the driver can always be found from Kubernetes. Before `CreateSnapshot` is called, one patch (P1) puts
//! three things on the content: the finalizer that keeps it, the mark of csi-snapshotter that says that a call is unanswered, and the
//! whole request as an annotation. The mark leaves only after the handle is stored, or after the driver's final answer that there is
//! no snapshot.
//!
//! - **The request is an annotation, and not an entry of the journal** ([`crate::journal`]): P1 must be written anyway, because
//!   finalizer and mark are csi-snapshotter's contract with the snapshot-controller, so the annotation costs no further write, no
//!   further right and no further object. It goes with its content, and a change of leader or of program reads it where the mark is.
//!   The claims of a provisioner have no such write, which is why the provisioner has the journal. Who edits contents can forge the
//!   annotation, and can forge policy and handle as well; so [`content::record::intent`] takes only what the content itself bears out.
//! - **The process remembers what is unanswered**, and puts back a mark that another writer has wiped: the snapshot-controller replaces the
//!   whole annotation map.
//! - **The finalizer leaves a content** only without an unanswered call and after an OK `DeleteSnapshot`, unless the policy, a group or
//!   the lack of any handle makes the call needless.

mod config;
pub mod content;
mod group;
mod lane;
pub mod metrics;
pub mod names;
mod rules;
pub mod secrets;
mod serve;
pub mod sidecar;
mod single;

use serde_json::{Value, json};

use crate::config::RoleSection;

pub use self::config::{NodeDeploymentSection, ReadyCheckSection, SnapshotterSection};
use self::content::work::context::Caches;
use super::role::{ClusterRole, Kind, LeasePolicy, Registration, Role};
use super::wiring::Wiring;

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<SnapshotterSection>(NAME).with_needs(config::needs),
    sidecar: Some(&sidecar::SIDECAR),
    // One daemon per node instead of one for the cluster: another deployment, with another account.
    restart_keys: &["nodeDeployment.enabled"],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Cluster(ClusterRole {
        needs_driver: true,
        lease,
        event_source: names::event_source,
        sandbox: |driver| {
            Some(json!({
                "retry": { "initial": "250ms", "max": "5s", "infeasible": "10s" },
                "readyCheck": { "initial": "250ms", "max": "2s" },
                "events": driver.events(),
            }))
        },
        load,
    }),
};

const NAME: &str = "snapshotter";

/// Where each node has a daemon of its own, none of them leads. A section that cannot be read is [`load`]'s to tell of.
fn lease(section: &Value) -> LeasePolicy {
    let section: Option<SnapshotterSection> = RoleSection::read(section).ok();
    LeasePolicy::unless_per_node(section.is_some_and(|section| section.node_deployment.enabled), names::lease)
}

fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let section: SnapshotterSection = RoleSection::read(section)?;
    let contents = if section.node_deployment.enabled {
        wiring.cache_labelled(|view| view.node.map(|node| format!("{}={node}", names::LABEL_MANAGED_BY)))
    } else {
        wiring.cache()
    };
    let caches = Caches { contents, classes: wiring.cache() };
    // The snapshot-controller assigns no group to a node.
    let groups = (section.group_snapshots && !section.node_deployment.enabled)
        .then(|| Caches { contents: wiring.cache(), classes: wiring.cache() });
    wiring.needs_all(rules::rules(&section));
    Ok(Box::new(serve::Snapshotter { section, caches, groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_of_nodes_do_not_share_a_lease() {
        for (enabled, leads) in [(false, true), (true, false)] {
            let node_deployment = NodeDeploymentSection { enabled };
            let section = SnapshotterSection { node_deployment, ..SnapshotterSection::default() };
            let policy = lease(&serde_json::to_value(section).unwrap());
            assert_eq!(matches!(policy, LeasePolicy::Sidecar(_)), leads, "{policy:?}");
        }
        assert!(matches!(lease(&Value::Null), LeasePolicy::Sidecar(_)), "what it usually is");
    }
}
