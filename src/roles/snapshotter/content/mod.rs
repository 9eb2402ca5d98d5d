//! The work on a content, whether of a snapshot or of a group: [`kind::Content`] says what tells them apart, and `single` and
//! `group` beside this module have what each has of its own.
//!
//! ```text
//! kind.rs        what tells kinds of contents apart: pure   found.rs     what the driver describes: pure
//! facts.rs       what a content says: pure                  request.rs   name and parameters of the request: pure
//! decide.rs      the decision table: pure                   intent.rs    the request, durable in an annotation: pure
//!   create.rs, look_up.rs, delete.rs, orphan.rs: its rows   status.rs    what of an answer changes the status: pure
//! predicates.rs  which change wakes a content: pure         writes.rs    the patches of metadata: pure
//! texts.rs       what users read: pure                      error.rs     the reasons, and the requests that may fail
//! attempt.rs     what one attempt knows: pure               memory.rs    what a term remembers
//! perform.rs, objects.rs, call.rs   the steps' I/O          reconcile.rs, triggers.rs, report.rs, waiting.rs
//! leftovers.rs   snapshots that a refusal may have left over
//! elsewhere.rs   the contents that the daemon of a node does not watch
//! across.rs      what groups and the contents of their snapshots mean for each other
//! ```

pub mod across;
pub mod attempt;
pub mod call;
pub mod context;
mod create;
pub mod decide;
mod delete;
pub mod elsewhere;
pub mod error;
pub mod facts;
#[cfg(test)]
mod fixtures;
pub mod found;
pub mod intent;
pub mod kind;
mod leftovers;
pub mod look_up;
pub mod memory;
mod objects;
mod orphan;
mod perform;
pub mod predicates;
pub(super) mod reconcile;
mod report;
pub mod request;
pub mod status;
#[cfg(test)]
mod tables;
pub mod texts;
pub(super) mod triggers;
pub mod unknown;
pub mod view;
pub mod waiting;
pub mod writes;
