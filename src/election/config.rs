//! `leaderElection:` in the configuration file.
//!
//! There is no key for the identity: it must be unique per process, also for two processes that share a host name or a
//! configuration file, so it is always generated (see [`super::identity()`]). There is none for the Lease's name
//! either: it is the Go sidecar's, so that an old and a new controller can never both lead.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};

/// Leader election: its timing, and where the Leases are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElectionSection {
    /// Whether each role waits for its Lease. Use false only if no second process can ever run.
    pub enabled: bool,
    /// Namespace of the Leases. null: the pod's own, else `default`.
    pub namespace: Option<String>,
    /// How long a Lease is valid after its last renewal.
    #[serde(with = "duration::Text")]
    pub lease_duration: Duration,
    /// After this time without a renewal the leader stops by itself.
    #[serde(with = "duration::Text")]
    pub renew_deadline: Duration,
    /// Pause between two attempts to get or renew a Lease.
    #[serde(with = "duration::Text")]
    pub retry_period: Duration,
    /// Whether a standby watches the pod of the leader, to take over as soon as the kubelet reports that its container has ended.
    pub watch_holder_pod: bool,
    /// Labels put on the Leases.
    pub labels: BTreeMap<String, String>,
}

impl Default for LeaderElectionSection {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(5),
            watch_holder_pod: true,
            labels: BTreeMap::new(),
        }
    }
}

impl Section for LeaderElectionSection {
    fn check(&self, faults: &mut Faults) {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        // The Lease records whole seconds.
        duration::check_at_least("leaseDuration", lease, Duration::from_secs(1), faults);
        if renew >= lease {
            faults.add(
                "renewDeadline",
                duration::format(renew),
                format_args!("shorter than leaseDuration, which is {}", duration::format(lease)),
            );
        }
        if retry < Duration::from_millis(10) {
            faults.add("retryPeriod", duration::format(retry), "at least 10ms");
        } else if retry.mul_f64(1.2) >= renew {
            faults.add(
                "retryPeriod",
                duration::format(retry),
                format_args!(
                    "so short that 1.2 times it is shorter than renewDeadline, which is {}",
                    duration::format(renew)
                ),
            );
        }
        if let Some(namespace) = &self.namespace
            && !is_namespace(namespace)
        {
            faults.add(
                "namespace",
                format_args!("{namespace:?}"),
                "a namespace's name: a-z, 0-9 and -, at most 63 characters",
            );
        }
        for (key, value) in &self.labels {
            if !is_label_key(key) || !is_label_name(value, true) {
                faults.add(
                    "labels",
                    format_args!("{key:?}: {value:?}"),
                    "Kubernetes labels: [prefix/]name and value of at most 63 of A-Z, a-z, 0-9, -, _ and .",
                );
            }
        }
    }
}

fn is_namespace(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key, false),
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_namespace) && is_label_name(name, false)
        }
    }
}

fn is_label_name(name: &str, may_be_empty: bool) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.is_empty() {
        return may_be_empty;
    }
    name.len() <= 63
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(name.chars().next())
        && edge(name.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faulty_keys;

    #[test]
    fn timings_must_leave_room_for_a_retry() {
        let ms = Duration::from_millis;
        let table: [(u64, u64, u64, &[&str]); 7] = [
            (15_000, 10_000, 5_000, &[]),
            (10_000, 10_000, 5_000, &["renewDeadline"]),
            (5_000, 10_000, 5_000, &["renewDeadline"]),
            (15_000, 6_000, 5_000, &["retryPeriod"]),
            (15_000, 6_001, 5_000, &[]),
            (15_000, 10_000, 0, &["retryPeriod"]),
            (900, 800, 100, &["leaseDuration"]),
        ];
        for (lease, renew, retry, expected) in table {
            let section = LeaderElectionSection {
                lease_duration: ms(lease),
                renew_deadline: ms(renew),
                retry_period: ms(retry),
                ..LeaderElectionSection::default()
            };
            assert_eq!(faulty_keys(&section), expected, "{lease} {renew} {retry}");
        }
    }

    #[test]
    fn r62_labels_that_the_api_would_refuse_are_refused_here() {
        for (key, value, good) in [
            ("team", "storage", true),
            ("example.com/team", "a.b_c-d", true),
            ("team", "", true),
            ("", "x", false),
            ("team", "two words", false),
            ("team", "-x", false),
            ("Example.com/team", "x", false),
            ("a/b/c", "x", false),
        ] {
            let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let section = LeaderElectionSection { labels, ..LeaderElectionSection::default() };
            assert_eq!(faulty_keys(&section).is_empty(), good, "{key}={value}");
        }
    }
}
