//! What a term knows about the volumes that it deletes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::roles::kit::UidSet;
use crate::roles::kit::freshness::ListedOnce;

/// What the attempts of a term share.
#[derive(Debug, Default)]
pub struct DeletionMemory {
    /// The volumes that wait for their detach.
    pub detaching: Detaching,
    /// The uids of the volumes that the driver has deleted in this term.
    pub deleted: UidSet,
    /// Whether volumes and attachments were listed since the term began.
    pub relisted: ListedOnce,
}

/// The volumes that wait for their detach, each with the number of its attachments.
#[derive(Debug, Default)]
pub struct Detaching(Mutex<BTreeMap<String, usize>>);

impl Detaching {
    /// Adds a volume that waits.
    pub fn note(&self, volume: &str, attachments: usize) {
        self.lock().insert(volume.to_owned(), attachments);
    }

    /// Removes a volume. Returns whether it waited.
    pub fn forget(&self, volume: &str) -> bool {
        self.lock().remove(volume).is_some()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<(String, usize)> {
        self.lock().iter().map(|(volume, attachments)| (volume.clone(), *attachments)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
