//! Where a volume may be: what is asked of the driver, and what is made of its answer.
//!
//! ```text
//! CSINode, Node, class ──> plan_requirement ──> Requirement ──> CreateVolume
//!                                               volume.accessible_topology ──> affinity ──> PersistentVolume
//! CSINode, Node ─────────> Segments ──> storage capacity
//! ```
//!
//! All of it is a function of what the cluster says: the same cluster gives the same requirement, in the same order.
//! (The Go sidecar takes the keys of a random node, and so two attempts could name two sets of places.) A driver
//! identifies a volume by its request, so while an answer is outstanding the caller keeps the requirement that was
//! sent, and does not ask again here: the node may be gone by then.

mod affinity;
mod key_stats;
mod lookup;
mod requirement;
#[cfg(test)]
mod requirement_tests;
mod segment;
mod segments;

pub use affinity::{AffinityError, affinity};
pub use key_stats::TopologyKeyStats;
pub use lookup::{Cluster, DriverOnNode, NodeTopology, vote};
pub use requirement::{Requirement, TopologyError, TopologyFinality, TopologyInput, plan_requirement};
pub use segment::{MOST_TERMS, Segment, TooManySegments, allowed, flatten};
pub use segments::{Change, Segments};
