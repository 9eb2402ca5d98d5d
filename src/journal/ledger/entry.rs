//! One entry, and the steps that every rule makes with it. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{JournalError, Key, Ledger, Stored};
use crate::cluster::SmolStr;
use crate::journal::format::MARK;

/// An entry that is needed.
#[derive(Debug)]
pub(super) struct Entry<W> {
    /// When it was first recorded.
    pub(super) at: Timestamp,
    /// The text that its object must have.
    pub(super) text: Arc<str>,
    /// The text that the API confirmed last. If the write of another text fails, the entry returns to this one. An entry without
    /// it is dropped then, because its request was never sent.
    pub(super) confirmed: Option<Arc<str>>,
    /// A version of the API from before the entry was first durable.
    pub(super) since: Option<SmolStr>,
    /// The segment whose object has the entry, or will have it.
    pub(super) home: Option<usize>,
    pub(super) phase: Phase,
    /// When it became durable in this term.
    pub(super) durable_since: Option<Duration>,
    pub(super) waiters: Vec<W>,
}

/// How far the text has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for a commit. The number gives the order.
    Pending(u64),
    /// A commit with it is under way.
    Writing,
    /// The API has confirmed it.
    Durable,
}

/// The bytes of an entry on an object.
pub(super) fn size(key: &str, text: &str) -> usize {
    key.len() + text.len() + MARK
}

impl<W> Entry<W> {
    /// A new entry, which must be enqueued.
    pub(super) fn new(at: Timestamp, text: Arc<str>, waiter: W) -> Self {
        Self {
            at,
            text,
            confirmed: None,
            since: None,
            home: None,
            phase: Phase::Writing,
            durable_since: None,
            waiters: vec![waiter],
        }
    }
}

impl<W> Ledger<W> {
    /// A version of the API from before the entry of this key was first durable.
    pub(in crate::journal) fn since(&self, key: &str) -> Option<SmolStr> {
        self.entries.get(key)?.since.clone()
    }

    /// Takes over an entry that is on an object already.
    pub(super) fn adopt(&mut self, n: usize, stored: Stored) {
        let Stored { key, text, at, since } = stored;
        let (confirmed, phase) = (Some(Arc::clone(&text)), Phase::Durable);
        let (home, durable_since, waiters) = (None, None, Vec::new());
        let entry = Entry { at, text, confirmed, since: Some(since), home, phase, durable_since, waiters };
        self.entries.insert(Arc::clone(&key), entry);
        self.set_home(&key, Some(n));
    }

    /// Drops an entry from memory.
    pub(super) fn forget(&mut self, key: &Key) {
        self.dequeue(key);
        self.set_home(key, None);
        self.entries.remove(key);
    }

    /// Settles the waiters of an entry.
    pub(super) fn settle(&mut self, key: &Key, outcome: &Result<(), JournalError>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.settled.extend(entry.waiters.drain(..).map(|waiter| (waiter, outcome.clone())));
    }

    /// Makes an entry pending, at its home if it has one.
    pub(super) fn enqueue(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !matches!(entry.phase, Phase::Pending(_))) else {
            return;
        };
        self.sequence += 1;
        entry.phase = Phase::Pending(self.sequence);
        self.pending += 1;
        let queue = entry.home.map_or(&mut self.unplaced, |home| &mut self.segments[home].queue);
        queue.insert(self.sequence, Arc::clone(key));
    }

    /// Takes an entry out of its queue, if it is in one. Its next phase must follow.
    pub(super) fn dequeue(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::Pending(sequence) = entry.phase else { return };
        entry.phase = Phase::Writing;
        self.pending -= 1;
        let queue = entry.home.map_or(&mut self.unplaced, |home| &mut self.segments[home].queue);
        queue.remove(&sequence);
    }

    /// Gives an entry that is in no queue to a segment, or takes it away.
    pub(super) fn set_home(&mut self, key: &Key, home: Option<usize>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let bytes = size(key, &entry.text);
        if let Some(old) = entry.home {
            self.segments[old].live.remove(key);
            self.segments[old].live_bytes -= bytes;
        }
        entry.home = home;
        if let Some(new) = home {
            self.segments[new].live.insert(Arc::clone(key));
            self.segments[new].live_bytes += bytes;
        }
    }

    /// Changes the text that the object must have.
    pub(super) fn replace_text(&mut self, key: &Key, text: Arc<str>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(home) = entry.home {
            let segment = &mut self.segments[home];
            segment.live_bytes = segment.live_bytes - size(key, &entry.text) + size(key, &text);
        }
        entry.text = text;
    }

    /// The API has confirmed the entry's text at its home.
    pub(super) fn set_durable(&mut self, key: &Key) {
        self.dequeue(key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.confirmed = Some(Arc::clone(&entry.text));
            entry.phase = Phase::Durable;
        }
        self.settle(key, &Ok(()));
    }

    /// The entry's text could not be written: the entry returns to the confirmed text, or is dropped.
    pub(super) fn fail(&mut self, key: &Key, error: &JournalError, now: Duration) {
        self.settle(key, &Err(error.clone()));
        let Some(entry) = self.entries.get(key) else { return };
        match (entry.confirmed.clone(), entry.home) {
            (Some(confirmed), Some(home)) => {
                self.replace_text(key, confirmed);
                let segment = &self.segments[home];
                let is_stored = segment.copies.get(key).is_some_and(|copy| !copy.is_edited);
                // A write of yet another content that is under way may still change what is stored.
                if is_stored && !segment.is_writing(key) {
                    self.set_durable(key);
                } else {
                    self.enqueue(key);
                }
            }
            _ => self.forget(key),
        }
        self.refresh(key, now);
    }

    /// Decides again which copies of a key are dead: all copies without an entry, and the copies outside of the home of a durable
    /// entry. An entry that is left alone is never dead.
    pub(super) fn refresh(&mut self, key: &Key, now: Duration) {
        let entry = self.entries.get(key).map(|entry| (entry.home, entry.phase));
        let left = self.left.get(key).map(|left| left.segment);
        for (n, segment) in self.segments.iter_mut().enumerate() {
            let is_needed =
                left == Some(n) || entry.is_some_and(|(home, phase)| home == Some(n) || phase != Phase::Durable);
            segment.set_dead(key, segment.copies.contains_key(key) && !is_needed, now);
        }
    }
}
