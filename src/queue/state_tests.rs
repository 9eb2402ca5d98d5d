//! The queue's rules, as verdicts and as a random walk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backoff::Backoff;
use super::cause::{Activation, Cause, Causes, Outcome};
use super::state::{Finish, Start, State};

const S: Duration = Duration::from_secs(1);
const RETRY: Outcome = Outcome::Retry { cap: None };

fn what(cause: Cause, epoch: u64) -> Activation {
    Activation { cause, lane: 0, epoch }
}

/// A machine with a clock of its own.
struct Rig {
    state: State<&'static str, u32>,
    now: Duration,
    spans: u32,
}

impl Rig {
    fn new(workers: &[usize]) -> Self {
        let backoff = Backoff { initial: S, max: 300 * S };
        Self { state: State::new(workers.iter().copied(), backoff), now: Duration::ZERO, spans: 0 }
    }

    fn add(&mut self, key: &'static str, cause: Cause, epoch: u64) -> bool {
        self.add_to(key, what(cause, epoch))
    }

    fn add_to(&mut self, key: &'static str, what: Activation) -> bool {
        let spans = &mut self.spans;
        self.state.add(self.now, key, what, || {
            *spans += 1;
            *spans
        })
    }

    fn start(&mut self) -> Option<Start<&'static str, u32>> {
        self.state.start(self.now)
    }

    fn started(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.start()).map(|start| start.key).collect()
    }

    fn finish(&mut self, start: &Start<&'static str, u32>, outcome: Outcome) -> Option<Finish> {
        self.state.finish(self.now, &start.key, start.run, outcome, 0.0, || 1000)
    }

    /// The delay until the next run, having gone there.
    fn wait(&mut self) -> Duration {
        let at = self.state.next_timer().unwrap();
        let delay = at.saturating_sub(self.now);
        self.now = at;
        delay
    }
}

#[test]
fn of_two_lives_of_a_key_that_are_added_during_a_run_the_later_one_follows() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    let run = rig.start().unwrap();
    assert!(rig.add("a", Cause::Drift, 2) && rig.add("a", Cause::Resync, 3) && !rig.add("a", Cause::Resync, 3));
    rig.finish(&run, RETRY);
    assert_eq!((rig.start().unwrap().causes, rig.state.items().next().unwrap().1.epoch), (Cause::Resync.into(), 3));
}

#[test]
fn duplicates_collapse_and_the_order_of_adding_is_kept() {
    let mut rig = Rig::new(&[9]);
    assert!(rig.add("b", Cause::Resync, 1));
    assert!(rig.add("a", Cause::Changed, 1));
    assert!(!rig.add("b", Cause::Drift, 1));
    assert_eq!(rig.state.depth(), 2);
    let first = rig.start().unwrap();
    assert_eq!((first.key, first.causes), ("b", Causes::from(Cause::Resync).union(Cause::Drift.into())));
    assert_eq!(rig.started(), ["a"]);
}

#[test]
fn a_key_added_while_running_runs_again_after() {
    let mut rig = Rig::new(&[9]);
    rig.add("a", Cause::Changed, 1);
    let first = rig.start().unwrap();
    rig.add("a", Cause::Resync, 1);
    assert!(rig.start().is_none());
    rig.finish(&first, Outcome::Settled);
    let second = rig.start().unwrap();
    assert_eq!(
        (second.causes, second.payload),
        (Cause::Resync.into(), 1000),
        "a settled key's successor is a new story"
    );
    rig.finish(&second, Outcome::Settled);
    assert!(rig.state.is_empty());
}

#[test]
fn delays_grow_with_each_failure_and_settling_resets_them() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    for (failures, expected) in [1, 2, 4, 8].into_iter().enumerate() {
        let start = rig.start().unwrap();
        assert_eq!((start.failures as usize, start.payload), (failures, 1));
        assert_eq!(rig.finish(&start, RETRY).unwrap(), Finish { worked: Duration::ZERO, retried: true });
        assert!(rig.start().is_none());
        assert_eq!(rig.wait(), expected * S);
    }
    let start = rig.start().unwrap();
    rig.finish(&start, Outcome::Settled);
    rig.add("a", Cause::Changed, 1);
    assert_eq!(rig.start().unwrap().failures, 0);
}

