//! Decides what to do about the Lease, from its observed states and their times. Pure: times are durations since any
//! local origin.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::identity;
use super::record::Record;

/// What we know about the Lease.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseView {
    lease: Known,
    /// Our knowledge may be old: read before deciding.
    doubtful: bool,
    /// The process with this identity has ended.
    ended: Option<String>,
}

#[derive(Debug, Clone, Default)]
enum Known {
    #[default]
    Nothing,
    /// There is none; we may create it from this time on.
    Absent {
        free_at: Duration,
        version: Option<String>,
    },
    Present {
        lease: Box<Lease>,
        record: Record,
        at: Duration,
    },
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Read the Lease.
    Look,
    /// Create it.
    Create,
    /// Write our name into it, to acquire or to renew it.
    Write,
    /// Another process may hold it until then.
    Wait { until: Duration },
}

impl LeaseView {
    /// The Lease was read or written. A record's duration counts from the time when we saw it *first*.
    pub(super) fn saw(&mut self, seen: Lease, now: Duration) {
        self.doubtful = false;
        let new = Record::of(&seen);
        match &mut self.lease {
            Known::Present { lease, record, at } => {
                if *record != new {
                    (*record, *at) = (new, now);
                }
                **lease = seen;
            }
            Known::Nothing | Known::Absent { .. } => {
                self.lease = Known::Present { lease: Box::new(seen), record: new, at: now };
            }
        }
    }

    /// The watch delivered a state of the Lease, which may be known already or outdated.
    pub(super) fn saw_event(&mut self, seen: Lease, now: Duration) {
        if !matches!(&self.lease, Known::Present { lease, .. } if is_older(&seen, lease)) {
            self.saw(seen, now);
        }
    }

    /// There is no Lease. If another process held it, it is not free before it would have expired, while the holder may
    /// be alive.
    pub(super) fn saw_none(&mut self, me: &str, fallback: Duration, now: Duration) {
        self.doubtful = false;
        let free_at = match &self.lease {
            Known::Absent { .. } => return,
            Known::Present { record, at, .. } if self.rival(me).is_some() => {
                at.saturating_add(record.duration(fallback)).max(now)
            }
            Known::Nothing | Known::Present { .. } => now,
        };
        self.lease = Known::Absent { free_at, version: None };
    }

    /// The watch delivered a deletion.
    pub(super) fn saw_deleted(&mut self, deleted: &Lease, me: &str, fallback: Duration, now: Duration) {
        if let Known::Present { lease, .. } = &self.lease
            && lease.metadata.uid != deleted.metadata.uid
            && is_older(deleted, lease)
        {
            return;
        }
        self.saw_none(me, fallback, now);
        if let Known::Absent { version, .. } = &mut self.lease {
            version.clone_from(&deleted.metadata.resource_version);
        }
    }

    /// The holder is proven to have ended. It can neither renew nor take the Lease any more, however long ago that was.
    pub(super) fn saw_end(&mut self, holder: &str) {
        self.ended = Some(holder.to_owned());
    }

    /// The process that may hold the Lease although it isn't `me`.
    pub(super) fn rival(&self, me: &str) -> Option<&str> {
        self.holder().filter(|holder| self.may_live(holder, me))
    }

    fn may_live(&self, holder: &str, me: &str) -> bool {
        holder != me && self.ended.as_deref() != Some(holder) && !identity::succeeds(me, holder)
    }

    /// A write failed or was refused: our knowledge may be old.
    pub(super) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Whether our knowledge may be old.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// What to do now.
    pub(super) fn action(&self, me: &str, fallback: Duration, now: Duration) -> LeaseAction {
        if self.doubtful {
            return LeaseAction::Look;
        }
        let free_at = match &self.lease {
            Known::Nothing => return LeaseAction::Look,
            Known::Absent { free_at, .. } if now >= *free_at => return LeaseAction::Create,
            Known::Absent { free_at, .. } => *free_at,
            Known::Present { record, at, .. } if self.rival(me).is_some() => {
                at.saturating_add(record.duration(fallback))
            }
            Known::Present { .. } => now,
        };
        if now >= free_at { LeaseAction::Write } else { LeaseAction::Wait { until: free_at } }
    }

    /// The Lease to overwrite, and its record.
    pub(super) fn lease(&self) -> Option<(&Lease, &Record)> {
        match &self.lease {
            Known::Present { lease, record, .. } => Some((lease, record)),
            Known::Nothing | Known::Absent { .. } => None,
        }
    }

    /// The holder, if known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.lease().and_then(|(_, record)| record.holder.as_deref())
    }

    /// The resource version that a watch can start from.
    pub(super) fn version(&self) -> Option<&str> {
        match &self.lease {
            Known::Nothing => None,
            Known::Absent { version, .. } => version.as_deref(),
            Known::Present { lease, .. } => lease.metadata.resource_version.as_deref(),
        }
    }
}

