//! What is wrong with the list or the watch of one kind: told once, until it changes. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::error::ApiErrorKind;
use super::watch_error::Failure;

/// A failure that usually passes by itself is worth a warning after this time. A server that has just got a CRD, or has just started,
/// refuses lists of it for a second or two.
const LASTS: Duration = Duration::from_secs(15);
/// A kind whose lists have failed for this time counts as unreadable: what needs its objects says so, and everything else goes on.
const UNREADABLE_AFTER: Duration = Duration::from_secs(3);

/// How loudly a failure is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loudness {
    /// The log has told it already.
    Debug,
    /// It usually passes by itself.
    Info,
    /// It needs a person, or it lasts.
    Warn,
}

/// What the log has told about a kind.
#[derive(Debug, Default)]
pub(super) struct Told(Option<Trouble>);

#[derive(Debug)]
struct Trouble {
    verb: &'static str,
    class: ApiErrorKind,
    is_brief: bool,
    since: Instant,
    told: Loudness,
}

impl Told {
    /// A list or a watch has failed. Another verb or another class of failure is news; the same is not, however often it comes and
    /// whatever its text says.
    pub(super) fn failed(&mut self, failure: &Failure, now: Instant) -> Loudness {
        let &Failure { verb, class, is_brief, .. } = failure;
        let held = self.0.take().filter(|held| {
            let is_same = held.verb == verb && held.class == class;
            is_same || held.is_brief && is_brief
        });
        let mut trouble = held.unwrap_or(Trouble { verb, class, is_brief, since: now, told: Loudness::Debug });
        (trouble.verb, trouble.class) = (verb, class);
        let lasts = now.saturating_duration_since(trouble.since) >= LASTS;
        let due = if is_brief && !lasts { Loudness::Info } else { Loudness::Warn };
        let is_news = due > trouble.told;
        trouble.told = trouble.told.max(due);
        self.0 = Some(trouble);
        if is_news { due } else { Loudness::Debug }
    }

    /// Whether a failure of this verb has not ended.
    pub(super) fn is_of(&self, verb: &str) -> bool {
        self.0.as_ref().is_some_and(|held| held.verb == verb)
    }

    /// Whether the kind has failed for so long that what needs its objects must say so.
    pub(super) fn is_lasting(&self, now: Instant) -> bool {
        let after = |held: &Trouble| if held.is_brief { LASTS } else { UNREADABLE_AFTER };
        self.0.as_ref().is_some_and(|held| now.saturating_duration_since(held.since) >= after(held))
    }

    /// Whether a person has been warned.
    pub(super) fn is_warned(&self) -> bool {
        self.0.as_ref().is_some_and(|held| held.told == Loudness::Warn)
    }

    /// The failure is over. `true`: a person has been warned of it.
    pub(super) fn over(&mut self) -> bool {
        let was_warned = self.is_warned();
        self.0 = None;
        was_warned
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch_error::{LIST, WATCH};
    use super::*;

    fn failure(verb: &'static str, class: ApiErrorKind) -> Failure {
        let is_brief = matches!(class, ApiErrorKind::TooManyRequests | ApiErrorKind::Gone);
        Failure { verb, class, code: None, is_brief, text: "text".to_owned() }
    }

    #[test]
    fn a_failure_is_told_once_until_it_changes_and_one_that_passes_by_itself_only_when_it_lasts() {
        use ApiErrorKind::{Forbidden, Gone, ServerError, TooManyRequests};
        use Loudness::{Debug, Info, Warn};
        let begun = Instant::now();
        // Seconds, what fails (`None`: it is over), how loudly it is told.
        let cases = [
            (0, Some((LIST, Forbidden)), Warn),
            (1, Some((LIST, Forbidden)), Debug),
            (3600, Some((LIST, Forbidden)), Debug),
            (3601, Some((LIST, ServerError)), Warn),
            (3602, Some((WATCH, ServerError)), Warn),
            (3603, None, Debug),
            (3604, Some((LIST, Forbidden)), Warn),
            (3605, None, Debug),
            (4000, Some((LIST, TooManyRequests)), Info),
            (4001, Some((LIST, TooManyRequests)), Debug),
            (4002, Some((WATCH, Gone)), Debug),
            (4014, Some((WATCH, Gone)), Debug),
            (4015, Some((LIST, TooManyRequests)), Warn),
            (4030, Some((LIST, TooManyRequests)), Debug),
            (4031, Some((LIST, Forbidden)), Warn),
            (4032, Some((LIST, Gone)), Info),
        ];
        let mut told = Told::default();
        for (second, fails, expected) in cases {
            let now = begun + Duration::from_secs(second);
            let Some((verb, class)) = fails else {
                assert!(told.over(), "{second}: it was a warning");
                continue;
            };
            assert_eq!(told.failed(&failure(verb, class), now), expected, "{second}");
        }
        assert!(!told.over(), "no warning was written of the last one");
    }

    #[test]
    fn a_kind_is_unreadable_once_its_lists_have_failed_for_a_while() {
        let (begun, mut told) = (Instant::now(), Told::default());
        for (second, lasting) in [(0, false), (1, false), (3, true), (60, true)] {
            let now = begun + Duration::from_secs(second);
            told.failed(&failure(LIST, ApiErrorKind::ServerError), now);
            assert_eq!(told.is_lasting(now), lasting, "{second}");
        }
        told.over();
        assert!(!told.is_lasting(begun + Duration::from_secs(90)));
        for (second, lasting) in [(100, false), (110, false), (115, true)] {
            let now = begun + Duration::from_secs(second);
            told.failed(&failure(LIST, ApiErrorKind::TooManyRequests), now);
            assert_eq!(told.is_lasting(now), lasting, "{second}: it may still pass by itself");
        }
    }
}
