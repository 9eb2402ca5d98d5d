//! Zones and regions: labels and affinity of volumes, and places of classes (migration spec 5). Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::names::{LABEL_BETA_REGION, LABEL_BETA_ZONE, LABEL_REGION, LABEL_ZONE};
use crate::cluster::{InTree, NodeRequirement, SmolStr, TopologyExpression, TopologySelectorTerm};

use super::handles::ZONES_SEPARATOR;
use super::regions::{self, RegionOf};

/// The required terms of a volume's affinity.
pub(super) type Terms = Vec<Vec<NodeRequirement>>;
/// A volume's labels.
pub(super) type Labels = BTreeMap<String, String>;

const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";

/// The label of a driver's zones (migration spec 1).
pub(super) fn zone_key(kind: InTree) -> Option<&'static str> {
    match kind {
        InTree::GcePersistentDisk => Some("topology.gke.io/zone"),
        InTree::AwsElasticBlockStore => Some("topology.ebs.csi.aws.com/zone"),
        InTree::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
        InTree::AzureDisk => Some("topology.disk.csi.azure.com/zone"),
        InTree::VsphereVolume => Some("topology.csi.vmware.com/zone"),
        InTree::AzureFile | InTree::PortworxVolume => None,
    }
}

/// Which labels a volume has its place in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    zone: &'static str,
    region: &'static str,
}

const PRESENT: Pair = Pair { zone: LABEL_ZONE, region: LABEL_REGION };
const BETA: Pair = Pair { zone: LABEL_BETA_ZONE, region: LABEL_BETA_REGION };

/// The affinity counts before the labels, and in both the present label before the old one (migration spec 5.1).
fn pair_of(terms: &Terms, labels: &Labels) -> Pair {
    let in_affinity = |pair: &Pair| terms.iter().flatten().any(|expression| expression.key == pair.zone);
    let in_labels = |pair: &Pair| labels.contains_key(pair.zone);
    let all = [PRESENT, BETA];
    all.iter()
        .find(|pair| in_affinity(pair))
        .or_else(|| all.iter().find(|pair| in_labels(pair)))
        .copied()
        .unwrap_or(PRESENT)
}

/// The distinct values of a key in all terms, whatever the operators are.
fn values(terms: &Terms, key: &str) -> BTreeSet<SmolStr> {
    let expressions = terms.iter().flatten().filter(|expression| expression.key == key);
    expressions.flat_map(|expression| expression.values.iter().cloned()).collect()
}

fn rename(terms: &mut Terms, from: &str, to: &'static str) {
    for expression in terms.iter_mut().flatten().filter(|expression| expression.key == from) {
        expression.key = SmolStr::new_static(to);
    }
}

/// Lets each term admit only nodes whose label has one of the values. A term that speaks of the label already stays as it is: the Go
/// library appends a second expression, and both must hold then.
fn constrain(terms: &mut Terms, key: &'static str, values: BTreeSet<SmolStr>) {
    if values.is_empty() {
        return;
    }
    if terms.is_empty() {
        terms.push(Vec::new());
    }
    let expression = in_values(key, values);
    for term in terms.iter_mut().filter(|term| term.iter().all(|held| held.key != key)) {
        term.push(expression.clone());
    }
}

fn in_values(key: &'static str, values: impl IntoIterator<Item = SmolStr>) -> NodeRequirement {
    NodeRequirement {
        key: SmolStr::new_static(key),
        operator: SmolStr::new_static("In"),
        values: values.into_iter().collect(),
    }
}

/// The values of a label that are not empty.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<SmolStr> {
    texts.map(str::trim).filter(|text| !text.is_empty()).map(SmolStr::new).collect()
}

