//! The clock.
//!
//! Monotonic time is tokio's, which tests and the simulation pause and advance. Wall time is only ever *written* (into a
//! Lease, an event, a status): no decision compares it with a remote clock. In a simulation it is derived from the
//! monotonic clock, so that one seed gives one trace.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The source of the current time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    simulated: Option<(Instant, Timestamp)>,
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self { simulated: None }
    }

    /// A wall clock that reads `epoch` now and follows tokio's (paused) monotonic clock from here.
    pub fn simulated(epoch: Timestamp) -> Self {
        Self { simulated: Some((Instant::now(), epoch)) }
    }

    /// Monotonic now: what every delay, deadline and age is computed from.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Wall-clock now, for text that people and other controllers read.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    pub fn wall(&self) -> Timestamp {
        match self.simulated {
            None => Timestamp::now(),
            Some((start, epoch)) => {
                let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn simulated_wall_time_follows_the_paused_clock() {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::simulated(epoch);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(clock.wall().to_string(), "2026-01-01T00:01:01Z");
    }
}
