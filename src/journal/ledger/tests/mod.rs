//! The ledger against a model of the API.

mod failures;
mod pace;
mod people;
mod play;
mod play_tests;
mod rules;
mod server;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Commit, Compared, Found, JournalError, Key, Ledger, Next, Outcome, Recorded};
use crate::cluster::{ApiError, ApiErrorKind, ObjectName};
use server::Server;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A ledger, its clock, and the API. A waiter is a number.
struct Rig {
    ledger: Ledger<u32>,
    server: Server,
    now: Duration,
    waiters: u32,
}

fn key(name: &str) -> Key {
    name.into()
}

fn text(name: &str) -> Arc<str> {
    name.into()
}

fn error(kind: ApiErrorKind) -> ApiError {
    ApiError::for_test(kind, ObjectName::namespaced("storage", "demo-csi-journal-0"))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl Rig {
    /// A new leader of empty segments.
    fn new() -> Self {
        Self::over(Server::with_segments())
    }

    /// The same, with one entry that is kept.
    fn keeping(name: &str, content: &str) -> Self {
        let mut rig = Self::new();
        rig.keep(name, content);
        rig
    }

    /// A new leader of what the server holds.
    fn over(server: Server) -> Self {
        let mut rig = Self::young(server);
        // As if the last leader had ended long ago.
        rig.ledger.others_until = Duration::ZERO;
        rig
    }

    /// The same, and writes of the last leader may still land.
    fn young(server: Server) -> Self {
        let found = server.segments().collect();
        Self { ledger: Ledger::open(found), server, now: Duration::ZERO, waiters: 0 }
    }

    /// Records, and returns the waiter's number, or why there is none.
    fn record(&mut self, name: &str, content: &str) -> Result<u32, Recorded> {
        let at = self.ledger.time_of(name, at(0));
        self.record_at(at, name, content)
    }

    fn record_at(&mut self, at: Timestamp, name: &str, content: &str) -> Result<u32, Recorded> {
        self.waiters += 1;
        match self.ledger.record(&key(name), text(content), at, self.waiters, self.now) {
            Recorded::Waits => Ok(self.waiters),
            recorded => Err(recorded),
        }
    }

    fn remove(&mut self, name: &str) {
        self.ledger.remove(name, self.now);
    }

    fn next(&mut self) -> Next {
        let next = self.ledger.next(self.now);
        self.ledger.check();
        next
    }

    /// The next request, which must be a write.
    fn commit(&mut self) -> Arc<Commit> {
        match self.next() {
            Next::Write(commit) => commit,
            next => panic!("not a write: {next:?}"),
        }
    }

    /// The next request, which must be a read.
    fn read(&mut self) -> usize {
        match self.next() {
            Next::Read(n) => n,
            next => panic!("not a read: {next:?}"),
        }
    }

    /// Nothing is requested; says how long it is until something will be.
    fn idle_for(&mut self) -> Option<Duration> {
        Some(self.idle_until()?.saturating_sub(self.now))
    }

    /// The same, as a time.
    fn idle_until(&mut self) -> Option<Duration> {
        match self.next() {
            Next::WaitUntil(at) => Some(at),
            Next::Idle => None,
            next => panic!("not idle: {next:?}"),
        }
    }

    /// The server does the write, and its answer arrives.
    fn store(&mut self, commit: &Commit) {
        let outcome = self.server.write(commit);
        self.outcome(commit, outcome);
    }

    fn outcome(&mut self, commit: &Commit, outcome: Outcome) {
        self.ledger.written(commit.segment, outcome, self.now);
        self.ledger.check();
    }

    /// The segment is shown as it is.
    fn show(&mut self, n: usize) -> Compared {
        let found = self.server.read(n);
        self.found(n, found)
    }

    fn found(&mut self, n: usize, found: Found) -> Compared {
        let compared = self.ledger.compare(n, found, self.now);
        self.ledger.check();
        compared
    }

    /// Makes every request that is due, and answers it well.
    fn settle(&mut self) {
        for _ in 0..1000 {
            match self.next() {
                Next::Read(n) => drop(self.show(n)),
                Next::Write(commit) => self.store(&commit),
                Next::WaitUntil(_) | Next::Idle => return,
            }
        }
        panic!("it never rests");
    }

    /// Records an entry and makes it durable.
    fn keep(&mut self, name: &str, content: &str) {
        let waiter = self.record(name, content).unwrap();
        self.now += S;
        self.settle();
        assert_eq!(self.settled(), [(waiter, "ok".to_owned())]);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// Records an entry that is refused, and says why.
    fn refusal(&mut self, name: &str, content: &str) -> JournalError {
        self.record(name, content).unwrap();
        self.pass(S);
        let (_, outcome) = self.ledger.take_settled().remove(0);
        outcome.unwrap_err()
    }

    /// Who waits no longer, and with which outcome.
    fn settled(&mut self) -> Vec<(u32, String)> {
        let shown = |outcome: Result<(), JournalError>| match outcome {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.label().to_owned(),
        };
        self.ledger.take_settled().into_iter().map(|(waiter, outcome)| (waiter, shown(outcome))).collect()
    }
}

fn names(keys: &[Key]) -> Vec<&str> {
    keys.iter().map(|key| &**key).collect()
}

fn set(commit: &Commit) -> Vec<(&str, &str)> {
    commit.set.iter().map(|(key, text)| (&**key, &**text)).collect()
}

impl<W> Ledger<W> {
    /// What must always be true of the bookkeeping.
    pub(super) fn check(&self) {
        let mut pending = 0;
        for (key, entry) in &self.entries {
            pending += usize::from(matches!(entry.phase, super::Phase::Pending(_)));
            for (n, segment) in self.segments.iter().enumerate() {
                assert_eq!(segment.live.contains(key), entry.home == Some(n), "{key}");
                assert!(!segment.dead.contains(key) || entry.home != Some(n), "{key} is dead and needed");
            }
            if entry.phase == super::Phase::Durable {
                assert!(entry.home.is_some() && entry.confirmed.as_ref() == Some(&entry.text), "{key}");
                assert!(entry.waiters.is_empty(), "{key} is durable, and something waits for it");
            }
            if let super::Phase::Pending(sequence) = entry.phase {
                let queue = entry.home.map_or(&self.unplaced, |home| &self.segments[home].queue);
                assert_eq!(queue.get(&sequence), Some(key));
            }
        }
        assert_eq!(self.pending, pending);
        let queued = self.segments.iter().map(|segment| segment.queue.len()).sum::<usize>() + self.unplaced.len();
        assert_eq!(queued, pending);
        for segment in &self.segments {
            let bytes = |key: &Key| self.entries.get(key).map_or(0, |entry| super::size(key, &entry.text));
            assert_eq!(segment.live_bytes, segment.live.iter().map(bytes).sum::<usize>());
            assert!(segment.dead.iter().all(|key| segment.copies.contains_key(key)));
            assert_eq!(segment.dead.is_empty(), segment.dead_since.is_none());
        }
    }
}
