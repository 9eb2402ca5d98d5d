use std::cell::RefCell;

use crate::process::Clock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn pages(size: i32, yields: bool) -> Pages {
    Pages { size, timeout: SECOND, yields }
}

fn empty(started: Instant) -> Pass {
    Pass { started, finished: started, result: Ok(Listing::of("ListVolumes")) }
}

/// What happens in turn to roles `0` and `1`, and what becomes of them.
#[derive(Debug, Clone, Copy)]
enum Act {
    Join(u64),
    Leave(u64),
    /// It waits, and its time has come or not.
    Waits(u64, bool),
    /// The running pass of this role ends with a result.
    Ends(u64),
    /// Its term ends instead.
    Cut(u64),
}

#[test]
fn h21_one_pass_runs_at_a_time_for_all_that_had_joined_when_it_began() {
    use Act::{Cut, Ends, Join, Leave, Waits};
    const BOTH: [Act; 2] = [Join(1), Join(2)];
    let play = |acts: &[Act]| -> String {
        let mut state = State::default();
        let now = Clock::system().now();
        let mut said = String::new();
        for act in acts {
            match *act {
                Join(id) => assert_eq!(state.join(pages(0, false)), id),
                Leave(id) => drop(state.consumers.remove(&id)),
                Ends(id) => state.end(id, Some(&Arc::new(empty(now)))),
                Cut(id) => state.end(id, None),
                Waits(id, is_due) => said.push(match state.decide(id, is_due) {
                    Decision::Take(_) => 't',
                    Decision::Begin(_) => 'b',
                    Decision::Wait => 'w',
                }),
            }
        }
        said
    };
    for (acts, expected) in [
        // Either role alone.
        (&[Join(1), Waits(1, false), Waits(1, true), Ends(1), Waits(1, false), Waits(1, true)][..], "wbwb"),
        // Both: the first whose time has come makes the pass, the other gets it, once.
        (&[Waits(2, false), Waits(1, true), Waits(2, true), Ends(1), Waits(2, true), Waits(2, false)], "wbwtw"),
        (&[Waits(2, true), Waits(1, true), Ends(2), Waits(1, true)], "bwt"),
        // One that is at work has it later, and of two passes the newer.
        (&[Waits(1, true), Ends(1), Waits(1, true), Ends(1), Waits(2, false), Waits(2, false)], "bbtw"),
        // A term that ends cuts the pass: the other role begins it anew.
        (&[Waits(1, true), Waits(2, true), Cut(1), Leave(1), Waits(2, true), Ends(2), Waits(2, false)], "bwbw"),
        // What was there before a pass was cut is not lost with it.
        (&[Waits(1, true), Ends(1), Waits(1, true), Cut(1), Waits(2, false)], "bbt"),
        // A role that has joined meanwhile gets nothing of the running pass.
        (&[Waits(1, true), Leave(2), Join(3), Waits(3, true), Ends(1), Waits(3, false), Waits(3, true)], "bwwb"),
        // A role that has left is not waited for.
        (&[Waits(1, true), Leave(1), Ends(1), Waits(2, false), Waits(2, true)], "btb"),
    ] {
        let acts = if matches!(acts[0], Join(_)) { acts.to_vec() } else { [&BOTH[..], acts].concat() };
        assert_eq!(play(&acts), expected, "{acts:?}");
    }
}

#[test]
fn the_settings_of_a_role_that_does_not_yield_count_whoever_makes_the_pass() {
    for (joined, expected) in [
        (&[(7, true)][..], 7),
        (&[(7, false)], 7),
        (&[(7, true), (8, false)], 8),
        (&[(8, false), (7, true)], 8),
        (&[(7, true), (8, true)], 7),
    ] {
        for maker in 1..=u64::try_from(joined.len()).unwrap() {
            let mut state = State::default();
            for (size, yields) in joined {
                state.join(pages(*size, *yields));
            }
            let Decision::Begin(pages) = state.decide(maker, true) else { panic!("it is its turn") };
            assert_eq!(pages.size, expected, "{joined:?}, made by {maker}");
        }
    }
}

/// When a role began the passes that it made, and when it had each pass, in seconds.
#[derive(Debug, Default, PartialEq)]
struct Played {
    made: Vec<u64>,
    had: Vec<u64>,
}

/// A role in a term that lasts so many seconds and wants a pass every `interval` milliseconds. A pass takes a second.
async fn serve(passes: &VolumePasses, interval: u64, lasts: u64) -> Played {
    let (clock, played) = (Clock::system(), RefCell::new(Played::default()));
    let begun = clock.now();
    let second = || clock.now().duration_since(begun).as_secs();
    let term = async {
        let mut consumer = passes.join(pages(0, false));
        let mut at = begun;
        loop {
            if let NextPass::Make(turn) = consumer.next(at).await {
                played.borrow_mut().made.push(second());
                let started = clock.now();
                tokio::time::sleep(SECOND).await;
                turn.end(empty(started));
            }
            played.borrow_mut().had.push(second());
            at = clock.now() + Duration::from_millis(interval);
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(lasts), term).await;
    assert!(ended.is_err());
    played.into_inner()
}

#[tokio::test(start_paused = true)]
async fn h21_passes_come_at_the_shortest_interval_that_a_living_term_asks_for() {
    let alone = serve(&VolumePasses::default(), 60_000, 130).await;
    assert_eq!(alone, Played { made: vec![0, 61, 122], had: vec![1, 62, 123] });
    // The second role has joined within the first pass, so it makes one of its own. Then one term ends half a second into the pass that it
    // makes. Another role whose time has come begins it anew, and one that wants
    // passes more seldom keeps its own pace from then on.
    for (interval, lasts, expected) in [
        (10_200, 30, Played { made: vec![1, 23], had: vec![2, 13, 24] }),
        (300_000, 700, Played { made: vec![1, 313, 614], had: vec![2, 13, 314, 615] }),
    ] {
        let passes = VolumePasses::default();
        let cut = tokio::time::timeout(Duration::from_millis(23_500), serve(&passes, 10_000, 1000));
        let (cut, other) = futures::future::join(cut, serve(&passes, interval, lasts)).await;
        assert!(cut.is_err());
        assert_eq!(other, expected);
    }
}
