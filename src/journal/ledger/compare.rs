//! Applies the result of a read of a segment: which writes took effect, which entries another writer has added, and what a
//! person has changed. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::segment::{LATEST, Retry};
use super::{JournalError, Key, Ledger, Left, Phase, Stored, Unreadable};
use crate::cluster::ApiError;
use crate::journal::format::{Contents, Version};

/// How often an unreadable segment is read again.
const REPAIR: Duration = Duration::from_secs(5);
/// How long after another writer was found every segment is read, to find its other entries.
const OTHERS: Duration = Duration::from_secs(300);

/// What a read found.
#[derive(Debug)]
pub(in crate::journal) enum Found {
    /// There is no object.
    Absent,
    /// A segment.
    Segment(Contents),
    /// An object that is no segment.
    Unreadable(Arc<Unreadable>),
    /// The API did not answer, or refused.
    Failed(ApiError),
    /// The term ended before the request was sent.
    NotSent,
}

/// What a read has shown.
#[derive(Debug, Default)]
pub(in crate::journal) struct Compared {
    /// Entries of another writer. They count as ours now.
    pub(in crate::journal) adopted: Vec<Stored>,
    /// Entries that were deleted or edited, and will be written again.
    pub(in crate::journal) rewritten: usize,
    /// New entries that were not written for their object.
    pub(in crate::journal) foreign: Vec<Stored>,
    /// New entries that no daemon can have written.
    pub(in crate::journal) appeared: Vec<Stored>,
    /// Entries that were left alone, and that a person has deleted.
    pub(in crate::journal) dismissed: usize,
    /// The read failed, and the read before did not.
    pub(in crate::journal) has_failed: bool,
    /// The segment has become unreadable.
    pub(in crate::journal) has_broken: bool,
    /// It was unreadable before, and no longer is.
    pub(in crate::journal) is_repaired: bool,
}

impl<W> Ledger<W> {
    /// Segment `n` was read.
    pub(in crate::journal) fn compare(&mut self, n: usize, found: Found, now: Duration) -> Compared {
        self.segments[n].under_way = None;
        match found {
            Found::Absent => self.compare_with(n, None, Vec::new(), Vec::new(), now),
            Found::Segment(Contents { object, entries, copies }) => {
                self.compare_with(n, Some(object), entries, copies, now)
            }
            Found::Unreadable(fault) => Compared { has_broken: self.broken(n, fault, now), ..Compared::default() },
            Found::Failed(error) => Compared { has_failed: self.unread(n, &error, now), ..Compared::default() },
            Found::NotSent => {
                self.close(&JournalError::TermOver(crate::election::TermOver));
                Compared::default()
            }
        }
    }

    /// The object is no segment: nothing is written until it is. Returns whether it was one before.
    fn broken(&mut self, n: usize, fault: Arc<Unreadable>, now: Duration) -> bool {
        let segment = &mut self.segments[n];
        segment.reading.at = now + REPAIR;
        segment.in_doubt = true;
        let has_broken = segment.fault.replace(Arc::clone(&fault)).is_none();
        let error = JournalError::Unreadable(fault);
        for key in self.pending_keys(|_| true) {
            self.fail(&key, &error, now);
        }
        has_broken
    }

    /// The segment could not be read. Entries that depend on it do not wait for the back-off. Returns whether this is the
    /// first failure in a row.
    fn unread(&mut self, n: usize, error: &ApiError, now: Duration) -> bool {
        let segment = &mut self.segments[n];
        segment.reading.fail(error, now);
        let is_first = segment.read_error.replace(error.clone()).is_none();
        let error = JournalError::Unconfirmed(error.clone());
        let is_unreachable = self.segments[n].is_unreachable(now);
        let are_all = self.unreachable(None, now).is_some();
        for key in self.pending_keys(|home| home.map_or(are_all, |home| home == n && is_unreachable)) {
            self.fail(&key, &error, now);
        }
        is_first
    }

    /// The pending entries whose home fulfils the condition.
    fn pending_keys(&self, is_wanted: impl Fn(Option<usize>) -> bool) -> Vec<Key> {
        let placed = self.segments.iter().enumerate().filter(|(n, _)| is_wanted(Some(*n)));
        let unplaced = self.unplaced.values().filter(|_| is_wanted(None));
        placed.flat_map(|(_, segment)| segment.queue.values()).chain(unplaced).cloned().collect()
    }

