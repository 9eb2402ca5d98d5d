//! A model of the API: sixteen objects, and who may change what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ApiErrorKind, Commit, Found, Key, Outcome, at, error, key, text};
use crate::journal::format::{Contents, Stored, Version};
use crate::journal::place::SEGMENTS;
use crate::journal::unreadable::{Unreadable, UnreadableReason};

#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    pub(super) objects: BTreeMap<usize, Object>,
    /// Objects that a person has made unreadable.
    pub(super) broken: BTreeSet<usize>,
    counter: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    uid: u64,
    version: u64,
    pub(super) data: BTreeMap<Key, Arc<str>>,
    /// What was written for another object.
    pub(super) foreign: BTreeMap<Key, Arc<str>>,
}

impl Object {
    fn version(&self) -> Version {
        Version { uid: self.uid.to_string().into(), version: self.version.to_string().into() }
    }
}

impl Server {
    /// All objects exist, and have no entries.
    pub(super) fn with_segments() -> Self {
        let mut server = Self::default();
        for n in 0..SEGMENTS {
            server.edit(n, |_| {});
        }
        server
    }

    /// As the real API does a creation or a merge patch with preconditions.
    pub(super) fn write(&mut self, commit: &Commit) -> Outcome {
        let creates = commit.basis.is_none();
        match self.perform(commit) {
            Ok(version) => Outcome::Stored(version),
            Err(kind) => Outcome::of(error(kind), creates),
        }
    }

    pub(super) fn perform(&mut self, commit: &Commit) -> Result<Version, ApiErrorKind> {
        let counter = self.counter + 1;
        let object = match (&commit.basis, self.objects.get_mut(&commit.segment)) {
            (None, Some(_)) => return Err(ApiErrorKind::Conflict),
            (None, None) => {
                self.counter = counter;
                let object = Object { uid: counter, version: counter, ..Object::default() };
                let version = object.version();
                self.objects.insert(commit.segment, object);
                return Ok(version);
            }
            (Some(_), None) => return Err(ApiErrorKind::NotFound),
            (Some(basis), Some(object)) if basis.uid != object.version().uid => {
                return Err(ApiErrorKind::PreconditionFailed);
            }
            (Some(basis), Some(object)) if *basis != object.version() => return Err(ApiErrorKind::Conflict),
            (Some(_), Some(object)) => object,
        };
        let before = object.data.clone();
        for key in &commit.remove {
            object.data.remove(key);
        }
        object.data.extend(commit.set.iter().cloned());
        if object.data != before {
            object.version = counter;
            self.counter = counter;
        }
        Ok(object.version())
    }

    pub(super) fn read(&self, n: usize) -> Found {
        if self.broken.contains(&n) {
            let object = crate::cluster::ObjectName::namespaced("storage", format!("demo-csi-journal-{n}"));
            return Found::Unreadable(Arc::new(Unreadable {
                object,
                reason: UnreadableReason::Immutable,
                source: None,
            }));
        }
        self.contents(n).map_or(Found::Absent, Found::Segment)
    }

    fn contents(&self, n: usize) -> Option<Contents> {
        let object = self.objects.get(&n)?;
        let stored = |(key, text): (&Key, &Arc<str>)| Stored {
            key: Arc::clone(key),
            text: Arc::clone(text),
            at: recorded(text),
            since: "1".into(),
        };
        Some(Contents {
            object: object.version(),
            entries: object.data.iter().map(stored).collect(),
            copies: object.foreign.iter().map(stored).collect(),
        })
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = Option<Contents>> {
        (0..SEGMENTS).map(|n| self.contents(n))
    }

    /// Somebody else changes an object, or makes it.
    pub(super) fn edit(&mut self, n: usize, change: impl FnOnce(&mut BTreeMap<Key, Arc<str>>)) {
        self.counter += 1;
        let made = Object { uid: self.counter, version: self.counter, ..Object::default() };
        let object = self.objects.entry(n).or_insert(made);
        object.version = self.counter;
        change(&mut object.data);
    }

    pub(super) fn put(&mut self, n: usize, name: &str, content: &str) {
        self.edit(n, |data| drop(data.insert(key(name), text(content))));
    }

    pub(super) fn delete(&mut self, n: usize) {
        self.objects.remove(&n);
    }

    /// The objects with this key, and the texts there.
    pub(super) fn copies(&self, name: &str) -> Vec<(usize, &str)> {
        self.all().into_iter().filter(|(_, key, _)| *key == name).map(|(n, _, text)| (n, text)).collect()
    }

    /// Every key and text, by object.
    pub(super) fn all(&self) -> Vec<(usize, &str, &str)> {
        let mut all = Vec::new();
        for (n, object) in &self.objects {
            all.extend(object.data.iter().map(|(key, text)| (*n, &**key, &**text)));
        }
        all
    }
}

/// A text of the model may begin with its time, `12:`.
fn recorded(text: &str) -> jiff::Timestamp {
    at(text.split_once(':').and_then(|(second, _)| second.parse().ok()).unwrap_or(0))
}
