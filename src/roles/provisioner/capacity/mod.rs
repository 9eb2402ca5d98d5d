//! Publishes the driver's capacity for the scheduler: one `CSIStorageCapacity` object per class and segment.
//!
//! ```text
//! StorageClass, Node, CSINode ──> desired (P) ─┐
//! our objects ─────────────────────────────────┼─> index (P) ──> queue of slots ──> policy (P) ──> GetCapacity,
//! PersistentVolumes ──> volumes (P), refusals  │                                        │          create, patch, delete
//!   └──> invalidation ──> pace (P) ────────────┘                                    diff (P)
//!
//! context.rs     what the attempts and the triggers of a term share
//! volumes.rs     which capacities a change of a volume may have changed: pure
//! pace.rs        how often a slot is asked for because of volumes: pure
//! policy.rs      which step comes next: pure
//! progress.rs    what an attempt has done, and what the term remembers of a slot: pure
//! reconcile.rs   the reconciler: each step's request or call, and why it may fail
//! report.rs      the status page's table, and metrics
//! ```
//!
//! Labels, names and metrics are the Go sidecar's, so that each of the two takes over the other's objects. The differences:
//!
//! - A slot is a value, a class in a segment. It is one key in the queue, with one back-off, for any number of nodes and triggers.
//! - A change of a Node, a CSINode or a class is acted on at once. The poll is for changes without an event.
//! - If any program creates, deletes or grows a volume, the PersistentVolume shows it, and the driver is asked again for its segment.
//! - If the object already shows the driver's answer, nothing is written. Our own writes wake no slot.
//! - `GetCapacity` does not get the class parameters that are for the provisioner, and only gets segments of the driver's nodes.
//! - If the driver has no `GET_CAPACITY`, the status page says so, and the driver is not called. Existing objects stay.

mod config;
mod context;
pub mod desired;
pub mod diff;
pub mod index;
mod invalidation;
mod labels;
mod owner;
pub mod pace;
pub mod policy;
pub mod progress;
mod reconcile;
mod report;
mod serve;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;
mod triggers;
pub mod volumes;

pub use config::CapacitySection;
pub use context::{CapacityContext, CapacityStores, NodeSegments};
pub use invalidation::{CapacityInvalidation, CapacityInvalidationReceiver, Invalid};
pub use labels::scope;
pub use report::TABLE;
pub use serve::{queue, run};

use crate::cluster::rbac::Rule;

/// The RBAC rules that the loop needs, beside those of its caches.
pub fn rules(section: &CapacitySection) -> Vec<Rule> {
    if !section.enabled {
        return Vec::new();
    }
    let (verbs, why) = (&["get", "create", "patch", "delete"], "publish capacity for the scheduler");
    let objects = Rule::namespaced("storage.k8s.io", "csistoragecapacities", verbs, why);
    let read = |group, resource| Rule::namespaced(group, resource, &["get"], "find the owner of the capacity objects");
    let pods = (section.owner_level >= 0).then(|| read("", "pods"));
    let workloads = owner::WORKLOADS.into_iter().filter(|_| section.owner_level >= 2).map(|it| read("apps", it));
    [objects].into_iter().chain(pods).chain(workloads).collect()
}
