//! Content sources: what a claim's volume is made from, and the finalizer that keeps a source while a volume is made from it.

mod handler;
pub mod protection;
pub mod source;
pub mod status;
pub mod turns;

pub(super) use handler::{handle, sweep};
