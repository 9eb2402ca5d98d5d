//! What one attempt at a slot has done so far, and what the term remembers of a slot. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::diff::Capacity;
use crate::cluster::{Change, CsiStorageCapacity};
use crate::roles::kit::Remembered;

/// An object of a slot.
pub type Object = Arc<CsiStorageCapacity>;

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the attempt must ask the API about objects that the watch has not shown: at each poll, and after a write to one of them,
    /// whose answer no cache takes.
    pub confirms: bool,
    /// Whether the driver has answered.
    pub is_answered: bool,
    /// How often the API has answered that a write conflicts with another one.
    pub conflicts: u32,
}

/// What a step has brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The driver has this capacity at this time.
    Capacity(Instant, Capacity),
    /// The API has this object, which the watch may not have shown yet.
    There(Object),
    /// The API does not have this object any more.
    Gone(Object),
    /// It is written, and the next view shows it.
    Written,
    /// It is written, and the next view does not show it.
    Unseen,
    /// The write was refused because of another one.
    Conflict,
}

/// What the term remembers of a slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The driver's last answer, and when it came.
    pub capacity: Option<(Instant, Capacity)>,
    /// Since when the slot is wanted.
    wanted: Option<Instant>,
    /// What has failed since.
    pub error: Option<String>,
    /// What the API has answered of objects, by uid, and the watch has not shown yet. `None`: the object is gone.
    answers: BTreeMap<Box<str>, Option<Object>>,
}

impl Remembered for Memory {}

impl Memory {
    /// What a step has brought.
    pub fn apply(&mut self, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Capacity(at, capacity) => {
                (self.capacity, self.error, progress.is_answered) = (Some((at, capacity)), None, true);
            }
            Answer::There(object) => {
                self.answers.insert(object.metadata.uid.clone(), Some(object));
                progress.confirms = false;
            }
            Answer::Gone(object) => {
                self.answers.insert(object.metadata.uid.clone(), None);
                progress.confirms = false;
            }
            Answer::Written => {}
            Answer::Unseen => progress.confirms = true,
            Answer::Conflict => progress.conflicts += 1,
        }
    }

    /// The watch, or the answer to a write, has shown a change of an object.
    pub fn shown(&mut self, change: &Change<CsiStorageCapacity>) {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let has_gone = |uid: &str| {
            let is_it = |object: &Object| *object.metadata.uid == *uid;
            old.is_some_and(is_it) && !new.is_some_and(is_it)
        };
        let is_shown = |answer: &Object| new.is_some_and(|new| has(new, answer));
        self.answers.retain(|uid, answer| !has_gone(uid) && !answer.as_ref().is_some_and(is_shown));
    }

    /// The slot is wanted, perhaps since before.
    pub fn wanted(&mut self, now: Instant) {
        self.wanted.get_or_insert(now);
    }

    /// The slot is not wanted any more: what the driver has answered for it does not matter.
    pub fn unwanted(&mut self) {
        (self.capacity, self.error, self.wanted) = (None, None, None);
    }

    /// How long ago the driver has answered, and how long a slot without an answer has been wanted.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let since = self.capacity.map(|(at, _)| at).or(self.wanted)?;
        Some(now.saturating_duration_since(since))
    }

    /// The slot's objects: as the cache shows them, or as the API has answered since. A late watch does not undo our later writes, and what
    /// this term has created has no twin.
    pub fn objects(&self, shown: &[Object]) -> Vec<Object> {
        let is_latest = |object: &&Object| match self.answers.get(&object.metadata.uid) {
            None => true,
            Some(answer) => answer.as_ref().is_some_and(|answer| has(object, answer)),
        };
        let is_news = |answer: &&Object| !shown.iter().any(|shown| has(shown, answer));
        shown.iter().filter(is_latest).chain(self.answers.values().flatten().filter(is_news)).cloned().collect()
    }

    /// Those of the slot's objects that the cache does not show yet.
    pub fn unwatched(&self, shown: &[Object]) -> impl Iterator<Item = &Object> {
        let is_shown = |uid: &str| shown.iter().any(|shown| *shown.metadata.uid == *uid);
        self.answers.values().flatten().filter(move |answer| !is_shown(&answer.metadata.uid))
    }
}

/// Whether what is shown is the object of this answer, as the answer has it or later.
fn has(shown: &Object, answer: &Object) -> bool {
    let (shown, answer) = (&shown.metadata, &answer.metadata);
    shown.uid == answer.uid && shown.version() >= answer.version()
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
