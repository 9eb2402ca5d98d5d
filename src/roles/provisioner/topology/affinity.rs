//! The node affinity of a PersistentVolume, from the accessible topology in the driver's answer. Pure.

use thiserror::Error;

use super::segment::Segment;
use crate::proto;

/// The answer does not say where the volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AffinityError {
    /// The API refuses a node selector without requirements. And without a node affinity, the scheduler could place the pods where
    /// the volume is not.
    #[error("the driver answered {0} accessible topologies and none of them has a segment")]
    AllEmpty(usize),
}

/// The segments for the PersistentVolume's node affinity. `None`: the volume is accessible from everywhere.
///
/// The segments keep the driver's order. Empty ones are left out.
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
    fn each_topology_becomes_a_segment_and_empty_ones_are_left_out() {
        let answer = [topology(&[("zone", "z2"), ("rack", "A")]), topology(&[]), topology(&[("zone", "z1")])];
        let segments = affinity(&answer).unwrap().unwrap();
        assert_eq!(segments, [Segment::new([("rack", "A"), ("zone", "z2")]), Segment::new([("zone", "z1")])]);
    }

    #[test]
    fn only_empty_topologies_are_an_error_and_not_everywhere() {
        let error = affinity(&[topology(&[]), topology(&[])]).unwrap_err();
        assert_eq!(error.to_string(), "the driver answered 2 accessible topologies and none of them has a segment");
    }
}
