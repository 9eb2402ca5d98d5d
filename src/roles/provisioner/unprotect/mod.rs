//! Removes the finalizer from data sources that no claim needs any more.
//!
//! ```text
//! users.rs       which sources claims need by the caches, and the search for sources that were left protected
//! object.rs      a source as an object: pure
//! policy.rs      which step comes next for a source that may have lost its last user: pure
//! reconcile.rs   the attempt: what it sees, each step's request, and its report
//! ```

pub mod object;
pub mod policy;
mod reconcile;
mod users;

pub(super) use reconcile::Sources;
pub(super) use users::sweep;
