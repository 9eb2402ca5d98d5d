//! Which Kubernetes Events must be written: deduplicated, counted, bounded. Pure.
//!
//! The same message about the same object is one Event: it is written at its first occurrence, then counted, and the
//! count is written at most every five minutes, or every ten seconds for who wants to see each attempt. A driver that puts a request ID into each error produces a new message
//! every time, so each object also has a rate limit, as in client-go. Other Events are dropped, so the queue is
//! bounded. Times are durations since the recorder started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource as _;

use super::error::LONGEST_RETRY_AFTER;
use super::objects::Object;

use super::names::{NAMESPACE_OF_CLUSTER_EVENTS, ObjectName};

/// Number of remembered Events. With a few hundred bytes each this stays below a megabyte.
const CAPACITY: usize = 1024;
/// Pause between two writes of one Event's count.
pub(super) const RECOUNT: Duration = Duration::from_secs(300);
/// The same for a role that writes an Event for every attempt: who asks for that watches an object, and waits for the count.
pub(super) const RECOUNT_SOON: Duration = Duration::from_secs(10);
/// The server deletes Events after an hour; a later occurrence is a new Event.
const FORGET: Duration = Duration::from_secs(3600);
/// Different Events about one object: this many in a burst, then one every five minutes.
const BURST: u32 = 15;
const REFILL: Duration = Duration::from_secs(300);
/// Attempts to write one Event.
const ATTEMPTS: u32 = 5;
/// If more Events than this wait to be written, one of low priority is dropped.
const FEW: usize = 24;

/// The object of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// Its API version, `v1` or `storage.k8s.io/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; `None` if it has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl EventTarget {
    /// Of an object that was read or written, in its own namespace if it has one.
    pub fn of<K: Object>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::Kind::api_version(&()).into_owned(),
            kind: K::Kind::kind(&()).into_owned(),
            namespace: meta.namespace.as_deref().map(str::to_owned),
            name: meta.name.to_string(),
            uid: meta.uid.to_string(),
        }
    }
}

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// All is well.
    Normal,
    /// Somebody may have to act.
    Warning,
}

impl EventKind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Which Events are written first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventPriority {
    /// Before all others: it tells how things are, and each process that sees the same writes the same Event.
    Standing,
    /// In the order in which they were noted.
    Usual,
    /// After all others, and dropped if more than a few dozen wait.
    Low,
}

/// The key of an Event: occurrences with the same key are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The component that writes it.
    pub(super) component: Arc<str>,
    pub(super) uid: String,
    pub(super) reason: String,
    pub(super) note: String,
}

/// An Event that must be written or was written. `P` gives the right to write it.
#[derive(Debug, Clone)]
pub(super) struct Entry<P> {
    pub(super) target: EventTarget,
    pub(super) kind: EventKind,
    pub(super) priority: EventPriority,
    /// Pause between two writes of its count.
    recount: Duration,
    pub(super) permit: P,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) seen: u32,
    /// The written Event object, and its count.
    pub(super) written: Option<(ObjectName, u32)>,
    order: u64,
    last_seen: Duration,
    due: Duration,
    failures: u32,
}

impl<P> Entry<P> {
    fn is_owed(&self) -> bool {
        self.written.as_ref().is_none_or(|(_, count)| *count < self.seen)
    }

    /// The namespace that the Event belongs in.
    pub(super) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or(NAMESPACE_OF_CLUSTER_EVENTS)
    }
}

/// The result of noting an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    /// It will be written.
    Owed,
    /// It was counted.
    Counted,
    /// It exceeds the rate limit.
    Dropped,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Write(Arc<Key>),
    WaitUntil(Duration),
    Nothing,
}

/// The Events that must be written, and those that were written recently. Each is in one of the three orders.
#[derive(Debug)]
pub(super) struct EventBook<P> {
    entries: BTreeMap<Arc<Key>, Entry<P>>,
    /// Those that are owed and due, in the order in which they are written.
    ready: BTreeMap<(EventPriority, u64), Arc<Key>>,
    /// Those that are owed, by when they are due, until [`next`](Self::next) finds them due.
    waiting: BTreeMap<(Duration, u64), Arc<Key>>,
    /// Those that are written, the one that has not been seen for the longest time first.
    settled: BTreeMap<(Duration, u64), Arc<Key>>,
    budgets: BTreeMap<String, Budget>,
    order: u64,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    refilled: Duration,
}

