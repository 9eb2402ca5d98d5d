//! Drift: the driver's listing and the recorded state disagree. Pure.
//!
//! The driver is listed *before* the record is read, a mismatch must be seen in two listings with nothing in flight and
//! nothing changed in between, and a volume without a status is ignored (spec 3 and 7). If a forced operation does not
//! end the mismatch, for example because the driver omits a volume or writes node IDs in another form, the operation is
//! forced less and less often.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::csi::{PublishedOn, VolumeListing};
use crate::process::folded;

use super::attachment::Direction;

/// The most listings between two forced repairs of a mismatch that does not go away.
const MAX_THRESHOLD: u32 = 64;
/// A mismatch must be in two listings before the first repair.
const FIRST_THRESHOLD: u32 = 2;

/// One attachment as recorded, read after the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The attachment's name.
    pub name: String,
    /// Its uid and resource version: after a new version, a mismatch must be seen twice again.
    pub version: (String, String),
    /// Attach or detach.
    pub direction: Direction,
    /// What it attaches.
    pub volume_handle: String,
    /// Where.
    pub node_id: String,
    /// Whether the record says that it is attached, or may be.
    pub attached: bool,
    /// Whether an operation on it is queued or running, or its volume was touched since the listing began.
    pub busy: bool,
}

/// The mismatches in the listings of a term, by attachment.
#[derive(Debug)]
pub struct DriftDetector {
    begun: Instant,
    by_name: BTreeMap<String, Suspect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    uid: String,
    version: String,
    direction: Direction,
    /// How often in a row.
    seen: u32,
    /// The weakest report in these listings.
    reported: Reported,
    threshold: u32,
}

/// What a listing says of an attachment's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is published to the node.
    Published,
    /// It is listed, and not published to the node.
    NotPublished,
    /// The volume is not listed. It may be gone, or the driver has omitted it although it is published.
    Unlisted,
}

/// A mismatch that has been confirmed: force the attachment's operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The attachment's name.
    pub name: String,
    /// The operation to repeat.
    pub direction: Direction,
    /// What the driver reported in each of the listings.
    pub reported: Reported,
}

/// Whether the driver and the record disagree: `Some(what the driver says)` if they do. The driver may spell ids in its own way.
pub fn mismatch(record: &Record, listing: &VolumeListing) -> Option<Reported> {
    let reported = match listing.volumes.get(&folded(&record.volume_handle)) {
        Some(PublishedOn::Unknown) => return None,
        Some(PublishedOn::Nodes(nodes)) if nodes.contains(&folded(&record.node_id)) => Reported::Published,
        Some(PublishedOn::Nodes(_)) => Reported::NotPublished,
        None => Reported::Unlisted,
    };
    ((reported == Reported::Published) != record.attached).then_some(reported)
}

impl DriftDetector {
    /// A detector without suspects. It ignores listings from before `begun`, the start of the term, because another
    /// replica may have attached and detached since.
    pub fn of_term(begun: Instant) -> Self {
        Self { begun, by_name: BTreeMap::new() }
    }

    /// Compares one listing with the records and returns the confirmed drifts, in the records' order.
    pub fn compare(&mut self, listing: &VolumeListing, records: &[Record]) -> Vec<Drift> {
        let mut comparison = self.begin(listing);
        records.iter().filter_map(|record| comparison.see(record, mismatch(record, listing)?)).collect()
    }

    /// Begins to compare one listing with the records. A suspect that is not seen in it is none any more.
    pub fn begin(&mut self, listing: &VolumeListing) -> Comparison<'_> {
        let is_of_term = listing.started >= self.begun;
        let before = if is_of_term { std::mem::take(&mut self.by_name) } else { BTreeMap::new() };
        Comparison { is_of_term, before, by_name: &mut self.by_name }
    }

    /// How many attachments are under suspicion.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The comparison of one listing with the records, one by one.
#[derive(Debug)]
pub struct Comparison<'a> {
    is_of_term: bool,
    before: BTreeMap<String, Suspect>,
    by_name: &'a mut BTreeMap<String, Suspect>,
}

