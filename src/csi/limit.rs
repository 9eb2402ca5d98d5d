//! How many calls of one RPC may be in flight at once, so that a driver is not overrun. Pure.
//!
//! ```text
//! Open ── a heavy round ──> Descending ── no heavy round ──> Growing <──> Holding
//!   ^                           │ heavy with one call            │ as many as are allowed, or nothing refused for a minute
//!   └──────── for a while ──────┴────────────────────────────────┘
//! ```
//! - There is no limit until the driver refuses calls or does not answer in time: a driver that does neither notices nothing.
//! - A limit is judged by rounds: as many answers as there may be calls, to calls that began under it. A round is heavy if a tenth of
//!   its calls were refused or not answered in time.
//! - After a heavy round the limit is halved, until a round is not heavy. Then it grows towards the level that was too high, each time by
//!   half of the distance. Near that level it is held, and the level is tried again from time to time.
//! - If the driver refuses calls that are made one at a time, load is not the cause (a quota is used up, a node has as many volumes as it
//!   may have). Then there is no limit, and refusals are ignored for a while, which doubles each time.
//! - The limit does not grow to a level at which the slowest answer would miss its deadline. The last two levels predict how slow it is.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

/// A round has at least so many answers, so that one alone means little.
const ROUND: u32 = 16;
/// So many refusals are needed to call a round heavy, however few calls it has.
const HEAVY: u32 = 2;
/// A level is held until so many rounds and so much time have passed, and at most so long.
const HOLD_ROUNDS: u32 = 20;
const HOLD: Duration = Duration::from_secs(10);
const HOLD_MAX: Duration = Duration::from_secs(30);
/// Where more than this share is refused at a level that is held, the load is not the reason.
const NOISE: f64 = 0.05;
/// A limit that is not used, and under which nothing was refused for so long, is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// How long refusals mean nothing, once they have turned out to have nothing to do with load; and at most.
const DEAF: Duration = Duration::from_secs(60);
const DEAF_MAX: Duration = Duration::from_secs(3600);
/// The share of its deadline that the slowest answer may take.
const SLOWEST: f64 = 0.85;

/// How a call has ended, as far as that says something of the driver's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The driver has answered.
    Answered,
    /// The driver has answered that it can't now.
    Refused,
    /// The driver has not answered before the deadline.
    TimedOut,
    /// The call was not sent, or broke off.
    Untold,
}

impl Ending {
    /// `code` is how the call ended, `said` what the driver itself has sent.
    pub(super) fn of(code: Code, said: Option<Code>) -> Self {
        match code {
            Code::DeadlineExceeded => Self::TimedOut,
            Code::ResourceExhausted | Code::Aborted | Code::Unavailable if said == Some(code) => Self::Refused,
            Code::Cancelled | Code::Unavailable => Self::Untold,
            _ => Self::Answered,
        }
    }
}

/// Between which numbers of calls a limit lies. The upper one is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// The limit under which a call has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Began(u64);

/// The limit of one RPC.
#[derive(Debug)]
pub(super) struct Limit {
    bounds: Bounds,
    at: u32,
    phase: Phase,
    /// Counts the changes of the limit.
    change: u64,
    in_flight: u32,
    round: Round,
    /// When a call was last refused or not answered in time.
    last_refusal: Option<Instant>,
    deaf: Deaf,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// There is no limit.
    Open,
    /// Halved until no round is heavy. `ceiling` was too high.
    Descending { ceiling: u32 },
    /// Grows from a level that is known to do towards `ceiling`, which was too high. `step`: by how much, beyond all that was tried.
    Growing { known: Level, ceiling: Option<u32>, step: u32, noise: f64 },
    /// Held near `ceiling`. What the driver refuses meanwhile has another cause than load.
    Holding { known: Level, ceiling: u32, since: Instant, rounds: u32, calls: u32, refused: u32 },
}

/// A level, and the share of its deadline that the slowest answer took there; and by how much that grew with each further call, if it
/// was measured at a lower level, too.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    at: u32,
    slowest: f64,
    slope: Option<f64>,
}

