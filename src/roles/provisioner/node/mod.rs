//! Node deployment: each node has its own driver and daemon, and one of the daemons takes a claim.
//!
//! ```text
//! deployment.rs   which claims and volumes are for this daemon, and where the nodes are
//! contention.rs   whose turn it is, and what the term remembers of a claim: pure
//! reach.rs        which volumes a node's driver has: pure
//! ```
//!
//! `admission/` is the stage before the work on a claim, which finds out whether the claim is this node's.

pub mod contention;
pub mod deployment;
pub mod reach;