impl Comparison<'_> {
    /// The driver reports this of a record that disagrees with it ([`mismatch`]). Returns the drift, if that confirms one.
    pub fn see(&mut self, record: &Record, reported: Reported) -> Option<Drift> {
        if record.busy || !self.is_of_term {
            return None;
        }
        let mut suspect = self
            .before
            .remove(&record.name)
            .filter(|s| s.uid == record.version.0 && s.direction == record.direction)
            .unwrap_or_else(|| Suspect::new(record, reported));
        if suspect.version != record.version.1 {
            suspect.version.clone_from(&record.version.1);
            suspect.seen = 0;
        }
        // If two listings have different reasons, the weaker one counts.
        suspect.reported =
            if suspect.seen == 0 || suspect.reported == reported { reported } else { Reported::Unlisted };
        suspect.seen += 1;
        let drift = (suspect.seen >= suspect.threshold).then(|| {
            suspect.seen = 0;
            suspect.threshold = (suspect.threshold * 2).min(MAX_THRESHOLD);
            Drift { name: record.name.clone(), direction: record.direction, reported: suspect.reported }
        });
        self.by_name.insert(record.name.clone(), suspect);
        drift
    }
}

impl Suspect {
    fn new(record: &Record, reported: Reported) -> Self {
        Self {
            uid: record.version.0.clone(),
            version: record.version.1.clone(),
            direction: record.direction,
            seen: 0,
            reported,
            threshold: FIRST_THRESHOLD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::LazyLock;
    use std::time::Duration;

    /// What is recorded, what is listed (nothing, no status, these nodes), what the driver is taken to say, and why.
    type Case = (bool, Option<Option<&'static [&'static str]>>, Option<Reported>, &'static str);

    fn snapshot(volumes: &[(&str, Option<&[&str]>)]) -> VolumeListing {
        let volumes = volumes
            .iter()
            .map(|(id, nodes)| {
                let on = nodes.map_or(PublishedOn::Unknown, |nodes| {
                    PublishedOn::Nodes(nodes.iter().map(ToString::to_string).collect::<BTreeSet<_>>())
                });
                ((*id).to_owned(), on)
            })
            .collect();
        VolumeListing { started: now(), finished: now(), volumes }
    }

    /// The same for all of a test.
    fn now() -> Instant {
        static NOW: LazyLock<Instant> = LazyLock::new(|| {
            #[expect(clippy::disallowed_methods, reason = "any moment will do")]
            Instant::from_std(std::time::Instant::now())
        });
        *NOW
    }

    #[test]
    fn a_listing_from_before_the_term_says_nothing() {
        let mut detector = DriftDetector::of_term(now() + Duration::from_secs(1));
        let records = [record(true, Direction::Attach)];
        let old = snapshot(&[]);
        assert_eq!(detector.compare(&old, &records), []);
        let fresh = VolumeListing { started: now() + Duration::from_secs(2), ..old };
        assert_eq!(detector.compare(&fresh, &records), [], "seen once in this term");
        assert_eq!(detector.compare(&fresh, &records).len(), 1);
    }

    fn record(attached: bool, direction: Direction) -> Record {
        Record {
            name: "csi-1".into(),
            version: ("uid-1".into(), "7".into()),
            direction,
            volume_handle: "vol-1".into(),
            node_id: "node-1".into(),
            attached,
            busy: false,
        }
    }

    #[test]
    fn a_mismatch_is_what_the_driver_and_the_record_disagree_on() {
        let cases: &[Case] = &[
            (true, Some(Some(&["node-1"])), None, "both say attached"),
            (true, Some(Some(&[])), Some(Reported::NotPublished), "detached outside Kubernetes (R19)"),
            (true, Some(Some(&["node-2"])), Some(Reported::NotPublished), "published elsewhere"),
            (true, None, Some(Reported::Unlisted), "not listed at all"),
            (true, Some(None), None, "no status says nothing (R21, issue 416)"),
            (false, Some(Some(&["node-1"])), Some(Reported::Published), "published, but recorded as detached"),
            (false, Some(Some(&[])), None, "both say detached"),
            (false, None, None, "not listed and not attached"),
        ];
        for (attached, listed, expected, what) in cases {
            let listing = listed.map_or_else(|| snapshot(&[]), |nodes| snapshot(&[("vol-1", nodes)]));
            assert_eq!(mismatch(&record(*attached, Direction::Attach), &listing), *expected, "{what}");
        }
    }

    #[test]
    fn a_volume_or_a_node_that_the_driver_spells_in_its_own_way_is_found() {
        let listing = snapshot(&[("/groups/mc_rg/disks/d1", Some(&["vm-1"]))]);
        let spelled = |attached| Record {
            volume_handle: "/Groups/MC_RG/disks/d1".into(),
            node_id: "VM-1".into(),
            ..record(attached, Direction::Attach)
        };
        assert_eq!(mismatch(&spelled(true), &listing), None);
        assert_eq!(mismatch(&spelled(false), &listing), Some(Reported::Published));
    }

    #[test]
    fn one_sighting_is_not_enough_and_two_are() {
        let (mut detector, gone) = (DriftDetector::of_term(now()), snapshot(&[("vol-1", Some(&[]))]));
        let records = [record(true, Direction::Attach)];
        assert_eq!(detector.compare(&gone, &records), []);
        let confirmed = Drift { name: "csi-1".into(), direction: Direction::Attach, reported: Reported::NotPublished };
        assert_eq!(detector.compare(&gone, &records), [confirmed]);
    }

    #[test]
    fn a_volume_that_one_of_two_listings_leaves_out_is_not_said_to_be_unpublished() {
        let (gone, omitted) = (snapshot(&[("vol-1", Some(&[]))]), snapshot(&[]));
        let records = [record(true, Direction::Attach)];
        for (first, second) in [(&gone, &omitted), (&omitted, &gone), (&omitted, &omitted)] {
            let mut detector = DriftDetector::of_term(now());
            assert_eq!(detector.compare(first, &records), []);
            assert_eq!(detector.compare(second, &records)[0].reported, Reported::Unlisted);
            // What was left out before says nothing of the listings after the repair.
            let again: Vec<Drift> = (0..4).flat_map(|_| detector.compare(&gone, &records)).collect();
            assert_eq!(again[0].reported, Reported::NotPublished);
        }
    }

    #[test]
    fn a_match_in_between_clears_the_suspicion() {
        let mut detector = DriftDetector::of_term(now());
        let (gone, there) = (snapshot(&[("vol-1", Some(&[]))]), snapshot(&[("vol-1", Some(&["node-1"]))]));
        let records = [record(true, Direction::Attach)];
        assert_eq!(detector.compare(&gone, &records), []);
        assert_eq!(detector.compare(&there, &records), []);
        assert!(detector.is_empty());
        assert_eq!(detector.compare(&gone, &records), []);
    }

    #[test]
    fn work_in_flight_or_a_change_since_starts_the_count_afresh() {
        let gone = snapshot(&[("vol-1", Some(&[]))]);
        let mut detector = DriftDetector::of_term(now());
        assert_eq!(detector.compare(&gone, &[record(true, Direction::Attach)]), []);
        assert_eq!(detector.compare(&gone, &[Record { busy: true, ..record(true, Direction::Attach) }]), []);
        assert_eq!(detector.compare(&gone, &[record(true, Direction::Attach)]), []);
        let changed = Record { version: ("uid-1".into(), "8".into()), ..record(true, Direction::Attach) };
        assert_eq!(detector.compare(&gone, std::slice::from_ref(&changed)), []);
        assert_eq!(detector.compare(&gone, std::slice::from_ref(&changed)).len(), 1);
    }

    #[test]
    fn a_namesake_inherits_no_suspicion() {
        let gone = snapshot(&[("vol-1", Some(&[]))]);
        let mut detector = DriftDetector::of_term(now());
        assert_eq!(detector.compare(&gone, &[record(true, Direction::Attach)]), []);
        let namesake = Record { version: ("uid-2".into(), "9".into()), ..record(true, Direction::Attach) };
        assert_eq!(detector.compare(&gone, &[namesake]), []);
    }

    #[test]
    fn a_mismatch_that_does_not_heal_is_forced_ever_more_rarely() {
        let (mut detector, omitted) = (DriftDetector::of_term(now()), snapshot(&[]));
        let records = [record(true, Direction::Attach)];
        let forced: Vec<usize> = (1..=200).filter(|_| !detector.compare(&omitted, &records).is_empty()).collect();
        assert_eq!(forced, [2, 6, 14, 30, 62, 126, 190]);
    }
}
