//! Which claims wait for something by which the caches cannot find them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cluster::ObjectName;

use super::claim::ClaimKey;

/// Something that claims wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// Any change of the driver's nodes.
    AnyNode,
    /// The deletion of the PersistentVolume with this name.
    Name(ObjectName),
}

/// The claims that wait, and what they wait for.
#[derive(Debug, Default)]
pub struct PendingOn(Mutex<Waiting>);

/// The relation, in both directions.
#[derive(Debug, Default)]
struct Waiting {
    by_what: BTreeMap<Dependency, BTreeSet<ClaimKey>>,
    by_claim: BTreeMap<ClaimKey, BTreeSet<Dependency>>,
}

impl PendingOn {
    /// Notes that a claim waits for this.
    pub fn add(&self, what: Dependency, key: ClaimKey) {
        let mut waiting = self.lock();
        waiting.by_claim.entry(key.clone()).or_default().insert(what.clone());
        waiting.by_what.entry(what).or_default().insert(key);
    }

    /// Takes the claims that wait for this.
    pub fn take(&self, what: &Dependency) -> BTreeSet<ClaimKey> {
        let mut waiting = self.lock();
        let keys = waiting.by_what.remove(what).unwrap_or_default();
        for key in &keys {
            drop_from(&mut waiting.by_claim, key, what);
        }
        keys
    }

    /// Removes a claim that waits for nothing any more.
    pub fn forget(&self, key: &ClaimKey) {
        let mut waiting = self.lock();
        for what in waiting.by_claim.remove(key).unwrap_or_default() {
            drop_from(&mut waiting.by_what, &what, key);
        }
    }

    /// Whether no claim waits for anything.
    #[cfg(test)]
    pub(in crate::roles::provisioner) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.by_what.is_empty() && waiting.by_claim.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a value of a key, and the key together with its last value.
fn drop_from<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, one: &V) {
    if let Some(all) = map.get_mut(key) {
        all.remove(one);
        if all.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_waits_for_nothing_any_more_leaves_nothing() {
        let waits = PendingOn::default();
        let key = |uid: &str| ClaimKey { uid: uid.into(), name: ObjectName::namespaced("shop", "data") };
        let name = Dependency::Name(ObjectName::cluster("pvc-1"));
        for (what, uid) in [(&Dependency::AnyNode, "u1"), (&name, "u1"), (&Dependency::AnyNode, "u2")] {
            waits.add(what.clone(), key(uid));
        }
        waits.forget(&key("u1"));
        assert_eq!(waits.take(&name), BTreeSet::new());
        assert_eq!(waits.take(&Dependency::AnyNode), BTreeSet::from([key("u2")]));
        assert!(waits.is_empty());
    }
}
