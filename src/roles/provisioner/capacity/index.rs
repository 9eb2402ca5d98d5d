//! What is wanted, what exists, and what the driver said last: all that a pass over one item reads. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::desired::{ClassFilter, Desired, Slot};
use super::diff::{Capacity, ObjectTemplate, Write, plan, slot_of};
use crate::cluster::{Change, CsiStorageCapacity, ObjectName, StorageClass, quantity};

/// What the driver said of an item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// When it answered last, and what.
    pub room: Option<(Instant, Capacity)>,
    /// What failed since.
    pub error: Option<String>,
}

/// How many objects there should be, are, and should not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items that are wanted.
    pub goal: usize,
    /// Items that are wanted and have an object.
    pub current: usize,
    /// Objects that are not wanted, or not twice.
    pub obsolete: usize,
}

/// The book of one term.
#[derive(Debug)]
pub struct Index {
    /// What is wanted.
    pub desired: Desired,
    template: ObjectTemplate,
    objects: BTreeMap<Slot, BTreeMap<ObjectName, Arc<CsiStorageCapacity>>>,
    readings: BTreeMap<Slot, Reading>,
}

impl Index {
    /// An empty book.
    pub fn new(filter: ClassFilter, template: ObjectTemplate) -> Self {
        Self { desired: Desired::new(filter), template, objects: BTreeMap::new(), readings: BTreeMap::new() }
    }

    /// Where our objects are.
    pub fn namespace(&self) -> &str {
        &self.template.namespace
    }

    /// A class is this now, or gone. Says which items to look at.
    pub fn tell_class(&mut self, change: &Change<StorageClass>) -> Vec<Slot> {
        let Some(name) = change.new.as_ref().or(change.old.as_ref()).and_then(|class| class.metadata.name.clone())
        else {
            return Vec::new();
        };
        self.desired.tell_class(&name, change.new.as_ref())
    }

    /// An object has changed. Says which items to look at: none if it says what we wrote, or is gone because we deleted
    /// it.
    pub fn tell_object(&mut self, change: &Change<CsiStorageCapacity>) -> Vec<Slot> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let mut slots: Vec<Slot> = old.into_iter().chain(new).map(|object| slot_of(object)).collect();
        slots.dedup();
        // Where the object is still the same one, the book may hold a later version of it than the watch has brought.
        let is_left =
            |old: &CsiStorageCapacity| slots.len() > 1 || new.is_none_or(|new| new.metadata.uid != old.metadata.uid);
        if let Some(old) = old.filter(|old| is_left(old)) {
            self.lose(old);
        }
        if let Some(new) = new {
            self.hold(new);
        }
        slots.retain(|slot| !self.is_settled(slot));
        slots
    }

    /// The object is there and like this: somebody has seen it, or the server answered a write with it. A watch that is behind
    /// tells of what we have written over since, and that is no news.
    pub fn hold(&mut self, object: &Arc<CsiStorageCapacity>) {
        let name = ObjectName::of(object.as_ref());
        let objects = self.objects.entry(slot_of(object)).or_default();
        let (uid, version) = (&object.metadata.uid, object.metadata.version());
        let is_later = |held: &Arc<CsiStorageCapacity>| {
            held.metadata.uid == *uid && held.metadata.version().zip(version).is_some_and(|(held, seen)| held > seen)
        };
        if !objects.get(&name).is_some_and(is_later) {
            objects.insert(name, Arc::clone(object));
        }
    }

    /// The object is gone, if it is still the one that is held.
    pub fn lose(&mut self, object: &CsiStorageCapacity) {
        let (slot, name) = (slot_of(object), ObjectName::of(object));
        let Some(held) = self.objects.get_mut(&slot) else { return };
        if held.get(&name).is_some_and(|held| held.metadata.uid == object.metadata.uid) {
            held.remove(&name);
        }
        if held.is_empty() {
            self.objects.remove(&slot);
        }
    }

    /// The objects of an item.
    pub fn objects(&self, slot: &Slot) -> Vec<Arc<CsiStorageCapacity>> {
        self.objects.get(slot).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The driver has answered.
    pub fn note_room(&mut self, slot: &Slot, at: Instant, room: Capacity) {
        self.readings.insert(slot.clone(), Reading { room: Some((at, room)), error: None });
    }

    /// A pass has failed. The last answer stands, and so does the object.
    pub fn note_error(&mut self, slot: &Slot, error: String) {
        if self.desired.wants(slot).is_some() {
            self.readings.entry(slot.clone()).or_default().error = Some(error);
        }
    }

    /// What must be written for the item by what the driver said last; nothing if it has not been asked yet.
    pub fn writes(&mut self, slot: &Slot) -> Vec<Write> {
        if self.desired.wants(slot).is_none() {
            self.readings.remove(slot);
        }
        self.planned(slot)
    }

    fn planned(&self, slot: &Slot) -> Vec<Write> {
        let objects = self.objects(slot);
        let room = self.readings.get(slot).and_then(|reading| reading.room.as_ref());
        match (self.desired.wants(slot), room) {
            (None, _) => plan(slot, None, &self.template, &objects),
            (Some(_), Some((_, room))) => plan(slot, Some(room), &self.template, &objects),
            (Some(_), None) => Vec::new(),
        }
    }

    fn is_settled(&self, slot: &Slot) -> bool {
        self.planned(slot).is_empty()
    }

    /// Items whose object is of no use any more: those that nobody wants.
    pub fn obsolete(&self) -> Vec<Slot> {
        self.objects.keys().filter(|slot| self.desired.wants(slot).is_none()).cloned().collect()
    }

    /// The figures.
    pub fn counts(&self) -> Counts {
        let current = self.objects.keys().filter(|slot| self.desired.wants(slot).is_some()).count();
        let held: usize = self.objects.values().map(BTreeMap::len).sum();
        Counts { goal: self.desired.len(), current, obsolete: held - current }
    }

    /// For the status page: class, segment, room, largest volume, age of the answer in seconds, last error.
    pub fn rows(&self, now: Instant) -> Vec<[String; 6]> {
        let mut slots: Vec<Slot> = self.desired.all().collect();
        slots.sort();
        let row = |slot: &Slot| {
            let reading = self.readings.get(slot);
            let room = reading.and_then(|reading| reading.room.as_ref());
            let largest = room.and_then(|(_, room)| room.largest);
            [
                slot.class.to_string(),
                slot.segment.to_string(),
                room.map(|(_, room)| quantity::format_bytes(room.capacity)).unwrap_or_default(),
                largest.map(quantity::format_bytes).unwrap_or_default(),
                room.map(|(at, _)| format!("{}s", now.saturating_duration_since(*at).as_secs())).unwrap_or_default(),
                reading.and_then(|reading| reading.error.clone()).unwrap_or_default(),
            ]
        };
        slots.iter().map(row).collect()
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
