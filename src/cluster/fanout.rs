//! What is held of one kind, and what each piece of news changes in it. Pure.
//!
//! News comes from two sides that know nothing of each other: the watch (with its lists), and the answers to our own
//! writes. Each object carries its version, a number that only grows, so the rule is short:
//!
//! - Only what is newer than what is held is believed. A late answer, a late event, or a list that was made before our
//!   own write never rolls an object back.
//! - What a *complete* list lacks is gone, and is delivered as a delete.
//! - Another uid under the same name is another object: a delete, then an add.
//! - Where objects come with other fields than before, those of the next list replace what is held of the same version.
//! - An answer to our own write never brings an object (back) into being: only the watch does.
//!
//! Lists must be consistent reads (no `resourceVersion=0`): otherwise "lacks" would not mean "gone".
//!
//! A server whose versions went backwards (its database restored from a backup) is not believed until they have caught
//! up. Kubernetes asks for a restart of every controller after a restore, for this very reason.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::names::ObjectName;
use super::objects::{Cached, IndexName};

/// A piece of news, trimmed.
#[derive(Debug, Clone)]
pub enum News<K> {
    /// A list begins, the first one or another.
    RestartList,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    ListDone,
    /// The watch says that the object is now this.
    Applied(K),
    /// The watch says that the object is gone; this is how it was last.
    Deleted(K),
    /// The server's answer to our own write.
    OwnWrite(K),
}

/// Where a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was held when the subscription began.
    Replay,
    /// A watch event.
    Watch,
    /// A list.
    Relist,
    /// Our own write.
    OwnWrite,
}

/// One object's change. An add has no `old`, a delete no `new`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<K> {
    /// What was held before.
    pub old: Option<Arc<K>>,
    /// What is held now.
    pub new: Option<Arc<K>>,
    /// Where the news came from.
    pub origin: Origin,
}

/// What is held, with its indexes.
#[derive(Debug)]
pub struct Fanout<K> {
    held: BTreeMap<ObjectName, Held<K>>,
    index: BTreeMap<IndexName, Entries>,
    round: u64,
    /// What was held before this list has other fields than what comes from now on.
    refitted: u64,
}

/// Hash of a value, and name, flat: most values have one name, and a set of its own for each would be the most of what is
/// held. The value itself is in the object, which tells it from another one with the same hash.
type Entries = BTreeSet<(u64, ObjectName)>;

#[derive(Debug)]
struct Held<K> {
    object: Arc<K>,
    /// The list that last had it, or that came before the event that brought it.
    round: u64,
}

impl<K> Default for Fanout<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), index: BTreeMap::new(), round: 0, refitted: 0 }
    }
}

impl<K: Cached> Fanout<K> {
    /// From now on objects come with other fields. The next list replaces what is held, also by objects of the same version.
    pub fn refit(&mut self) {
        self.refitted = self.round + 1;
    }

