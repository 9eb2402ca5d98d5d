//! What may happen to a run while it lasts: it waits and comes back, it says something, its key is added again.

use super::*;

impl Rig {
    /// The note on the only key.
    fn note(&self) -> Option<String> {
        self.state.items().next().and_then(|(_, item)| item.note.clone())
    }
}

#[test]
fn parked_runs_that_ask_one_after_the_other_all_come_back_in_that_order() {
    let mut rig = Rig::new(&[3]);
    let runs = ["a", "b", "c"].map(|key| {
        rig.add(key, Cause::Changed, 1);
        rig.start().unwrap()
    });
    for run in &runs {
        rig.state.park(&run.key, run.run);
    }
    for run in runs.iter().rev() {
        rig.state.ask(&run.key, run.run);
    }
    assert_eq!(std::iter::from_fn(|| rig.state.resume()).collect::<Vec<_>>(), ["c", "b", "a"]);
    for run in &runs {
        rig.finish(run, Outcome::Settled);
    }
    assert!(rig.state.is_empty() && rig.state.running() == 0);
}

#[test]
fn a_parked_run_that_goes_on_without_a_worker_counts_against_its_lane_until_it_ends() {
    for asks in [false, true] {
        let mut rig = Rig::new(&[1]);
        for key in ["a", "b", "c"] {
            rig.add(key, Cause::Changed, 1);
        }
        let a = rig.start().unwrap();
        rig.state.park(&"a", a.run);
        let b = rig.start().unwrap();
        if asks {
            rig.state.ask(&"a", a.run);
        }
        rig.state.seize(&"a", a.run);
        rig.finish(&b, Outcome::Settled);
        assert_eq!(rig.state.resume(), None, "it has come back already");
        assert!(rig.start().is_none(), "the lane is full without the run that has ended");
        rig.finish(&a, Outcome::Settled);
        assert_eq!(rig.started(), ["c"]);
    }
}

#[test]
fn what_a_run_says_stays_until_its_key_settles_is_forgotten_or_begins_another_life() {
    let said = Some("the node is down".to_owned());
    let told = || {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let run = rig.start().unwrap();
        rig.state.note(&"a", run.run, "the node is down".to_owned());
        (rig, run)
    };
    let (mut rig, run) = told();
    assert_eq!(rig.note(), said);
    rig.finish(&run, RETRY);
    rig.wait();
    let again = rig.start().unwrap();
    assert_eq!(rig.note(), said, "from one try to the next");
    rig.finish(&again, RETRY);
    rig.add("a", Cause::Changed, 2);
    assert_eq!(rig.note(), None, "another life");

    let (mut rig, run) = told();
    rig.state.forget(&"a");
    assert_eq!(rig.note(), None, "forgotten");
    rig.state.note(&"a", run.run, "too late".to_owned());
    assert_eq!(rig.note(), None, "nobody asks for what is forgotten");
    assert!(!rig.state.is_empty(), "the run goes on");
    rig.finish(&run, RETRY);
    assert!(rig.state.is_empty());
}

#[test]
fn of_what_is_added_during_a_run_one_urgent_cause_is_enough_to_run_again_at_once() {
    for (causes, runs_now) in [
        ([Cause::Resync, Cause::Changed], true),
        ([Cause::Changed, Cause::Resync], true),
        ([Cause::Resync, Cause::Resync], false),
    ] {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let run = rig.start().unwrap();
        assert!(rig.add("a", causes[0], 1), "the first is news");
        assert!(!rig.add("a", causes[1], 1), "the second is a duplicate");
        rig.finish(&run, RETRY);
        assert_eq!(rig.start().is_some(), runs_now, "{causes:?}");
    }
}

#[test]
fn a_change_that_a_run_reads_runs_the_key_no_second_time_and_one_that_comes_later_does() {
    for (is_read, outcome, expected) in [
        (true, RETRY, None),
        (true, Outcome::Settled, None),
        (false, RETRY, Some("a")),
        (false, Outcome::Settled, Some("a")),
    ] {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let run = rig.start().unwrap();
        if is_read {
            rig.add("a", Cause::Changed, 1);
            rig.state.observe(&"a", run.run);
        } else {
            rig.state.observe(&"a", run.run);
            rig.add("a", Cause::Changed, 1);
        }
        rig.finish(&run, outcome);
        assert_eq!(rig.start().map(|start| start.key), expected, "{is_read} {outcome:?}");
    }
}

#[test]
fn what_no_read_can_answer_runs_the_key_again_although_the_run_reads_later() {
    // A drift must be looked at with mistrust, a resync wants its check, and another epoch is other work.
    for (cause, epoch) in [(Cause::Drift, 1), (Cause::Resync, 1), (Cause::Changed, 2)] {
        let mut rig = Rig::new(&[1]);
        rig.add("a", Cause::Changed, 1);
        let run = rig.start().unwrap();
        rig.add("a", Cause::Changed, 1);
        rig.add("a", cause, epoch);
        rig.state.observe(&"a", run.run);
        rig.finish(&run, Outcome::Settled);
        assert!(rig.start().is_some_and(|start| start.causes.contains(cause)), "{cause:?} {epoch}");
    }
    // Forgotten and added again, as when an object is deleted and restored.
    let mut rig = Rig::new(&[1]);
    rig.add("a", Cause::Changed, 1);
    let run = rig.start().unwrap();
    rig.state.forget(&"a");
    rig.add("a", Cause::Changed, 1);
    rig.state.observe(&"a", run.run);
    rig.finish(&run, Outcome::Settled);
    assert!(rig.start().is_some());
}
