//! Which node creates a claim's volume, with one daemon per node (spec 2.14). Pure: the caller passes the time.
//!
//! ```text
//! selected node is ours ──> Mine
//! another's ──────────────> Other (look again later) ──> AskForHolder ──> still there: Other
//!                                                                     └─> gone: Free, and then it is nobody's
//! nobody's, binds at once, within our reach ─> Compete(delay) ─> Claim ─> room?  yes: select our node, if still nobody's
//!                                                                 ^        no ──> Compete(poll interval)
//!                                                                 └── a write that lost ── Compete(longer delay)
//! ```
//!
//! The first daemon that notices removes a deleted node from the claim, whatever the class, because the scheduler
//! considers only the node that is written there. The patch requires the old value, so only one daemon succeeds.
//!
//! Nobody sleeps: a verdict says how long to wait, and the queue waits. (In the Go sidecar workers sleep through the
//! delay, a claim gives up for ever after one answer without room, and the claims of a deleted node never get a
//! volume.)

use std::time::Duration;

use crate::proto::GetCapacityResponse;
use crate::roles::kit::Remembered;
use crate::roles::provisioner::claim::ClaimKey;

/// The delays of the contention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// The first delay is at most this; each lost race doubles it.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// The wait after the driver had no room.
    pub poll: Duration,
}

/// A claim as it is seen now.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Our node.
    pub own: &'a str,
    /// The node that was selected for the claim.
    pub selected: Option<&'a str>,
    /// The class binds without waiting for a pod.
    pub immediate: bool,
    /// We are configured to compete for such claims.
    pub competes: bool,
    /// The class's `allowedTopologies` include our node.
    pub in_reach: bool,
    /// What the API said of the selected node, if it was just asked.
    pub holder: Option<Holder>,
}

/// Whether the Node object of another selected node exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It exists.
    There,
    /// It does not.
    Gone,
}

/// What to do about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Create the volume.
    Mine,
    /// Another node owns the claim. Look again later, because that node may be gone then.
    Other {
        /// After this.
        look_again: Duration,
    },
    /// Ask the API whether the selected node exists, and decide again with the answer.
    AskForHolder,
    /// The selected node is gone: remove it from the claim, if it is still written there.
    Free,
    /// Wait this long, then decide again.
    Compete {
        /// This long.
        delay: Duration,
    },
    /// It is our turn: select our node, if the driver has room and no other node is selected.
    Claim,
    /// Not ours.
    Ignore,
    /// The first wait has not begun: begin it, and decide again.
    Begin,
}

/// What the term remembers of a claim: a race, or the wait for the node that owns it. After a restart it begins anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Race {
    /// The claim, once a wait has begun.
    claim: Option<ClaimKey>,
    /// The number of lost races.
    lost: u32,
    /// The node that was selected when the wait began. `None`: no node was, and it is a race.
    against: Option<String>,
    /// When the wait ends. `None`: it has not begun.
    due: Option<Duration>,
}

impl Remembered for Race {}

impl Race {
    /// What to do about the claim. `now` counts from any fixed moment.
    pub fn verdict(&self, sight: &Sight<'_>, now: Duration) -> Verdict {
        let may_compete = sight.immediate && sight.competes && sight.in_reach;
        match sight.selected {
            Some(node) if node == sight.own => Verdict::Mine,
            // The race keeps its wait: a failed write is tried again at once.
            Some(_) if sight.holder == Some(Holder::Gone) => Verdict::Free,
            Some(_) if sight.holder == Some(Holder::There) => Verdict::Begin,
            Some(node) => match self.due(Some(node)) {
                None => Verdict::Begin,
                Some(due) if due > now => Verdict::Other { look_again: due.saturating_sub(now) },
                Some(_) => Verdict::AskForHolder,
            },
            None if may_compete => match self.due(None) {
                None => Verdict::Begin,
                Some(due) if due > now => Verdict::Compete { delay: due.saturating_sub(now) },
                Some(_) => Verdict::Claim,
            },
            None => Verdict::Ignore,
        }
    }

    /// When the wait ends that began with this node selected.
    fn due(&self, selected: Option<&str>) -> Option<Duration> {
        self.due.filter(|_| self.against.as_deref() == selected)
    }