    /// Takes a piece of news in and says what changed, in order.
    pub fn apply(&mut self, news: News<K>) -> Vec<Change<K>> {
        match news {
            News::RestartList => {
                self.round += 1;
                Vec::new()
            }
            News::Listed(object) => {
                let name = ObjectName::of(&object);
                let changes = self.accept(&name, object, Origin::Relist);
                if let Some(held) = self.held.get_mut(&name) {
                    held.round = self.round;
                }
                changes
            }
            News::ListDone => {
                let gone: Vec<ObjectName> = self
                    .held
                    .iter()
                    .filter(|(_, held)| held.round != self.round)
                    .map(|(name, _)| name.clone())
                    .collect();
                gone.iter().filter_map(|name| self.remove(name, Origin::Relist)).collect()
            }
            News::Applied(object) => {
                let name = ObjectName::of(&object);
                self.accept(&name, object, Origin::Watch)
            }
            News::Deleted(object) => {
                let name = ObjectName::of(&object);
                let same_or_later =
                    |held: &Held<K>| held.object.meta().uid == object.meta().uid || is_newer(&object, &held.object);
                if self.held.get(&name).is_some_and(same_or_later) {
                    self.remove(&name, Origin::Watch).into_iter().collect()
                } else {
                    Vec::new()
                }
            }
            News::OwnWrite(object) => {
                let name = ObjectName::of(&object);
                match self.held.get(&name) {
                    Some(held) if held.object.meta().uid == object.meta().uid => {
                        self.accept(&name, object, Origin::OwnWrite)
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    fn accept(&mut self, name: &ObjectName, object: K, origin: Origin) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        let (round, refitted) = (self.round, self.refitted);
        let is_refit = |held: &Held<K>| {
            let is_same = held.object.meta().uid == object.meta().uid
                && held.object.meta().resource_version == object.meta().resource_version;
            origin == Origin::Relist && held.round < refitted && round >= refitted && is_same && *held.object != object
        };
        match self.held.get_mut(name) {
            Some(held) if !is_newer(&object, &held.object) && !is_refit(held) => return changes,
            Some(held) if held.object.meta().uid == object.meta().uid => {
                let new = Arc::new(object);
                let old = std::mem::replace(&mut held.object, Arc::clone(&new));
                // Most changes leave an object where it is found.
                let (before, after) = (entries(&*old), entries(&*new));
                if before != after {
                    // The text of the name that is held already, so that there is one.
                    let name = self.held.get_key_value(name).map_or(name, |(held, _)| held).clone();
                    self.leave(&name, before);
                    self.enter(&name, after);
                }
                changes.push(Change { old: Some(old), new: Some(new), origin });
                return changes;
            }
            Some(_) => changes.extend(self.remove(name, origin)),
            None => {}
        }
        let new = Arc::new(object);
        self.enter(name, entries(&*new));
        self.held.insert(name.clone(), Held { object: Arc::clone(&new), round: self.round });
        changes.push(Change { old: None, new: Some(new), origin });
        changes
    }

    fn remove(&mut self, name: &ObjectName, origin: Origin) -> Option<Change<K>> {
        let held = self.held.remove(name)?;
        self.leave(name, entries(&*held.object));
        Some(Change { old: Some(held.object), new: None, origin })
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
    pub fn get(&self, name: &ObjectName) -> Option<&Arc<K>> {
        self.held.get(name).map(|held| &held.object)
    }

    /// The objects found under `value`, by name.
    pub fn find<'a>(&'a self, index: IndexName, value: &str) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        // No name sorts before the empty one.
        let (value, hash) = (Box::<str>::from(value), hash(value));
        let entries = self.index.get(&index).map(|entries| entries.range((hash, ObjectName::cluster(""))..));
        let found = entries.into_iter().flatten().take_while(move |(found, _)| *found == hash);
        found.filter_map(|(_, name)| self.get(name)).filter(move |object| is_under(object.as_ref(), index, &value))
    }

    /// Every object, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.held.values().map(|held| &held.object)
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Under what an object can be found.
fn entries<K: Cached>(object: &K) -> Vec<(IndexName, u64)> {
    let mut found = Vec::new();
    object.index(&mut |index, value| found.push((index, hash(value))));
    found
}

fn is_under<K: Cached>(object: &K, index: IndexName, value: &str) -> bool {
    let mut is_so = false;
    object.index(&mut |of, found| is_so |= of == index && found == value);
    is_so
}

fn hash(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether `news` was written after `held`. Should a version be no number, then any difference counts.
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

    #[test]
    fn a_value_with_the_hash_of_another_finds_its_own_objects_alone() {
        let mut fanout = Fanout::<VolumeAttachment>::default();
        for (name, volume) in [("a", "pv-a"), ("b", "pv-b")] {
            let object = json!({
                "metadata": { "name": name, "uid": name, "resourceVersion": "1" },
                "spec": { "attacher": "d", "source": { "persistentVolumeName": volume } },
            });
            fanout.apply(News::Applied(serde_json::from_value(object).unwrap()));
        }
        let entries = fanout.index.get_mut(&BY_VOLUME).unwrap();
        assert!(entries.insert((hash("pv-a"), ObjectName::cluster("b"))), "as if both volumes had one hash");
        let found: Vec<_> = fanout.find(BY_VOLUME, "pv-a").map(|object| object.metadata.name.clone()).collect();
        assert_eq!(found, ["a".into()]);
    }
}
