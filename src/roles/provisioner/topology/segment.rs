//! A topology segment: values for topology keys. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::TopologySelectorTerm;
use crate::proto;

/// The largest number of segments that a class may allow. More must be a mistake in the class: no driver accepts such a request.
pub const MOST_SEGMENTS: usize = 16_384;

/// A topology segment: each key once, in the order of keys. The empty segment is everywhere.
///
/// Segments are ordered as in the Go sidecar, those with fewer keys first, because the driver sees that order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Segment(Vec<(String, String)>);

impl Segment {
    /// The segment of these labels. If a key occurs twice, the later value counts.
    pub fn new<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let sorted: BTreeMap<String, String> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(sorted.into_iter().collect())
    }

    /// The segment of `keys` with their values in `labels`. `None` if a key has no label.
    pub fn of_labels<'a>(
        keys: impl IntoIterator<Item = &'a String>,
        labels: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let segment: BTreeMap<&String, &String> =
            keys.into_iter().map(|key| labels.get(key).map(|value| (key, value))).collect::<Option<_>>()?;
        Some(Self(segment.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()))
    }

    /// From the CSI message.
    pub fn of_proto(topology: &proto::Topology) -> Self {
        Self::new(topology.segments.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// To the CSI message.
    pub fn to_proto(&self) -> proto::Topology {
        proto::Topology { segments: self.0.iter().cloned().collect() }
    }

    /// The keys and values, in the order of keys.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// As labels.
    pub fn to_labels(&self) -> BTreeMap<String, String> {
        self.0.iter().cloned().collect()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.binary_search_by(|(held, _)| held.as_str().cmp(key)).ok().map(|at| self.0[at].1.as_str())
    }

    /// Whether this is the empty segment, which is everywhere.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` has all keys and values of this segment, and so lies within it.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.pairs().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl From<BTreeMap<String, String>> for Segment {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(labels.into_iter().collect())
    }
}

impl From<Segment> for BTreeMap<String, String> {
    fn from(segment: Segment) -> Self {
        segment.0.into_iter().collect()
    }
}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Segment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("everywhere");
        }
        for (index, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The `allowedTopologies` of a class multiply to more than [`MOST_SEGMENTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("allowedTopologies of the class stand for more than {MOST_SEGMENTS} segments")]
pub struct TooManySegments;

/// Every segment that `allowedTopologies` stand for: for each selector term, every combination of the values of its keys.
pub fn flatten(allowed: &[TopologySelectorTerm]) -> Result<Vec<Segment>, TooManySegments> {
    let mut segments = Vec::new();
    for term in allowed {
        let mut built: Vec<Vec<(&str, &str)>> = Vec::new();
        for expression in &term.match_label_expressions {
            let before = if built.is_empty() { vec![Vec::new()] } else { built };
            if before.len().saturating_mul(expression.values.len()).saturating_add(segments.len()) > MOST_SEGMENTS {
                return Err(TooManySegments);
            }
            built = expression
                .values
                .iter()
                .flat_map(|value| {
                    before.iter().map(|held| {
                        let mut longer = held.clone();
                        longer.push((&expression.key, value));
                        longer
                    })
                })
                .collect();
        }
        segments.extend(built.into_iter().map(Segment::new));
    }
    Ok(segments)
}

/// Whether a class with these `allowedTopologies` allows the segment. Without any, the class allows all.
pub fn allowed(segment: &Segment, allowed: &[TopologySelectorTerm]) -> bool {
    let allows = |term: &TopologySelectorTerm| {
        term.match_label_expressions
            .iter()
            .all(|one| segment.get(&one.key).is_some_and(|value| one.values.iter().any(|allowed| allowed == value)))
    };
    allowed.is_empty() || allowed.iter().any(allows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::TopologyExpression;

    fn selector(expressions: &[(&str, &[&str])]) -> TopologySelectorTerm {
        let expression = |(key, values): &(&str, &[&str])| TopologyExpression {
            key: (*key).to_owned(),
            values: values.iter().map(ToString::to_string).collect(),
        };
        TopologySelectorTerm { match_label_expressions: expressions.iter().map(expression).collect() }
    }

    #[test]
    fn shorter_segments_come_first_then_keys_then_values() {
        let mut segments = [
            Segment::new([("b", "1")]),
            Segment::new([("a", "2"), ("c", "1")]),
            Segment::new([("a", "2")]),
            Segment::new([("a", "1"), ("d", "1")]),
            Segment::new([("a", "1")]),
            Segment::default(),
            Segment::new([("a", "10")]),
        ];
        segments.sort();
        let shown: Vec<String> = segments.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["everywhere", "a=1", "a=10", "a=2", "b=1", "a=1,d=1", "a=2,c=1"]);
    }

    #[test]
    fn a_subset_says_no_more_than_the_other() {
        let (all, zone) = (Segment::new([("rack", "A"), ("zone", "z1")]), Segment::new([("zone", "z1")]));
        assert!(zone.is_subset_of(&all) && !all.is_subset_of(&zone));
        assert!(Segment::default().is_subset_of(&zone), "the empty segment is a subset of all");
        assert!(!Segment::new([("zone", "z1")]).is_subset_of(&Segment::new([("zone", "z10")])), "no prefixes");
    }

    #[test]
    fn values_multiply_within_a_term_and_add_up_over_terms() {
        let both = [
            selector(&[("zone", &["z1", "z2"]), ("rack", &["A", "B"])]),
            selector(&[("zone", &["z9"])]),
            selector(&[]),
        ];
        let shown: Vec<String> = flatten(&both).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["rack=A,zone=z1", "rack=A,zone=z2", "rack=B,zone=z1", "rack=B,zone=z2", "zone=z9"]);
        assert_eq!(flatten(&[]), Ok(vec![]));
    }

    #[test]
    fn an_empty_list_of_values_begins_the_product_anew() {
        let odd = selector(&[("zone", &["z1"]), ("rack", &[]), ("disk", &["ssd"])]);
        assert_eq!(flatten(&[odd]), Ok(vec![Segment::new([("disk", "ssd")])]));
    }

    #[test]
    fn a_class_that_multiplies_without_end_is_refused_and_not_computed() {
        let values: Vec<String> = (0..40).map(|value| value.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let huge = selector(&[("a", &values), ("b", &values), ("c", &values), ("d", &values), ("e", &values)]);
        assert_eq!(flatten(&[huge]), Err(TooManySegments));
    }

    #[test]
    fn a_segment_is_allowed_if_one_term_allows_all_its_keys() {
        let class = [selector(&[("zone", &["z1", "z2"]), ("rack", &["A"])]), selector(&[("zone", &["z3"])])];
        for (labels, expected) in [
            (vec![("zone", "z1"), ("rack", "A")], true),
            (vec![("zone", "z2"), ("rack", "A"), ("disk", "ssd")], true),
            (vec![("zone", "z1")], false),
            (vec![("zone", "z1"), ("rack", "B")], false),
            (vec![("zone", "z3")], true),
            (vec![], false),
        ] {
            let segment = Segment::new(labels);
            assert_eq!(allowed(&segment, &class), expected, "{segment}");
            assert!(allowed(&segment, &[]), "no allowedTopologies allow all");
        }
    }
}