    /// Begins the first wait: a grace for another node's daemon, or a delay before our turn. `jitter` is in `[0, 1)`.
    pub fn begin(&mut self, claim: &ClaimKey, selected: Option<&str>, manners: &Manners, now: Duration, jitter: f64) {
        let lost = if self.against.is_some() || selected.is_some() { 0 } else { self.lost };
        let wait = match selected {
            // At most twice the longest delay: all daemons of the cluster will look.
            Some(_) => manners.max + manners.max.mul_f64(jitter),
            None => delay(lost, manners, jitter),
        };
        let against = selected.map(str::to_owned);
        *self = Self { claim: Some(claim.clone()), lost, against, due: Some(now + wait) };
    }

    /// Another node was selected before our write: wait longer next time.
    pub fn lost(&mut self) {
        *self = Self { claim: self.claim.take(), lost: self.lost.saturating_add(1), ..Self::default() };
    }

    /// It is our turn, and the driver has no room: look again once the capacity may have changed.
    pub fn no_room(&mut self, manners: &Manners, now: Duration) {
        self.due = Some(now + manners.poll);
    }

    /// The claim, with the other node that owns it, if there is one, and the time from `now` until the next look. `None`: at the next
    /// attempt.
    pub fn row(&self, now: Duration) -> Option<(&ClaimKey, Option<&str>, Option<Duration>)> {
        let wait = self.due.map(|due| due.saturating_sub(now));
        Some((self.claim.as_ref()?, self.against.as_deref(), wait))
    }
}

/// The delay after `lost` lost races: doubled each time, and reduced at random so that not all nodes begin at once.
fn delay(lost: u32, manners: &Manners, jitter: f64) -> Duration {
    let grown = 2_u32.checked_pow(lost).and_then(|factor| manners.base.checked_mul(factor)).unwrap_or(manners.max);
    grown.min(manners.max).saturating_sub(manners.base.mul_f64(jitter))
}