#[test]
fn a_cap_and_a_given_delay_override_the_growth() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    for expected in [1, 2, 3, 3] {
        let start = rig.start().unwrap();
        rig.finish(&start, Outcome::Retry { cap: Some(3 * S) });
        assert_eq!(rig.wait(), expected * S);
    }
    let start = rig.start().unwrap();
    rig.finish(&start, Outcome::RetryAfter(7 * S));
    assert_eq!(rig.wait(), 7 * S);
    let start = rig.start().unwrap();
    assert_eq!(start.failures, 4, "a wished delay is no failure");
    rig.finish(&start, Outcome::RetryFailedAfter(7 * S));
    assert_eq!(rig.wait(), 7 * S);
    assert_eq!(rig.start().unwrap().failures, 5, "unless the run failed");
}

#[test]
fn an_interrupted_run_is_repeated_after_a_delay_and_counts_as_no_failure() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    for _ in 0..3 {
        let start = rig.start().unwrap();
        assert_eq!(start.failures, 0);
        let finish = rig.finish(&start, Outcome::Interrupted).unwrap();
        assert!(!finish.retried, "the figures count no retry");
        assert!(rig.start().is_none(), "not at once");
        assert_eq!(rig.wait(), S);
    }
}

#[test]
fn i9_a_server_that_asks_for_a_pause_lengthens_the_back_off_and_never_replaces_it() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    for (asked, expected) in [(3, 3), (3, 3), (3, 4), (3, 8), (60, 60), (1, 32)] {
        let start = rig.start().unwrap();
        rig.finish(&start, Outcome::RetryNoSooner(asked * S));
        assert_eq!(rig.wait(), expected * S, "after {} failures", start.failures + 1);
    }
}

#[test]
fn resync_never_cuts_a_delay_short_but_a_change_and_drift_do_and_keep_the_count() {
    for (cause, runs_now) in [(Cause::Resync, false), (Cause::Changed, true), (Cause::Drift, true)] {
        for while_running in [false, true] {
            let mut rig = Rig::new(&[1]);
            rig.add("a", Cause::Changed, 1);
            let start = rig.start().unwrap();
            if while_running {
                rig.add("a", cause, 1);
                rig.finish(&start, RETRY);
            } else {
                rig.finish(&start, RETRY);
                rig.add("a", cause, 1);
            }
            let next = rig.start();
            assert_eq!(next.is_some(), runs_now, "{cause:?}");
            let next = next.unwrap_or_else(|| {
                assert_eq!(rig.wait(), S);
                rig.start().unwrap()
            });
            assert!(next.causes.contains(cause) && next.failures == 1);
        }
    }
}

#[test]
fn causes_survive_until_settled() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Drift, 1);
    for _ in 0..3 {
        let start = rig.start().unwrap();
        assert_eq!(start.causes, Cause::Drift.into());
        rig.finish(&start, RETRY);
        rig.wait();
    }
    let start = rig.start().unwrap();
    rig.finish(&start, Outcome::Settled);
    rig.add("a", Cause::Changed, 1);
    assert_eq!(rig.start().unwrap().causes, Cause::Changed.into());
}

#[test]
fn r44_another_epoch_inherits_no_delay_no_count_and_no_cause() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Drift, 1);
    for _ in 0..5 {
        let start = rig.start().unwrap();
        rig.finish(&start, RETRY);
        rig.wait();
    }
    let start = rig.start().unwrap();
    rig.finish(&start, RETRY);
    rig.now += S;
    rig.add("a", Cause::Resync, 2);
    let fresh = rig.start().unwrap();
    assert_eq!((fresh.failures, fresh.causes, fresh.payload, fresh.since), (0, Cause::Resync.into(), 2, rig.now));
    rig.finish(&fresh, RETRY);
    assert_eq!(rig.wait(), S, "the first retry waits the base delay");
}

#[test]
fn a_failure_of_the_old_epoch_does_not_delay_the_new_one() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    let old = rig.start().unwrap();
    rig.add("a", Cause::Resync, 2);
    assert_eq!(rig.finish(&old, RETRY).map(|finish| finish.retried), Some(false));
    let fresh = rig.start().unwrap();
    assert_eq!((fresh.failures, fresh.causes), (0, Cause::Resync.into()));
}

