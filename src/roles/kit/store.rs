//! A kind's cache during a term, with what the term knows of its objects.
//!
//! A new leader's cache is warm, but may be late: the last leader may have changed or released an object that the cache still shows as
//! it was, and another object of the same name may exist. So each object is confirmed by one read before the driver is called for it.
//! Within a term nobody else leads, so once is enough.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::debug;

use crate::cluster::{Cache, Cached, Change, Each, IndexName, Meta, ObjectName};
use crate::process::ErrorChain;

use super::freshness::ListedOnce;
use super::scope::TermScope;
use super::uid_set::UidSet;

/// Pause between two attempts to get the version at which the term began, which saves reads. No task waits for it.
const TERM_START_PAUSE: Duration = Duration::from_secs(5);

/// A kind's cache during a term. Clones share it. A role reads it; only [`Io`](super::Io) writes to it.
pub struct Store<K: Cached>(Arc<Inner<K>>);

struct Inner<K: Cached> {
    cache: Cache<K>,
    /// Whether the objects were listed since the term began. Without a list, the absence of an object proves nothing.
    listed: ListedOnce,
    /// The uids of the objects that the API has shown during the term: by a read, or as its answer to a write.
    confirmed: UidSet,
    /// The kind's version when the term began, if it is known. What was written later was written during the term, and no other replica
    /// has led since.
    term_start: OnceLock<u128>,
}

impl<K: Cached> Store<K> {
    /// Nothing is known yet.
    pub fn of(cache: &Cache<K>) -> Self {
        Self(Arc::new(Inner {
            cache: cache.clone(),
            listed: ListedOnce::default(),
            confirmed: UidSet::default(),
            term_start: OnceLock::new(),
        }))
    }

    /// An object of its cache has changed: forgets an object that is gone.
    pub(super) fn changed(&self, change: &Change<K>) {
        let Some(old) = &change.old else { return };
        let uid = &old.meta().uid;
        if change.new.as_ref().is_none_or(|new| new.meta().uid != *uid) {
            self.0.confirmed.forget(uid);
        }
    }

    /// Reads the kind's version once the term has begun, and then waits for ever. Until it is known, each object is confirmed by a read.
    pub async fn note_term_start(self, scope: Arc<TermScope>) {
        while let Ok(api) = scope.api.use_now() {
            match api.latest_version::<K>().await {
                Ok(Some(version)) => self.began_at(version),
                Ok(None) => {}
                Err(error) => {
                    debug!(error = %ErrorChain(&error), "cannot tell yet which objects are written during the term");
                    tokio::time::sleep(TERM_START_PAUSE).await;
                    continue;
                }
            }
            break;
        }
        // The end of a task counts as a failure.
        std::future::pending::<()>().await;
    }

    /// The object of that name.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<K>> {
        self.0.cache.get(name)
    }

    /// The object of that name, of a cluster-scoped kind.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.0.cache.named(name)
    }

    /// The objects found under `value` in an index, by name.
    pub fn find(&self, index: IndexName, value: &str) -> Vec<Arc<K>> {
        self.0.cache.find(index, value)
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.0.cache.all()
    }

    /// The same, one after the other, as [`Cache::each`].
    pub fn each(&self) -> Each<K> {
        self.0.cache.each()
    }

    /// All objects, by name, but those of other drivers that no role has work with, as [`Cache::own`].
    pub fn own(&self) -> Vec<Arc<K>> {
        self.0.cache.own()
    }

    /// Whether it has an object of this name and uid, in no namespace.
    pub fn has(&self, name: &str, uid: &str) -> bool {
        self.named(name).is_some_and(|object| *object.meta().uid == *uid)
    }

    /// Whether the API has shown this object during the term.
    pub fn is_confirmed(&self, object: &K) -> bool {
        self.0.confirmed.has(&object.meta().uid) || self.is_of_term(object.meta())
    }

    /// Whether the objects were listed since the term began.
    pub fn is_listed(&self) -> bool {
        self.0.listed.is_done()
    }

    /// Waits until the objects were listed once in this term.
    pub async fn list(&self) {
        self.0.listed.wait(|| self.0.cache.relisted()).await;
    }

    /// Whether the watch has got to this version.
    pub fn has_heard(&self, version: u128) -> bool {
        self.0.cache.has_heard(version)
    }

    /// Whether this version of an object came in an answer, so that older objects may be missing.
    pub fn is_ahead(&self, object: &K) -> bool {
        self.0.cache.is_ahead(object)
    }

    /// For subscriptions.
    pub(super) fn cache(&self) -> &Cache<K> {
        &self.0.cache
    }

    /// The API has shown the object. Its deletion may have been seen before the answer came, and is not seen again.
    pub(super) fn confirm(&self, object: &K) {
        let uid = &object.meta().uid;
        self.0.confirmed.note(uid);
        let held = self.get(&ObjectName::of(object));
        if held.is_none_or(|held| held.meta().uid != *uid) {
            self.0.confirmed.forget(uid);
        }
    }

    /// The API has said that the object is gone, and the cache may show it for a while: who would act on that has to read it again.
    pub(super) fn doubt(&self, object: &K) {
        self.0.confirmed.forget(&object.meta().uid);
    }

    fn began_at(&self, version: u128) {
        // The first version is the better one.
        let _ = self.0.term_start.set(version);
    }

    fn is_of_term(&self, object: &Meta) -> bool {
        self.0.term_start.get().zip(object.version()).is_some_and(|(start, version)| *start < version)
    }

    /// How many objects are confirmed.
    #[cfg(test)]
    pub(crate) fn confirmed(&self) -> usize {
        self.0.confirmed.len()
    }

    /// Whether an object with this uid is confirmed.
    #[cfg(test)]
    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.0.confirmed.has(uid)
    }
}

impl<K: Cached> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Cached> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("kind", &K::KIND).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Caches, PersistentVolume, SmolStr};

    fn of_term(term_start: &[u128], version: Option<&str>) -> bool {
        let store = Store::of(&Caches::new().want::<PersistentVolume>());
        for start in term_start {
            store.began_at(*start);
        }
        store.is_of_term(&Meta { resource_version: version.map(SmolStr::from), ..Meta::default() })
    }

    #[test]
    fn only_a_later_version_than_one_that_is_known_is_of_the_term() {
        for (term_start, version, expected) in [
            (Some(7), Some("8"), true),
            // Numbers, not texts.
            (Some(9), Some("10"), true),
            (Some(10), Some("9"), false),
            // It was there when the term began.
            (Some(7), Some("7"), false),
            (Some(7), Some("6"), false),
            (Some(7), Some("later"), false),
            (Some(7), Some(""), false),
            (Some(7), None, false),
            (None, Some("8"), false),
            (None, None, false),
        ] {
            assert_eq!(of_term(term_start.as_slice(), version), expected, "{term_start:?} {version:?}");
        }
        assert!(of_term(&[7, 9], Some("8")), "the first version that is told counts");
    }
}
