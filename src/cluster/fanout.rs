//! The objects of one kind, and how each event changes them. Pure.
//!
//! Events come from two independent sources: the watch (with its lists), and the answers to our own writes. Each object
//! has a resourceVersion, a number that only grows, so the rules are short:
//!
//! - An event counts only if its version is newer than the held one. A late answer, a late event, or a list from before
//!   our own write never rolls an object back.
//! - An object that is missing in a *complete* list is gone, and its delete is delivered.
//! - The watch goes on from the version of a list while its pages are still read. A page's object never replaces what the watch has shown
//!   later, and does not bring back what the watch has shown to be gone.
//! - Another uid under the same name is another object: a delete, then an add.
//! - If the fields of the objects change, the objects of the next list replace held objects of the same version.
//! - An answer to our own write never adds an object: only the watch does.
//! - An object of another driver that no role has work with is held as bytes ([`Foreign`]), and comes out as it went in.
//!
//! Lists must be consistent reads (no `resourceVersion=0`): otherwise "missing" would not mean "gone".
//!
//! If the server's versions went backwards (because its database was restored from a backup), its events are ignored until the versions
//! have caught up, or until a second read has shown it ([`Fanout::go_back`]): then the next list replaces every object. Kubernetes
//! recommends to restart every controller after a restore.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::change::{Change, Origin};
use super::foreign::{Foreign, entries, hash};
use super::names::{Address, ObjectName};
use super::objects::{Cached, IndexName};
use super::packing::Packed;

/// An event with a trimmed object.
#[derive(Debug, Clone)]
pub enum News<K> {
    /// A list begins, the first one or another.
    RestartList,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    ListDone,
    /// The watch delivers the new state of the object.
    Applied(K),
    /// The watch says that the object is gone, with its last state.
    Deleted(K),
    /// The server's answer to our own write.
    OwnWrite(K),
}

/// The objects of one kind, with their indexes.
#[derive(Debug)]
pub struct Fanout<K> {
    /// Whose objects are held as they are. Without a driver, all are.
    driver: Option<Box<str>>,
    held: BTreeMap<ObjectName, Held<K>>,
    index: BTreeMap<IndexName, Entries>,
    foreign: Foreign<K>,
    round: u64,
    /// Objects from before this list have other fields than new objects.
    refitted: u64,
    /// This list replaces every object from before it, because the server's versions went backwards.
    went_back: u64,
    /// The highest version of an object that the watch or a complete list has delivered.
    heard: u128,
    /// The highest version that was delivered since a list began that is not complete: objects that are older may be on its next page.
    listed: u128,
    /// While a list is not complete: what the watch has shown to be gone since the list's version, and in which version.
    deleted: Option<BTreeMap<ObjectName, u128>>,
}

/// Hash of a value, and the object's name, in one flat set: most values have one name, and one set per value would need
/// most of the memory. The value itself is in the object, so values with the same hash can be distinguished.
type Entries = BTreeSet<(u64, ObjectName)>;

#[derive(Debug)]
struct Held<K> {
    object: Arc<K>,
    /// The last list that had it, or the last list before the last event of the watch that showed it.
    round: u64,
}

/// Where an object is held, and so how far a walk over all of them has come.
#[derive(Debug, Clone, Default)]
pub(super) enum Place {
    /// It has not begun.
    #[default]
    Start,
    /// After this object, which is held as it is.
    Own(ObjectName),
    /// After the packed object of this place.
    Foreign(u64),
}

impl<K> Default for Fanout<K> {
    fn default() -> Self {
        Self {
            driver: None,
            held: BTreeMap::new(),
            index: BTreeMap::new(),
            foreign: Foreign::default(),
            round: 0,
            refitted: 0,
            went_back: 0,
            heard: 0,
            listed: 0,
            deleted: None,
        }
    }
}

impl<K: Cached> Fanout<K> {
    /// From now on, objects of other drivers may be packed.
    pub fn serve(&mut self, driver: &str) {
        self.driver = Some(driver.into());
    }

