//! One mutating RPC per volume at a time, across all roles.
//!
//! The CSI specification asks the caller for it: "the CO is responsible for ensuring that there is no more than one
//! call in flight per volume at a given time". Separate sidecars can't guarantee that; one process can. A task that
//! changes a volume waits for the lock in FIFO order, and holds the guard while its RPC runs. Dropping a waiter or a
//! guard releases its place.
//!
//! Ids that differ only in the spelling have one lock, because a driver may take them for one volume.
//!
//! The registry also remembers when each volume was last touched, so that a comparison with the driver's listing can
//! skip volumes that changed in the meantime. This memory is bounded: a forgotten volume counts as touched.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OnceCell, OwnedMutexGuard};
use tokio::time::Instant;

use crate::process::{Clock, folded};

/// The shared registry of operations per volume. Clones share it; it outlives a driver's restart.
#[derive(Clone)]
pub struct VolumeLocks(Arc<Shared>);

struct Shared {
    clock: Clock,
    volumes: Mutex<Volumes>,
}

struct Volumes {
    /// By the [folded] id.
    by_id: BTreeMap<String, Volume>,
    /// The locks that groups hold or await, by the folded id and the group.
    of_groups: BTreeMap<(String, String), Weak<OnceCell<VolumeLock>>>,
    /// Idle volumes that were last touched before this were forgotten.
    horizon: Option<Instant>,
    /// At this number of volumes, idle volumes are forgotten.
    tidy_at: usize,
}

struct Volume {
    /// As it was spelled first.
    id: String,
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: usize,
    running_since: Option<Instant>,
    /// When an operation last began or ended; `None` until the first begins.
    touched: Option<Instant>,
}

/// The lock of one volume. Dropping it releases the lock.
#[must_use = "the volume is free again as soon as the guard is dropped"]
pub struct VolumeLock {
    operations: VolumeLocks,
    volume_id: String,
    /// The volume's id, folded.
    key: String,
    // Released after `drop` has noted the end: fields go after their struct's `drop`.
    _turn: OwnedMutexGuard<()>,
}

/// A part of the lock that a group has of one volume.
#[derive(Debug, Clone)]
#[must_use = "the volume is free again as soon as all guards of the group are dropped"]
pub struct GroupLock(Arc<OnceCell<VolumeLock>>);

/// The locks of a volume with two names: of the name that sorts first, and of the other if there is one.
pub type Both = (VolumeLock, Option<VolumeLock>);

/// The operations of one volume, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeActivity {
    /// The volume's id.
    pub volume_id: String,
    /// For how long its operation has been running; `None` between two operations.
    pub running_for: Option<Duration>,
    /// How many operations wait.
    pub waiting: usize,
}

/// Far longer than a comparison with the driver's list looks back.
const MEMORY: Duration = Duration::from_secs(3600);
/// Below this number of volumes forgetting is not worth the effort.
const SMALL: usize = 1024;

impl VolumeLocks {
    /// An empty registry.
    pub fn new(clock: Clock) -> Self {
        let volumes = Volumes { by_id: BTreeMap::new(), of_groups: BTreeMap::new(), horizon: None, tidy_at: SMALL };
        Self(Arc::new(Shared { clock, volumes: Mutex::new(volumes) }))
    }

    /// Waits for this volume's lock, in FIFO order. Dropping the future leaves the queue.
    pub async fn acquire(&self, volume_id: &str) -> VolumeLock {
        let place = Place::take(self, volume_id);
        let turn = Arc::clone(&place.turn).lock_owned().await;
        place.begin(turn)
    }

    /// Waits for this volume's lock for a group of operations, which hold it together: it is free again after the last of them.
    pub async fn acquire_for(&self, volume_id: &str, group: &str) -> GroupLock {
        let lock = {
            let mut volumes = self.lock();
            volumes.of_groups.retain(|_, lock| lock.strong_count() > 0);
            let held = volumes.of_groups.entry((folded(volume_id), group.to_owned())).or_default();
            held.upgrade().unwrap_or_else(|| {
                let lock = Arc::default();
                *held = Arc::downgrade(&lock);
                lock
            })
        };
        lock.get_or_init(|| self.acquire(volume_id)).await;
        GroupLock(lock)
    }

    /// Takes this volume's lock if it is free and has no waiters.
    pub fn try_acquire(&self, volume_id: &str) -> Option<VolumeLock> {
        let place = Place::take(self, volume_id);
        let turn = Arc::clone(&place.turn).try_lock_owned().ok()?;
        Some(place.begin(turn))
    }

    /// Takes the locks of a volume with one or two names, if all are free.
    pub fn try_lock_pair(&self, one: &str, other: &str) -> Option<Both> {
        let (first, second) = in_order(one, other);
        let first = self.try_acquire(first)?;
        let second = if let Some(second) = second { Some(self.try_acquire(second)?) } else { None };
        Some((first, second))
    }

    /// Waits for the locks of a volume with one or two names. It always locks in the order of the names: otherwise two
    /// tasks with the names in different order could deadlock.
    pub async fn lock_pair(&self, one: &str, other: &str) -> Both {
        let (first, second) = in_order(one, other);
        let first = self.acquire(first).await;
        let second = if let Some(second) = second { Some(self.acquire(second).await) } else { None };
        (first, second)
    }