#[test]
fn forgetting_drops_what_waits_and_what_a_run_would_leave_behind() {
    let mut rig = Rig::new(&[1]);
    rig.add("ready", Cause::Changed, 1);
    rig.state.forget(&"ready");
    assert!(rig.started().is_empty() && rig.state.is_empty());

    rig.add("delayed", Cause::Changed, 1);
    let start = rig.start().unwrap();
    rig.finish(&start, RETRY);
    rig.state.forget(&"delayed");
    assert!(rig.state.next_timer().is_none() && rig.state.is_empty());

    rig.add("running", Cause::Changed, 1);
    let start = rig.start().unwrap();
    rig.state.forget(&"running");
    rig.finish(&start, RETRY);
    assert!(rig.state.is_empty() && rig.state.running() == 0);
}

#[test]
fn a_namesake_added_after_forgetting_a_running_key_starts_afresh() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Drift, 1);
    let start = rig.start().unwrap();
    rig.state.forget(&"a");
    rig.add("a", Cause::Changed, 1);
    assert!(rig.start().is_none(), "never twice at once");
    rig.finish(&start, RETRY);
    let fresh = rig.start().unwrap();
    assert_eq!((fresh.failures, fresh.causes), (0, Cause::Changed.into()));
}

#[test]
fn a_full_lane_does_not_hold_up_another() {
    let mut rig = Rig::new(&[1, 2]);
    for (key, lane) in [("d1", 1), ("d2", 1), ("d3", 1), ("a1", 0), ("a2", 0)] {
        rig.add_to(key, Activation { cause: Cause::Changed, lane, epoch: 1 });
    }
    assert_eq!(rig.started(), ["a1", "d1", "d2"]);
    assert_eq!(rig.state.depth(), 2);
}

#[test]
fn a_waiting_key_moves_to_the_lane_of_its_newest_activation() {
    let mut rig = Rig::new(&[1, 1]);
    rig.add_to("a", Activation { cause: Cause::Changed, lane: 0, epoch: 1 });
    rig.add_to("a", Activation { cause: Cause::Changed, lane: 99, epoch: 2 });
    assert_eq!(rig.start().unwrap().lane, 1);
    assert_eq!(rig.state.depth(), 0);
}

#[test]
fn a_parked_run_gives_its_worker_away_and_comes_back_before_new_keys() {
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    rig.add("b", Cause::Changed, 1);
    rig.add("c", Cause::Changed, 1);
    let a = rig.start().unwrap();
    assert!(rig.start().is_none());
    rig.state.park(&"a", a.run);
    let b = rig.start().unwrap();
    rig.state.ask(&"a", a.run);
    assert_eq!(rig.state.resume(), None);
    rig.finish(&b, Outcome::Settled);
    assert_eq!(rig.state.resume(), Some("a"));
    assert!(rig.start().is_none(), "the returned run holds the only worker");
    rig.finish(&a, Outcome::Settled);
    assert_eq!(rig.started(), ["c"]);
}

#[test]
fn a_run_that_ends_while_parked_leaves_no_worker_behind() {
    for asks in [false, true] {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let a = rig.start().unwrap();
        rig.state.park(&"a", a.run);
        if asks {
            rig.state.ask(&"a", a.run);
        }
        rig.finish(&a, Outcome::Forget);
        assert_eq!(rig.state.resume(), None);
        rig.add("b", Cause::Changed, 1);
        rig.add("c", Cause::Changed, 1);
        assert_eq!(rig.started(), ["b"]);
    }
}

#[test]
fn r60_an_item_is_finished_once_and_a_stale_run_can_change_nothing() {
    let mut rig = Rig::new(&[2]);
    rig.add("a", Cause::Changed, 1);
    let old = rig.start().unwrap();
    rig.finish(&old, RETRY);
    rig.wait();
    let _new = rig.start().unwrap();
    rig.state.note(&"a", old.run, "stale".to_owned());
    rig.state.park(&"a", old.run);
    assert_eq!(rig.finish(&old, Outcome::Settled), None);
    assert_eq!(rig.state.running(), 1);
    assert!(rig.state.items().all(|(_, item)| item.note.is_none()));
}

#[path = "state_property_tests.rs"]
mod properties;
#[path = "state_run_tests.rs"]
mod runs;