    /// Forgets all objects, and what was heard of them.
    pub fn clear(&mut self) {
        *self = Self { driver: self.driver.take(), ..Self::default() };
    }

    /// From now on, objects have other fields. The next list replaces all objects, also those with the same version.
    pub fn refit(&mut self) {
        self.refitted = self.round + 1;
    }

    /// The server's versions went backwards: the next list replaces all objects, also by older versions.
    pub fn go_back(&mut self) {
        (self.went_back, self.heard, self.listed) = (self.round + 1, 0, 0);
    }

    /// Whether this version of an object came in an answer to our own request, and the watch may not have got as far. Then objects may
    /// be missing that are older than this version.
    pub fn is_ahead(&self, object: &K) -> bool {
        object.meta().version().is_some_and(|version| !self.has_heard(version))
    }

    /// Whether the watch or a complete list has delivered this version or a later one.
    pub fn has_heard(&self, version: u128) -> bool {
        version <= self.heard
    }

    /// Applies an event and returns the changes, in order.
    pub fn apply(&mut self, news: News<K>) -> Vec<Change<K>> {
        let version = |object: &K| object.meta().version().unwrap_or_default();
        match &news {
            News::Listed(object) | News::Applied(object) | News::Deleted(object) => {
                let reached = if self.deleted.is_some() { &mut self.listed } else { &mut self.heard };
                *reached = version(object).max(*reached);
            }
            News::ListDone => self.heard = self.heard.max(self.listed),
            News::RestartList | News::OwnWrite(_) => {}
        }
        match news {
            News::RestartList => {
                (self.round, self.listed, self.deleted) = (self.round + 1, 0, Some(BTreeMap::new()));
                Vec::new()
            }
            News::Listed(object) => {
                let name = ObjectName::of(&object);
                let deleted = self.deleted.as_ref().and_then(|deleted| deleted.get(&name));
                if deleted.is_some_and(|deleted| version(&object) <= *deleted) {
                    return Vec::new();
                }
                let changes = self.accept(&name, object, Origin::Relist);
                match self.held.get_mut(&name) {
                    Some(held) => held.round = self.round,
                    None => self.foreign.see(&name, self.round),
                }
                changes
            }
            News::ListDone => {
                self.deleted = None;
                let gone = self.gone();
                self.remove_gone(&gone)
            }
            News::Applied(object) => {
                let name = ObjectName::of(&object);
                self.accept(&name, object, Origin::Watch)
            }
            News::Deleted(object) => {
                let name = ObjectName::of(&object);
                if let Some(deleted) = &mut self.deleted {
                    deleted.insert(name.clone(), version(&object));
                }
                let same_or_later = |held: &Arc<K>| held.meta().uid == object.meta().uid || is_newer(&object, held);
                match self.get(&name).filter(same_or_later) {
                    Some(held) => vec![self.remove(&name, held, Origin::Watch)],
                    None => Vec::new(),
                }
            }
            News::OwnWrite(object) => {
                let name = ObjectName::of(&object);
                match self.get(&name) {
                    Some(held) if held.meta().uid == object.meta().uid => self.accept(&name, object, Origin::OwnWrite),
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Those that the complete list did not have.
    pub(super) fn gone(&self) -> Vec<Place> {
        let own = self.held.iter().filter(|(_, held)| held.round != self.round);
        let own = own.map(|(name, _)| Place::Own(name.clone()));
        own.chain(self.foreign.unseen(self.round).map(Place::Foreign)).collect()
    }

    /// Removes these, but for what a list had meanwhile.
    pub(super) fn remove_gone(&mut self, gone: &[Place]) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        for place in gone {
            let held = match place {
                Place::Start => None,
                Place::Own(name) => self.seen(name),
                Place::Foreign(place) => self.foreign.at(*place).map(|(object, round)| (Arc::new(object), round)),
            };
            if let Some((held, _)) = held.filter(|(_, round)| *round != self.round) {
                changes.push(self.remove(&ObjectName::of(&*held), held, Origin::Relist));
            }
        }
        changes
    }

    fn accept(&mut self, name: &ObjectName, object: K, origin: Origin) -> Vec<Change<K>> {
        let (round, refitted, went_back) = (self.round, self.refitted, self.went_back);
        let is_undone = |held: &K, seen: u64| {
            let is_other = held.meta().resource_version != object.meta().resource_version;
            origin != Origin::OwnWrite && seen < went_back && round >= went_back && is_other
        };
        let is_refit = |held: &K, seen: u64| {
            let is_same =
                held.meta().uid == object.meta().uid && held.meta().resource_version == object.meta().resource_version;
            origin == Origin::Relist && seen < refitted && round >= refitted && is_same && *held != object
        };
        let mut changes = Vec::new();
        match self.seen(name) {
            Some((held, seen)) if !is_newer(&object, &held) && !is_refit(&held, seen) && !is_undone(&held, seen) => {}
            Some((old, seen)) if old.meta().uid == object.meta().uid => {
                let new = Arc::new(object);
                self.replace(name, &old, &new, if origin == Origin::Watch { round } else { seen });
                changes.push(Change { old: Some(old), new: Some(new), origin });
            }
            held => {
                changes.extend(held.map(|(old, _)| self.remove(name, old, origin)));
                let (packed, new) = (self.packed(&object), Arc::new(object));
                self.hold(name, &new, packed, round);
                changes.push(Change { old: None, new: Some(new), origin });
            }
        }
        changes
    }

    /// The object of that name, and the list that had it.
    fn seen(&self, name: &dyn Address) -> Option<(Arc<K>, u64)> {
        match self.held.get(name) {
            Some(held) => Some((Arc::clone(&held.object), held.round)),
            None => self.foreign.get(name).map(|(object, round)| (Arc::new(object), round)),
        }
    }

    /// Holds `new` in the place of `old`, the same object in another version.
    fn replace(&mut self, name: &ObjectName, old: &Arc<K>, new: &Arc<K>, round: u64) {
        let packed = self.packed(new);
        match self.held.get_mut(name) {
            Some(held) if packed.is_none() => {
                (held.object, held.round) = (Arc::clone(new), round);
                // Most changes do not change the index entries.
                let (before, after) = (entries(&**old), entries(&**new));
                if before != after {
                    // Reuses the held name, so that the text is in memory once.
                    let name = self.held.get_key_value(name).map_or(name, |(held, _)| held).clone();
                    self.leave(&name, before);
                    self.enter(&name, after);
                }
            }
            _ => {
                self.release(name, old);
                self.hold(name, new, packed, round);
            }
        }
    }

    /// The object as bytes, if it is held so.
    fn packed(&self, object: &K) -> Option<Packed> {
        self.driver.as_ref().and_then(|driver| object.packed(driver))
    }

    /// Holds an object that was not held before.
    fn hold(&mut self, name: &ObjectName, new: &Arc<K>, packed: Option<Packed>, round: u64) {
        let is_packed = packed.is_some_and(|packed| self.foreign.insert(name, packed, new, round));
        if !is_packed {
            self.enter(name, entries(&**new));
            self.held.insert(name.clone(), Held { object: Arc::clone(new), round });
        }
    }

    /// Forgets this object, which is held.
    fn release(&mut self, name: &ObjectName, old: &K) {
        if self.held.remove(name).is_some() {
            self.leave(name, entries(old));
        } else {
            self.foreign.remove(name, old);
        }
    }

    fn remove(&mut self, name: &ObjectName, old: Arc<K>, origin: Origin) -> Change<K> {
        self.release(name, &old);
        Change { old: Some(old), new: None, origin }
    }

    fn enter(&mut self, name: &ObjectName, found: Vec<(IndexName, u64)>) {
        for (index, value) in found {
            self.index.entry(index).or_default().insert((value, name.clone()));
        }
    }

    fn leave(&mut self, name: &ObjectName, found: Vec<(IndexName, u64)>) {
        for (index, value) in found {
            if let Some(entries) = self.index.get_mut(&index) {
                entries.remove(&(value, name.clone()));
            }
        }
    }

    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<K>> {
        self.seen(name).map(|(object, _)| object)
    }

    /// The object of that name, of a cluster-scoped kind.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.seen(&name).map(|(object, _)| object)
    }

    /// The objects found under `value`, by name, and behind them the packed ones.
    pub fn find(&self, index: IndexName, value: &str) -> Vec<Arc<K>> {
        // No name sorts before the empty one.
        let hash = hash(value);
        let entries = self.index.get(&index).map(|entries| entries.range((hash, ObjectName::cluster(""))..));
        let found = entries.into_iter().flatten().take_while(|(found, _)| *found == hash);
        let own = found.filter_map(|(_, name)| self.held.get(name)).map(|held| Arc::clone(&held.object));
        let foreign = self.foreign.find(index, hash).map(Arc::new);
        own.chain(foreign).filter(|object| is_under(&**object, index, value)).collect()
    }

    /// The objects that are held as they are, by name.
    pub fn own(&self) -> impl Iterator<Item = &Arc<K>> {
        self.held.values().map(|held| &held.object)
    }

    /// Up to so many objects after a place, and the place after them: `None` at the end.
    pub(super) fn page(&self, after: &Place, most: usize) -> (Vec<Arc<K>>, Option<Place>) {
        let (bound, place) = match after {
            Place::Start => (Some(Bound::Unbounded), None),
            Place::Own(name) => (Some(Bound::Excluded(name)), None),
            Place::Foreign(place) => (None, Some(*place)),
        };
        let own = bound.map(|bound| self.held.range::<ObjectName, _>((bound, Bound::Unbounded)).take(most));
        let own: Vec<_> = own.into_iter().flatten().collect();
        if let Some((last, _)) = own.last() {
            let objects = own.iter().map(|(_, held)| Arc::clone(&held.object)).collect();
            return (objects, Some(Place::Own((*last).clone())));
        }
        let foreign = self.foreign.after(place).take(most);
        let (places, objects): (Vec<u64>, Vec<_>) = foreign.map(|(place, object)| (place, Arc::new(object))).unzip();
        (objects, places.last().copied().map(Place::Foreign))
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.len() + self.foreign.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn is_under<K: Cached>(object: &K, index: IndexName, value: &str) -> bool {
    let mut is_so = false;
    object.index(&mut |of, found| is_so |= of == index && found == value);
    is_so
}

/// Whether `news` was written after `held`. If a version is not a number, any difference counts.
fn is_newer<K: Cached>(news: &K, held: &K) -> bool {
    let (news, held) = (news.meta(), held.meta());
    match (news.version(), held.version()) {
        (Some(news), Some(held)) => news > held,
        _ => news.resource_version != held.resource_version,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{BY_VOLUME, VolumeAttachment};

    fn attachment(name: &str, version: &str) -> VolumeAttachment {
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": version });
        let spec = json!({ "attacher": "d", "source": { "persistentVolumeName": name } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn a_value_with_the_hash_of_another_finds_its_own_objects_alone() {
        let mut fanout = Fanout::<VolumeAttachment>::default();
        for (name, volume) in [("a", "pv-a"), ("b", "pv-b")] {
            let mut object = attachment(name, "1");
            object.spec.source.persistent_volume_name = Some(volume.into());
            fanout.apply(News::Applied(object));
        }
        let entries = fanout.index.get_mut(&BY_VOLUME).unwrap();
        assert!(entries.insert((hash("pv-a"), ObjectName::cluster("b"))), "as if both volumes had one hash");
        let found: Vec<_> = fanout.find(BY_VOLUME, "pv-a").iter().map(|object| object.metadata.name.clone()).collect();
        assert_eq!(found, ["a".into()]);
    }
}
