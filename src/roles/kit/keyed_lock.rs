//! A mutex per key: work on different keys runs concurrently.

use std::fmt;

use crate::csi::{VolumeLock, VolumeLocks};
use crate::process::Clock;

use super::locks::HeldLocks;

/// A mutex per key. First come, first served.
#[derive(Debug)]
pub struct KeyedLock<S> {
    locks: VolumeLocks,
    key: std::marker::PhantomData<fn(&S)>,
}

impl<S: fmt::Display> KeyedLock<S> {
    /// Nothing is locked.
    pub fn new(clock: Clock) -> Self {
        Self { locks: VolumeLocks::new(clock), key: std::marker::PhantomData }
    }

    /// Locks `key` until the returned guard is dropped.
    pub async fn acquire(&self, key: &S) -> VolumeLock {
        self.locks.acquire(&key.to_string()).await
    }
}

impl KeyedLock<String> {
    /// Locks `key` if nobody holds or awaits it.
    pub fn try_lock(&self, key: &str) -> Option<HeldLocks> {
        HeldLocks::try_of(&self.locks, key)
    }

    /// Locks all of `keys`, which are in their order, until the returned guards are dropped. No other task waits for what this one
    /// holds while this one waits.
    pub async fn acquire_all(&self, keys: &[String]) -> HeldLocks {
        HeldLocks::of_all(&self.locks, keys).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::election::Term;
    use crate::process::{Rng, Tasks};
    use crate::queue::{Activation, Backoff, Cause, LaneSettings, Outcome, QueueSettings, Ticket, WorkQueue};
    use crate::telemetry::Meter;

    const SECOND: Duration = Duration::from_secs(1);

    /// A lane of one worker, whose runs lock the first letter of their key. `false`: the term was over.
    struct Lane {
        queue: WorkQueue<String>,
        letters: Arc<KeyedLock<char>>,
        done: Arc<Mutex<Vec<(String, bool)>>>,
        stop: CancellationToken,
        _tasks: Tasks,
    }

    fn lane() -> Lane {
        let lanes = vec![LaneSettings { name: "one".to_owned(), workers: 1 }];
        let backoff = Backoff { initial: SECOND, max: SECOND };
        let settings = QueueSettings { name: "words".to_owned(), lanes, backoff, span: None };
        let queue = WorkQueue::new(settings, &Meter::new(), Clock::system(), Rng::seeded(1));
        let (letters, done) = (Arc::new(KeyedLock::new(Clock::system())), Arc::default());
        let stop = CancellationToken::new();
        let term = Term::permanent(&stop, Clock::system());
        let tasks = Tasks::new("test").0;
        let (served, own): (_, (_, Arc<Mutex<Vec<_>>>)) = (queue.clone(), (Arc::clone(&letters), Arc::clone(&done)));
        let handler = move |mut ticket: Ticket<String>| {
            let ((letters, done), term) = (own.clone(), term.clone());
            async move {
                let key = ticket.key().clone();
                let letter = key.chars().next().unwrap();
                let lock = ticket.park(term.unless_over(letters.acquire(&letter))).await;
                done.lock().unwrap().push((key, lock.is_ok()));
                Outcome::Settled
            }
            .boxed()
        };
        tasks.spawn("queue", async move { served.run(CancellationToken::new(), handler).await });
        Lane { queue, letters, done, stop, _tasks: tasks }
    }

    impl Lane {
        fn add(&self, keys: &[&str]) {
            for key in keys {
                self.queue.add((*key).to_owned(), Activation::of(Cause::Changed));
            }
        }

        async fn done(&self) -> Vec<(String, bool)> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::mem::take(&mut *self.done.lock().unwrap())
        }
    }

    fn all(keys: &[&str], got: bool) -> Vec<(String, bool)> {
        keys.iter().map(|key| ((*key).to_owned(), got)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_waits_for_one_key_holds_up_no_other_key_and_no_worker() {
        let lane = lane();
        let slow = lane.letters.locks.try_acquire("a").unwrap();
        lane.add(&["a1", "a2", "b1"]);
        assert_eq!(lane.done().await, all(&["b1"], true));
        drop(slow);
        assert_eq!(lane.done().await, all(&["a1", "a2"], true), "first come, first served");
    }

    /// Each run locks both `a` and `b`, and says so.
    fn pairs(locks: &Arc<KeyedLock<String>>) -> (WorkQueue<String>, Arc<Mutex<Vec<String>>>, Tasks) {
        let lanes = vec![LaneSettings { name: "one".to_owned(), workers: 1 }];
        let backoff = Backoff { initial: SECOND, max: SECOND };
        let settings = QueueSettings { name: "pairs".to_owned(), lanes, backoff, span: None };
        let queue = WorkQueue::new(settings, &Meter::new(), Clock::system(), Rng::seeded(1));
        let (done, tasks) = (Arc::<Mutex<Vec<String>>>::default(), Tasks::new("test").0);
        let (served, locks, told) = (queue.clone(), Arc::clone(locks), Arc::clone(&done));
        let handler = move |mut ticket: Ticket<String>| {
            let (locks, told) = (Arc::clone(&locks), Arc::clone(&told));
            async move {
                let key = ticket.key().clone();
                let both = ["a".to_owned(), "b".to_owned()];
                let _held = ticket.park(locks.acquire_all(&both)).await;
                told.lock().unwrap().push(key);
                Outcome::Settled
            }
            .boxed()
        };
        tasks.spawn("queue", async move { served.run(CancellationToken::new(), handler).await });
        (queue, done, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_wait_for_the_same_two_keys_do_not_hand_them_on_for_ever() {
        let locks = Arc::new(KeyedLock::new(Clock::system()));
        let (queue, done, _tasks) = pairs(&locks);
        let add = async |key: &str| {
            queue.add(key.to_owned(), Activation::of(Cause::Changed));
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let b = locks.locks.try_acquire("b").unwrap();
        add("waits for b").await;
        let a = locks.locks.try_acquire("a").unwrap();
        add("waits for a").await;
        add("waits for a, too").await;
        drop((a, b));
        // Time does not pass by itself as long as one of them is busy.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(done.lock().unwrap().len(), 3, "{done:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_term_ends_the_wait() {
        let lane = lane();
        let _slow = lane.letters.locks.try_acquire("a").unwrap();
        lane.add(&["a1", "a2"]);
        assert_eq!(lane.done().await, []);
        lane.stop.cancel();
        assert_eq!(lane.done().await, all(&["a1", "a2"], false));
    }
}