/// What the calls have said that began under the present limit, since the last round.
#[derive(Debug, Default)]
struct Round {
    answered: u32,
    refused: u32,
    timed_out: u32,
    peak: u32,
    slowest: f64,
}

/// How long refusals mean nothing.
#[derive(Debug)]
struct Deaf {
    until: Option<Instant>,
    next: Duration,
}

impl Limit {
    /// No limit but the upper bound.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            at: bounds.max,
            phase: Phase::Open,
            change: 0,
            in_flight: 0,
            round: Round::default(),
            last_refusal: None,
            deaf: Deaf { until: None, next: DEAF },
        }
    }

    /// How many calls may be in flight at once.
    pub(super) fn at(&self) -> u32 {
        self.at
    }

    /// Whether that is less than the upper bound.
    pub(super) fn is_limited(&self) -> bool {
        self.phase != Phase::Open
    }

    /// How many calls are in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a further call may begin.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.at
    }

    /// Other bounds are in effect from here on. A limit that was found does not outlast them.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        if self.bounds != bounds {
            self.bounds = bounds;
            self.open();
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self, now: Instant) -> Began {
        if self.in_flight == 0 && self.is_forgotten(now) {
            self.open();
        }
        self.in_flight += 1;
        self.round.peak = self.round.peak.max(self.in_flight);
        Began(self.change)
    }

    /// A call has ended, after this share of its deadline.
    pub(super) fn end(&mut self, began: Began, ending: Ending, share: f64, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if matches!(ending, Ending::Refused | Ending::TimedOut) {
            self.last_refusal = Some(now);
        }
        if began.0 != self.change {
            return;
        }
        match ending {
            Ending::Answered => {
                self.round.answered += 1;
                self.round.slowest = self.round.slowest.max(share);
            }
            Ending::Refused => self.round.refused += 1,
            Ending::TimedOut => self.round.timed_out += 1,
            Ending::Untold => return,
        }
        if self.is_over() {
            let round = std::mem::replace(&mut self.round, Round { peak: self.in_flight, ..Round::default() });
            self.judge(&round, now);
        }
    }

    /// Whether the round has come to its end, or its verdict is certain before.
    fn is_over(&self) -> bool {
        let whole = self.at.min(self.round.peak).max(ROUND);
        let is_too_high = matches!(self.phase, Phase::Growing { known, noise, .. }
            if self.at > known.at && self.round.has_more_than(noise, whole));
        self.round.calls() >= whole || self.round.is_heavy(whole) || is_too_high
    }

    fn judge(&mut self, round: &Round, now: Instant) {
        let used = self.at.min(round.peak);
        let whole = round.calls().max(used).max(ROUND);
        match self.phase {
            Phase::Open => {
                let is_deaf = self.deaf.until.is_some_and(|until| now < until);
                if round.is_heavy(whole) && !is_deaf && used > self.bounds.min {
                    self.descend(used, now);
                }
            }
            Phase::Descending { .. } if round.is_heavy(whole) => self.descend(self.at, now),
            Phase::Descending { ceiling } => {
                self.grow(Level::first(self.at, round.slowest), Some(ceiling), 0, 0.0, now);
            }
            Phase::Growing { known, .. } | Phase::Holding { known, .. }
                if round.is_heavy(whole) && self.at <= known.at =>
            {
                self.descend(self.at, now);
            }
            Phase::Growing { known, noise, .. } if self.at > known.at && round.has_more_than(noise, whole) => {
                self.grow(known, Some(self.at), 0, noise, now);
            }
            _ if used < self.at => {
                if self.is_forgotten(now) {
                    self.open();
                }
            }
            Phase::Growing { known, ceiling, step, noise } => {
                let ceiling = ceiling.filter(|ceiling| *ceiling > self.at);
                self.grow(known.then(self.at, round.slowest), ceiling, step, noise, now);
            }
            Phase::Holding { known, ceiling, since, rounds, calls, refused } => {
                let (calls, refused) = (calls + round.calls(), refused + round.refusals());
                let (rounds, held) = (rounds + 1, now.saturating_duration_since(since));
                let known = known.then(self.at, round.slowest);
                if held >= HOLD_MAX || (held >= HOLD && rounds >= HOLD_ROUNDS) {
                    let noise = f64::from(refused) / f64::from(calls);
                    if noise > NOISE {
                        return self.go_deaf(now);
                    }
                    self.deaf.next = DEAF;
                    let next = known.as_far_as(ceiling).max(self.at);
                    self.phase = Phase::Growing { known, ceiling: Some(ceiling), step: 0, noise };
                    self.set(next);
                } else {
                    self.phase = Phase::Holding { known, ceiling, since, rounds, calls, refused };
                }
            }
        }
    }

    /// The level does: goes on to the next, or stays near the ceiling.
    fn grow(&mut self, known: Level, ceiling: Option<u32>, step: u32, noise: f64, now: Instant) {
        let tenth = (known.at / 10).max(1);
        let (wanted, step) = match ceiling {
            Some(ceiling) if ceiling - known.at <= tenth => (known.at, 0),
            Some(ceiling) => (known.at + (ceiling - known.at).div_ceil(2), 0),
            None => {
                let step = (step * 2).max(tenth);
                (known.at.saturating_add(step), step)
            }
        };
        let next = known.as_far_as(wanted);
        if next >= self.bounds.max {
            self.open();
        } else if next > known.at {
            self.phase = Phase::Growing { known, ceiling, step, noise };
            self.set(next);
        } else {
            let ceiling = ceiling.unwrap_or(known.at + tenth);
            self.phase = Phase::Holding { known, ceiling, since: now, rounds: 0, calls: 0, refused: 0 };
            self.set(known.at);
        }
    }

    /// So many calls were too many. If there can't be fewer, their number is not the reason.
    fn descend(&mut self, ceiling: u32, now: Instant) {
        if ceiling <= self.bounds.min {
            return self.go_deaf(now);
        }
        self.phase = Phase::Descending { ceiling };
        self.set((ceiling / 2).max(self.bounds.min));
    }

    /// What is refused is not refused for the load.
    fn go_deaf(&mut self, now: Instant) {
        self.deaf.until = Some(now + self.deaf.next);
        self.deaf.next = (self.deaf.next * 2).min(DEAF_MAX);
        self.open();
    }

    fn open(&mut self) {
        self.phase = Phase::Open;
        self.set(self.bounds.max);
    }

    fn set(&mut self, at: u32) {
        self.at = at;
        self.change += 1;
        self.round = Round { peak: self.in_flight, ..Round::default() };
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        let since = |at: Instant| now.saturating_duration_since(at);
        self.is_limited() && self.last_refusal.is_none_or(|at| since(at) >= FORGOTTEN)
    }
}

