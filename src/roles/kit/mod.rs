//! The common parts of all roles. A role brings its policy and its words; everything around a step is here.
//!
//! ```text
//! Controllers   one term's queues, triggers, tasks and status rows, with one TermScope; ends all of them with the term
//! TermScope     what every handler of a term works with: fenced clients, volume locks, events, clock
//! Reconcile     view ─> next_step (P) ─> intend (P) ─> perform (one verb of Io) ─> apply (P) ─> view …, then ended (P) and tell (P)
//! Io            the verbs: wait, wait_listed, catch_up, confirm, get, look_up, list, history, lacks, unless_newer, secret, record, create,
//!               write, delete, call
//! Act           what a role's steps work with: what the term shares, what is seen, the attempt's progress, and Io
//! Store         a kind's cache, with what the API has confirmed of it during the term
//! Memory        what a term remembers of each object: all of it can be lost
//! Telling       what people and metrics are told, as values
//! AttemptError  why an attempt failed: the role's own reason, a failed operation, or the driver's answer
//! finality      which gRPC codes are the driver's final answer, with a column per kind of call (P)
//! ```
//!
//! `example_tests.rs` is a whole role in one file. `cuts_tests.rs` plays a role and cuts it after each verb.
//!
//! What is pure (P) has no `self`: it reaches no cache, client or clock.
//!
//! - `view` reads caches and memory. It decides nothing.
//! - `next_step` is the policy. Some steps may be done side by side.
//! - `intend` says what must be remembered before a write or call can be seen by others.
//! - `perform` makes one request or one call, which is what one verb does. In tests a second verb is an error.
//! - `apply` says what its answer means.
//! - `ended` and `tell` say what the end of the attempt means. What is to be recorded of a failure are steps like others.
//!
//! Where this differs from what was first drawn, and why:
//!
//! - A lock is no verb: a step names the volume that is locked while it is done, so no role can forget to unlock or to look again.
//! - What one attempt has done (`Progress`) is apart from what the term remembers (`Memory`): a Secret must not outlive its attempt.
//! - `perform` has `self`, which holds the stores. The clients are only in [`Io`], and what ties them to the term is the kit's (`fence`):
//!   no role can take one out, and who has no client has no answer that a cache would take.
//! - `tell` writes the log lines itself: users filter them by the role's module.
//! - What is neither a request nor a call, such as another attempt's read, is waited for by `wait`: one verb for all of it.
//! - `tell_step` tells what people must know before the attempt ends: that a change begins whose call may take minutes.
//! - What an attempt waits for is a reason of its end like an error, so it has the same note, Event, pause and row.
//! - A refusal by the driver may be an answer like others: then it is recorded before the attempt fails, and nobody reads of an end that
//!   the object does not show. What changes from then on wakes the key again (`keeps_changes`).
//! - Attempts of a `group` hold a volume's lock together. The resizer's size and class need that with drivers that merge both calls. They
//!   are two keys of one reconciler, not two due times in one memory: so each has its back-off, its row and its epoch from the queue.
//! - What is not in the caches, and what no key is about, is the role's: an object that it has created is remembered until the watch shows
//!   it, because no cache takes an object from an answer; and a task that looks for something now and then has the API by `in_task`.
//! - A stage before the work on a key ([`Admit`]) is a reconciler like others. If it admits the key, the work begins with the same ticket.
//! - A step may wait for several locks at once, and for a place in a line before them: a group of snapshots needs all of its volumes. So
//!   they are waited for by `wait`, and kept in the attempt's progress until the call is over, over the steps that come between.
//! - Beside a call, requests may be made (`beside`): another writer may take away what the call rests on, and only a write puts it back.
//! - An answer that the term remembers needs no haste (`loses_answer`): a write that fails is tried again by the next attempt.
//! - `intend` sees the view: the object may be gone when the answer to its call comes, and is kept from then on as it was.
//! - `view_within` sees the progress: what an attempt has read for itself says which facts of other objects count.
//! - The journal's word before a call has a verb of its own (`record`): the key keeps its worker, so the journal never has more new
//!   requests than there are workers.
//! - During a call, people may be told that it takes long (`tell`).
//! - What is looked up across keys are marks on what is remembered ([`Mark`](memory::Mark)), such as the source that a claim uses. Whoever
//!   needs to know is told of a mark that no object has any more.
//! - Whether a failure is to be told may depend on a view from after it. Then the step that records the failure tells it (`tell_step`), and
//!   `tell` only writes the log line.
//! - What no verb does, such as a list of one namespace, or a read that several attempts share, has the API by `in_task`.
//!
//! [`UnknownValues`] says which values of the API's enumerations the role does not know. `checks` has the checks of keys that several
//! sections have (P).
//! `templates` has the templates of classes for Secrets (P).

pub mod checks;
pub mod controllers;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "cuts_tests.rs"]
pub(crate) mod cuts;
pub mod drive;
pub mod events;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "example_tests.rs"]
mod example;
pub mod failure;
mod fence;
pub mod finality;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod freshness;
pub mod io;
pub mod keyed_lock;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "local_tests.rs"]
pub(crate) mod local;
pub mod locks;
pub mod memory;
pub mod queues;
pub mod report;
pub mod scope;
pub mod secrets;
#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "served_tests.rs"]
pub(crate) mod served;
pub mod store;
pub mod telling;
pub mod templates;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod term_tests;
pub mod told;
mod uid_set;
pub mod unknown_values;
pub mod walk;

pub use controllers::{Controllers, with};
pub use drive::{Admit, End, Reconcile, Run, Start};
pub use events::EventsMode;
pub use failure::{AttemptError, NoReason, Op, OpError, Reason, Stop};
pub(crate) use io::Act;
pub use io::{Confirmed, Io, Part, Written};
pub use keyed_lock::KeyedLock;
pub use locks::HeldLocks;
pub use memory::{Memory, Remembered};
pub use queues::Wake;
pub use scope::TermScope;
pub use secrets::Secret;
pub use store::Store;
pub use telling::Telling;
pub use told::Texts;
pub use unknown_values::UnknownValues;
pub use walk::look_at_each;
