//! The wanted slots, the existing objects, and the driver's last answers. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::desired::{ClassFilter, Desired, Slot};
use super::diff::{Capacity, ObjectTemplate, Write, plan, slot_of};
use crate::cluster::{Change, CsiStorageCapacity, ObjectName, StorageClass};
use crate::diagnostics::Cell;
use crate::roles::provisioner::topology::Segment;

/// The driver's last answer for a slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The answer, and when it came.
    pub capacity: Option<(Instant, Capacity)>,
    /// What has failed since.
    pub error: Option<String>,
}

/// The numbers of wanted, existing and unwanted objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Wanted slots.
    pub goal: usize,
    /// Wanted slots that have an object.
    pub current: usize,
    /// Objects of unwanted slots, and second objects of wanted ones.
    pub obsolete: usize,
}

/// The wanted slots, the existing objects, and the driver's last answers, of one term.
#[derive(Debug)]
pub struct Index {
    desired: Desired,
    template: ObjectTemplate,
    objects: BTreeMap<Slot, BTreeMap<ObjectName, Arc<CsiStorageCapacity>>>,
    /// Of wanted slots only.
    readings: BTreeMap<Slot, Reading>,
}

impl Index {
    /// An empty index.
    pub fn new(filter: ClassFilter, template: ObjectTemplate) -> Self {
        Self { desired: Desired::new(filter), template, objects: BTreeMap::new(), readings: BTreeMap::new() }
    }

    /// The wanted slots.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The namespace of the objects.
    pub fn namespace(&self) -> &str {
        &self.template.namespace
    }

    /// A class was created, changed or deleted. Returns the slots to refresh.
    pub fn class_changed(&mut self, change: &Change<StorageClass>) -> Vec<Slot> {
        let Some(name) = change.new.as_ref().or(change.old.as_ref()).map(|class| class.metadata.name.clone()) else {
            return Vec::new();
        };
        let slots = self.desired.class_changed(&name, change.new.as_ref());
        self.drop_readings(&slots);
        slots
    }

    /// The driver is in `segment` on this node now, or in no segment any more. Returns the slots to refresh.
    pub fn node_changed(&mut self, node: &str, segment: Option<Segment>) -> Vec<Slot> {
        let slots = self.desired.node_changed(node, segment);
        self.drop_readings(&slots);
        slots
    }

    fn drop_readings(&mut self, changed: &[Slot]) {
        for slot in changed.iter().filter(|slot| self.desired.wants(slot).is_none()) {
            self.readings.remove(slot);
        }
    }

    /// An object was created, changed or deleted. Returns the slots to refresh: none if there is nothing to write, as after our own
    /// writes.
    pub fn object_changed(&mut self, change: &Change<CsiStorageCapacity>) -> Vec<Slot> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let mut slots: Vec<Slot> = old.into_iter().chain(new).map(|object| slot_of(object)).collect();
        slots.dedup();
        // If it is still the same object, the index may hold a later version than the watch has brought.
        let is_gone =
            |old: &CsiStorageCapacity| slots.len() > 1 || new.is_none_or(|new| new.metadata.uid != old.metadata.uid);
        if let Some(old) = old.filter(|old| is_gone(old)) {
            self.remove_object(old);
        }
        if let Some(new) = new {
            self.set_object(new);
        }
        slots.retain(|slot| !self.writes(slot).is_empty());
        slots
    }

    /// The API has this object. A late watch may bring a version that this process has overwritten since: the later version stays.
    pub fn set_object(&mut self, object: &Arc<CsiStorageCapacity>) {
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

    /// The API does not have this object any more. Another object of the same name stays.
    pub fn remove_object(&mut self, object: &CsiStorageCapacity) {
        let (slot, name) = (slot_of(object), ObjectName::of(object));
        let Some(held) = self.objects.get_mut(&slot) else { return };
        if held.get(&name).is_some_and(|held| held.metadata.uid == object.metadata.uid) {
            held.remove(&name);
        }
        if held.is_empty() {
            self.objects.remove(&slot);
        }
    }

    /// The objects of a slot.
    pub fn objects(&self, slot: &Slot) -> Vec<Arc<CsiStorageCapacity>> {
        self.objects.get(slot).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The driver has answered. Nothing is kept if the slot is not wanted any more.
    pub fn set_capacity(&mut self, slot: &Slot, at: Instant, capacity: Capacity) {
        if self.desired.wants(slot).is_some() {
            self.readings.insert(slot.clone(), Reading { capacity: Some((at, capacity)), error: None });
        }
    }

    /// An attempt has failed. The last answer stays, and so does the object.
    pub fn set_error(&mut self, slot: &Slot, error: String) {
        if self.desired.wants(slot).is_some() {
            self.readings.entry(slot.clone()).or_default().error = Some(error);
        }
    }

    /// The writes that the slot's objects need by the driver's last answer; none before the first answer.
    pub fn writes(&self, slot: &Slot) -> Vec<Write> {
        let objects = self.objects(slot);
        let capacity = self.readings.get(slot).and_then(|reading| reading.capacity.as_ref());
        match (self.desired.wants(slot), capacity) {
            (None, _) => plan(slot, None, &self.template, &objects),
            (Some(_), Some((_, capacity))) => plan(slot, Some(capacity), &self.template, &objects),
            (Some(_), None) => Vec::new(),
        }
    }

    /// The unwanted slots that have objects.
    pub fn obsolete(&self) -> Vec<Slot> {
        self.objects.keys().filter(|slot| self.desired.wants(slot).is_none()).cloned().collect()
    }

    /// The numbers for the metrics.
    pub fn counts(&self) -> Counts {
        let current = self.objects.keys().filter(|slot| self.desired.wants(slot).is_some()).count();
        let held: usize = self.objects.values().map(BTreeMap::len).sum();
        Counts { goal: self.desired.len(), current, obsolete: held - current }
    }

    /// For the status page: class, segment, capacity, largest volume, age of the answer in seconds, last error.
    pub fn rows(&self, now: Instant) -> Vec<Vec<Cell>> {
        let mut slots: Vec<Slot> = self.desired.all().collect();
        slots.sort();
        let row = |slot: &Slot| {
            let reading = self.readings.get(slot);
            let answer = reading.and_then(|reading| reading.capacity.as_ref());
            let maximum = answer.and_then(|(_, capacity)| capacity.maximum_volume_size);
            // The driver's answer with a negative size was refused.
            let bytes = |bytes: i64| Cell::Number(bytes.unsigned_abs());
            vec![
                slot.class.to_string().into(),
                slot.segment.to_string().into(),
                answer.map(|(_, capacity)| bytes(capacity.available)).into(),
                maximum.map(bytes).into(),
                answer.map(|(at, _)| now.saturating_duration_since(*at)).into(),
                reading.and_then(|reading| reading.error.clone()).into(),
            ]
        };
        slots.iter().map(row).collect()
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
