//! Values by the uid of an object, which a term remembers: names come back, uids do not.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value for some uids.
#[derive(Debug)]
pub struct ByUid<V>(Mutex<BTreeMap<String, V>>);

impl<V> Default for ByUid<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> ByUid<V> {
    /// The value.
    pub fn get(&self, uid: &str) -> Option<V> {
        self.lock().get(uid).cloned()
    }

    /// Puts a value in place of the one before.
    pub fn set(&self, uid: &str, value: V) {
        self.lock().insert(uid.to_owned(), value);
    }

    /// There is no value any more.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
