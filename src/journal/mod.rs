//! The journal: makes a request durable before a role sends it to the driver. It is a write-ahead log with group commit.
//!
//! ```text
//!  record(key, content) ──> ledger [pure] ──> one write per batch ──> ConfigMap "<stem>-journal-<n>"
//!       Ok <── confirmed ───────┘ ▲                                        │
//!                                 └── answers, and reads of segments in doubt ┘
//! ```
//!
//! A journal is a few ConfigMaps in the daemon's own namespace, its *segments*. An *entry* is one key of one segment: the
//! key is a claim's uid, the value is one line of JSON with all that is needed to send the same request again. A new leader
//! [opens](Journal::open) the journal before it does any other work, and gets the entries of its predecessor.
//!
//! `docs/spec/journal.md` has the contract; comments and tests cite it as journal J1 to J10.
//!
//! Decisions:
//!
//! - **Group commit.** One write makes many entries durable: entries that are recorded while a write is under way share
//!   the next write. A lone entry is written at once.
//! - **A write contains only its batch** and the keys that it removes. A durable entry stays in its segment.
//! - **Removal is lazy.** The next write to an object removes the entries there that are no longer needed. When the
//!   journal is quiet, a separate write removes them. After a crash before that, the successor finds that there is nothing
//!   to do for them.
//! - **Each write names the version that it builds on.** If the answer to a write is lost, the daemon reads the segment
//!   before it writes there again.
//! - **One writer**, the holder of the term. In the first two minutes of a term the journal adopts entries that another writer has
//!   added, and removes them only when the role says so. It writes entries again that a person has deleted or edited.
//! - **An entry belongs to one object**: it names the object's uid, so a copy that a backup tool has restored is known as a copy.
//! - **An entry alone deletes nothing.** The role acts on an entry of an earlier term only with the proof that no PersistentVolume was
//!   stored for it. Otherwise the entry is *left alone*, and reported, until a person deletes it.
//! - **Only administrators** may have the right to write ConfigMaps in its namespace: docs/security.md says so.
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
mod lost;
mod metrics;
mod place;
mod rights;
mod run;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;
mod told;
mod unreadable;

pub use error::{JournalError, OpenError};
pub use format::Content;
pub use journal::{Journal, LeftReason, LeftRow, Opened, Row, read};
pub use ledger::JournalStatus;
pub use lost::{Lost, LostEntry, clear_lost, nodes};
pub use place::{Place, SEGMENTS};
pub use rights::rules;
pub use told::remedy;
pub use unreadable::{Unreadable, UnreadableReason};
