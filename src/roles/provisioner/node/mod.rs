//! Node deployment: each node has its own driver and daemon, and one of the daemons takes a claim.
//!
//! ```text
//! claims queue ──> admission ── Mine ──> claims
//!                      └─────── NotMine, RetryAfter: nothing is done for the claim here
//! ```
//!
//! Without node deployment there is no such stage: every claim of the driver is this daemon's.

pub mod admission;
pub mod contention;
pub mod deployment;
pub mod lost;
mod lost_journals;
pub mod reach;
mod reconcile;

pub(super) use reconcile::NodeAdmission;