/// Whether `a` is not newer than `b`. Resource versions are compared as numbers, which the API guarantees since 1.35
/// (and it was always true); a version that isn't a number counts as newer.
fn is_older(a: &Lease, b: &Lease) -> bool {
    let number = |lease: &Lease| lease.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok());
    matches!((number(a), number(b)), (Some(a), Some(b)) if a <= b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    const LEASE: Duration = Duration::from_secs(15);
    const S: Duration = Duration::from_secs(1);

    fn lease(version: u64, record: &Record) -> Lease {
        let metadata =
            ObjectMeta { uid: Some("u".into()), resource_version: Some(version.to_string()), ..ObjectMeta::default() };
        let mut lease = Lease { metadata, spec: None };
        record.write_to(&mut lease);
        lease
    }

    fn held(by: &str, renewed: i64) -> Record {
        Record::held(None, by, LEASE, Timestamp::from_second(renewed).unwrap())
    }

    fn seen(version: u64, record: &Record, at: Duration) -> LeaseView {
        let mut view = LeaseView::default();
        view.saw(lease(version, record), at);
        view
    }

    #[test]
    fn nothing_known_is_looked_up_and_nothing_there_is_created() {
        let mut view = LeaseView::default();
        assert_eq!(view.action("me", LEASE, S), LeaseAction::Look);
        view.saw_none("me", LEASE, S);
        assert_eq!(view.action("me", LEASE, S), LeaseAction::Create);
    }

    #[test]
    fn a_released_lease_and_our_own_are_written_at_once() {
        for record in [Record::released(&held("other", 1), Timestamp::UNIX_EPOCH), held("me", 1)] {
            assert_eq!(seen(1, &record, S).action("me", LEASE, S), LeaseAction::Write);
        }
    }

    #[test]
    fn a_foreign_lease_expires_one_duration_after_it_was_seen_whatever_it_says_about_time() {
        for renewed in [-1_000_000, 0, 1_000_000] {
            let view = seen(1, &held("other", renewed), 100 * S);
            assert_eq!(view.action("me", 3 * LEASE, 114 * S), LeaseAction::Wait { until: 115 * S });
            assert_eq!(view.action("me", 3 * LEASE, 115 * S), LeaseAction::Write);
        }
    }

    #[test]
    fn the_lease_of_this_containers_last_process_is_taken_at_once_held_or_deleted() {
        let (me, last) = ("pod_u1_daemon_2", "pod_u1_daemon_1");
        let mut view = seen(1, &held(last, 1), S);
        assert_eq!(view.action(me, LEASE, S), LeaseAction::Write);
        assert_eq!(view.action("pod_u2_daemon_2", LEASE, S), LeaseAction::Wait { until: 16 * S });
        view.saw_none(me, LEASE, 2 * S);
        assert_eq!(view.action(me, LEASE, 2 * S), LeaseAction::Create);
    }

    #[test]
    fn the_lease_of_a_process_that_has_ended_is_taken_at_once_but_not_that_of_the_next() {
        let mut view = seen(1, &held("first", 1), S);
        view.saw_end("first");
        assert_eq!((view.action("me", LEASE, S), view.rival("me")), (LeaseAction::Write, None));
        // A renewal that it had sent before its end.
        view.saw(lease(2, &held("first", 2)), 2 * S);
        assert_eq!(view.action("me", LEASE, 2 * S), LeaseAction::Write);
        view.saw(lease(3, &held("second", 3)), 3 * S);
        assert_eq!(view.action("me", LEASE, 3 * S), LeaseAction::Wait { until: 18 * S });
        assert_eq!(view.rival("me"), Some("second"));
        view.saw(lease(4, &held("first", 4)), 4 * S);
        view.saw_none("me", LEASE, 5 * S);
        assert_eq!(view.action("me", LEASE, 5 * S), LeaseAction::Create);
    }

    #[test]
    fn a_renewal_starts_the_duration_anew_but_seeing_the_same_record_again_does_not() {
        let mut view = seen(1, &held("other", 1), Duration::ZERO);
        view.saw(lease(2, &held("other", 1)), 5 * S);
        assert_eq!(view.action("me", LEASE, 6 * S), LeaseAction::Wait { until: 15 * S });
        assert_eq!(view.version(), Some("2"), "labels may have changed");
        view.saw(lease(3, &held("other", 2)), 7 * S);
        assert_eq!(view.action("me", LEASE, 8 * S), LeaseAction::Wait { until: 22 * S });
    }

    #[test]
    fn an_event_older_than_what_is_known_is_ignored() {
        let mut view = seen(9, &held("me", 9), S);
        view.saw_event(lease(8, &held("other", 8)), 2 * S);
        assert_eq!(view.holder(), Some("me"));
        view.saw(lease(8, &held("other", 8)), 2 * S);
        assert_eq!(view.holder(), Some("other"), "an answer is believed: the cluster may come from a backup");
    }

    #[test]
    fn a_deleted_foreign_lease_is_waited_out_and_our_own_is_made_anew() {
        let mut view = seen(1, &held("other", 1), Duration::ZERO);
        view.saw_deleted(&lease(2, &held("other", 1)), "me", LEASE, 4 * S);
        assert_eq!(view.action("me", LEASE, 4 * S), LeaseAction::Wait { until: 15 * S });
        assert_eq!(view.version(), Some("2"));
        view.saw_none("me", LEASE, 5 * S);
        assert_eq!(view.action("me", LEASE, 15 * S), LeaseAction::Create);

        let mut view = seen(1, &held("me", 1), Duration::ZERO);
        view.saw_none("me", LEASE, 4 * S);
        assert_eq!(view.action("me", LEASE, 4 * S), LeaseAction::Create);
    }

    #[test]
    fn the_deletion_of_an_earlier_lease_is_ignored() {
        let mut view = seen(9, &held("other", 9), S);
        let mut earlier = lease(5, &held("other", 5));
        earlier.metadata.uid = Some("earlier".into());
        view.saw_deleted(&earlier, "me", LEASE, 2 * S);
        assert_eq!(view.holder(), Some("other"));
    }

    #[test]
    fn doubt_means_looking_first() {
        let mut view = seen(1, &held("me", 1), S);
        view.doubt();
        assert_eq!(view.action("me", LEASE, S), LeaseAction::Look);
        view.saw(lease(1, &held("me", 1)), S);
        assert_eq!(view.action("me", LEASE, S), LeaseAction::Write);
    }
}
