//! How many warnings an outage causes.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

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
        let mut bursts = self.0.lock();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;

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
        assert_eq!(log.0.lock().len(), MOST_KINDS);
    }
}
