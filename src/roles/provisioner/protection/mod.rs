//! Lets go of content sources: takes our finalizer off claims and snapshots that no claim needs any more.

pub mod decide;
mod handler;
pub mod turns;

pub(super) use handler::{handle, sweep};
