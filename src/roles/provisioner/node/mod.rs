//! Node deployment: each node has its own driver and daemon, and one of the daemons takes a claim.
//!
//! ```text
//! claims queue ──> policy ── Mine ──> claims
//!                     └───── Leave: nothing is done for the claim here
//! ```
//!
//! Without node deployment there is no such stage: every claim of the driver is this daemon's.
//!
//! ```text
//! deployment.rs     which claims and volumes are for this daemon, and what the stage shares
//! contention.rs     whose turn it is, and what the term remembers of a claim: pure
//! policy.rs         which step comes next: pure
//! progress.rs       what an attempt has done: pure
//! reconcile.rs      the reconciler: each step's request or call
//! reach.rs          which volumes a node's driver has: pure
//! lost.rs           what the journals of deleted nodes may have left over
//! lost_journals.rs  clears these journals
//! ```

pub mod contention;
pub mod deployment;
pub mod lost;
mod lost_journals;
pub mod policy;
pub mod progress;
pub mod reach;
mod reconcile;

pub(super) use reconcile::NodeAdmission;
