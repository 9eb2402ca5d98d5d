//! Where a volume may be: the requirement that the driver gets, and the node affinity that its answer becomes.
//!
//! ```text
//! CSINode, Node, class ──> plan_requirement ──> Requirement ──> CreateVolume
//!                                               volume.accessible_topology ──> affinity ──> PersistentVolume
//! CSINode, Node ─────────> Segments ──> storage capacity
//! ```
//!
//! All of it is a function of the cluster's state: the same cluster gives the same requirement, in the same order, as csi-provisioner 6.4
//! makes it. A driver may identify a volume by its request. So, until the driver has answered, the caller repeats the requirement that it
//! has sent, and does not make a new one here: the node may be gone by then.

mod affinity;
mod key_stats;
mod lookup;
mod plan;
#[cfg(test)]
mod plan_keys_tests;
#[cfg(test)]
mod plan_tests;
mod requirement;
mod segment;
mod segments;

pub use affinity::{AffinityError, affinity};
pub use key_stats::TopologyWarnings;
pub use lookup::{Cluster, DriverOnNode, NodeTopology, Registered};
pub use plan::{TopologyError, TopologyFinality, TopologyInput, plan_requirement};
pub use requirement::Requirement;
pub use segment::{MOST_SEGMENTS, Segment, TooManySegments, allowed, flatten};
pub use segments::{Change, Segments};