impl Level {
    /// The first level that does. Until another is known, an answer takes longer in proportion to the calls.
    fn first(at: u32, slowest: f64) -> Self {
        Self { at, slowest, slope: None }
    }

    /// The next level that does, or the same once more.
    fn then(self, at: u32, slowest: f64) -> Self {
        let slope = (at > self.at).then(|| ((slowest - self.slowest) / f64::from(at - self.at)).max(0.0));
        Self { at, slowest, slope: slope.or(self.slope) }
    }

    /// As many calls, up to these, as are answered in time.
    fn as_far_as(self, wanted: u32) -> u32 {
        let slope = self.slope.unwrap_or_else(|| self.slowest / f64::from(self.at.max(1)));
        let slowest = |at: u32| self.slowest + slope * f64::from(at - self.at);
        let mut at = wanted.max(self.at);
        while at > self.at && slowest(at) > SLOWEST {
            at -= (at - self.at).div_ceil(8);
        }
        at
    }
}

impl Round {
    fn calls(&self) -> u32 {
        self.answered + self.refusals()
    }

    fn refusals(&self) -> u32 {
        self.refused + self.timed_out
    }

    /// Whether a tenth of the round is refused, which has so many calls as a whole.
    fn is_heavy(&self, whole: u32) -> bool {
        self.refusals() >= HEAVY && self.refusals() * 10 >= whole
    }

    /// Whether more calls were refused than would be by chance, if this share is refused under any load.
    fn has_more_than(&self, noise: f64, whole: u32) -> bool {
        let usual = noise * f64::from(whole);
        f64::from(self.refusals()) > usual + 3.0 * usual.sqrt()
    }
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
