//! How long a failed key waits. Pure: the jitter is an argument.

use std::time::Duration;

/// Jitter lengthens a delay by up to this share of it.
const JITTER_SHARE: f64 = 0.2;

/// Exponential delays: `initial`, twice that, four times that, up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub initial: Duration,
    /// The longest delay, without jitter.
    pub max: Duration,
}

impl Backoff {
    /// The delay after `failures` failures in a row (at least one), never more than `cap` before jitter.
    ///
    /// `jitter` is in `[0, 1)` and lengthens the delay by up to a fifth. The result is never shorter than
    /// `min(initial * 2^(failures - 1), max, cap)`.
    pub fn delay(&self, failures: u32, cap: Option<Duration>, jitter: f64) -> Duration {
        let limit = cap.map_or(self.max, |cap| cap.min(self.max));
        let doublings = failures.saturating_sub(1);
        let grown = 2u32.checked_pow(doublings).and_then(|factor| self.initial.checked_mul(factor));
        let base = grown.map_or(limit, |grown| grown.min(limit));
        // A delay of centuries need not be lengthened.
        base.saturating_add(Duration::try_from_secs_f64(base.as_secs_f64() * JITTER_SHARE * jitter).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_configured_limit() {
        let backoff = Backoff { initial: SECOND, max: Duration::from_secs(300) };
        let delays: Vec<u64> = (1..=11).map(|failures| backoff.delay(failures, None, 0.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn a_cap_shortens_long_delays_only() {
        let backoff = Backoff { initial: SECOND, max: Duration::from_secs(300) };
        let cap = Some(Duration::from_secs(10));
        assert_eq!(backoff.delay(2, cap, 0.0), Duration::from_secs(2));
        assert_eq!(backoff.delay(9, cap, 0.0), Duration::from_secs(10));
        assert_eq!(backoff.delay(64, Some(Duration::MAX), 0.0), Duration::from_secs(300));
    }

    proptest! {
        #[test]
        fn a_delay_is_never_shorter_than_promised_nor_a_fifth_longer(
            initial in 1u64..10_000, max in 1u64..1_000_000, cap in proptest::option::of(1u64..1_000_000),
            failures in 1u32..80, jitter in 0.0f64..1.0,
        ) {
            let backoff = Backoff { initial: Duration::from_millis(initial), max: Duration::from_millis(max) };
            let delay = backoff.delay(failures, cap.map(Duration::from_millis), jitter);
            let grown = u128::from(initial) << (failures - 1).min(64);
            let base = grown.min(u128::from(max)).min(u128::from(cap.unwrap_or(u64::MAX)));
            prop_assert!(delay.as_millis() >= base);
            prop_assert!(delay.as_millis() <= base + base / 5 + 1);
        }
    }
}
