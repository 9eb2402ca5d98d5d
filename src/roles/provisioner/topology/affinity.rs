//! What a created volume's accessible topology means for its PersistentVolume. Pure.

use thiserror::Error;

use super::segment::Segment;
use crate::proto;

/// An answer that says nothing about where the volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AffinityError {
    /// A node selector without segments is refused by the API on every try, and one without the selector would let the
    /// volume's pods run where it is not.
    #[error("the driver answered {0} accessible topologies and none of them has a segment")]
    AllEmpty(usize),
}

/// The places that the PersistentVolume must name: none at all for a volume that is reachable from everywhere.
///
/// Places stand as the driver sent them; those without segments are left out.
pub fn affinity(topologies: &[proto::Topology]) -> Result<Option<Vec<Segment>>, AffinityError> {
    if topologies.is_empty() {
        return Ok(None);
    }
    let segments: Vec<Segment> =
        topologies.iter().map(Segment::of_proto).filter(|segment| !segment.is_empty()).collect();
    if segments.is_empty() { Err(AffinityError::AllEmpty(topologies.len())) } else { Ok(Some(segments)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(labels: &[(&str, &str)]) -> proto::Topology {
        Segment::new(labels.iter().copied()).to_proto()
    }

    #[test]
    fn no_topologies_mean_everywhere() {
        assert_eq!(affinity(&[]), Ok(None));
    }

    #[test]
    fn each_place_becomes_a_term_and_empty_ones_are_left_out() {
        let answer = [topology(&[("zone", "z2"), ("rack", "A")]), topology(&[]), topology(&[("zone", "z1")])];
        let segments = affinity(&answer).unwrap().unwrap();
        assert_eq!(segments, [Segment::new([("rack", "A"), ("zone", "z2")]), Segment::new([("zone", "z1")])]);
    }

    #[test]
    fn only_empty_places_are_an_error_and_not_everywhere() {
        let error = affinity(&[topology(&[]), topology(&[])]).unwrap_err();
        assert_eq!(error.to_string(), "the driver answered 2 accessible topologies and none of them has a segment");
    }
}
