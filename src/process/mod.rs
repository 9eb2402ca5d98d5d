//! What any process needs and no library gives in one piece: a clock and a source of chance that a simulation can own,
//! named tasks whose end is an event, values whose watchers wake in order, and errors told with their causes.
//!
//! Imports nothing of ours.

mod chain;
mod clock;
pub mod duration;
mod entropy;
mod permit;
#[cfg(test)]
pub(crate) mod plugs;
mod section;
mod tasks;
mod transport;
pub mod watch;

pub use chain::{Chain, chain};
pub use clock::Clock;
pub use entropy::Entropy;
pub use permit::{Permit, Permitted};
pub use section::{Fault, Faults, Section};
pub use tasks::{TaskEnd, TaskEnds, TaskFate, Tasks, panic_message};
pub use transport::{BoxedIo, Dial, Io};
