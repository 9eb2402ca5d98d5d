//! The content of a Lease, as client-go writes and reads it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The election record inside a Lease. Its times are for people: they come from other machines' clocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    /// Who holds it; `None` if it was released.
    pub(super) holder: Option<String>,
    pub(super) duration_seconds: Option<i32>,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
}

impl Record {
    pub(super) fn of(lease: &Lease) -> Self {
        let Some(spec) = &lease.spec else { return Self::default() };
        Self {
            holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty()),
            duration_seconds: spec.lease_duration_seconds,
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// A record with `me` as the holder: a renewal keeps the acquire time, a take-over increments the transitions.
    pub(super) fn held(previous: Option<&Self>, me: &str, duration: Duration, wall: Timestamp) -> Self {
        let ours = previous.filter(|record| record.holder.as_deref() == Some(me));
        Self {
            holder: Some(me.to_owned()),
            duration_seconds: Some(whole_seconds(duration)),
            acquired: ours.and_then(|record| record.acquired).or(Some(wall)),
            renewed: Some(wall),
            transitions: match (ours, previous) {
                (Some(ours), _) => ours.transitions,
                (None, Some(theirs)) => theirs.transitions.saturating_add(1),
                (None, None) => 0,
            },
        }
    }

    /// A record without a holder, which expires soon for readers that use only the time.
    pub(super) fn released(previous: &Self, wall: Timestamp) -> Self {
        Self {
            holder: None,
            duration_seconds: Some(1),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: previous.transitions,
        }
    }

    /// Writes the record into a Lease, without changing other fields.
    pub(super) fn write_to(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.holder.clone().unwrap_or_default());
        spec.lease_duration_seconds = self.duration_seconds;
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }

    /// The lease duration of the record; `fallback` if it has none.
    pub(super) fn duration(&self, fallback: Duration) -> Duration {
        let seconds = self.duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(fallback, Duration::from_secs)
    }
}

/// Rounded up, because a Lease must never be valid for a shorter time than configured. The API refuses zero.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(seconds.max(1)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    const FIFTEEN: Duration = Duration::from_secs(15);

    fn wall(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_record_on_the_wire_is_client_gos() {
        let mut lease = Lease::default();
        let record = Record::held(None, "host_1", FIFTEEN, wall("2026-01-02T03:04:05.678901234Z"));
        record.write_to(&mut lease);
        let spec = serde_json::to_value(&lease.spec).unwrap();
        let expected = serde_json::json!({
            "acquireTime": "2026-01-02T03:04:05.678901Z",
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
            "renewTime": "2026-01-02T03:04:05.678901Z",
        });
        assert_eq!(spec, expected);
    }

    #[test]
    fn renewing_keeps_the_terms_start_and_taking_over_counts_up() {
        let (then, now) = (wall("2026-01-01T00:00:00Z"), wall("2026-01-01T00:01:00Z"));
        let ours = Record::held(None, "me", FIFTEEN, then);
        let renewed = Record::held(Some(&ours), "me", FIFTEEN, now);
        assert_eq!((renewed.acquired, renewed.renewed, renewed.transitions), (Some(then), Some(now), 0));
        let theirs = Record::held(Some(&renewed), "other", FIFTEEN, now);
        assert_eq!((theirs.acquired, theirs.transitions), (Some(now), 1));
        let released = Record::released(&theirs, now);
        assert_eq!((&released.holder, released.duration_seconds, released.transitions), (&None, Some(1), 1));
        assert_eq!(Record::held(Some(&released), "me", FIFTEEN, now).transitions, 2);
    }

    #[test]
    fn a_release_is_an_empty_holder_on_the_wire_and_reads_back_as_none() {
        let mut lease = Lease::default();
        Record::released(&Record::default(), Timestamp::UNIX_EPOCH).write_to(&mut lease);
        assert_eq!(lease.spec.as_ref().unwrap().holder_identity.as_deref(), Some(""));
        assert_eq!(Record::of(&lease).holder, None);
    }

    #[test]
    fn fields_that_are_not_ours_survive() {
        let spec = LeaseSpec { preferred_holder: Some("x".into()), strategy: Some("y".into()), ..Default::default() };
        let mut lease = Lease { spec: Some(spec), ..Default::default() };
        Record::held(None, "me", FIFTEEN, Timestamp::UNIX_EPOCH).write_to(&mut lease);
        let spec = lease.spec.unwrap();
        assert_eq!((spec.preferred_holder.as_deref(), spec.strategy.as_deref()), (Some("x"), Some("y")));
    }

    #[test]
    fn durations_are_rounded_up_to_whole_seconds() {
        let cases = [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (15_000, 15), (15_500, 16)];
        for (millis, seconds) in cases {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_record_without_a_duration_keeps_others_out_for_theirs() {
        assert_eq!(Record::default().duration(FIFTEEN), FIFTEEN);
        let negative = Record { duration_seconds: Some(-1), ..Default::default() };
        assert_eq!(negative.duration(FIFTEEN), FIFTEEN);
    }
}
