//! Turns of snapshots, across all roles: any number of calls may read a snapshot at once, and none beside the call that deletes it
//! (snapshotter spec 13).
//!
//! Ids that differ only in the spelling have one turn. The registry is not the one of volumes, because the id of a volume and the id of a snapshot may be the same text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use crate::process::{Clock, folded};

/// The registry of turns per snapshot. Clones share it; it outlives a driver's restart.
#[derive(Clone)]
pub struct SnapshotLocks(Arc<Shared>);

struct Shared {
    clock: Clock,
    /// By the [folded] id.
    snapshots: Mutex<BTreeMap<String, Entry>>,
}

/// A snapshot with at least one holder or waiter.
struct Entry {
    /// As it was spelled first.
    id: String,
    turn: Arc<RwLock<()>>,
    waiting: usize,
    holders: usize,
    held_since: Option<Instant>,
}

/// The turn of one snapshot. Dropping it ends the turn.
#[must_use = "the turn ends as soon as the guard is dropped"]
pub struct SnapshotLock {
    locks: SnapshotLocks,
    snapshot_id: String,
    turn: Option<Turn>,
}

/// The guard inside of a turn: held for its `Drop`.
#[expect(dead_code, reason = "a guard is held, not read")]
enum Turn {
    Shared(OwnedRwLockReadGuard<()>),
    Exclusive(OwnedRwLockWriteGuard<()>),
}

/// The calls about one snapshot, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotActivity {
    /// The snapshot's id.
    pub snapshot_id: String,
    /// How long it has been held; `None` between two turns.
    pub running_for: Option<Duration>,
    /// How many calls wait.
    pub waiting: usize,
}

impl SnapshotLocks {
    /// An empty registry.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared { clock, snapshots: Mutex::default() }))
    }

    /// Waits for the turn of a call that changes the snapshot, in FIFO order. Dropping the future leaves the queue.
    pub async fn exclusive(&self, snapshot_id: &str) -> SnapshotLock {
        let place = Place::take(self, snapshot_id);
        let turn = Arc::clone(&place.turn).write_owned().await;
        place.begin(Turn::Exclusive(turn))
    }

    /// Waits for the turn of a call that only reads the snapshot.
    pub async fn shared(&self, snapshot_id: &str) -> SnapshotLock {
        let place = Place::take(self, snapshot_id);
        let turn = Arc::clone(&place.turn).read_owned().await;
        place.begin(Turn::Shared(turn))
    }

    /// What runs or waits now, by snapshot id.
    pub fn snapshot(&self) -> Vec<SnapshotActivity> {
        let now = self.0.clock.now();
        let activity = |entry: &Entry| SnapshotActivity {
            snapshot_id: entry.id.clone(),
            running_for: entry.held_since.map(|since| now.saturating_duration_since(since)),
            waiting: entry.waiting,
        };
        self.lock().values().map(activity).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.snapshots.lock()
    }

    fn change(&self, snapshot_id: &str, change: impl FnOnce(&mut Entry)) {
        let (mut snapshots, key) = (self.lock(), folded(snapshot_id));
        let Some(entry) = snapshots.get_mut(&key) else { return };
        change(entry);
        if entry.waiting == 0 && entry.holders == 0 {
            snapshots.remove(&key);
        }
    }
}

/// A place in one snapshot's queue, released on drop.
struct Place {
    locks: SnapshotLocks,
    snapshot_id: String,
    turn: Arc<RwLock<()>>,
}

impl Place {
    fn take(locks: &SnapshotLocks, snapshot_id: &str) -> Self {
        let mut snapshots = locks.lock();
        let entry = snapshots.entry(folded(snapshot_id)).or_insert_with(|| Entry {
            id: snapshot_id.to_owned(),
            turn: Arc::default(),
            waiting: 0,
            holders: 0,
            held_since: None,
        });
        entry.waiting += 1;
        let turn = Arc::clone(&entry.turn);
        drop(snapshots);
        Self { locks: locks.clone(), snapshot_id: snapshot_id.to_owned(), turn }
    }

    fn begin(self, turn: Turn) -> SnapshotLock {
        let now = self.locks.0.clock.now();
        self.locks.change(&self.snapshot_id, |entry| {
            entry.holders += 1;
            entry.held_since.get_or_insert(now);
        });
        SnapshotLock { locks: self.locks.clone(), snapshot_id: self.snapshot_id.clone(), turn: Some(turn) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.locks.change(&self.snapshot_id, |entry| entry.waiting -= 1);
    }
}

impl SnapshotLock {
    /// The snapshot whose turn it is.
    pub fn snapshot_id(&self) -> &str {
        &self.snapshot_id
    }
}

impl Drop for SnapshotLock {
    fn drop(&mut self) {
        // Before the entry may go: another turn of the snapshot must not begin beside this one.
        self.turn = None;
        self.locks.change(&self.snapshot_id, |entry| {
            entry.holders -= 1;
            if entry.holders == 0 {
                entry.held_since = None;
            }
        });
    }
}

impl fmt::Debug for SnapshotLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotLock").field(&self.snapshot_id).finish()
    }
}

impl fmt::Debug for SnapshotLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotLocks").field(&self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn two_spellings_of_a_snapshot_have_one_turn() {
        let locks = SnapshotLocks::new(Clock::system());
        let deletion = locks.exclusive("/Groups/S").now_or_never().unwrap();
        assert!(locks.shared("/groups/s").now_or_never().is_none());
        assert_eq!(locks.snapshot()[0].snapshot_id, "/Groups/S", "as it was spelled");
        drop(deletion);
        assert!(locks.shared("/groups/s").now_or_never().is_some() && locks.snapshot().is_empty());
    }

    #[test]
    fn s45_restores_share_a_snapshot_and_its_deletion_has_it_alone() {
        let locks = SnapshotLocks::new(Clock::system());
        let (one, other) = (locks.shared("s").now_or_never(), locks.shared("s").now_or_never());
        assert!(one.is_some() && other.is_some(), "two restores at once");
        let mut deletion = Box::pin(locks.exclusive("s"));
        assert!(deletion.as_mut().now_or_never().is_none());
        assert!(locks.shared("s").now_or_never().is_none(), "a deletion that waits goes before later restores");
        assert!(locks.exclusive("t").now_or_never().is_some(), "another snapshot");
        assert_eq!((locks.snapshot()[0].waiting, locks.snapshot()[0].running_for.is_some()), (1, true));
        drop((one, other));
        let deletion = deletion.now_or_never().unwrap();
        assert_eq!(deletion.snapshot_id(), "s");
        assert!(locks.shared("s").now_or_never().is_none());
        drop(deletion);
        assert!(locks.shared("s").now_or_never().is_some());
        assert!(locks.snapshot().is_empty(), "nothing is remembered");
    }
}
