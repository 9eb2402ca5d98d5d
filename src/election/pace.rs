//! The pauses of a candidate whose requests fail. Pure.

use std::time::Duration;

use super::lease_client::LeaseError;
use super::settings::LeaseSettings;

/// The longest pause after a refusal that only people can mend: a missing namespace, a missing right.
const LONGEST: Duration = Duration::from_secs(30);

/// The failures in a row of one candidate.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: u32,
}

impl Pace {
    /// The pause after this failure. It doubles, from a fifth of the retry period up to the retry period itself: after an
    /// outage of the API a candidate should not be late. After a refusal that only people can mend it grows up to half a
    /// minute.
    pub(super) fn failed(&mut self, error: &LeaseError, settings: &LeaseSettings) -> Duration {
        let retry = settings.retry_period;
        let most = if error.needs_people() { retry.max(LONGEST) } else { retry };
        let pause = settings.pause().saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        pause.min(most)
    }

    /// The election goes on: the next failure is the first one.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_retry_period_or_half_a_minute() {
        let second = Duration::from_secs(1);
        let settings = LeaseSettings {
            namespace: "ns".into(),
            name: "lease".into(),
            identity: "me".into(),
            lease_duration: second * 15,
            renew_deadline: second * 10,
            retry_period: second * 5,
            labels: std::collections::BTreeMap::new(),
            holder_pods: None,
        };
        let pauses = |error: &LeaseError| -> Vec<u64> {
            let mut pace = Pace::default();
            let mut pauses: Vec<u64> = (0..7).map(|_| pace.failed(error, &settings).as_secs()).collect();
            pace.reset();
            pauses.push(pace.failed(error, &settings).as_secs());
            pauses
        };
        let lease = || "lease".to_owned();
        let silent = LeaseError::Timeout { operation: "get", lease: lease(), timeout: second };
        assert_eq!(pauses(&silent), [1, 2, 4, 5, 5, 5, 5, 1]);
        let homeless = LeaseError::NoNamespace { lease: lease(), namespace: "ns".into() };
        assert_eq!(pauses(&homeless), [1, 2, 4, 8, 16, 30, 30, 1]);
    }
}
