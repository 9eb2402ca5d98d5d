//! What to ask the API next. Pure.
//!
//! One commit is under way at a time, so that the entries that are recorded meanwhile share the next commit. A slow commit does
//! not delay the next commit to another segment.

use std::sync::Arc;
use std::time::Duration;

use super::segment::{Segment, UnderWay};
use super::write::Commit;
use super::{JournalError, Key, LIMIT, Ledger, Phase, size};

/// After this time a commit no longer delays the next commit.
const SLOW: Duration = Duration::from_secs(1);
/// While more entries are in progress than pending, a commit begins this long after the last one, because the same workers
/// will soon record more entries. The pace is an eighth of the time that entries are needed on average, within these bounds:
/// then a commit has about an eighth of the workers' entries, and no claim takes much longer.
const SHORTEST_PACE: Duration = Duration::from_millis(40);
const LONGEST_PACE: Duration = Duration::from_millis(500);
const PACE_SHARE: u32 = 8;
/// Dead copies are removed if nothing was recorded or removed for so long.
const QUIET: Duration = Duration::from_secs(3);
/// Dead copies are removed at the latest after this time, also from segments that get no commits.
const STALE: Duration = Duration::from_secs(30);
/// How often a segment with entries is read, to notice an edit or a deletion by a person, and the late effect of a write
/// whose answer was lost.
const LOOK: Duration = Duration::from_secs(30);

/// The next request, if there is one.
#[derive(Debug)]
pub(in crate::journal) enum Next {
    /// Read this segment, and [`compare`](Ledger::compare) it.
    Read(usize),
    /// Write this, and pass the outcome to [`written`](Ledger::written).
    Write(Arc<Commit>),
    /// No request before this time, unless an entry or an answer comes.
    WaitUntil(Duration),
    /// No request, unless an entry or an answer comes.
    Idle,
}

impl<W> Ledger<W> {
    /// Takes the next request. The caller must make it and pass its outcome.
    pub(in crate::journal) fn next(&mut self, now: Duration) -> Next {
        if self.closed.is_some() {
            return Next::Idle;
        }
        self.settle_leaving();
        if let Some(n) = self.segments.iter().position(|segment| self.read_due(segment).is_some_and(|due| due <= now)) {
            self.segments[n].under_way = Some(UnderWay::Read);
            return Next::Read(n);
        }
        if self.fault().is_none() {
            self.fail_those_without_room(now);
            if let Some(n) = self.commit_home(now) {
                let commit = self.commit(n);
                // The entries follow the creation of their object at once.
                self.last_commit = commit.basis.as_ref().map(|_| now).or(self.last_commit);
                return self.begin(commit, now);
            }
            if let Some(n) = self.tidy_home(now) {
                let commit = self.write(n, Vec::new());
                return self.begin(commit, now);
            }
        }
        self.timer(now).map_or(Next::Idle, Next::WaitUntil)
    }

    fn begin(&mut self, commit: Commit, now: Duration) -> Next {
        let commit = Arc::new(commit);
        let under_way = UnderWay::Write { since: now, commit: Arc::clone(&commit) };
        self.segments[commit.segment].under_way = Some(under_way);
        Next::Write(commit)
    }

    /// The error for an entry with this home, or for a new entry, if a write must wait for a read, and the read waits for its
    /// back-off.
    pub(super) fn unreachable(&self, home: Option<usize>, now: Duration) -> Option<JournalError> {
        let segments = home.map_or(&self.segments[..], |home| &self.segments[home..=home]);
        if !segments.iter().all(|segment| segment.is_unreachable(now)) {
            return None;
        }
        segments.iter().find_map(|segment| segment.read_error.clone()).map(JournalError::Unconfirmed)
    }

    /// Fails the new entries that no segment has room for, not even one that is busy.
    fn fail_those_without_room(&mut self, now: Duration) {
        while let Some(key) = self.unplaced.values().next().cloned() {
            let bytes = self.bytes_of(&key);
            if self.segments.iter().any(|segment| segment.has_room(bytes)) {
                return;
            }
            self.is_full = true;
            self.fail(&key, &JournalError::Full { entries: self.len() - 1 }, now);
        }
    }

    fn bytes_of(&self, key: &Key) -> usize {
        self.entries.get(key).map_or(0, |entry| size(key, &entry.text))
    }

    /// Whether the pace allows a commit now; otherwise the time from which it does.
    fn pace(&self, now: Duration) -> Result<(), Duration> {
        let slow = self.segments.iter().filter_map(|segment| match &segment.under_way {
            Some(UnderWay::Write { since, commit }) if !commit.set.is_empty() => Some(*since + SLOW),
            _ => None,
        });
        let in_progress = self.len() - self.pending;
        let pace = (self.lifetime / PACE_SHARE).clamp(SHORTEST_PACE, LONGEST_PACE);
        let paced = self.last_commit.filter(|_| self.pending < in_progress).map(|last| last + pace);
        match slow.chain(paced).max() {
            Some(from) if from > now => Err(from),
            _ => Ok(()),
        }
    }

