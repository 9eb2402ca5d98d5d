//! What a term knows of its claims, by uid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::claim::Claim;
use super::phase::Phase;
use super::state::ClaimState;
use crate::roles::provisioner::sources::protection::SourceKey;

/// What the term knows of each claim that was begun or has failed.
#[derive(Debug, Default)]
pub struct ClaimStates(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_uid: BTreeMap<Arc<str>, ClaimState>,
    /// How many of them need a source: each clone of a thousand asks whether it was the last.
    users: BTreeMap<SourceKey, usize>,
}

impl Entries {
    fn insert(&mut self, state: ClaimState) {
        if let Some(source) = needed_by(&state) {
            *self.users.entry(source).or_default() += 1;
        }
        let before = self.by_uid.insert(state.claim.key.uid.clone(), state);
        self.left(before.as_ref());
    }

    fn remove(&mut self, uid: &str) {
        let before = self.by_uid.remove(uid);
        self.left(before.as_ref());
    }

    fn left(&mut self, before: Option<&ClaimState>) {
        let Some(source) = before.and_then(needed_by) else { return };
        if let Some(users) = self.users.get_mut(&source) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&source);
            }
        }
    }
}

/// The source that the driver may still make a claim's volume from.
fn needed_by(state: &ClaimState) -> Option<SourceKey> {
    if state.is_begun() { SourceKey::of(&state.claim.object) } else { None }
}

impl ClaimStates {
    /// What is known of the claim of this uid.
    pub fn get(&self, uid: &str) -> Option<ClaimState> {
        self.lock().by_uid.get(uid).cloned()
    }

    /// Notes how far a claim is.
    pub fn put(&self, state: ClaimState) {
        self.lock().insert(state);
    }

    /// Notes a claim that is marked, unless it is known already.
    pub fn note_marked(&self, claim: Claim) {
        let mut book = self.lock();
        if !book.by_uid.contains_key(&claim.key.uid) {
            book.insert(ClaimState::at_first_sight(claim));
        }
    }

    /// Nothing of the claim is left to be known.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether a volume of this claim may exist that only the entry, or the claim's mark, tells of.
    pub fn is_begun(&self, uid: &str) -> bool {
        self.lock().by_uid.get(uid).is_some_and(ClaimState::is_begun)
    }

    /// Whether a claim that names this source was begun.
    pub fn is_used(&self, source: &SourceKey) -> bool {
        self.lock().users.contains_key(source)
    }

    /// How many volumes wait for their volume object, and how many answers are outstanding: without those that are another
    /// node's driver's to give.
    pub fn count(&self, is_anothers: impl Fn(&Claim) -> bool) -> (usize, usize) {
        let book = self.lock();
        let unsaved = book.by_uid.values().filter(|state| matches!(state.phase(), Phase::Created(_))).count();
        let is_outstanding =
            |state: &&ClaimState| state.is_creating() && !(state.is_anothers() && is_anothers(&state.claim));
        (unsaved, book.by_uid.values().filter(is_outstanding).count())
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
    use crate::roles::provisioner::claims::phase::Asker;
    use crate::roles::provisioner::fixtures::{self, DRIVER};

    #[test]
    fn a_source_is_used_as_long_as_a_claim_that_was_begun_names_it() {
        let clone = |uid: &str, of: &str| {
            let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": of } });
            let object = fixtures::claim(json!({ "metadata": { "uid": uid }, "spec": source }));
            ClaimState::at_first_sight(Claim::parse(Arc::new(object), DRIVER, "mark"))
        };
        let creating = Phase::Creating { plan: None, by: Asker::Us, confirmed: true, kept: None };
        let begun = |uid: &str, of: &str| ClaimState::at(clone(uid, of).claim, creating.clone());
        let key = |of: &str| SourceKey::of(&clone("u", of).claim.object).unwrap();
        let (book, one, other) = (ClaimStates::default(), key("one"), key("other"));
        book.put(clone("u1", "one"));
        assert!(!book.is_used(&one), "nothing was begun");
        book.put(begun("u1", "one"));
        book.put(begun("u1", "one"));
        book.put(begun("u2", "one"));
        assert!(book.is_used(&one) && !book.is_used(&other));
        book.note_marked(clone("u2", "one").claim);
        book.forget("u1");
        book.forget("u1");
        assert!(book.is_used(&one), "by the second");
        // As when somebody has made the claim anew under its uid: the entry counts as it is.
        book.put(begun("u2", "other"));
        assert!(!book.is_used(&one) && book.is_used(&other));
        let stored = Phase::Stored { plan: None, by: Asker::Us, success: None };
        book.put(ClaimState::at(clone("u2", "other").claim, stored));
        assert!(!book.is_used(&other), "its volume is stored");
        assert!(book.lock().users.is_empty(), "nothing is left of it");
    }
}