/// Whether a volume of this size fits in one of the segments, by the driver's answers. A size of zero always fits.
pub fn has_room(answers: &[GetCapacityResponse], required_bytes: i64) -> bool {
    let fits = |answer: &GetCapacityResponse| {
        answer.available_capacity >= required_bytes
            && answer.maximum_volume_size.is_none_or(|largest| largest >= required_bytes)
    };
    required_bytes <= 0 || answers.iter().any(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ObjectName;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const MANNERS: Manners = Manners { base: seconds(20), max: seconds(60), poll: seconds(45) };
    const FREE: Sight<'_> =
        Sight { own: "n1", selected: None, immediate: true, competes: true, in_reach: true, holder: None };

    fn claim() -> ClaimKey {
        ClaimKey { uid: "u1".into(), name: ObjectName::namespaced("shop", "data") }
    }

    /// Decides, as often as it takes, and forgets what is none of ours or ours alone, as an attempt does.
    fn at(race: &mut Race, sight: &Sight<'_>, now: u64) -> Verdict {
        let mut verdict = race.verdict(sight, seconds(now));
        if verdict == Verdict::Begin {
            race.begin(&claim(), sight.selected, &MANNERS, seconds(now), 0.5);
            verdict = race.verdict(&Sight { holder: None, ..*sight }, seconds(now));
        }
        if matches!(verdict, Verdict::Mine | Verdict::Ignore) {
            *race = Race::default();
        }
        verdict
    }

    fn compete(delay: u64) -> Verdict {
        Verdict::Compete { delay: seconds(delay) }
    }

    #[test]
    fn the_selected_node_decides() {
        let mut race = Race::default();
        for (sight, expected) in [
            (Sight { selected: Some("n1"), ..FREE }, Verdict::Mine),
            (Sight { selected: Some("n1"), immediate: false, competes: false, ..FREE }, Verdict::Mine),
            (Sight { immediate: false, ..FREE }, Verdict::Ignore),
            (Sight { competes: false, ..FREE }, Verdict::Ignore),
            (Sight { in_reach: false, ..FREE }, Verdict::Ignore),
        ] {
            assert_eq!(at(&mut race, &sight, 0), expected, "{sight:?}");
            assert_eq!(race, Race::default(), "nothing is remembered of {sight:?}");
        }
    }

    #[test]
    fn our_turn_comes_after_a_delay_that_nobody_sleeps_through() {
        let mut race = Race::default();
        assert_eq!(at(&mut race, &FREE, 100), compete(10));
        assert_eq!(at(&mut race, &FREE, 104), compete(6), "woken early, it waits for the rest");
        assert_eq!(at(&mut race, &FREE, 110), Verdict::Claim);
        assert_eq!(at(&mut race, &FREE, 111), Verdict::Claim, "an attempt that failed is simply repeated");
        assert_eq!(at(&mut race, &Sight { selected: Some("n1"), ..FREE }, 112), Verdict::Mine);
        assert_eq!(race, Race::default());
    }

    #[test]
    fn each_race_lost_doubles_the_delay_up_to_the_longest() {
        let mut race = Race::default();
        let mut delays = Vec::new();
        for _ in 0..4 {
            let Verdict::Compete { delay } = at(&mut race, &FREE, 0) else { panic!() };
            delays.push(delay.as_secs());
            race.lost();
        }
        assert_eq!(delays, [10, 30, 50, 50]);
        assert_eq!(delay(u32::MAX, &MANNERS, 0.0), MANNERS.max);
        assert_eq!(delay(0, &Manners { max: seconds(5), ..MANNERS }, 0.9), Duration::ZERO, "never below zero");
    }

    #[test]
    fn where_there_was_no_room_it_is_looked_for_again() {
        let mut race = Race::default();
        at(&mut race, &FREE, 0);
        assert_eq!(at(&mut race, &FREE, 10), Verdict::Claim);
        race.no_room(&MANNERS, seconds(10));
        assert_eq!(at(&mut race, &FREE, 10), compete(45));
        assert_eq!(at(&mut race, &FREE, 50), compete(5));
        assert_eq!(at(&mut race, &FREE, 55), Verdict::Claim);
    }

    #[test]
    fn a_claim_is_shown_with_the_other_node_that_has_it() {
        let mut race = Race::default();
        at(&mut race, &FREE, 0);
        assert_eq!(race.row(seconds(4)), Some((&claim(), None, Some(seconds(6)))));
        at(&mut race, &Sight { selected: Some("n2"), ..FREE }, 0);
        assert_eq!(race.row(seconds(4)), Some((&claim(), Some("n2"), Some(seconds(86)))));
    }

    fn other(look_again: u64) -> Verdict {
        Verdict::Other { look_again: seconds(look_again) }
    }

    #[test]
    fn r38_a_claim_whose_node_is_gone_is_freed_of_it_whatever_its_class() {
        let held = Sight { selected: Some("n2"), ..FREE };
        for held in [
            held,
            Sight { immediate: false, ..held },
            Sight { competes: false, ..held },
            Sight { in_reach: false, ..held },
        ] {
            let mut race = Race::default();
            assert_eq!(at(&mut race, &held, 0), other(90), "{held:?}");
            assert_eq!(at(&mut race, &held, 60), other(30));
            assert_eq!(at(&mut race, &held, 90), Verdict::AskForHolder);
            let there = Sight { holder: Some(Holder::There), ..held };
            assert_eq!(at(&mut race, &there, 90), other(90), "all is well");
            assert_eq!(at(&mut race, &held, 180), Verdict::AskForHolder);
            let gone = Sight { holder: Some(Holder::Gone), ..held };
            assert_eq!(at(&mut race, &gone, 180), Verdict::Free);
            assert_eq!(at(&mut race, &held, 181), Verdict::AskForHolder, "the write failed: no other wait of so long");
            let another = Sight { selected: Some("n3"), ..held };
            assert_eq!(at(&mut race, &another, 182), other(90), "n3 was quicker");
        }
    }

    #[test]
    fn a_claim_that_was_freed_of_its_node_is_raced_for_like_any_other() {
        let mut race = Race::default();
        assert_eq!(at(&mut race, &Sight { selected: Some("n2"), ..FREE }, 0), other(90));
        assert_eq!(at(&mut race, &FREE, 89), compete(10));
        assert_eq!(at(&mut race, &Sight { selected: Some("n2"), ..FREE }, 90), other(90));
        assert_eq!(at(&mut race, &Sight { immediate: false, ..FREE }, 91), Verdict::Ignore);
        assert_eq!(race, Race::default(), "its node is the scheduler's to choose");
    }

    #[test]
    fn there_is_room_if_one_place_has_it_and_one_volume_may_be_that_large() {
        let answer = |available_capacity, maximum_volume_size| GetCapacityResponse {
            available_capacity,
            maximum_volume_size,
            ..GetCapacityResponse::default()
        };
        assert!(has_room(&[answer(5, None), answer(10, None)], 10));
        assert!(!has_room(&[answer(9, None)], 10));
        assert!(!has_room(&[answer(100, Some(9))], 10));
        assert!(has_room(&[answer(100, Some(10))], 10));
        assert!(!has_room(&[], 10) && has_room(&[], 0), "nothing always fits");
    }
}