    /// The segment for the next commit: the home of the oldest entry that can be written now.
    fn commit_home(&self, now: Duration) -> Option<usize> {
        if self.pending == 0 || self.pace(now).is_err() {
            return None;
        }
        let placed = self.segments.iter().enumerate().filter_map(|(n, segment)| {
            let (sequence, _) = segment.queue.first_key_value()?;
            (segment.is_idle() && self.queue_due(segment) <= now).then_some((*sequence, n))
        });
        let unplaced = self.unplaced.first_key_value().and_then(|(sequence, key)| {
            let bytes = self.bytes_of(key);
            let idle = self.segments.iter().enumerate().filter(|(_, it)| it.is_idle() && it.has_room(bytes));
            // A lone claim always uses the first segment, unless a write there has just failed. A new object costs one write more.
            let best = idle.min_by_key(|(n, segment)| {
                (segment.writing.at > now, segment.object.is_none(), segment.live_bytes, *n)
            });
            best.map(|(n, _)| (*sequence, n))
        });
        placed.chain(unplaced).min().map(|(_, n)| n)
    }

    /// When the entries of a segment's queue can be written: at once if one of them has a waiter.
    fn queue_due(&self, segment: &Segment) -> Duration {
        let is_awaited = |key| self.entries.get(key).is_some_and(|entry| !entry.waiters.is_empty());
        if segment.queue.values().any(is_awaited) { Duration::ZERO } else { segment.writing.at }
    }

    /// The commit to a segment: the entries of its queue, and new entries as far as there is room.
    fn commit(&mut self, n: usize) -> Commit {
        let mut keys: Vec<Key> = self.segments[n].queue.values().take(self.most).cloned().collect();
        let mut bytes = 0;
        for key in self.unplaced.values().take(self.most - keys.len()) {
            bytes += self.bytes_of(key);
            if !self.segments[n].has_room(bytes) {
                break;
            }
            self.is_full = false;
            keys.push(Arc::clone(key));
        }
        let mut set = Vec::with_capacity(keys.len());
        for key in keys {
            self.dequeue(&key);
            self.set_home(&key, Some(n));
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.phase = Phase::Writing;
                set.push((key, Arc::clone(&entry.text)));
            }
        }
        self.write(n, set)
    }

    fn write(&self, n: usize, set: Vec<(Key, Arc<str>)>) -> Commit {
        let segment = &self.segments[n];
        // A copy of an entry that is being written here is not dead.
        let remove = segment.dead.iter().filter(|key| !segment.live.contains(*key)).cloned().collect();
        let earlier = |key: &Key| Some((Arc::clone(key), self.entries.get(key)?.since.clone()?));
        let since = set.iter().filter_map(|(key, _)| earlier(key)).collect();
        Commit { segment: n, basis: segment.object.clone(), set, since, remove }
    }

    /// A segment whose dead copies should be removed by a write of their own. One such write at a time.
    fn tidy_home(&self, now: Duration) -> Option<usize> {
        let is_tidy = |segment: &Segment| matches!(&segment.under_way, Some(UnderWay::Write { commit, .. }) if commit.set.is_empty());
        if self.segments.iter().any(is_tidy) {
            return None;
        }
        self.segments.iter().position(|segment| {
            segment.is_idle() && segment.queue.is_empty() && self.tidy_due(segment).is_some_and(|due| due <= now)
        })
    }

    fn tidy_due(&self, segment: &Segment) -> Option<Duration> {
        let lazily = segment.dead_since.map(|since| (self.last_change + QUIET).min(since + STALE));
        let is_awaited = || self.leaving.keys().any(|key| segment.dead.contains(key));
        let due = lazily.map(|due| if is_awaited() { Duration::ZERO } else { due });
        due.map(|due| due.max(segment.writing.at))
    }

    /// When the next request is due that is not due now.
    fn timer(&self, now: Duration) -> Option<Duration> {
        let reads = self.segments.iter().filter_map(|segment| self.read_due(segment));
        let idle = || self.segments.iter().filter(|segment| segment.is_idle());
        let queues = idle().filter(|segment| !segment.queue.is_empty()).map(|segment| self.queue_due(segment));
        let tidy = idle().filter_map(|segment| self.tidy_due(segment));
        let pace = self.pace(now).err().filter(|_| self.pending > 0);
        let writes = queues.chain(tidy).chain(pace).filter(|_| self.fault().is_none());
        reads.chain(writes).filter(|due| *due > now).min()
    }

    /// When a segment must be read. `None`: a request to it is under way, or it need not be read.
    fn read_due(&self, segment: &Segment) -> Option<Duration> {
        let must_be_known = segment.in_doubt || segment.fault.is_some();
        let due = if must_be_known { segment.reading.at } else { (segment.looked_at + LOOK).max(segment.reading.at) };
        let holds_any = !segment.live.is_empty()
            || !segment.attempted.is_empty()
            || !segment.foreign.is_empty()
            || segment.left_bytes > 0;
        let is_wanted = must_be_known || holds_any || due <= self.others_until;
        (segment.under_way.is_none() && is_wanted).then_some(due)
    }
}

impl Segment {
    /// Whether a new entry of this size fits beside the live entries. Dead copies do not count: the same write removes them. An object
    /// with entries that were not written for it gets no new ones.
    fn has_room(&self, bytes: usize) -> bool {
        self.foreign.is_empty() && self.live_bytes + self.left_bytes + bytes <= LIMIT
    }
}
