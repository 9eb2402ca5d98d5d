//! The next step for one slot: ask the driver, then write what differs. Pure.

use std::sync::Arc;

use crate::cluster::StorageClass;
use crate::roles::kit::drive::Next;

use super::desired::Slot;
use super::diff::{ObjectTemplate, Write, plan};
use super::progress::{Memory, Object, Progress};

/// What the caches and the memory say about a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The slot.
    pub slot: Slot,
    /// The same as a text.
    pub id: String,
    /// The slot's class. `None`: the slot is not wanted, because its class or its segment is gone.
    pub class: Option<Arc<StorageClass>>,
    /// What all objects have in common.
    pub template: Arc<ObjectTemplate>,
    /// The slot's objects, as the cache shows them.
    pub shown: Vec<Object>,
    /// What the term remembers of the slot.
    pub memory: Memory,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask the driver for the capacity of this class.
    Ask(Arc<StorageClass>),
    /// Ask the API whether this object still exists.
    Confirm(Object),
    /// Write.
    Write(Write),
}

impl View {
    /// The slot's objects.
    pub fn objects(&self) -> Vec<Object> {
        self.memory.objects(&self.shown)
    }

    /// The writes that the slot's objects need by the driver's last answer; none before the first answer.
    pub fn writes(&self) -> Vec<Write> {
        let capacity = self.memory.capacity.as_ref().map(|(_, capacity)| capacity).filter(|_| self.class.is_some());
        if capacity.is_none() && self.class.is_some() {
            return Vec::new();
        }
        plan(&self.slot, capacity, &self.template, &self.objects())
    }
}

/// What to do next.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    if let Some(class) = view.class.as_ref().filter(|_| !progress.is_answered) {
        return Next::Do(Step::Ask(Arc::clone(class)));
    }
    let unwatched: Vec<Step> = view.memory.unwatched(&view.shown).cloned().map(Step::Confirm).collect();
    if progress.confirms && !unwatched.is_empty() {
        return Next::Together(unwatched);
    }
    // The class or the segment may have gone while the driver was asked: then only deletes are left.
    let (deletes, others): (Vec<Write>, Vec<Write>) =
        view.writes().into_iter().partition(|write| matches!(write, Write::Delete(_)));
    match others.into_iter().next() {
        Some(write) => Next::Do(Step::Write(write)),
        None if deletes.is_empty() => Next::Done,
        None => Next::Together(deletes.into_iter().map(Step::Write).collect()),
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
