//! The work queue: keys in, one run at a time per key, retried until settled.
//!
//! ```text
//!  add(key, activation) ──> state [pure] ──> lane "attach" ─ n workers ─┐
//!                             │    ▲    └──> lane "detach" ─ m workers ─┤
//!                       timers│    │                                    ▼
//!                    (backoff)└────┴──── Outcome <── handler(Ticket) in its own task
//! ```
//!
//! Contract: a key is never run twice at once; an added key is run, and run again if it was added meanwhile; a run that
//! did not settle is run again, whether it returned, panicked or was cancelled. What a key was added *for* (its
//! [`Causes`]) is forgotten only when it has settled.
//!
//! Decisions:
//!
//! - **Handlers return an [`Outcome`], the queue acts.** No calls to forget or to re-add are scattered in handlers.
//! - **The failure count belongs to an epoch** (a hash of uid and direction): a namesake object or a switch from attach
//!   to detach starts afresh, with no inherited delay and no stale cause. A key that settles or is forgotten leaves
//!   nothing behind, so the memory follows the unsettled work.
//! - **Lanes have their own workers**, so slow detaches can't starve attaches. A run that waits for something else than
//!   the driver or the API [parks](Ticket::park) and gives its place away.
//! - **Jitter only lengthens**, so that the promise "at least the base delay" holds.
//! - The rules are a synchronous state machine (`state`) that is told the time: every interleaving is a plain test.

mod backoff;
mod cause;
mod config;
mod metrics;
mod state;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
mod ticket;
mod work_queue;
mod worker;

pub use backoff::Backoff;
pub use cause::{Activation, Cause, Causes, Outcome, epoch_of};
pub use config::RetrySection;
pub use ticket::Ticket;
pub use work_queue::{Key, LaneSettings, MakeSpan, QueueSettings, WorkItem, WorkQueue};