impl<P: Clone> EventBook<P> {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            settled: BTreeMap::new(),
            budgets: BTreeMap::new(),
            order: 0,
        }
    }

    /// Notes an occurrence.
    pub(super) fn note(
        &mut self,
        key: Key,
        target: &EventTarget,
        (kind, priority, recount): (EventKind, EventPriority, Duration),
        permit: P,
        now: Duration,
        wall: Timestamp,
    ) -> Noted {
        if self.get(&key).is_some_and(|entry| now.saturating_sub(entry.last_seen) < FORGET) {
            self.change(&key, |entry| {
                entry.seen = entry.seen.saturating_add(1);
                (entry.last, entry.last_seen, entry.permit) = (wall, now, permit);
                // A reload may have changed what the role writes.
                if recount < entry.recount {
                    entry.due = entry.due.min(now + recount);
                }
                entry.recount = recount;
            });
            return Noted::Counted;
        }
        self.forget(&key);
        let is_crowded = priority == EventPriority::Low && self.owed() >= FEW;
        if is_crowded || !self.make_room() || !self.afford(&key.uid, now) {
            return Noted::Dropped;
        }
        self.order += 1;
        let entry = Entry {
            target: target.clone(),
            kind,
            priority,
            recount,
            permit,
            first: wall,
            last: wall,
            seen: 1,
            written: None,
            order: self.order,
            last_seen: now,
            due: now,
            failures: 0,
        };
        self.put(Arc::new(key), entry);
        Noted::Owed
    }

    /// How many Events wait to be written.
    fn owed(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    /// The next due Event, by priority and then in the order in which they were noted.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, order), key) = first.remove_entry();
            if let Some(entry) = self.entries.get(&key) {
                self.ready.insert((entry.priority, order), key);
            }
        }
        match (self.ready.first_key_value(), self.waiting.first_key_value()) {
            (Some((_, key)), _) => Next::Write(Arc::clone(key)),
            (None, Some(((due, _), _))) => Next::WaitUntil(*due),
            (None, None) => Next::Nothing,
        }
    }

    /// An Event as it is now.
    pub(super) fn get(&self, key: &Key) -> Option<&Entry<P>> {
        self.entries.get(key)
    }

    /// The Event was written under `name` with this count.
    pub(super) fn wrote(&mut self, key: &Key, name: ObjectName, count: u32, now: Duration) {
        self.change(key, |entry| {
            entry.written = Some((name, count));
            entry.failures = 0;
            entry.due = now + entry.recount;
        });
    }

    /// The Event is no longer on the server: it must be created again.
    pub(super) fn vanished(&mut self, key: &Key) {
        self.change(key, |entry| {
            entry.written = None;
            entry.first = entry.last;
        });
    }

    /// Writing failed. Returns whether it will be retried.
    pub(super) fn failed(&mut self, key: &Key, retry_after: Option<Duration>, now: Duration) -> bool {
        let failures = self.get(key).map_or(ATTEMPTS, |entry| entry.failures + 1);
        if failures >= ATTEMPTS {
            self.forget(key);
            return false;
        }
        let backoff = Duration::from_secs(1 << failures);
        let pause = retry_after.map_or(backoff, |asked| asked.min(LONGEST_RETRY_AFTER));
        self.change(key, |entry| (entry.failures, entry.due) = (failures, now.saturating_add(pause)));
        true
    }

    /// The Event need not be written any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.take(key);
    }

    /// Changes an Event, if it is known.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry<P>)) {
        if let Some((key, mut entry)) = self.take(key) {
            change(&mut entry);
            self.put(key, entry);
        }
    }

    fn put(&mut self, key: Arc<Key>, entry: Entry<P>) {
        if entry.is_owed() {
            self.waiting.insert((entry.due, entry.order), Arc::clone(&key));
        } else {
            self.settled.insert((entry.last_seen, entry.order), Arc::clone(&key));
        }
        self.entries.insert(key, entry);
    }

    fn take(&mut self, key: &Key) -> Option<(Arc<Key>, Entry<P>)> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.ready.remove(&(entry.priority, entry.order));
        self.waiting.remove(&(entry.due, entry.order));
        self.settled.remove(&(entry.last_seen, entry.order));
        Some((key, entry))
    }

    fn make_room(&mut self) -> bool {
        if self.entries.len() < CAPACITY {
            return true;
        }
        let oldest = self.settled.first_key_value().map(|(_, key)| Arc::clone(key));
        oldest.is_some_and(|key| self.take(&key).is_some())
    }

    fn afford(&mut self, uid: &str, now: Duration) -> bool {
        if self.budgets.len() >= CAPACITY && !self.budgets.contains_key(uid) {
            let rested = REFILL * BURST;
            self.budgets.retain(|_, budget| now.saturating_sub(budget.refilled) < rested);
            if self.budgets.len() >= CAPACITY {
                self.budgets.pop_first();
            }
        }
        let budget = self.budgets.entry(uid.to_owned()).or_insert(Budget { left: BURST, refilled: now });
        let periods = now.saturating_sub(budget.refilled).as_secs() / REFILL.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        budget.left = budget.left.saturating_add(periods).min(BURST);
        budget.refilled += REFILL.saturating_mul(periods);
        if budget.left == 0 {
            return false;
        }
        budget.left -= 1;
        true
    }
}

#[cfg(test)]
#[path = "event_book_tests.rs"]
mod tests;
