//! Which volumes a node's driver has, by the node affinity of their PersistentVolumes. Pure.
//!
//! csi-provisioner compares the affinity with the labels that the driver reports for its node. So does this file, with
//! all operators of Kubernetes. An ignored requirement would give a volume to every node: on a node without the volume
//! `DeleteVolume` succeeds, the PersistentVolume goes, and the volume stays at its own node.

use crate::cluster::{NodeRequirement, Reach, SmolStr};
use crate::roles::provisioner::topology::Segment;

/// The field that a term may name.
const NODE_NAME: &str = "metadata.name";

/// A node, at the place that its driver reports.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The labels that the driver reports. Empty for a driver without topology, which reaches all its volumes from
    /// every node.
    pub segment: &'a Segment,
}

impl Place<'_> {
    /// Whether this node deletes the volume: the volume can be reached from our node, or from every node.
    ///
    /// `affinity` holds the terms that the PersistentVolume requires of a node.
    pub fn is_within(self, affinity: &[Reach]) -> bool {
        let is_everywhere = affinity.is_empty() || self.segment.is_empty();
        is_everywhere || affinity.iter().any(|term| has_requirements(term) && self.fulfils(term, false))
    }

    /// Whether the volume may be at our driver: only a place other than ours excludes it. People also write keys into
    /// an affinity that no driver reports (`kubernetes.io/hostname`).
    pub fn may_be_within(self, affinity: &[Reach]) -> bool {
        affinity.is_empty() || affinity.iter().any(|term| self.fulfils(term, true))
    }

    /// `untold`: whether a requirement is met whose label the driver does not report, or whose operator only a newer
    /// Kubernetes knows.
    fn fulfils(self, term: &Reach, untold: bool) -> bool {
        let of_labels = |requirement: &NodeRequirement| is_met(requirement, self.segment.get(&requirement.key), untold);
        let of_fields = |requirement: &NodeRequirement| {
            is_met(requirement, (requirement.key == NODE_NAME).then_some(self.node), untold)
        };
        term.match_expressions.iter().all(of_labels) && term.match_fields.iter().all(of_fields)
    }
}

fn has_requirements(term: &Reach) -> bool {
    !term.match_expressions.is_empty() || !term.match_fields.is_empty()
}

/// Whether a node is admitted whose label has this value. `None`: the driver does not report the label.
fn is_met(requirement: &NodeRequirement, own: Option<&str>, untold: bool) -> bool {
    let values = &*requirement.values;
    let names = |own: &str| values.iter().any(|value| value == own);
    match (&*requirement.operator, own) {
        ("In", Some(own)) => names(own),
        ("NotIn", Some(own)) => !names(own),
        ("Exists", Some(_)) | ("NotIn" | "DoesNotExist", None) => true,
        ("DoesNotExist", Some(_)) => false,
        ("Gt", Some(own)) => compare(own, values).is_some_and(|(own, bound)| own > bound),
        ("Lt", Some(own)) => compare(own, values).is_some_and(|(own, bound)| own < bound),
        _ => untold,
    }
}

/// The two numbers that `Gt` and `Lt` compare.
fn compare(own: &str, values: &[SmolStr]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((own.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeRequirement {
        let values = values.iter().map(|&value| value.into()).collect();
        NodeRequirement { key: key.into(), operator: operator.into(), values }
    }

    fn labels(requirements: &[(&str, &str, &[&str])]) -> Reach {
        let requirements = requirements.iter().map(|(key, operator, values)| requirement(key, operator, values));
        Reach { match_expressions: requirements.collect(), ..Reach::default() }
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Reach {
        Reach { match_fields: [requirement(key, operator, values)].into(), ..Reach::default() }
    }

    #[test]
    fn a_volume_is_deleted_where_it_can_be_reached() {
        let own = Segment::new([("zone", "z1"), ("rack", "7")]);
        let here = Place { node: "n1", segment: &own };
        // And whether it may be one of our driver's: a key that no driver has told does not say that it is not.
        for (affinity, is_within, may_be) in [
            (vec![], true, true),
            (vec![labels(&[("zone", "In", &["z2", "z1"])])], true, true),
            (vec![labels(&[("zone", "In", &["z2"])])], false, false),
            (vec![labels(&[("zone", "In", &["z2"])]), labels(&[("rack", "In", &["7"])])], true, true),
            (vec![labels(&[("zone", "In", &["z1"]), ("rack", "In", &["8"])])], false, false),
            (vec![labels(&[("disk", "In", &["ssd"])])], false, true),
            (vec![labels(&[("zone", "NotIn", &["z1"])])], false, false),
            (vec![labels(&[("zone", "NotIn", &["z2"])])], true, true),
            (vec![labels(&[("zone", "In", &["z1"]), ("rack", "NotIn", &["7"])])], false, false),
            (vec![labels(&[("disk", "NotIn", &["ssd"])])], true, true),
            (vec![labels(&[("zone", "Exists", &[])])], true, true),
            (vec![labels(&[("disk", "Exists", &[])])], false, true),
            (vec![labels(&[("zone", "DoesNotExist", &[])])], false, false),
            (vec![labels(&[("disk", "DoesNotExist", &[])])], true, true),
            (vec![labels(&[("rack", "Gt", &["6"])])], true, true),
            (vec![labels(&[("rack", "Gt", &["7"])])], false, false),
            (vec![labels(&[("rack", "Lt", &["8"])])], true, true),
            (vec![labels(&[("zone", "Lt", &["8"])])], false, false),
            (vec![labels(&[("disk", "Lt", &["8"])])], false, true),
            (vec![labels(&[("zone", "Near", &["z1"])])], false, true),
            (vec![field(NODE_NAME, "In", &["n1"])], true, true),
            (vec![field(NODE_NAME, "In", &["n2"])], false, false),
            (vec![field(NODE_NAME, "NotIn", &["n1"])], false, false),
            (vec![field("spec.id", "In", &["n1"])], false, true),
            (vec![Reach::default()], false, true),
        ] {
            assert_eq!(here.is_within(&affinity), is_within, "{affinity:?}");
            assert_eq!(here.may_be_within(&affinity), may_be, "{affinity:?}");
            let everywhere = Place { node: "n1", segment: &Segment::default() };
            assert!(everywhere.is_within(&affinity), "a driver without topology reaches all");
        }
    }
}
