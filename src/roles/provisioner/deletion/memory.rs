//! What a term knows of the volumes that it deletes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::roles::kit::UidSet;
use crate::roles::kit::freshness::ListedOnce;

/// What the attempts of a term share.
#[derive(Debug, Default)]
pub struct DeletionMemory {
    /// Which volumes wait until they are detached.
    pub detaching: Detaching,
    /// The uids of the volumes that the driver has deleted in this term.
    pub deleted: UidSet,
    /// Whether volumes and attachments were listed since the term began.
    pub relisted: ListedOnce,
}

/// Which volumes wait until they are detached, and by how many attachments they are held.
#[derive(Debug, Default)]
pub struct Detaching(Mutex<BTreeMap<String, usize>>);

impl Detaching {
    /// A volume waits.
    pub fn note(&self, volume: &str, attachments: usize) {
        self.lock().insert(volume.to_owned(), attachments);
    }

    /// It waits no more. Says whether it did.
    pub fn forget(&self, volume: &str) -> bool {
        self.lock().remove(volume).is_some()
    }

    /// All that wait, by name.
    pub fn all(&self) -> Vec<(String, usize)> {
        self.lock().iter().map(|(volume, attachments)| (volume.clone(), *attachments)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
