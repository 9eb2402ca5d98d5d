//! The topology requirement of a volume, how it is stored in the journal, and how large it may be there. Pure.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::segment::Segment;
use crate::proto;

/// The segments that a volume must be accessible from, and their order of preference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredRequirement", into = "StoredRequirement")]
pub struct Requirement {
    /// The volume must be accessible from at least one of these. Sorted, each once, none empty.
    pub requisite: Vec<Segment>,
    /// The same segments, the best first.
    pub preferred: Vec<Segment>,
}

/// The form of a requirement in the journal: the preferred segments by their index, because each is a requisite one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRequirement {
    requisite: Vec<Segment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    preferred: Vec<usize>,
}

impl From<Requirement> for StoredRequirement {
    fn from(requirement: Requirement) -> Self {
        let Requirement { requisite, preferred } = requirement;
        let indexes: HashMap<&Segment, usize> =
            requisite.iter().enumerate().map(|(at, segment)| (segment, at)).collect();
        let preferred = preferred.iter().filter_map(|segment| indexes.get(segment).copied()).collect();
        Self { requisite, preferred }
    }
}

impl TryFrom<StoredRequirement> for Requirement {
    type Error = NoSuchSegment;

    fn try_from(wire: StoredRequirement) -> Result<Self, NoSuchSegment> {
        let segment = |at: usize| wire.requisite.get(at).cloned().ok_or(NoSuchSegment(at));
        let preferred = wire.preferred.iter().map(|at| segment(*at)).collect::<Result<_, _>>()?;
        Ok(Self { requisite: wire.requisite, preferred })
    }
}

/// A requirement that was read prefers a segment that it does not contain.
#[derive(Debug, Error)]
#[error("preferred segment {0} is not among the requisite ones")]
pub struct NoSuchSegment(usize);

/// The most bytes that a requirement takes in the journal: three quarters of the largest entry.
const MOST_BYTES: usize = 192 * 1024;

impl Requirement {
    /// To the CSI message.
    pub fn to_proto(&self) -> proto::TopologyRequirement {
        proto::TopologyRequirement {
            requisite: self.requisite.iter().map(Segment::to_proto).collect(),
            preferred: self.preferred.iter().map(Segment::to_proto).collect(),
        }
    }

    /// The requirement with as many of the most preferred segments as fit into 192 KiB, and at least one: none would mean every
    /// segment. Exactly this requirement is sent to the driver, too.
    #[must_use]
    pub fn fitted(self) -> Self {
        // Preferred segments that are not requisite have no index; no plan contains one.
        let known: BTreeSet<&Segment> = self.requisite.iter().collect();
        let preferred: Vec<Segment> = self.preferred.iter().filter(|one| known.contains(one)).cloned().collect();
        let all = Self { preferred, ..self };
        if all.size() <= MOST_BYTES {
            return all;
        }
        // Without an order every segment is as good as the next.
        let order = if all.preferred.is_empty() { &all.requisite } else { &all.preferred };
        let (mut fits, mut too_many) = (1, order.len());
        while too_many - fits > 1 {
            let most = fits + (too_many - fits) / 2;
            if all.first(order, most).size() <= MOST_BYTES {
                fits = most;
            } else {
                too_many = most;
            }
        }
        all.first(order, fits)
    }

    fn first(&self, order: &[Segment], most: usize) -> Self {
        let kept: BTreeSet<&Segment> = order.iter().take(most).collect();
        let of = |segments: &[Segment]| segments.iter().filter(|one| kept.contains(one)).cloned().collect();
        Self { requisite: of(&self.requisite), preferred: of(&self.preferred) }
    }

    /// How many bytes it takes in the journal.
    fn size(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(zone: usize) -> Segment {
        Segment::new([("topology.example.com/zone", format!("zone-{zone}"))])
    }

    fn requirement(preferred: &[usize], requisite: usize) -> Requirement {
        Requirement {
            requisite: (0..requisite).map(segment).collect(),
            preferred: preferred.iter().copied().map(segment).collect(),
        }
    }

    #[test]
    fn a_requirement_comes_back_as_it_was_stored() {
        for stored in [requirement(&[], 1), requirement(&[2, 0, 1], 3), Requirement::default()] {
            let text = serde_json::to_string(&stored).unwrap();
            assert_eq!(serde_json::from_str::<Requirement>(&text).unwrap(), stored, "{text}");
        }
        let text = serde_json::to_string(&requirement(&[1, 0], 2)).unwrap();
        assert_eq!(
            text,
            r#"{"requisite":[{"topology.example.com/zone":"zone-0"},{"topology.example.com/zone":"zone-1"}],"preferred":[1,0]}"#
        );
    }

    #[test]
    fn a_preferred_segment_that_is_not_there_is_an_error() {
        let error = serde_json::from_str::<Requirement>(r#"{"requisite":[{"zone":"a"}],"preferred":[1]}"#).unwrap_err();
        assert!(error.to_string().contains("preferred segment 1 is not among the requisite ones"), "{error}");
    }

    #[test]
    fn too_many_segments_are_cut_to_the_most_preferred() {
        assert_eq!(requirement(&[1, 0], 2).fitted(), requirement(&[1, 0], 2));
        let order: Vec<usize> = (0..9_000).rev().collect();
        let cut = requirement(&order, 9_000).fitted();
        assert!(cut.size() <= MOST_BYTES && cut.size() > MOST_BYTES * 9 / 10, "{}", cut.size());
        assert_eq!(cut.preferred.first(), Some(&segment(8_999)));
        assert_eq!(cut.preferred.len(), cut.requisite.len());
        let without_order = requirement(&[], 9_000).fitted();
        assert_eq!(without_order.requisite.first(), Some(&segment(0)));
        let huge =
            Requirement { requisite: vec![Segment::new([("zone", "z".repeat(MOST_BYTES))])], preferred: Vec::new() };
        assert_eq!(huge.clone().fitted(), huge, "no segment would mean every segment");
    }
}
