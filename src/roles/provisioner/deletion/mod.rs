//! Deletes volumes whose claims are gone, and keeps our finalizer on the volumes that this daemon deletes.
//!
//! ```text
//! context.rs     what the deletions of a term share
//! policy.rs      which step comes next: pure
//! progress.rs    what an attempt has done, and what the term remembers of a volume: pure
//! reconcile.rs   the reconciler: what a decision is made from
//! perform.rs     each step's request or call
//! report.rs      the reports of an attempt: pure
//! error.rs       the reasons, and the requests that may fail
//! ```

pub mod context;
pub mod error;
mod perform;
pub mod policy;
mod progress;
mod reconcile;
mod report;

pub(super) use reconcile::Deletions;
