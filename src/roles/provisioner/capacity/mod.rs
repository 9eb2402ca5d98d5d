//! Tells the scheduler how much room there is for new volumes: one `CSIStorageCapacity` per class and segment.
//!
//! ```text
//! StorageClass, Node, CSINode ──> desired (P) ─┐
//! our objects ─────────────────────────────────┼─> book (P) ──> queue of (class, segment) ──> GetCapacity
//! volumes made, refused, deleted ──> hints ────┘                      diff (P) <──────────────────┘
//!                                                                       └──> create, update, delete
//! ```
//!
//! Labels, names and metrics are the Go sidecar's, so that either takes over the other's objects. What is different:
//!
//! - Items are values: one item is one key, with one back-off, however many nodes and triggers it has.
//! - A change of a Node, a CSINode or a class is acted on at once; the poll is for what nobody tells.
//! - Nothing is written that says what is there already. Our own writes wake nobody.
//! - The driver is asked with the class's parameters without ours, and never for a place that it does not know of.
//! - A driver without `GET_CAPACITY` is said to have none, instead of being asked for ever. What it told before stays.

mod config;
mod context;
pub mod desired;
pub mod diff;
mod hints;
pub mod index;
mod labels;
mod owner;
mod refresh;
mod serve;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;

pub use config::CapacitySection;
pub use context::{CapacityContext, CapacityStores, Places};
pub use hints::{CapacityHintReceiver, CapacityHints};
pub use labels::scope;
pub use serve::run;

use crate::cluster::rbac::Rule;

/// The rights that the loop needs beyond its caches'.
pub fn rules(section: &CapacitySection) -> Vec<Rule> {
    if !section.enabled {
        return Vec::new();
    }
    let objects = Rule::namespaced(
        "storage.k8s.io",
        "csistoragecapacities",
        &["get", "create", "patch", "delete"],
        "tell the scheduler how much room there is",
    );
    let read = |group, resource| Rule::namespaced(group, resource, &["get"], "find the owner of the capacity objects");
    let pods = (section.owner_level >= 0).then(|| read("", "pods"));
    let workloads = owner::WORKLOADS.into_iter().filter(|_| section.owner_level >= 2).map(|it| read("apps", it));
    [objects].into_iter().chain(pods).chain(workloads).collect()
}
