//! The wanted slots and the objects that the cache shows. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::desired::{ClassFilter, Desired, Slot};
use super::diff::slot_of;
use super::progress::Object;
use crate::cluster::{Change, CsiStorageCapacity, ObjectName, StorageClass};
use crate::roles::provisioner::topology::Segment;

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

/// The wanted slots and the existing objects of one term.
#[derive(Debug)]
pub struct Index {
    desired: Desired,
    objects: BTreeMap<Slot, BTreeMap<ObjectName, Object>>,
}

impl Index {
    /// An empty index.
    pub fn new(filter: ClassFilter) -> Self {
        Self { desired: Desired::new(filter), objects: BTreeMap::new() }
    }

    /// The wanted slots.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// A class was created, changed or deleted. Returns the slots to refresh.
    pub fn class_changed(&mut self, change: &Change<StorageClass>) -> Vec<Slot> {
        let Some(name) = change.last().map(|class| class.metadata.name.clone()) else { return Vec::new() };
        self.desired.class_changed(&name, change.new.as_ref())
    }

    /// The driver is in `segment` on this node now, or in no segment any more. Returns the slots to refresh.
    pub fn node_changed(&mut self, node: &str, segment: Option<Segment>) -> Vec<Slot> {
        self.desired.node_changed(node, segment)
    }

    /// An object was created, changed or deleted. Returns its slots.
    pub fn object_changed(&mut self, change: &Change<CsiStorageCapacity>) -> Vec<Slot> {
        if let Some(old) = &change.old {
            let slot = slot_of(old);
            if let Some(held) = self.objects.get_mut(&slot) {
                held.remove(&ObjectName::of(old.as_ref()));
                if held.is_empty() {
                    self.objects.remove(&slot);
                }
            }
        }
        if let Some(new) = &change.new {
            self.objects.entry(slot_of(new)).or_default().insert(ObjectName::of(new.as_ref()), Arc::clone(new));
        }
        let mut slots: Vec<Slot> = change.old.iter().chain(&change.new).map(|object| slot_of(object)).collect();
        slots.dedup();
        slots
    }

    /// The objects of a slot.
    pub fn objects(&self, slot: &Slot) -> Vec<Object> {
        self.objects.get(slot).into_iter().flat_map(BTreeMap::values).cloned().collect()
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
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
