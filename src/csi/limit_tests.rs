//! A limit beside drivers of several kinds, in a time of its own.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { min: 1, max: 1000 };
const DEADLINE: Duration = Duration::from_secs(15);
const CALL: Duration = Duration::from_millis(200);
/// A refusal costs no work.
const REFUSAL: Duration = Duration::from_millis(2);

/// What a driver makes of a call.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Each call takes its time, however many there are.
    Quick,
    /// So many calls at once; further ones are refused.
    AtMost(u32),
    /// One call after the other.
    Serial,
    /// Every so many-th call is refused, under any load.
    Refuses(u32),
    /// All are refused.
    UsedUp,
    /// Nothing is answered.
    Hangs,
}

/// Callers who always have a further call, and the driver.
struct Play {
    limit: Limit,
    callers: u32,
    start: Instant,
    now: Instant,
    /// By when they end.
    in_flight: BTreeMap<(Instant, u64), (Began, Ending, Duration)>,
    calls: u64,
    /// What the driver works on.
    working: u32,
    free_at: Instant,
}

/// What came of the calls of a while.
#[derive(Debug, Default)]
struct Tally {
    answered: u32,
    refused: u32,
    limited: Duration,
}

impl Play {
    fn new(callers: u32) -> Self {
        let now = Instant::now();
        Self {
            limit: Limit::new(BOUNDS),
            callers,
            start: now,
            now,
            in_flight: BTreeMap::new(),
            calls: 0,
            working: 0,
            free_at: now,
        }
    }

    fn call(&mut self, kind: Kind) {
        let began = self.limit.begin(self.now);
        self.calls += 1;
        let refused = (Ending::Refused, REFUSAL);
        let (ending, took) = match kind {
            Kind::Quick => (Ending::Answered, CALL),
            Kind::AtMost(most) if self.working < most => (Ending::Answered, CALL),
            Kind::Refuses(every) if !self.calls.is_multiple_of(u64::from(every)) => (Ending::Answered, CALL),
            Kind::AtMost(_) | Kind::UsedUp | Kind::Refuses(_) => refused,
            Kind::Serial => {
                self.free_at = self.free_at.max(self.now) + CALL;
                match self.free_at - self.now {
                    took if took > DEADLINE => {
                        // The driver notices that its caller has gone away.
                        self.free_at -= CALL;
                        (Ending::TimedOut, DEADLINE)
                    }
                    took => (Ending::Answered, took),
                }
            }
            Kind::Hangs => (Ending::TimedOut, DEADLINE),
        };
        self.working += u32::from(ending == Ending::Answered);
        self.in_flight.insert((self.now + took, self.calls), (began, ending, took));
    }

    /// Plays until so long after the start.
    fn until(&mut self, end: Duration, kind: Kind) -> Tally {
        let mut tally = Tally::default();
        let end = self.start + end;
        loop {
            while self.limit.has_room() && self.limit.in_flight() < self.callers {
                self.call(kind);
            }
            let Some(((at, number), (began, ending, took))) = self.in_flight.pop_first() else { panic!("no caller") };
            if at > end {
                self.in_flight.insert((at, number), (began, ending, took));
                self.now = end;
                return tally;
            }
            tally.limited += if self.limit.at() < self.callers { at - self.now } else { Duration::ZERO };
            self.now = at;
            self.working -= u32::from(ending == Ending::Answered);
            *if ending == Ending::Answered { &mut tally.answered } else { &mut tally.refused } += 1;
            self.limit.end(began, ending, took.as_secs_f64() / DEADLINE.as_secs_f64(), self.now);
            assert!((BOUNDS.min..=BOUNDS.max).contains(&self.limit.at()));
        }
    }

    fn seconds(&mut self, end: u64, kind: Kind) -> Tally {
        self.until(Duration::from_secs(end), kind)
    }
}

impl Tally {
    fn refused_share(&self) -> f64 {
        f64::from(self.refused) / f64::from(self.refused + self.answered)
    }
}

#[test]
fn a_driver_that_refuses_nothing_is_never_limited() {
    let mut play = Play::new(100);
    let tally = play.seconds(120, Kind::Quick);
    assert_eq!((tally.refused, play.limit.is_limited()), (0, false));
    assert_eq!(tally.answered, 100 * 5 * 120);
}

#[test]
fn a_driver_that_takes_some_calls_at_once_gets_about_as_many() {
    for most in [1, 2, 3, 5, 20, 60] {
        let mut play = Play::new(100);
        play.seconds(20, Kind::AtMost(most));
        let settled = play.seconds(200, Kind::AtMost(most));
        let best = f64::from(most * 5 * 180);
        assert!(settled.refused_share() <= 0.01, "{most}: {settled:?}");
        assert!(f64::from(settled.answered) >= 0.9 * best, "{most}: {settled:?}, at best {best}");
    }
}

#[test]
fn the_way_down_costs_a_few_rounds() {
    let mut play = Play::new(100);
    let tally = play.until(Duration::from_secs(5), Kind::AtMost(20));
    assert!(tally.refused < 300, "{tally:?}");
}

