//! What is wanted, what exists, and what the driver said last: all that a pass over one item reads. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::desired::{ClassFilter, Desired, Item};
use super::diff::{Room, Style, Write, item_of, plan};
use crate::cluster::{Change, CsiStorageCapacity, ObjectName, StorageClass, quantity};

/// What the driver said of an item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// When it answered last, and what.
    pub room: Option<(Instant, Room)>,
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
pub struct Book {
    /// What is wanted.
    pub desired: Desired,
    style: Style,
    objects: BTreeMap<Item, BTreeMap<ObjectName, Arc<CsiStorageCapacity>>>,
    readings: BTreeMap<Item, Reading>,
}

impl Book {
    /// An empty book.
    pub fn new(filter: ClassFilter, style: Style) -> Self {
        Self { desired: Desired::new(filter), style, objects: BTreeMap::new(), readings: BTreeMap::new() }
    }

    /// Where our objects are.
    pub fn namespace(&self) -> &str {
        &self.style.namespace
    }

    /// A class is this now, or gone. Says which items to look at.
    pub fn tell_class(&mut self, change: &Change<StorageClass>) -> Vec<Item> {
        let Some(name) = change.new.as_ref().or(change.old.as_ref()).and_then(|class| class.metadata.name.clone())
        else {
            return Vec::new();
        };
        self.desired.tell_class(&name, change.new.as_ref())
    }

    /// An object has changed. Says which items to look at: none if it says what we wrote, or is gone because we deleted
    /// it.
    pub fn tell_object(&mut self, change: &Change<CsiStorageCapacity>) -> Vec<Item> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let mut items: Vec<Item> = old.into_iter().chain(new).map(|object| item_of(object)).collect();
        items.dedup();
        // Where the object is still the same one, the book may hold a later version of it than the watch has brought.
        let is_left =
            |old: &CsiStorageCapacity| items.len() > 1 || new.is_none_or(|new| new.metadata.uid != old.metadata.uid);
        if let Some(old) = old.filter(|old| is_left(old)) {
            self.lose(old);
        }
        if let Some(new) = new {
            self.hold(new);
        }
        items.retain(|item| !self.is_settled(item));
        items
    }

    /// The object is there and like this: somebody has seen it, or the server answered a write with it. A watch that is behind
    /// tells of what we have written over since, and that is no news.
    pub fn hold(&mut self, object: &Arc<CsiStorageCapacity>) {
        let name = ObjectName::of(object.as_ref());
        let objects = self.objects.entry(item_of(object)).or_default();
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
        let (item, name) = (item_of(object), ObjectName::of(object));
        let Some(held) = self.objects.get_mut(&item) else { return };
        if held.get(&name).is_some_and(|held| held.metadata.uid == object.metadata.uid) {
            held.remove(&name);
        }
        if held.is_empty() {
            self.objects.remove(&item);
        }
    }

    /// The objects of an item.
    pub fn objects(&self, item: &Item) -> Vec<Arc<CsiStorageCapacity>> {
        self.objects.get(item).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The driver has answered.
    pub fn note_room(&mut self, item: &Item, at: Instant, room: Room) {
        self.readings.insert(item.clone(), Reading { room: Some((at, room)), error: None });
    }

    /// A pass has failed. The last answer stands, and so does the object.
    pub fn note_error(&mut self, item: &Item, error: String) {
        if self.desired.wants(item).is_some() {
            self.readings.entry(item.clone()).or_default().error = Some(error);
        }
    }

    /// What must be written for the item by what the driver said last; nothing if it has not been asked yet.
    pub fn writes(&mut self, item: &Item) -> Vec<Write> {
        if self.desired.wants(item).is_none() {
            self.readings.remove(item);
        }
        self.planned(item)
    }

    fn planned(&self, item: &Item) -> Vec<Write> {
        let objects = self.objects(item);
        let room = self.readings.get(item).and_then(|reading| reading.room.as_ref());
        match (self.desired.wants(item), room) {
            (None, _) => plan(item, None, &self.style, &objects),
            (Some(_), Some((_, room))) => plan(item, Some(room), &self.style, &objects),
            (Some(_), None) => Vec::new(),
        }
    }

    fn is_settled(&self, item: &Item) -> bool {
        self.planned(item).is_empty()
    }

    /// Items whose object is of no use any more: those that nobody wants.
    pub fn obsolete(&self) -> Vec<Item> {
        self.objects.keys().filter(|item| self.desired.wants(item).is_none()).cloned().collect()
    }

    /// The figures.
    pub fn counts(&self) -> Counts {
        let current = self.objects.keys().filter(|item| self.desired.wants(item).is_some()).count();
        let held: usize = self.objects.values().map(BTreeMap::len).sum();
        Counts { goal: self.desired.len(), current, obsolete: held - current }
    }

    /// For the status page: class, segment, room, largest volume, age of the answer in seconds, last error.
    pub fn rows(&self, now: Instant) -> Vec<[String; 6]> {
        let mut items: Vec<Item> = self.desired.all().collect();
        items.sort();
        let row = |item: &Item| {
            let reading = self.readings.get(item);
            let room = reading.and_then(|reading| reading.room.as_ref());
            let largest = room.and_then(|(_, room)| room.largest);
            [
                item.class.to_string(),
                item.segment.to_string(),
                room.map(|(_, room)| quantity::format_bytes(room.capacity)).unwrap_or_default(),
                largest.map(quantity::format_bytes).unwrap_or_default(),
                room.map(|(at, _)| format!("{}s", now.saturating_duration_since(*at).as_secs())).unwrap_or_default(),
                reading.and_then(|reading| reading.error.clone()).unwrap_or_default(),
            ]
        };
        items.iter().map(row).collect()
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
