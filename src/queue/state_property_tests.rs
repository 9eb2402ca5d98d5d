//! Properties of the queue's state machine, over all orders of operations.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Add(u8, Cause, usize, u64),
    Forget(u8),
    Advance(u64),
    Start,
    Resume,
    Park(usize),
    Ask(usize),
    Finish(usize, Outcome),
}

fn op() -> impl Strategy<Value = Op> {
    let cause = prop::sample::select(Cause::ALL.to_vec());
    let outcome = prop_oneof![
        3 => Just(Outcome::Settled),
        3 => Just(RETRY),
        1 => Just(Outcome::Retry { cap: Some(S) }),
        1 => Just(Outcome::RetryAfter(3 * S)),
        1 => Just(Outcome::Forget),
    ];
    prop_oneof![
        6 => (0u8..5, cause, 0usize..3, 0u64..3).prop_map(|(key, cause, lane, epoch)| Op::Add(key, cause, lane, epoch)),
        1 => (0u8..5).prop_map(Op::Forget),
        2 => (0u64..5000).prop_map(Op::Advance),
        6 => Just(Op::Start),
        2 => Just(Op::Resume),
        1 => (0usize..4).prop_map(Op::Park),
        2 => (0usize..4).prop_map(Op::Ask),
        4 => (0usize..4, outcome).prop_map(|(which, outcome)| Op::Finish(which, outcome)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The queue's half of attacher I1: whatever happens, in whatever order.
    #[test]
    fn no_key_runs_twice_at_once_and_none_is_lost(ops in prop::collection::vec(op(), 1..120)) {
        let workers = [1usize, 2];
        let mut state: State<u8, ()> = State::new(workers, Backoff { initial: S, max: 8 * S });
        let mut now = Duration::ZERO;
        // Runs in progress with their parking state, and the keys that must still be run.
        let mut running: BTreeMap<u8, (u64, usize, bool, bool)> = BTreeMap::new();
        let mut owed: BTreeSet<u8> = BTreeSet::new();
        let mut forgotten: BTreeSet<u8> = BTreeSet::new();
        for op in ops {
            let nth = |which: usize| running.iter().nth(which).map(|(key, run)| (*key, *run));
            match op {
                Op::Add(key, cause, lane, epoch) => {
                    state.add(now, key, Activation { cause, lane, epoch }, || ());
                    owed.insert(key);
                }
                Op::Forget(key) => {
                    state.forget(&key);
                    owed.remove(&key);
                    if running.contains_key(&key) {
                        forgotten.insert(key);
                    }
                }
                Op::Advance(millis) => now += Duration::from_millis(millis),
                Op::Start => if let Some(start) = state.start(now) {
                    prop_assert!(owed.remove(&start.key), "nobody asked for {}", start.key);
                    let twice = running.insert(start.key, (start.run, start.lane, false, false));
                    prop_assert!(twice.is_none(), "{} runs twice", start.key);
                },
                Op::Resume => if let Some(key) = state.resume() {
                    let run = running.get_mut(&key).unwrap();
                    prop_assert!(run.2 && run.3);
                    (run.2, run.3) = (false, false);
                },
                Op::Park(which) => if let Some((key, run)) = nth(which).filter(|(_, run)| !run.2) {
                    state.park(&key, run.0);
                    running.insert(key, (run.0, run.1, true, false));
                },
                Op::Ask(which) => if let Some((key, run)) = nth(which).filter(|(_, run)| run.2 && !run.3) {
                    state.ask(&key, run.0);
                    running.insert(key, (run.0, run.1, true, true));
                },
                Op::Finish(which, outcome) => if let Some((key, run)) = nth(which) {
                    prop_assert!(state.finish(now, &key, run.0, outcome, 0.5, || ()).is_some());
                    running.remove(&key);
                    if matches!(outcome, Outcome::Retry { .. } | Outcome::RetryAfter(_)) && !forgotten.contains(&key) {
                        owed.insert(key);
                    }
                    forgotten.remove(&key);
                },
            }
            prop_assert_eq!(state.running(), running.len());
            for (lane, limit) in workers.iter().enumerate() {
                let busy = running.values().filter(|run| run.1 == lane && !run.2).count();
                prop_assert!(busy <= *limit, "lane {} runs {}", lane, busy);
            }
        }
        // Let everything end well: all that is owed is run, and nothing stays behind.
        for _ in 0..100 {
            now += 10 * S;
            for (key, run) in std::mem::take(&mut running) {
                state.finish(now, &key, run.0, Outcome::Settled, 0.0, || ());
            }
            while let Some(start) = state.start(now) {
                prop_assert!(owed.remove(&start.key));
                running.insert(start.key, (start.run, start.lane, false, false));
            }
        }
        prop_assert!(owed.is_empty() && running.is_empty() && state.is_empty());
        prop_assert_eq!(state.next_timer(), None);
    }

    /// One attempt reads several times before it calls the driver, which refuses, and the events of a burst arrive between its
    /// steps in any order: only an event after the last read runs the key again before the back-off has ended. Another epoch counts
    /// its failures anew, and the first is that of the attempt that has read it.
    #[test]
    fn a_burst_around_the_reads_of_an_attempt_costs_one_call_for_each_failure(
        bursts in prop::collection::vec(prop::collection::vec(prop::option::of(1u64..3), 0..8), 1..8),
    ) {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let (mut due, mut epoch, mut failures) = (Duration::ZERO, 1, 0);
        for burst in bursts {
            let start = rig.start().unwrap();
            prop_assert!(rig.now >= due, "the driver is called before the back-off has ended");
            prop_assert_eq!(start.failures, failures);
            let (of_run, mut is_news) = (epoch, false);
            for change in burst {
                match change {
                    None => rig.state.observe(&"a", start.run),
                    Some(of) => {
                        rig.add("a", Cause::Changed, of);
                        epoch = of;
                    }
                }
                is_news = change.is_some();
            }
            rig.finish(&start, RETRY);
            failures = match (epoch == of_run, is_news) {
                (true, _) => failures + 1,
                (false, true) => 0,
                (false, false) => 1,
            };
            if is_news {
                due = rig.now;
            } else {
                due = rig.now + (S * 2u32.pow(failures - 1)).min(300 * S);
                prop_assert!(rig.start().is_none());
                rig.wait();
            }
        }
    }

    /// attacher I9, with a jitter and causes of every kind but urgent ones.
    #[test]
    fn gaps_between_failures_never_fall_short_of_the_back_off(
        jitters in prop::collection::vec(0.0f64..1.0, 1..12), resync in any::<bool>(),
    ) {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        for (failures, jitter) in jitters.into_iter().enumerate() {
            let start = rig.start().unwrap();
            rig.state.finish(rig.now, &start.key, start.run, RETRY, jitter, || 0);
            if resync {
                rig.add("a", Cause::Resync, 1);
            }
            prop_assert!(rig.start().is_none());
            prop_assert!(rig.wait() >= (S * 2u32.pow(u32::try_from(failures).unwrap())).min(300 * S));
        }
    }
}
