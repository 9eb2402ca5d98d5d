//! Objects that a term has to remember, by uid, because names can be reused.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// A set of uids.
#[derive(Debug, Default)]
pub(super) struct UidSet(Mutex<BTreeSet<String>>);

impl UidSet {
    /// Notes a uid.
    pub(super) fn note(&self, uid: &str) {
        self.0.lock().insert(uid.to_owned());
    }

    /// Whether it was noted.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.0.lock().contains(uid)
    }

    /// Removes it. Returns whether it was in the set.
    pub(super) fn forget(&self, uid: &str) -> bool {
        self.0.lock().remove(uid)
    }

    /// How many were noted.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
