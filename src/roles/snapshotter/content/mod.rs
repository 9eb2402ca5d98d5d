//! The work on a content, whether of a snapshot or of a group: [`kind::Content`] says what tells them apart, and `single` and
//! `group` beside this module have what each has of its own.
//!
//! ```text
//! record/        what stands on a content: pure           texts.rs      what users read: pure
//! decide.rs      the decision table: pure                 attempt.rs    what one attempt knows: pure
//!   create.rs, look_up.rs, delete.rs, orphan.rs: its rows memory.rs     what a term remembers
//! predicates.rs  which change wakes a content: pure       leftovers.rs  snapshots that a refusal may have left over
//! perform.rs, objects.rs, call.rs   the steps' I/O          reconcile.rs, triggers.rs, report.rs, waiting.rs
//! elsewhere.rs   the contents that the daemon of a node does not watch
//! keepers.rs     who needs a snapshot of a group
//! ```
//!
//! # A step is data, as far as that helps
//!
//! The design of the roles says: a step is data, and one executor does it. This role was written as its model. What came of it:
//!
//! - **A step is a value** ([`view::Step`]) that carries its own facts: the request, the handle, the volumes. [`decide::next_step`] is
//!   a free function of a [`view::View`]: the object, what the attempt and the term know, and the time that is left. It reaches no
//!   clock, cache or client, so the decision tables are the whole policy.
//! - **One executor for both kinds**: `perform` does a step, and matches every step by name, so that a forgotten one does not compile.
//!   A group has its own calls, look-up, answer and fields, and no step of its own.
//! - **Almost every step is one request**, and the crash suite plays a crash between any two. `LookUp` and `NameLeftovers` may read
//!   several pages, and `Seek` all contents; they write nothing.
//!
//! Four points differ from the design, each for a reason:
//!
//! - **A step says what is meant, and the executor builds the patch**, by the pure functions of [`writes`] and [`status`] from the
//!   object that the decision saw. A table of decisions then compares `Save(found)` and not JSON, and a patch's form has its own table.
//! - **The kit has no closed type of steps.** Turns of volumes, turns of snapshots, a place in a volume's line, and a read of the API's
//!   history are steps here and in no other role: a closed type for all roles would have more variants than any of them needs. The kit
//!   has functions instead: locks, reads after a conflict, secrets, the lists of a term.
//! - **The executor changes the term's memory**, because the order matters: what is unanswered is settled *before* our own write takes
//!   the mark off. The watch may show that write before its answer comes. A memory that only changes with the answer would take the
//!   write for a wipe, and put the mark back.
//! - **Reports are made where an attempt ends**, and are no values: they need the ticket's count of failures and what was told before.

pub mod attempt;
pub mod call;
pub mod context;
mod create;
pub mod decide;
mod delete;
pub mod elsewhere;
mod keepers;
mod leftovers;
pub mod look_up;
pub mod memory;
mod objects;
mod orphan;
mod perform;
pub mod predicates;
pub(super) mod reconcile;
pub mod record;
mod report;
#[cfg(test)]
mod tables;
pub mod texts;
pub(super) mod triggers;
pub mod view;
pub mod waiting;

#[cfg(test)]
use record::fixtures;
pub use record::{across, error, facts, found, intent, kind, needed, request, status, unknown, writes};
