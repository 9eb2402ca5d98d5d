//! The journal: what a role is about to ask the driver for, durable before it asks. A write-ahead log with group commit.
//!
//! ```text
//!  record(key, content) ──> ledger [pure] ──> one write per batch ──> ConfigMap "<stem>-journal-<n>"
//!       Ok <── confirmed ───────┘ ▲                                        │
//!                                 └── answers, and reads of what is in doubt ┘
//! ```
//!
//! A journal is a few ConfigMaps in the daemon's own namespace, its *segments*. An *entry* is one key of one segment: the
//! key is a claim's uid, the value is one line of JSON with all that is needed to ask the driver for the same again. A new
//! leader [opens](Journal::open) the journal before anything else, and gets the entries of its predecessor.
//!
//! `docs/spec/journal.md` has the contract; comments and tests cite it as journal J1 to J7.
//!
//! Decisions:
//!
//! - **Group commit.** One write makes many entries durable: those that come while a write is under way share the next
//!   one. A lone entry is written at once.
//! - **A write carries only its batch**, and the keys that it removes. Entries stay where they are.
//! - **Removal is lazy.** An entry that is not needed any more leaves its object with the next write there, or with a
//!   write of its own when the journal has been quiet. After a crash before that, the successor finds that nothing is left
//!   to be done.
//! - **Each write names the version that it builds on.** A write whose answer is lost is never repeated blindly: the
//!   segment is read first.
//! - **One writer**, the holder of the term. Entries that another writer has added are taken over and never removed
//!   unseen; entries that a person has deleted or edited are written again.
//! - **An entry is believed.** A user with the right to write the segments could also replace the daemon.
//! - The rules are a synchronous state machine (`ledger`) with the time as an argument, so every interleaving is a plain
//!   test.

mod error;
#[cfg(test)]
mod fixtures;
mod format;
#[cfg(test)]
mod format_tests;
#[expect(clippy::module_inception, reason = "the folder's main type")]
mod journal;
mod ledger;
mod metrics;
mod place;
mod rights;
mod run;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;
mod unreadable;

pub use error::{JournalError, OpenError};
pub use format::Content;
pub use journal::{Journal, Opened, Row};
pub use ledger::JournalStatus;
pub use place::{Place, SEGMENTS};
pub use rights::{delete_segments, nodes, rules};
pub use unreadable::{Unreadable, UnreadableReason};
