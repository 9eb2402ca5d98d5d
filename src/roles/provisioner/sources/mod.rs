//! Data sources: what a claim's volume is created from, and the finalizer that keeps a source meanwhile.
//!
//! ```text
//! source.rs, status.rs   what a claim names, and how far that is known: pure
//! protection.rs          which claim needs a source: pure
//! users.rs               the same by the caches, and the search for sources that were left protected
//! object.rs              a source as an object: pure
//! policy.rs              which step comes next for a source that may have lost its last user: pure
//! memory.rs              what the attempts of a term share
//! reconcile.rs           the attempt: what it sees, each step's request, and what is told of it
//! ```

pub mod memory;
pub mod object;
pub mod policy;
pub mod protection;
mod reconcile;
pub mod source;
pub mod status;
mod users;

pub(super) use reconcile::Sources;
pub(super) use users::sweep;
