//! The settings of an elector, and the timings that prevent two holders.

use std::collections::BTreeMap;
use std::time::Duration;

/// One Lease and how to hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name, the Go sidecar's.
    pub name: String,
    /// Our identity; unique among processes, see [`super::identity()`].
    pub identity: String,
    /// How long a Lease is valid after its last renewal. Written in whole seconds, rounded up.
    pub lease_duration: Duration,
    /// How long after its last renewal a holder stops leading.
    pub renew_deadline: Duration,
    /// The pause between renewals, and between the reads of a standby without a watch.
    pub retry_period: Duration,
    /// Labels put on the Lease.
    pub labels: BTreeMap<String, String>,
    /// The namespace of the pods of all that compete for the Lease. `None`: a standby does not watch the holder's pod.
    pub holder_pods: Option<String>,
}

/// Settings that cannot prevent two holders, or that name no Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The Lease needs a namespace, a name and a holder.
    #[error("a lease needs a namespace, a name and an identity")]
    Nameless,
    /// A new holder could start before the old one has stopped.
    #[error("lease duration {lease:?} must be longer than renew deadline {renew:?}")]
    LeaseTooShort {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// The holder would stop before its first attempt to renew.
    #[error("renew deadline {renew:?} must be longer than 1.2 times the retry period {retry:?}")]
    DeadlineTooShort {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// The elector would call the API without a pause.
    #[error("the retry period must not be zero")]
    NoRetryPeriod,
}

impl LeaseSettings {
    /// client-go's rule: lease duration > renew deadline > 1.2 × retry period > 0.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if self.namespace.is_empty() || self.name.is_empty() || self.identity.is_empty() {
            Err(SettingsError::Nameless)
        } else if retry.is_zero() {
            Err(SettingsError::NoRetryPeriod)
        } else if renew <= retry.mul_f64(1.2) {
            Err(SettingsError::DeadlineTooShort { renew, retry })
        } else if lease <= renew {
            Err(SettingsError::LeaseTooShort { lease, renew })
        } else {
            Ok(())
        }
    }

    /// How long a renewal's request may take: most of the time until the deadline, because the API may be slow, but not
    /// all of it, because the connection may be dead.
    pub(super) fn renewal_timeout(&self) -> Duration {
        self.renew_deadline.saturating_sub(self.retry_period).mul_f64(0.6)
    }

    /// The pause after a failed request: a fifth of the retry period, so that the deadline allows several.
    pub(super) fn pause(&self) -> Duration {
        self.retry_period / 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lease: u64, renew: u64, retry: u64) -> LeaseSettings {
        LeaseSettings {
            namespace: "kube-system".into(),
            name: "external-attacher-leader-demo".into(),
            identity: "host_1".into(),
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            labels: BTreeMap::new(),
            holder_pods: None,
        }
    }

    #[test]
    fn timings_out_of_order_are_refused() {
        assert_eq!(settings(15_000, 10_000, 5_000).check(), Ok(()));
        assert!(matches!(settings(10_000, 10_000, 5_000).check(), Err(SettingsError::LeaseTooShort { .. })));
        assert!(matches!(settings(15_000, 6_000, 5_000).check(), Err(SettingsError::DeadlineTooShort { .. })));
        assert_eq!(settings(15_000, 6_001, 5_000).check(), Ok(()));
        assert_eq!(settings(15_000, 10_000, 0).check(), Err(SettingsError::NoRetryPeriod));
        assert_eq!(LeaseSettings { name: String::new(), ..settings(3, 2, 1) }.check(), Err(SettingsError::Nameless));
    }
}
