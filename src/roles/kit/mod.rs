//! The common parts of all roles. A role adds its policy, as a pure function of a view, and its I/O, one step at a
//! time.
//!
//! ```text
//! TermScope     what every handler of a term works with: fenced clients, volume locks, events, clock
//! Controllers   one term's queues, triggers, tasks and status rows; ends all of them with the term
//! Reconciler    observe ─> next_step (pure) ─> perform (I/O) ─> apply (pure) ─> observe …
//! Attempt       one run of one key: its ticket, the volumes that it has locked, how often it read again
//! Admission     whether a key is for this daemon, where each node has a daemon of its own
//! AttemptError  why an attempt failed: the role's own reason, a failed operation, or the driver's answer
//! finality      which gRPC codes are the driver's final answer, with a column per kind of call (P)
//! ```
//!
//! The memory of a term, all of which can be lost: [`ByUid`], [`UidSet`], and [`Told`], the warnings that users have read.
//! [`UnknownValues`] says which values of the API's enumerations the role does not know.
//! `templates` has the templates of classes for Secrets (P).
//!
//! `example_tests.rs` is a whole role in one file.
//!
//! - `observe` reads caches. It writes nothing and draws no random number.
//! - `next_step` is the policy: a pure function of the view and of the attempt's state.
//! - `perform` makes one request or one call and returns the outcome. It does not change the attempt's state.
//! - `apply` applies the outcome to the state. So a crash between two steps can be tested with a table.

pub mod by_uid;
pub mod controllers;
pub mod events;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "example_tests.rs"]
mod example;
pub mod failure;
pub mod finality;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod freshness;
pub mod keyed_lock;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "local_tests.rs"]
pub(crate) mod local;
pub mod locks;
pub mod queues;
pub mod reconcile;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod reconcile_term_tests;
pub mod report;
pub mod scope;
pub mod secrets;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "served_tests.rs"]
pub(crate) mod served;
pub mod templates;
pub mod told;
pub mod uid_set;
pub mod unknown_values;

pub use by_uid::ByUid;
pub use controllers::Controllers;
pub use events::EventsMode;
pub use failure::{AttemptError, NoReason, Op, OpError, Reason, Stop};
pub use keyed_lock::KeyedLock;
pub use locks::HeldLocks;
pub use reconcile::{Admission, Attempt, Next, Reconciler, reconcile, reconcile_admitted};
pub use scope::TermScope;
pub use secrets::Secret;
pub use told::Told;
pub use uid_set::UidSet;
pub use unknown_values::UnknownValues;
