//! How failures are reported: which are new, and how many warnings an outage causes. These decisions affect only
//! reports.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// An error text without the IDs that drivers put into it. Two texts that differ only in IDs are the same failure. An
/// ID is a run of eight or more hexadecimal digits and dashes that contains a digit.
pub fn gist(text: &str) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_id = |word: &str| {
        word.len() >= 8
            && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            && word.contains(|c: char| c.is_ascii_digit())
    };
    let mut gist = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        gist.push_str(if is_id(word) { "…" } else { word });
        let mut others = after.chars();
        gist.extend(others.next());
        rest = others.as_str();
    }
    gist
}

/// The first pause between two warnings about the same failure. It doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// After twice the pause without a failure the next one is a new failure.
const FORGET_AFTER: u32 = 2;
/// The most kinds of failures that are remembered: the kind with the oldest last warning is forgotten first.
const MOST_KINDS: usize = 256;

/// Which failures are worth a warning in the log. In an outage each of ten thousand keys fails again and again with the
/// same text: the log gets the first failure, and then one for each step of a back-off, with the number of omitted
/// ones.
#[derive(Debug, Default)]
pub struct FailureLog(Mutex<BTreeMap<String, Burst>>);

#[derive(Debug)]
struct Burst {
    warned: Instant,
    last: Instant,
    pause: Duration,
    left_out: u64,
}

impl FailureLog {
    /// Whether a failure with this gist is worth a warning now: `Some` with the number of failures left out since the last one.
    pub fn warns(&self, gist: &str, now: Instant) -> Option<u64> {
        let mut bursts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(burst) = bursts.get_mut(gist)
            && now.saturating_duration_since(burst.last) <= burst.pause * FORGET_AFTER
        {
            burst.last = now;
            if now.saturating_duration_since(burst.warned) < burst.pause {
                burst.left_out += 1;
                return None;
            }
            burst.warned = now;
            burst.pause = (burst.pause * 2).min(LONGEST_PAUSE);
            return Some(std::mem::take(&mut burst.left_out));
        }
        if bursts.len() >= MOST_KINDS
            && let Some(oldest) = bursts.iter().min_by_key(|(_, burst)| burst.last).map(|(gist, _)| gist.clone())
        {
            bursts.remove(&oldest);
        }
        bursts.insert(gist.to_owned(), Burst { warned: now, last: now, pause: FIRST_PAUSE, left_out: 0 });
        Some(0)
    }
}

/// Logs a failed attempt: as a warning if [`FailureLog`] allows it, otherwise at level debug.
macro_rules! log_failure {
    ($log:expr, $now:expr, $error:expr, { $($field:tt)* }, $text:literal) => {{
        let error = $error;
        match $log.warns(&error.gist(), $now) {
            Some(0) => ::tracing::warn!($($field)* error = error.message(), $text),
            Some(left_out) => ::tracing::warn!($($field)* error = error.message(), left_out, $text),
            None => ::tracing::debug!($($field)* error = error.message(), $text),
        }
    }};
}

pub(crate) use log_failure;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;

    #[test]
    fn ids_of_requests_are_no_news_and_everything_else_is() {
        let said = |id: &str, what: &str| format!("rpc error: {what}: RequestID: {id}, pool \"gold\" (7 of 12 GiB)");
        let full = |id: &str| gist(&said(id, "full"));
        assert_eq!(full("3f2b1c0a-02e4-4a55-9d7b-1c2b3a495867"), full("0a0b0c0d-02e4-4a55-9d7b-1c2b3a495867"));
        assert_eq!(full("deadbeef01"), full("0123456789"));
        assert_ne!(full("0123456789"), gist(&said("0123456789", "denied")));
        // What is short, or a word, stays.
        for text in ["node n1 is down", "facade-deed", "vol-1 of 12", "2 of 3", "größer als 5", "", "decade"] {
            assert_eq!(gist(text), text);
        }
        assert_eq!(gist("12345678"), "…");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_ten_thousand_keys_costs_a_warning_for_each_step_of_the_back_off() {
        let (log, begun) = (FailureLog::default(), Clock::system().now());
        let second = Duration::from_secs(1);
        let mut warned = Vec::new();
        let mut told = 0;
        for tenth in 0..3000_u32 {
            for _ in 0..3 {
                if let Some(left_out) = log.warns("Unavailable no connection", begun + second / 10 * tenth) {
                    warned.push(tenth);
                    told += left_out + 1;
                }
            }
        }
        assert_eq!(warned, [0, 10, 30, 70, 150, 310, 630, 1270, 1910, 2550]);
        assert_eq!(told, 3 * 2550 + 1, "each failure before the last warning is counted");
        assert_eq!(log.warns("Internal broken disk", begun + 300 * second), Some(0), "another failure is told at once");
        assert_eq!(log.warns("Internal broken disk", begun + 303 * second), Some(0), "and so is one after a pause");
    }

    #[test]
    fn no_more_kinds_of_failures_are_remembered_than_there_is_room_for() {
        let (log, now) = (FailureLog::default(), Clock::system().now());
        for number in 0..1000 {
            assert_eq!(log.warns(&format!("failure {number}"), now), Some(0));
        }
        assert_eq!(log.0.lock().unwrap().len(), MOST_KINDS);
    }
}
