//! The history of events, newest last, with a limited length.
//!
//! Watches read from here, and an old version of a kind is rebuilt by undoing what came after it. Compaction removes
//! the oldest events; a request for a removed version gets an error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::{Key, Kind};

/// One committed change.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The resourceVersion that the change made.
    pub(crate) version: u64,
    /// The kind it was made to.
    pub(crate) kind: Kind,
    /// Which object.
    pub(crate) key: Key,
    /// The object before; `None` for a creation.
    pub(crate) old: Option<Arc<Value>>,
    /// The object after; for a deletion its last state, at the deletion's version.
    pub(crate) object: Arc<Value>,
    /// Whether the object is gone.
    pub(crate) deleted: bool,
    /// When it was committed.
    pub(crate) at: Instant,
}

/// The ring of kept events.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Event>,
    limit: usize,
    compacted: u64,
}

impl History {
    /// Keeps at most `limit` events.
    pub(crate) fn new(limit: usize) -> Self {
        Self { events: VecDeque::new(), limit, compacted: 0 }
    }

    /// Adds what just happened.
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
        while self.events.len() > self.limit {
            if let Some(event) = self.events.pop_front() {
                self.compacted = event.version;
            }
        }
    }

    /// Forgets every event up to and including `version`.
    pub(crate) fn compact(&mut self, version: u64) {
        while self.events.front().is_some_and(|event| event.version <= version) {
            self.events.pop_front();
        }
        self.compacted = self.compacted.max(version);
    }

    /// The oldest version that the history still has.
    pub(crate) fn oldest(&self) -> u64 {
        self.compacted
    }

    /// The events after `version`, oldest first; `None` once some of them are forgotten.
    pub(crate) fn after(&self, version: u64) -> Option<impl Iterator<Item = &Event>> {
        (version >= self.compacted).then(|| {
            let start = self.events.partition_point(|event| event.version <= version);
            self.events.range(start..)
        })
    }

    /// Turns a kind's objects of now into those of `version`; `false` if that version is forgotten.
    pub(crate) fn rewind(&self, kind: Kind, objects: &mut BTreeMap<Key, Arc<Value>>, version: u64) -> bool {
        if version < self.compacted {
            return false;
        }
        let start = self.events.partition_point(|event| event.version <= version);
        for event in self.events.range(start..).rev().filter(|event| event.kind == kind) {
            match &event.old {
                Some(old) => drop(objects.insert(event.key.clone(), Arc::clone(old))),
                None => drop(objects.remove(&event.key)),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::process::Clock;
    use serde_json::json;

    const KIND: Kind = ("", "secrets");

    fn event(version: u64, name: &str, old: Option<u64>) -> Event {
        Event {
            version,
            kind: KIND,
            key: Key::new("", name),
            old: old.map(|number| Arc::new(json!(number))),
            object: Arc::new(json!(version)),
            deleted: false,
            at: Clock::system().now(),
        }
    }

    #[test]
    fn an_old_version_is_rebuilt_until_it_is_compacted() {
        let mut history = History::new(10);
        history.push(event(1, "a", None));
        history.push(event(2, "b", None));
        history.push(event(3, "a", Some(1)));
        let now: BTreeMap<Key, Arc<Value>> =
            [(Key::new("", "a"), Arc::new(json!(3))), (Key::new("", "b"), Arc::new(json!(2)))].into();
        let mut then = now.clone();
        assert!(history.rewind(KIND, &mut then, 1));
        assert_eq!(then, [(Key::new("", "a"), Arc::new(json!(1)))].into());
        history.compact(2);
        assert!(!history.rewind(KIND, &mut now.clone(), 1));
        assert!(history.after(1).is_none());
        assert_eq!(history.after(2).unwrap().count(), 1);
    }

    #[test]
    fn the_ring_forgets_its_oldest_events_and_says_so() {
        let mut history = History::new(2);
        for version in 1..=5 {
            history.push(event(version, "a", None));
        }
        assert_eq!(history.oldest(), 3);
        assert!(history.after(2).is_none());
        assert_eq!(history.after(3).unwrap().map(|event| event.version).collect::<Vec<_>>(), [4, 5]);
    }
}
