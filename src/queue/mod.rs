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
//! did not settle is run again, whether it returned, panicked or was cancelled. A key keeps its [`Causes`] until it has
//! settled.
//!
//! Decisions:
//!
//! - **Handlers return an [`Outcome`], the queue acts.** Handlers do not call forget or add again.
//! - **The failure count belongs to an epoch** (a hash of uid and direction): a new object of the same name or a switch
//!   from attach to detach starts as new, with no inherited delay and no stale cause. A run that reads the switch and
//!   then fails is the first failure of the new epoch. A key that settles or is forgotten uses no memory.
//! - **Lanes have their own workers**, so slow detaches can't starve attaches. A run that waits for another run
//!   [parks](Ticket::park) and frees its worker.
//! - **Jitter only lengthens**, so that the promise "at least the base delay" holds.
//! - The rules are a synchronous state machine (`state`) with the time as an argument, so every interleaving is a plain
//!   test.

mod backoff;
mod cause;
mod config;
mod done;
mod metrics;
mod next;
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
pub use config::{DriverRetrySection, RetrySection};
pub use done::DoneItem;
pub use ticket::Ticket;
pub use work_queue::{Key, LaneSettings, MakeSpan, QueueSettings, WorkItem, WorkQueue};
