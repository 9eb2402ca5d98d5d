//! Tables of the volume locks.

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
async fn a_group_holds_a_lock_together_and_nobody_else_does() {
    let operations = operations();
    let other_role = operations.acquire("handle").await;
    let begins = |group: &'static str| {
        let operations = operations.clone();
        Box::pin(async move { operations.acquire_for("handle", group).await })
    };
    let (mut one, mut other, mut stranger) = (begins("claim"), begins("claim"), begins("other claim"));
    assert!((&mut one).now_or_never().is_none() && (&mut other).now_or_never().is_none());
    assert!((&mut stranger).now_or_never().is_none());
    drop(other_role);
    let (one, other) = (one.await, other.await);
    assert!(one.is_of("HANDLE") && operations.snapshot()[0].running_for.is_some());
    let late = begins("claim").now_or_never().expect("who comes later joins");
    drop((one, late));
    assert!((&mut stranger).now_or_never().is_none() && operations.try_acquire("handle").is_none());
    drop(other);
    drop(stranger.await);
    assert!(operations.snapshot().is_empty());
    drop(begins("claim").await);
    assert_eq!(operations.lock().of_groups.len(), 1, "what has ended is forgotten with the next one");
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
                        *active.lock().entry(*volume).or_default() += 1;
                        assert_eq!(active.lock()[volume], 1, "two at once");
                        assert!(operations.touched_since(guard.volume_id(), Instant::now()));
                        // Gives the turn back however it ends.
                        let _over = Defer(|| *active.lock().get_mut(volume).unwrap() -= 1);
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
