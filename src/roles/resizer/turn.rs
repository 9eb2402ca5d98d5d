//! A turn is the right to change a volume: one change at a time, across all roles. If the driver needs it, both jobs of one claim
//! share a turn.
//!
//! Jobs that share a turn write to the same two objects: together if both come with a write at the same time (`joint`), else one after
//! the other, so that neither makes the other's write fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, OnceCell};

use crate::csi::{VolumeLock, VolumeLocks};

use super::joint::Desk;

/// A turn. It ends when the last attempt that shares it has ended.
#[derive(Debug, Clone)]
pub struct Turn(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lock: OnceCell<VolumeLock>,
    writes: tokio::sync::Mutex<()>,
    desk: Desk,
}

/// The turns that are shared: by the uid of the claim and the handle of its volume.
#[derive(Debug, Default)]
pub struct Turns {
    pairs: bool,
    open: Mutex<BTreeMap<(String, String), Weak<Shared>>>,
}

impl Turns {
    /// `pairs`: both jobs of one claim share a turn.
    pub fn new(pairs: bool) -> Self {
        Self { pairs, open: Mutex::default() }
    }

    /// Whether both jobs of one claim share a turn.
    pub fn pairs(&self) -> bool {
        self.pairs
    }

    /// A turn for a job of this claim. The caller must wait for it with [`Turn::begin`].
    pub fn join(&self, claim: &str, handle: &str) -> Turn {
        if !self.pairs {
            return Turn(Arc::default());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, turn| turn.strong_count() > 0);
        let key = (claim.to_owned(), handle.to_owned());
        if let Some(turn) = open.get(&key).and_then(Weak::upgrade) {
            return Turn(turn);
        }
        let turn = Arc::default();
        open.insert(key, Arc::downgrade(&turn));
        Turn(turn)
    }
}

impl Turn {
    /// Waits until the volume is locked for this turn.
    pub async fn begin(&self, locks: &VolumeLocks, handle: &str) {
        self.0.lock.get_or_init(|| locks.acquire(handle)).await;
    }

    /// Whether another job takes part in it now.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Where the jobs that take part meet with their writes.
    pub fn desk(&self) -> &Desk {
        &self.0.desk
    }

    /// The right to write to claim and volume.
    pub async fn writes(&self) -> MutexGuard<'_, ()> {
        self.0.writes.lock().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;
    use futures::FutureExt as _;

    #[test]
    fn z50_both_jobs_of_a_claim_share_a_turn_only_where_calls_are_paired() {
        for pairs in [true, false] {
            let (turns, locks) = (Turns::new(pairs), VolumeLocks::new(Clock::system()));
            let begins = |turn: &Turn| turn.begin(&locks, "handle").now_or_never().is_some();
            let (one, other) = (turns.join("claim", "handle"), turns.join("claim", "handle"));
            assert!(begins(&one));
            assert_eq!(begins(&other), pairs);
            let stranger = turns.join("other claim", "handle");
            assert!(!begins(&stranger), "another claim with the same volume waits");
            drop((one, other));
            assert!(begins(&stranger));
            assert!(!begins(&turns.join("claim", "handle")), "a turn that has ended is not joined");
        }
    }
}