    fn compare_with(
        &mut self,
        n: usize,
        object: Option<Version>,
        entries: Vec<Stored>,
        mut foreign: Vec<Stored>,
        now: Duration,
    ) -> Compared {
        let segment = &mut self.segments[n];
        // What has replaced an entry of ours is an edit: the entry is written again.
        foreign.retain(|one| !segment.live.contains(&one.key));
        let mut compared = Compared { is_repaired: segment.fault.take().is_some(), ..Compared::default() };
        let is_known = |one: &&Stored| segment.foreign.contains(one);
        compared.foreign = foreign.iter().filter(|one| !is_known(one)).cloned().collect();
        segment.foreign = foreign;
        let is_unchanged = segment.object == object;
        let known = std::mem::take(&mut segment.copies);
        segment.object = object;
        segment.in_doubt = false;
        segment.read_error = None;
        segment.reading = Retry::default();
        segment.looked_at = now;
        for stored in &entries {
            segment.add_copy(&stored.key, &stored.text);
        }
        let found: BTreeMap<Key, Arc<str>> =
            entries.iter().map(|stored| (Arc::clone(&stored.key), Arc::clone(&stored.text))).collect();
        for stored in entries {
            let is_ours = known.contains_key(&stored.key) || self.segments[n].has_attempted(&stored.key, &stored.text);
            match self.entries.get(&stored.key).map(|entry| (entry.home, entry.phase)) {
                Some((Some(home), _)) if home == n => compared.rewritten += usize::from(self.compare_entry(n, &stored)),
                // The entry is pending: a write of it took effect, or an earlier recording of the key is still here.
                Some((None, _)) if is_ours => self.confirm(&stored.key, &stored.text, n),
                Some((None, _)) => {
                    self.adopt_pending(n, &stored);
                    compared.adopted.push(stored);
                }
                // The copy at the entry's home counts. This copy stays until the entry is durable there.
                Some(_) => {}
                None if is_ours || self.left.contains_key(&stored.key) => {}
                // Another leader may have written it.
                None if now <= LATEST => {
                    self.adopt(n, stored.clone());
                    compared.adopted.push(stored);
                }
                None => {
                    self.leave_stranger(n, &stored);
                    compared.appeared.push(stored);
                }
            }
        }
        let is_lost = |(key, left): (&Key, &Left)| (left.segment == n && !found.contains_key(key)).then(|| key.clone());
        for key in self.left.iter().filter_map(is_lost).collect::<Vec<_>>() {
            self.take_left(&key);
            compared.dismissed += 1;
        }
        for key in self.segments[n].live.iter().filter(|key| !found.contains_key(*key)).cloned().collect::<Vec<_>>() {
            let is_durable = self.entries.get(&key).is_some_and(|entry| entry.phase == Phase::Durable);
            compared.rewritten += usize::from(is_durable);
            self.enqueue(&key);
        }
        let segment = &mut self.segments[n];
        segment.settle_attempts(is_unchanged, now);
        segment.dead.clear();
        segment.dead_since = None;
        for key in known.into_keys().chain(found.into_keys()) {
            self.refresh(&key, now);
        }
        if !compared.adopted.is_empty() {
            self.others_until = now + OTHERS;
        }
        compared
    }

    /// Another writer has an entry with the key of one that is pending. It is replaced, and counts if that fails.
    fn adopt_pending(&mut self, n: usize, stored: &Stored) {
        self.dequeue(&stored.key);
        self.set_home(&stored.key, Some(n));
        if let Some(entry) = self.entries.get_mut(&stored.key) {
            entry.confirmed = Some(Arc::clone(&stored.text));
        }
        self.enqueue(&stored.key);
        self.confirm(&stored.key, &stored.text, n);
    }

    /// Compares an entry with its copy on the object. Returns whether it must be written again because the copy was
    /// changed.
    fn compare_entry(&mut self, n: usize, stored: &Stored) -> bool {
        let key = &stored.key;
        let is_attempted = self.segments[n].has_attempted(key, &stored.text);
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let is_durable = entry.phase == Phase::Durable;
        if entry.text == stored.text {
            if !is_durable {
                self.set_durable(key);
            }
            return false;
        }
        if is_attempted && entry.confirmed.is_some() {
            // An unconfirmed write of ours took effect.
            entry.confirmed = Some(Arc::clone(&stored.text));
            if is_durable {
                self.replace_text(key, Arc::clone(&stored.text));
            }
            return false;
        }
        if entry.confirmed.as_ref() == Some(&stored.text) {
            return false;
        }
        if let Some(copy) = self.segments[n].copies.get_mut(key) {
            copy.is_edited = true;
        }
        self.enqueue(key);
        is_durable
    }
}
