//! Entries that are left alone, and callers that wait until a key is gone from all objects. Pure.
//!
//! Nothing is written for an entry that is left alone: neither is it removed, nor is it written again after a person has deleted it.

use std::sync::Arc;
use std::time::Duration;

use super::entry::size;
use super::{JournalError, Key, Ledger, Phase, Stored};

/// An entry that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::journal) struct Left {
    /// The segment whose object has it.
    pub(in crate::journal) segment: usize,
    /// The entry.
    pub(in crate::journal) stored: Stored,
    /// Why it is left alone.
    pub(in crate::journal) because: LeftBecause,
}

/// Why an entry is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftBecause {
    /// The role says so: the entry does not prove that nothing came of its request.
    Unproven,
    /// It appeared when no daemon could have written it: a person or a backup tool has put it there.
    Appeared,
}

impl<W> Ledger<W> {
    /// Leaves a durable entry alone. Returns whether it was one.
    pub(in crate::journal) fn leave(&mut self, key: &str, now: Duration) -> bool {
        let Some((key, entry)) = self.entries.get_key_value(key) else { return false };
        let (Some(segment), Phase::Durable) = (entry.home, entry.phase) else { return false };
        let since = entry.since.clone().unwrap_or_default();
        let stored = Stored { key: Arc::clone(key), text: Arc::clone(&entry.text), at: entry.at, since };
        let key = Arc::clone(key);
        self.last_change = now;
        self.forget(&key);
        self.put_left(Left { segment, stored, because: LeftBecause::Unproven });
        self.refresh(&key, now);
        true
    }

    /// An entry has appeared that no daemon can have written.
    pub(super) fn leave_stranger(&mut self, segment: usize, stored: &Stored) {
        self.put_left(Left { segment, stored: stored.clone(), because: LeftBecause::Appeared });
    }

    fn put_left(&mut self, left: Left) {
        let key = Arc::clone(&left.stored.key);
        self.take_left(&key);
        self.segments[left.segment].left_bytes += size(&key, &left.stored.text);
        self.left.insert(key, left);
    }

    /// Forgets an entry that was left alone: it is no longer on its object.
    pub(super) fn take_left(&mut self, key: &Key) -> Option<Left> {
        let left = self.left.remove(key)?;
        self.segments[left.segment].left_bytes -= size(key, &left.stored.text);
        Some(left)
    }

    /// The entries that are left alone.
    pub(in crate::journal) fn left(&self) -> impl Iterator<Item = &Left> {
        self.left.values()
    }

    /// The entries on objects that they were not written for.
    pub(in crate::journal) fn foreign(&self) -> impl Iterator<Item = (usize, &Stored)> {
        self.segments.iter().enumerate().flat_map(|(n, segment)| segment.foreign.iter().map(move |it| (n, it)))
    }

    /// Waits until nothing of this key is on any object (J8). `None`: so it is already.
    pub(in crate::journal) fn when_gone(&mut self, key: &Key, waiter: W) -> Option<W> {
        if let Some(error) = self.closed.clone() {
            self.settled.push((waiter, Err(error)));
        } else if self.is_gone(key) {
            return Some(waiter);
        } else {
            self.leaving.entry(Arc::clone(key)).or_default().push(waiter);
        }
        None
    }

    /// Settles the callers of [`when_gone`](Self::when_gone) whose key is gone.
    pub(super) fn settle_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let gone: Vec<Key> = self.leaving.keys().filter(|key| self.is_gone(key)).cloned().collect();
        for key in gone {
            let waiters = self.leaving.remove(&key).unwrap_or_default();
            self.settled.extend(waiters.into_iter().map(|waiter| (waiter, Ok(()))));
        }
    }

    /// The keys that are on an object or may yet be. One may be told more than once.
    pub(in crate::journal) fn keys(&self) -> impl Iterator<Item = &Key> {
        let held = self.segments.iter().flat_map(|it| it.copies.keys().chain(it.attempted.keys()));
        self.entries.keys().chain(held)
    }

    /// Whether no successor can find an entry of this key that it would act on.
    pub(in crate::journal) fn is_gone(&self, key: &str) -> bool {
        // A write without a known outcome is read back soon. What lands even later is removed as soon as it is noticed.
        let may_have = |segment: &super::Segment| {
            let is_in_doubt = segment.in_doubt && segment.attempted.contains_key(key);
            is_in_doubt || segment.copies.contains_key(key) || segment.is_writing(key)
        };
        let is_left = self.left.contains_key(key);
        !self.entries.contains_key(key) && (is_left || !self.segments.iter().any(may_have))
    }

    /// Why a key is still on an object, if a write has failed.
    pub(in crate::journal) fn obstacle(&self) -> Option<JournalError> {
        let fault = self.fault().map(|fault| JournalError::Unreadable(Arc::clone(fault)));
        let unread = || self.segments.iter().find_map(|segment| segment.read_error.clone());
        fault.or_else(|| self.write_error.clone()).or_else(|| unread().map(JournalError::Unconfirmed))
    }
}
