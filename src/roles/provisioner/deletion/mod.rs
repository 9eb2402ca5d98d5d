//! Deletes volumes whose claims are gone, and keeps our finalizer on the volumes that this daemon deletes.
//!
//! ```text
//! reconcile.rs   the attempt: reads the caches, does one step of I/O, reports the end
//! decide.rs      which step comes next: pure
//! state.rs       what an attempt knows, and what each event means: pure
//! memory.rs      what the attempts of a term share
//! error.rs       the reasons and the requests that may fail
//! ```

pub mod decide;
pub mod error;
pub mod memory;
mod reconcile;
pub mod state;

pub(super) use reconcile::DeletionReconciler;
