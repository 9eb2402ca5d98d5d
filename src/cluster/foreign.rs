//! The packed objects of one kind: those of other drivers that no role has work with ([`Cached::packed`]). Pure.
//!
//! They are found by the hash of their name, so that the name is in memory once. Of two names with one hash the cache holds the second
//! object as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::marker::PhantomData;
use std::ops::Bound;

use super::names::{Address, ObjectName};
use super::objects::{Cached, IndexName};
use super::packing::Packed;

/// Packed objects, with their indexes.
#[derive(Debug)]
pub(super) struct Foreign<K> {
    by_name: BTreeMap<u64, Held>,
    /// Hash of a value, hash of a name.
    index: BTreeMap<IndexName, BTreeSet<(u64, u64)>>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Held {
    packed: Packed,
    /// The last list that had it, or the last list before the event that added it.
    round: u64,
}

impl<K> Default for Foreign<K> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), index: BTreeMap::new(), kind: PhantomData }
    }
}

/// The same for one value in each process, and in the next one.
pub(super) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The index entries of an object.
pub(super) fn entries<K: Cached>(object: &K) -> Vec<(IndexName, u64)> {
    let mut found = Vec::new();
    object.index(&mut |index, value| found.push((index, hash(value))));
    found
}

impl<K: Cached> Foreign<K> {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The object of that name, and the list that had it.
    pub(super) fn get(&self, name: &dyn Address) -> Option<(K, u64)> {
        self.at(hash(name.parts())).filter(|(object, _)| ObjectName::of(object).parts() == name.parts())
    }

    /// The object of that place, and the list that had it.
    pub(super) fn at(&self, place: u64) -> Option<(K, u64)> {
        let held = self.by_name.get(&place)?;
        Some((K::opened(&held.packed)?, held.round))
    }

    /// Holds an object that was not held before. `false`: another name has the hash of its name.
    pub(super) fn insert(&mut self, name: &ObjectName, packed: Packed, object: &K, round: u64) -> bool {
        let name = hash(name.parts());
        if self.by_name.contains_key(&name) {
            return false;
        }
        for (index, value) in entries(object) {
            self.index.entry(index).or_default().insert((value, name));
        }
        self.by_name.insert(name, Held { packed, round });
        true
    }

    /// Removes this object, which is held.
    pub(super) fn remove(&mut self, name: &ObjectName, object: &K) {
        let name = hash(name.parts());
        for (index, value) in entries(object) {
            if let Some(held) = self.index.get_mut(&index) {
                held.remove(&(value, name));
            }
        }
        self.by_name.remove(&name);
    }

    /// A list has this object, which is held.
    pub(super) fn see(&mut self, name: &ObjectName, round: u64) {
        if let Some(held) = self.by_name.get_mut(&hash(name.parts())) {
            held.round = round;
        }
    }

    /// The places of those that the list `round` did not have.
    pub(super) fn unseen(&self, round: u64) -> impl Iterator<Item = u64> {
        self.by_name.iter().filter(move |(_, held)| held.round != round).map(|(place, _)| *place)
    }

    /// Those of which an index has a value with this hash, in no order.
    pub(super) fn find(&self, index: IndexName, value: u64) -> impl Iterator<Item = K> {
        let found = self.index.get(&index).map(|held| held.range((value, 0)..=(value, u64::MAX)));
        found.into_iter().flatten().filter_map(|(_, name)| K::opened(&self.by_name.get(name)?.packed))
    }

    /// Those after a place, in no order, each with its place.
    pub(super) fn after(&self, place: Option<u64>) -> impl Iterator<Item = (u64, K)> {
        let after = self.by_name.range((place.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        after.filter_map(|(place, held)| Some((*place, K::opened(&held.packed)?)))
    }
}