/// The affinity of a volume, in the driver's labels (migration spec 5.2 and 5.3).
pub(super) fn to_csi(kind: InTree, mut terms: Terms, labels: &Labels) -> Terms {
    let pair = pair_of(&terms, labels);
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    match kind {
        InTree::GcePersistentDisk | InTree::AwsElasticBlockStore | InTree::Cinder => {
            let Some(key) = zone_key(kind) else { return terms };
            move_to(&mut terms, pair.zone, key, || distinct(label(pair.zone).split(ZONES_SEPARATOR)));
            // Nodes may have the present label only. The zone has the driver's by now.
            if pair == BETA && !values(&terms, BETA.region).is_empty() {
                rename(&mut terms, BETA.region, LABEL_REGION);
            }
        }
        InTree::VsphereVolume => {
            let Some(key) = zone_key(kind) else { return terms };
            for (from, to) in [(pair.zone, key), (pair.region, VSPHERE_REGION)] {
                move_to(&mut terms, from, to, || distinct(std::iter::once(label(from))));
            }
        }
        InTree::AzureDisk | InTree::AzureFile | InTree::PortworxVolume => {}
    }
    terms
}

/// Renames a key that has values; without any, the volume's label says the values.
fn move_to(terms: &mut Terms, from: &str, to: &'static str, labelled: impl FnOnce() -> BTreeSet<SmolStr>) {
    if values(terms, from).is_empty() {
        constrain(terms, to, labelled());
    } else {
        rename(terms, from, to);
    }
}

/// The affinity and the labels of a volume that the driver has made, in Kubernetes' labels (migration spec 5.4).
pub(super) fn to_in_tree(kind: InTree, terms: &mut Terms, labels: &mut Labels) {
    if terms.is_empty() {
        return;
    }
    let pair = pair_of(terms, labels);
    let Some(key) = zone_key(kind) else { return };
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            labels.entry(key.to_owned()).or_insert(value);
        }
    };
    let first = |values: BTreeSet<SmolStr>| values.first().map(SmolStr::to_string);
    match kind {
        InTree::GcePersistentDisk | InTree::AwsElasticBlockStore | InTree::Cinder => {
            rename(terms, key, pair.zone);
            if let Some(region_of) = region_of(kind) {
                add_regions(terms, pair, region_of);
                add(pair.region, Some(values(terms, pair.region)).filter(|regions| regions.len() == 1).and_then(first));
            }
            let zones: Vec<SmolStr> = values(terms, pair.zone).into_iter().collect();
            add(pair.zone, (!zones.is_empty()).then(|| zones.join(ZONES_SEPARATOR)));
        }
        InTree::VsphereVolume => {
            rename(terms, key, pair.zone);
            rename(terms, VSPHERE_REGION, pair.region);
            for key in [pair.zone, pair.region] {
                add(key, first(values(terms, key)));
            }
        }
        InTree::AzureDisk | InTree::AzureFile | InTree::PortworxVolume => {}
    }
}

/// How a plugin's regions follow from zones. Those of Cinder do not.
fn region_of(kind: InTree) -> Option<RegionOf> {
    match kind {
        InTree::GcePersistentDisk => Some(regions::gce),
        InTree::AwsElasticBlockStore => Some(regions::aws),
        _ => None,
    }
}

/// Adds the region of its zones to each term that names none. A term whose zones have no region stays without: the volume exists by
/// now, and a region that is missing narrows nothing. The Go library refuses the volume.
fn add_regions(terms: &mut Terms, pair: Pair, region_of: RegionOf) {
    for term in terms.iter_mut().filter(|term| term.iter().all(|held| held.key != pair.region)) {
        let zones = term.iter().filter(|held| held.key == pair.zone).flat_map(|held| held.values.iter());
        let zones: Vec<&str> = zones.map(SmolStr::as_str).collect();
        if let Ok(region) = region_of(&zones) {
            term.push(in_values(pair.region, [SmolStr::from(region)]));
        }
    }
}

/// A class's places, in the driver's label (migration spec 5.6). Other keys than zones stay.
pub(super) fn places(terms: &[TopologySelectorTerm], key: &str) -> Vec<TopologySelectorTerm> {
    let mut terms = terms.to_vec();
    for expression in terms.iter_mut().flat_map(|term| term.match_label_expressions.iter_mut()) {
        if expression.key == LABEL_ZONE || expression.key == LABEL_BETA_ZONE {
            key.clone_into(&mut expression.key);
        }
    }
    terms
}

/// The place that is made of these zones.
pub(super) fn place(key: &str, zones: Vec<String>) -> Vec<TopologySelectorTerm> {
    let expression = TopologyExpression { key: key.to_owned(), values: zones };
    vec![TopologySelectorTerm { match_label_expressions: vec![expression] }]
}