    /// Whether an operation on this volume runs, or has begun or ended at or after `since`. Also true if `since` is so
    /// long ago that this is no longer known.
    pub fn touched_since(&self, volume_id: &str, since: Instant) -> bool {
        let volumes = self.lock();
        match volumes.by_id.get(&folded(volume_id)) {
            Some(volume) => volume.running_since.is_some() || volume.touched.is_some_and(|at| at >= since),
            None => volumes.horizon.is_some_and(|horizon| since < horizon),
        }
    }

    /// Forgets idle volumes that were last touched before this.
    pub fn prune(&self, before: Instant) {
        self.lock().forget(before);
    }

    /// What runs or waits now, by volume id.
    pub fn snapshot(&self) -> Vec<VolumeActivity> {
        let now = self.0.clock.now();
        let activity = |volume: &Volume| VolumeActivity {
            volume_id: volume.id.clone(),
            running_for: volume.running_since.map(|since| now.saturating_duration_since(since)),
            waiting: volume.waiting,
        };
        self.lock().by_id.values().filter(|volume| volume.is_busy()).map(activity).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Volumes> {
        self.0.volumes.lock()
    }
}

impl Volume {
    fn is_busy(&self) -> bool {
        self.waiting > 0 || self.running_since.is_some()
    }
}

impl Volumes {
    fn forget(&mut self, before: Instant) {
        self.by_id.retain(|_, volume| volume.is_busy() || volume.touched.is_some_and(|at| at >= before));
        self.horizon = self.horizon.max(Some(before));
    }

    /// Keeps the memory bounded, at a constant cost per volume.
    fn tidy(&mut self, now: Instant) {
        if self.by_id.len() < self.tidy_at {
            return;
        }
        if let Some(before) = now.checked_sub(MEMORY) {
            self.forget(before);
        }
        self.tidy_at = SMALL.max(2 * self.by_id.len());
    }
}

/// Two names in the order in which they are locked; the second only if it is another lock's.
fn in_order<'a>(one: &'a str, other: &'a str) -> (&'a str, Option<&'a str>) {
    match folded(one).cmp(&folded(other)) {
        Ordering::Less => (one, Some(other)),
        Ordering::Equal => (one, None),
        Ordering::Greater => (other, Some(one)),
    }
}

/// A place in one volume's queue, released on drop.
struct Place {
    operations: VolumeLocks,
    volume_id: String,
    key: String,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Place {
    fn take(operations: &VolumeLocks, volume_id: &str) -> Self {
        let mut volumes = operations.lock();
        volumes.tidy(operations.0.clock.now());
        let key = folded(volume_id);
        let volume = volumes.by_id.entry(key.clone()).or_insert_with(|| Volume {
            id: volume_id.to_owned(),
            turn: Arc::default(),
            waiting: 0,
            running_since: None,
            touched: None,
        });
        volume.waiting += 1;
        let turn = Arc::clone(&volume.turn);
        drop(volumes);
        Self { operations: operations.clone(), volume_id: volume_id.to_owned(), key, turn }
    }

    fn begin(self, turn: OwnedMutexGuard<()>) -> VolumeLock {
        let now = self.operations.0.clock.now();
        if let Some(volume) = self.operations.lock().by_id.get_mut(&self.key) {
            volume.running_since = Some(now);
            volume.touched = Some(now);
        }
        let (operations, volume_id, key) = (self.operations.clone(), self.volume_id.clone(), self.key.clone());
        VolumeLock { operations, volume_id, key, _turn: turn }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut volumes = self.operations.lock();
        let Some(volume) = volumes.by_id.get_mut(&self.key) else { return };
        volume.waiting -= 1;
        // A volume without any operation needs no entry.
        if !volume.is_busy() && volume.touched.is_none() {
            volumes.by_id.remove(&self.key);
        }
    }
}

impl VolumeLock {
    /// The volume that may be changed.
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// Whether it locks the volume with this id, however it is spelled.
    pub fn is_of(&self, volume_id: &str) -> bool {
        self.key == folded(volume_id)
    }
}

impl GroupLock {
    /// Whether it locks the volume with this id, however it is spelled.
    pub fn is_of(&self, volume_id: &str) -> bool {
        self.0.get().is_some_and(|lock| lock.is_of(volume_id))
    }
}

impl From<VolumeLock> for GroupLock {
    fn from(lock: VolumeLock) -> Self {
        Self(Arc::new(OnceCell::new_with(Some(lock))))
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        let now = self.operations.0.clock.now();
        if let Some(volume) = self.operations.lock().by_id.get_mut(&self.key) {
            volume.running_since = None;
            volume.touched = Some(now);
        }
    }
}

impl fmt::Debug for VolumeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VolumeLock").field(&self.volume_id).finish()
    }
}

impl fmt::Debug for VolumeLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.snapshot()).finish()
    }
}

#[cfg(test)]
#[path = "volume_locks_tests.rs"]
mod tests;
