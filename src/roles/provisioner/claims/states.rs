//! The states of the claims in this term, by uid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::claim::ClaimKey;
use super::phase::Phase;
use super::state::ClaimState;
use crate::roles::provisioner::sources::protection::SourceKey;

/// The state of each claim whose request was sent or that has failed.
#[derive(Debug, Default)]
pub struct ClaimStates(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_uid: BTreeMap<Arc<str>, ClaimState>,
    /// How many claims need each source. Each of a thousand clones checks whether it was the last one, so this is counted.
    users: BTreeMap<SourceKey, usize>,
    /// The claims whose volume of this name exists or is requested, by uid.
    by_volume: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl Entries {
    fn insert(&mut self, state: ClaimState) -> Option<SourceKey> {
        if let Some(source) = needed_by(&state) {
            *self.users.entry(source).or_default() += 1;
        }
        let (uid, name) = (state.claim.key.uid.clone(), volume_of(&state).map(Box::from));
        let before = self.by_uid.insert(uid.clone(), state);
        let freed = self.left(before.as_ref());
        if let Some(name) = name {
            self.by_volume.entry(name).or_default().insert(uid);
        }
        freed
    }

    fn remove(&mut self, uid: &str) -> Option<SourceKey> {
        let before = self.by_uid.remove(uid);
        self.left(before.as_ref())
    }

    /// Returns the source that has lost its last user.
    fn left(&mut self, before: Option<&ClaimState>) -> Option<SourceKey> {
        let before = before?;
        if let Some(name) = volume_of(before)
            && let Some(uids) = self.by_volume.get_mut(name)
        {
            uids.remove(&before.claim.key.uid);
            if uids.is_empty() {
                self.by_volume.remove(name);
            }
        }
        let source = needed_by(before)?;
        let users = self.users.get_mut(&source)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.users.remove(&source);
        Some(source)
    }
}

/// The source from which the driver may still be creating a claim's volume.
fn needed_by(state: &ClaimState) -> Option<SourceKey> {
    state.plan().filter(|_| state.is_begun())?.source.clone()
}

/// The name of the volume that the driver was asked for, until the cache shows its PersistentVolume.
fn volume_of(state: &ClaimState) -> Option<&str> {
    let plan = state.plan().filter(|_| state.is_begun() || state.is_stored())?;
    Some(&plan.request.volume_name)
}

impl ClaimStates {
    /// The state of the claim with this uid.
    pub fn get(&self, uid: &str) -> Option<ClaimState> {
        self.lock().by_uid.get(uid).cloned()
    }

    /// Stores the state of a claim. Returns a source that no claim needs any more because of that.
    #[must_use]
    pub fn put(&self, state: ClaimState) -> Option<SourceKey> {
        self.lock().insert(state)
    }

    /// Stores the state of a claim from the journal, unless the claim has one already.
    pub fn note_resumed(&self, state: ClaimState) {
        let mut book = self.lock();
        if !book.by_uid.contains_key(&state.claim.key.uid) {
            book.insert(state);
        }
    }

    /// Removes the state of a claim. Returns a source that no claim needs any more because of that.
    #[must_use]
    pub fn forget(&self, uid: &str) -> Option<SourceKey> {
        self.lock().remove(uid)
    }

    /// Another claim than that of this uid whose volume of this name is requested or was created in this term: two claims have the
    /// same volume name if `volumeNameUuidLength` is short.
    pub fn namesake(&self, volume_name: &str, uid: &str) -> Option<ClaimKey> {
        let book = self.lock();
        let other = book.by_volume.get(volume_name)?.iter().find(|other| &***other != uid)?;
        book.by_uid.get(other).map(|state| state.claim.key.clone())
    }

    /// Whether a volume of this claim may exist that no PersistentVolume names.
    pub fn is_begun(&self, uid: &str) -> bool {
        self.lock().by_uid.get(uid).is_some_and(ClaimState::is_begun)
    }

    /// Whether the volume of this claim exists, and the last attempt to store its PersistentVolume has failed.
    pub fn is_unsaved(&self, uid: &str) -> bool {
        let is_unsaved =
            |state: &ClaimState| matches!(state.phase(), Phase::Created(_)) && state.reported.failure.is_some();
        self.lock().by_uid.get(uid).is_some_and(is_unsaved)
    }

    /// Whether the driver may still be creating a volume from this source.
    pub fn is_used(&self, source: &SourceKey) -> bool {
        self.lock().users.contains_key(source)
    }

    /// How many volumes wait for their PersistentVolume, and how many requests wait for the driver's final answer.
    pub fn count(&self) -> (usize, usize) {
        let book = self.lock();
        let unsaved = book.by_uid.values().filter(|state| matches!(state.phase(), Phase::Created(_))).count();
        (unsaved, book.by_uid.values().filter(|state| state.is_creating()).count())
    }

    /// All entries, by uid.
    pub fn all(&self) -> Vec<ClaimState> {
        self.lock().by_uid.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::roles::provisioner::claims::claim::Claim;
    use crate::roles::provisioner::claims::phase::{Asker, Plan};
    use crate::roles::provisioner::fixtures::{self, DRIVER};

    #[test]
    fn a_source_is_used_as_long_as_a_claim_that_was_begun_names_it() {
        let claim = |uid: &str, of: &str| {
            let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": of } });
            let object = fixtures::claim(json!({ "metadata": { "uid": uid }, "spec": source }));
            Claim::parse(Arc::new(object), DRIVER)
        };
        let key = |of: &str| SourceKey::of(&claim("u", of).object).unwrap();
        let plan = |of: &str| {
            let request = Arc::new(fixtures::request(json!({}), json!({})));
            Box::new(Plan { request, source: Some(key(of)), node: None, no_error_is_final: false, unproven: None })
        };
        let by = Asker::ThisTerm;
        let begun = |uid: &str, of: &str| {
            ClaimState::at(claim(uid, of), Phase::Creating { plan: plan(of), by, confirmed: true, kept: None })
        };
        let (book, one, other) = (ClaimStates::default(), key("one"), key("other"));
        let first = ClaimState::at_first_sight(claim("u1", "one"));
        assert_eq!(book.put(first), None);
        assert!(!book.is_used(&one), "nothing was begun");
        for (uid, freed) in [("u1", None), ("u1", None), ("u2", None)] {
            assert_eq!(book.put(begun(uid, "one")), freed, "{uid}");
        }
        assert!(book.is_used(&one) && !book.is_used(&other));
        book.note_resumed(ClaimState::at_first_sight(claim("u2", "one")));
        assert_eq!((book.forget("u1"), book.forget("u1")), (None, None), "the second needs it");
        assert!(book.is_used(&one));
        // The same uid with another source: the state counts as it is.
        assert_eq!(book.put(begun("u2", "other")), Some(one.clone()));
        assert!(!book.is_used(&one) && book.is_used(&other));
        let stored = Phase::Stored { plan: Some(plan("other")), by, version: None, success: None };
        assert_eq!(book.put(ClaimState::at(claim("u2", "other"), stored)), Some(other.clone()));
        assert!(!book.is_used(&other), "its volume is stored");
        assert!(book.lock().users.is_empty(), "nothing is left of it");
        let name = fixtures::request(json!({}), json!({})).volume_name;
        assert_eq!(book.namesake(&name, "u3").unwrap().uid.as_ref(), "u2", "its volume is not seen yet");
        assert_eq!((book.namesake(&name, "u2"), book.namesake("another", "u3")), (None, None));
        assert_eq!(book.put(ClaimState::at_first_sight(claim("u2", "other"))), None);
        assert!(book.lock().by_volume.is_empty(), "nor of that");
    }
}
