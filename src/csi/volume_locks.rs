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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
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
        let volumes = Volumes { by_id: BTreeMap::new(), horizon: None, tidy_at: SMALL };
        Self(Arc::new(Shared { clock, volumes: Mutex::new(volumes) }))
    }

    /// Waits for this volume's lock, in FIFO order. Dropping the future leaves the queue.
    pub async fn acquire(&self, volume_id: &str) -> VolumeLock {
        let place = Place::take(self, volume_id);
        let turn = Arc::clone(&place.turn).lock_owned().await;
        place.begin(turn)
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
        self.0.volumes.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::future::join_all;
    use proptest::prelude::*;
    use tokio::time::{advance, sleep, timeout};

    const SECOND: Duration = Duration::from_secs(1);

    fn operations() -> VolumeLocks {
        VolumeLocks::new(Clock::system())
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_first_come_first_served_per_volume() {
        let operations = operations();
        let first = operations.acquire("a").await;
        let mut second = Box::pin(operations.acquire("a"));
        let mut third = Box::pin(operations.acquire("a"));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(operations.try_acquire("a").is_none(), "nobody jumps the line");
        assert_eq!(operations.acquire("b").await.volume_id(), "b");
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "the third waits for the second");
        let second = second.await;
        assert_eq!(operations.snapshot()[0].waiting, 1);
        drop(second);
        drop(third.await);
        assert!(operations.snapshot().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gives_up_leaves_the_line_and_no_trace() {
        let operations = operations();
        let begin = Instant::now();
        let holder = operations.acquire("a").await;
        assert!(timeout(SECOND, operations.acquire("a")).await.is_err());
        assert_eq!(
            operations.snapshot()[0],
            VolumeActivity { volume_id: "a".into(), running_for: Some(SECOND), waiting: 0 }
        );
        drop(holder);
        assert!(operations.snapshot().is_empty() && operations.touched_since("a", begin));
        assert!(operations.try_acquire("a").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn two_that_name_two_volumes_the_other_way_round_do_not_wait_for_each_other() {
        let operations = operations();
        let busy = operations.acquire("a").await;
        // The second has "b" at once, unless it waits for "a" first, as the first one does.
        let one = async { drop(operations.lock_pair("a", "b").await) };
        let other = async { drop(operations.lock_pair("b", "a").await) };
        let end = async {
            sleep(SECOND).await;
            drop(busy);
        };
        let all = timeout(SECOND * 10, async { tokio::join!(one, other, end) }).await;
        assert!(all.is_ok(), "each waits for what the other has");
        assert!(operations.snapshot().is_empty());
        assert!(operations.lock_pair("a", "a").await.1.is_none(), "one name, one turn");
    }

    #[tokio::test(start_paused = true)]
    async fn two_spellings_of_a_volume_have_one_lock() {
        let operations = operations();
        let begin = Instant::now();
        let (held, second) = operations.lock_pair("/Groups/A", "/groups/a").await;
        assert!(second.is_none() && held.is_of("/GROUPS/A") && !held.is_of("/groups/b"));
        assert!(operations.try_acquire("/groups/a/").is_none() && operations.touched_since("/groups/A", begin));
        assert_eq!(operations.snapshot()[0].volume_id, "/Groups/A", "as it was spelled");
        drop(held);
        // Upper case letters sort before lower case ones: two tasks that go by that would wait for each other.
        let (one, other) = (operations.lock_pair("B", "a"), operations.lock_pair("b", "A"));
        let both = timeout(SECOND, async { tokio::join!(async { drop(one.await) }, async { drop(other.await) }) });
        assert!(both.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn two_turns_are_taken_at_once_or_not_at_all() {
        let operations = operations();
        let busy = operations.acquire("b").await;
        assert!(operations.try_lock_pair("a", "b").is_none());
        assert_eq!(operations.snapshot().len(), 1, "nothing is held back");
        drop(busy);
        assert!(operations.try_lock_pair("a", "b").is_some_and(|(_, second)| second.is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn begin_run_and_end_all_count_as_touched() {
        let operations = operations();
        advance(SECOND).await;
        let before = Instant::now();
        assert!(!operations.touched_since("a", before));
        let guard = operations.acquire("a").await;
        advance(SECOND).await;
        let during = Instant::now();
        assert!(operations.touched_since("a", during), "it runs");
        drop(guard);
        assert!(operations.touched_since("a", during), "it ended then");
        advance(SECOND).await;
        assert!(!operations.touched_since("a", Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_forgotten_counts_as_touched() {
        let operations = operations();
        let start = Instant::now();
        drop(operations.acquire("a").await);
        let busy = operations.acquire("busy").await;
        advance(SECOND).await;
        operations.prune(Instant::now());
        assert!(operations.touched_since("a", start), "not known any more");
        assert!(!operations.touched_since("a", Instant::now()));
        assert_eq!(operations.snapshot().len(), 1, "what runs is never forgotten");
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_stays_bounded_without_pruning() {
        let operations = operations();
        for round in 0..10 {
            for volume in 0..SMALL {
                drop(operations.acquire(&format!("{round}-{volume}")).await);
            }
            advance(MEMORY * 2).await;
        }
        assert!(operations.lock().by_id.len() <= 2 * SMALL);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// attacher I1: whatever comes, goes and gives up, no volume ever has two operations at once, and none is starved.
        #[test]
        fn no_volume_has_two_operations_at_once(
            plans in proptest::collection::vec((0..3_u8, 0..20_u64, 1..10_u64, proptest::option::of(0..15_u64)), 1..40)
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let operations = operations();
                let active = Mutex::new(BTreeMap::<u8, usize>::new());
                let runs = plans.iter().map(|(volume, begin, hold, patience)| {
                    let (operations, active) = (&operations, &active);
                    async move {
                        sleep(Duration::from_millis(*begin)).await;
                        let turn = async {
                            let guard = operations.acquire(&volume.to_string()).await;
                            *active.lock().unwrap().entry(*volume).or_default() += 1;
                            assert_eq!(active.lock().unwrap()[volume], 1, "two at once");
                            assert!(operations.touched_since(guard.volume_id(), Instant::now()));
                            // Gives the turn back however it ends.
                            let _over = Defer(|| *active.lock().unwrap().get_mut(volume).unwrap() -= 1);
                            sleep(Duration::from_millis(*hold)).await;
                        };
                        match patience {
                            Some(patience) => drop(timeout(Duration::from_millis(*patience), turn).await),
                            None => turn.await,
                        }
                    }
                });
                join_all(runs).await;
                assert!(operations.snapshot().is_empty());
            });
        }
    }

    struct Defer<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Defer<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
}
