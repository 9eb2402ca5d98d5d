//! The journal's rules as a synchronous state machine. Pure: the time since the journal was opened is an argument.
//!
//! ```text
//!            record            commit (choose)            Stored
//!   absent ─────────> Pending ─────────────────> Writing ───────────> Durable ──> absent (remove)
//!                       ▲                           │                    │
//!                       │ conflict; or the object   │ refused, lost      │ another content; or the object
//!                       │ had the entry before      ▼                    │ lost the entry (compare)
//!                       └──────────────────── absent, or Pending <───────┘
//! ```
//!
//! A *segment* is what the ledger knows of one object. A *copy* is a key on an object. A copy is *dead* if no entry needs it; the
//! next write to the object removes a dead copy. A segment is *in doubt* if its object may differ from the last known version; it
//! is read before the next write to it. The keys of a write whose outcome is unknown are *attempted*: if a read finds them on the
//! object, they are not another writer's.
//!
//! An entry is *left* alone if the daemon must not act on it: it stays on its object until a person deletes it there (J10). An entry that
//! was not written for its object is *foreign* (J9).
//!
//! `W` is a waiter: it waits for an entry to be durable, or for a key to be gone from all objects. [`Ledger::take_settled`] returns the waiters whose outcome is known.

mod choose;
mod compare;
mod entry;
mod leave;
mod segment;
mod settle;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::error::JournalError;
use super::format::{Contents, Key, Stored};
use super::place::SEGMENTS;
use super::unreadable::Unreadable;
use crate::process::error_chain;
use entry::{Entry, Phase, size};
use segment::{LATEST, Segment};

pub(super) use choose::Next;
pub(super) use compare::{Compared, Found};
pub(super) use leave::{Left, LeftBecause};
pub(super) use write::{Commit, Outcome};

/// The largest object. etcd takes 1.5 MiB, and a server rewrites the whole object at each patch.
pub(super) const LIMIT: usize = 512 * 1024;
/// The largest entry: half of an object.
pub(super) const LARGEST: usize = LIMIT / 2;
/// The most entries of one commit. A refused commit halves this number, so that one entry that the server refuses does not
/// block the others forever; each stored commit doubles it.
const MOST: usize = 1024;

/// All entries and segments of a journal.
#[derive(Debug)]
pub(super) struct Ledger<W> {
    entries: BTreeMap<Key, Entry<W>>,
    segments: Vec<Segment>,
    /// New entries that no segment has taken yet, in the order of their recording.
    unplaced: BTreeMap<u64, Key>,
    sequence: u64,
    /// The entries that are pending, placed or not.
    pending: usize,
    most: usize,
    last_commit: Option<Duration>,
    /// The time that the last new entry carries.
    last_time: Timestamp,
    /// How long entries are needed once they are durable: a moving average.
    lifetime: Duration,
    /// When an entry was recorded or removed last.
    last_change: Duration,
    /// The entries that are left alone, and why.
    left: BTreeMap<Key, Left>,
    /// Callers that wait until nothing of a key is on any object.
    leaving: BTreeMap<Key, Vec<W>>,
    /// Whether an entry failed for lack of room, and no room was freed since.
    is_full: bool,
    /// Until this time every segment is read, also a segment without entries: a write of the last leader may still arrive, or
    /// another writer was found and may have written there.
    others_until: Duration,
    /// Why the last write failed, until one succeeds.
    write_error: Option<JournalError>,
    closed: Option<JournalError>,
    settled: Vec<(W, Result<(), JournalError>)>,
}

/// What a call of [`Ledger::record`] did.
#[derive(Debug)]
pub(super) enum Recorded {
    /// The entry is durable already.
    Durable,
    /// The waiter will be settled.
    Waits,
    /// Nothing was recorded.
    Failed(JournalError),
}

/// The journal as a whole, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalStatus {
    /// The objects that exist.
    pub segments: usize,
    /// The bytes of their entries, those that are about to be removed included.
    pub bytes: usize,
    /// The entries that are not durable yet.
    pub waiting: usize,
    /// The entries that were not written for the object that they are on.
    pub foreign: usize,
    /// Whether new entries are refused for lack of room.
    pub is_full: bool,
    /// Why nothing can be written, or why the last request failed.
    pub fault: Option<String>,
}

impl<W> Ledger<W> {
    /// A ledger of the segments' contents, in their order. If two segments have the same key, the later recording counts; the
    /// other copy is dead.
    pub(super) fn open(found: Vec<Option<Contents>>) -> Self {
        let mut ledger = Self {
            entries: BTreeMap::new(),
            segments: (0..SEGMENTS).map(|_| Segment::default()).collect(),
            unplaced: BTreeMap::new(),
            sequence: 0,
            pending: 0,
            most: MOST,
            last_commit: None,
            last_time: Timestamp::MIN,
            lifetime: Duration::ZERO,
            last_change: Duration::ZERO,
            left: BTreeMap::new(),
            leaving: BTreeMap::new(),
            is_full: false,
            others_until: LATEST,
            write_error: None,
            closed: None,
            settled: Vec::new(),
        };
        let mut copies = Vec::new();
        for (n, (segment, found)) in ledger.segments.iter_mut().zip(found).enumerate() {
            let Some(Contents { object, entries, copies: foreign }) = found else { continue };
            segment.object = Some(object);
            segment.foreign = foreign;
            for stored in entries {
                segment.add_copy(&stored.key, &stored.text);
                copies.push((n, stored));
            }
        }
        copies.sort_by_key(|(_, stored)| stored.at);
        let keys: Vec<Key> = copies.iter().map(|(_, stored)| Arc::clone(&stored.key)).collect();
        for (n, stored) in copies {
            ledger.forget(&stored.key);
            ledger.adopt(n, stored);
        }
        for key in keys {
            ledger.refresh(&key, Duration::ZERO);
        }
        ledger
    }