#[test]
fn a_driver_that_does_one_call_after_the_other_gets_as_many_as_it_answers_in_time() {
    let mut play = Play::new(100);
    play.seconds(60, Kind::Serial);
    let settled = play.seconds(660, Kind::Serial);
    assert!(settled.refused_share() <= 0.01, "{settled:?}");
    assert!(settled.answered >= 600 * 5 * 9 / 10, "{settled:?}");
}

#[test]
fn once_the_driver_has_recovered_the_limit_is_gone_within_a_minute() {
    for kind in [Kind::AtMost(1), Kind::AtMost(20), Kind::AtMost(60), Kind::Serial] {
        let mut play = Play::new(100);
        play.seconds(100, kind);
        assert!(play.limit.is_limited(), "{kind:?}");
        play.seconds(160, Kind::Quick);
        assert!(play.limit.at() >= 100, "{kind:?}: {:?}", play.limit);
    }
}

#[test]
fn refusals_that_have_nothing_to_do_with_load_limit_next_to_nothing() {
    let mut play = Play::new(100);
    play.seconds(60, Kind::UsedUp);
    assert!(!play.limit.is_limited(), "{:?}", play.limit);
    for every in [2, 3, 5, 7, 8, 9, 11, 15, 30] {
        let mut play = Play::new(100);
        let tally = play.seconds(1800, Kind::Refuses(every));
        assert!(tally.limited < Duration::from_secs(180), "every {every}: {tally:?}");
    }
    // So few that they could be a few that are refused anyway.
    let mut play = Play::new(100);
    play.seconds(30, Kind::AtMost(20));
    let tally = play.seconds(330, Kind::Refuses(50));
    assert!(tally.limited < Duration::from_secs(60), "{tally:?}");
}

#[test]
fn a_driver_that_hangs_is_asked_by_a_single_call_at_last() {
    let mut play = Play::new(100);
    let mut least = 1000;
    for seconds in (15..600).step_by(15) {
        play.seconds(seconds, Kind::Hangs);
        least = least.min(play.limit.at());
    }
    assert_eq!(least, BOUNDS.min);
}

#[test]
fn a_limit_that_nobody_has_used_for_a_minute_is_forgotten() {
    let mut play = Play::new(100);
    play.seconds(30, Kind::AtMost(20));
    assert!(play.limit.is_limited());
    play.callers = 3;
    play.seconds(30 + 61, Kind::Quick);
    assert!(!play.limit.is_limited(), "{:?}", play.limit);
}

#[test]
fn bounds_that_are_one_leave_no_choice() {
    let mut play = Play::new(100);
    play.limit = Limit::new(Bounds { min: 40, max: 40 });
    play.seconds(60, Kind::AtMost(20));
    assert_eq!((play.limit.at(), play.limit.is_limited()), (40, false));
    play.limit.set_bounds(BOUNDS);
    assert_eq!(play.limit.at(), BOUNDS.max);
}

#[test]
fn only_what_the_driver_has_sent_is_a_refusal() {
    use Ending::{Answered, Refused, TimedOut, Untold};
    for (code, said, expected) in [
        (Code::Ok, Some(Code::Ok), Answered),
        (Code::NotFound, Some(Code::NotFound), Answered),
        (Code::Internal, Some(Code::Internal), Answered),
        (Code::ResourceExhausted, Some(Code::ResourceExhausted), Refused),
        (Code::Aborted, Some(Code::Aborted), Refused),
        (Code::Unavailable, Some(Code::Unavailable), Refused),
        (Code::Unavailable, None, Untold),
        (Code::Unavailable, Some(Code::Ok), Untold),
        (Code::Cancelled, None, Untold),
        (Code::DeadlineExceeded, None, TimedOut),
        (Code::DeadlineExceeded, Some(Code::DeadlineExceeded), TimedOut),
    ] {
        assert_eq!(Ending::of(code, said), expected, "{code:?} {said:?}");
    }
}

proptest! {
    /// Whatever the answers: the limit lies between its bounds, and some call can always begin.
    #[test]
    fn the_limit_lies_between_its_bounds(
        min in 1_u32..20,
        more in 0_u32..50,
        steps in prop::collection::vec((0_u8..5, 0_u64..20_000), 0..400),
    ) {
        let bounds = Bounds { min, max: min + more };
        let (mut limit, mut now) = (Limit::new(bounds), Instant::now());
        let mut began = Vec::new();
        for (what, millis) in steps {
            now += Duration::from_millis(millis);
            while limit.has_room() && began.len() < 60 {
                began.push(limit.begin(now));
            }
            prop_assert!(!began.is_empty());
            for _ in 0..=millis % 13 {
                let Some(call) = began.pop() else { break };
                let ending = match what {
                    0 | 1 => Ending::Answered,
                    2 => Ending::Refused,
                    3 => Ending::TimedOut,
                    _ => Ending::Untold,
                };
                limit.end(call, ending, 0.5, now);
            }
            prop_assert!((bounds.min..=bounds.max).contains(&limit.at()));
            prop_assert_eq!(limit.in_flight() as usize, began.len());
        }
    }
}
