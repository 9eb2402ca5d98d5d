//! Data sources: what a claim's volume is created from, and the finalizer that keeps a source meanwhile.
//!
//! ```text
//! source.rs, status.rs   what a claim names, and how far that is known: pure
//! protection.rs          which claim needs a source: pure
//! users.rs               the same by the caches, and the search for sources that were left protected
//! decide.rs              which step comes next for a source that may have lost its last user: pure
//! memory.rs              what the attempts of a term share
//! reconcile.rs           the attempt: reads, does one step of I/O, reports the end
//! ```

pub mod decide;
pub mod memory;
pub mod protection;
mod reconcile;
pub mod source;
pub mod status;
mod users;

pub(super) use reconcile::SourceReconciler;
pub(super) use users::sweep;