    /// Records an entry. The same content again waits for the same write; another content replaces the entry.
    pub(super) fn record(&mut self, key: &Key, text: Arc<str>, at: Timestamp, waiter: W, now: Duration) -> Recorded {
        let fault = self.fault().map(|fault| JournalError::Unreadable(Arc::clone(fault)));
        if let Some(error) = self.closed.clone().or(fault) {
            return Recorded::Failed(error);
        }
        let known = self.entries.get(key);
        if known.is_some_and(|entry| entry.text == text && entry.phase == Phase::Durable) {
            return Recorded::Durable;
        }
        let bytes = size(key, &text);
        if bytes > LARGEST {
            return Recorded::Failed(JournalError::TooLarge { bytes, limit: LARGEST });
        }
        if let Some(error) = self.unreachable(known.and_then(|entry| entry.home), now) {
            return Recorded::Failed(error);
        }
        self.last_change = now;
        let Some(entry) = self.entries.get_mut(key) else {
            // What was left alone under this key is an earlier entry, like any other copy of the key.
            self.take_left(key);
            self.entries.insert(Arc::clone(key), Entry::new(at, text, waiter));
            self.enqueue(key);
            // Copies of an earlier entry of this key must stay until this one is durable.
            self.refresh(key, now);
            return Recorded::Waits;
        };
        if entry.text == text {
            entry.waiters.push(waiter);
            return Recorded::Waits;
        }
        self.settle(key, &Err(JournalError::Withdrawn));
        self.dequeue(key);
        self.replace_text(key, text);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.waiters.push(waiter);
        }
        self.enqueue(key);
        self.refresh(key, now);
        Recorded::Waits
    }

    /// Forgets an entry. The next write to its object removes it there.
    pub(super) fn remove(&mut self, key: &str, now: Duration) {
        let Some(key) = self.entries.get_key_value(key).map(|(key, _)| Arc::clone(key)) else { return };
        self.last_change = now;
        self.is_full = false;
        if let Some(since) = self.entries.get(&key).and_then(|entry| entry.durable_since) {
            self.lifetime = (self.lifetime * 7 + now.saturating_sub(since)) / 8;
        }
        self.settle(&key, &Err(JournalError::Withdrawn));
        self.forget(&key);
        self.refresh(&key, now);
    }

    /// The term is over: fails the waiters, and writes nothing any more.
    pub(super) fn close(&mut self, error: &JournalError) {
        self.closed = Some(error.clone());
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            self.settle(&key, &Err(error.clone()));
        }
        let leaving = std::mem::take(&mut self.leaving);
        self.settled.extend(leaving.into_values().flatten().map(|waiter| (waiter, Err(error.clone()))));
    }

    /// Takes the waiters whose outcome is known, each with the outcome.
    pub(super) fn take_settled(&mut self) -> Vec<(W, Result<(), JournalError>)> {
        std::mem::take(&mut self.settled)
    }

    /// The `at` of an entry that is recorded now: the time of its first recording, or the present time. No two entries get the
    /// same time, so an entry never has the same text as an earlier entry with its key, which a late write may still remove.
    pub(super) fn time_of(&mut self, key: &str, wall: Timestamp) -> Timestamp {
        if let Some(entry) = self.entries.get(key) {
            return entry.at;
        }
        // Milliseconds are enough for people.
        let wall = Timestamp::from_millisecond(wall.as_millisecond()).unwrap_or(wall);
        let next = self.last_time.checked_add(SignedDuration::from_millis(1)).unwrap_or(wall);
        self.last_time = wall.max(next);
        self.last_time
    }

    /// Key, first recording and text of each entry.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, Timestamp, &Arc<str>)> {
        self.entries.iter().map(|(key, entry)| (key, entry.at, &entry.text))
    }

    /// The entries, as their objects have them or will have them.
    pub(super) fn all(&self) -> impl Iterator<Item = Stored> {
        self.entries.iter().map(|(key, entry)| Stored {
            key: Arc::clone(key),
            text: Arc::clone(&entry.text),
            at: entry.at,
            since: entry.since.clone().unwrap_or_default(),
        })
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry, and nothing to be removed from an object.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.segments.iter().all(|segment| segment.copies.is_empty())
    }

    /// The bytes on the objects.
    pub(super) fn bytes(&self) -> usize {
        self.segments.iter().map(Segment::bytes).sum()
    }

    /// The unreadable segment, if one was found.
    fn fault(&self) -> Option<&Arc<Unreadable>> {
        self.segments.iter().find_map(|segment| segment.fault.as_ref())
    }

    /// The journal as a whole.
    pub(super) fn status(&self) -> JournalStatus {
        let is_waiting = |entry: &&Entry<W>| entry.phase != Phase::Durable;
        let fault = self.fault().map(|fault| error_chain(fault.as_ref()));
        let unread = self.segments.iter().find_map(|segment| segment.read_error.as_ref());
        let unread = unread.map(|error| error_chain(error));
        let unwritten = self.write_error.as_ref().map(|error| error_chain(error));
        JournalStatus {
            segments: self.segments.iter().filter(|segment| segment.object.is_some()).count(),
            bytes: self.bytes(),
            waiting: self.entries.values().filter(is_waiting).count(),
            foreign: self.segments.iter().map(|segment| segment.foreign.len()).sum(),
            is_full: self.is_full,
            fault: fault.or(unread).or(unwritten),
        }
    }
}
