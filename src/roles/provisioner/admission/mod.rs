//! The stage before the work on a claim, with one daemon per node: whether the claim is this node's.
//!
//! ```text
//! claims queue ──> policy ── Mine ──> claims
//!                     └───── Leave: nothing is done for the claim here
//! ```
//!
//! Without node deployment there is no such stage: every claim of the driver is this daemon's.
//!
//! ```text
//! policy.rs         which step comes next: pure
//! progress.rs       what an attempt has done: pure
//! reconcile.rs      the reconciler: each step's request or call
//! lost.rs           what the journals of deleted nodes may have left over
//! lost_journals.rs  clears these journals
//! ```

pub mod lost;
mod lost_journals;
pub mod policy;
pub mod progress;
mod reconcile;

pub(super) use lost_journals::LostJournals;
pub(super) use reconcile::NodeAdmission;
