//! From which places a new volume must be reachable (spec 4.2 to 4.4). Pure.
//!
//! | selected node | strict | `allowedTopologies` | requisite | preferred |
//! |---|---|---|---|---|
//! | yes | yes | any | the node's place, if allowed | the same |
//! | yes | no | none | all places that the node's keys make in the cluster | the node's place leads |
//! | yes | no | some | the allowed places | the first that holds the node leads |
//! | no | – | some | the allowed places | begins where the claim's name says |
//! | no | – | none | all places, unless `immediate` is off: then nothing is asked | begins where the claim's name says |
//!
//! Claims of one `StatefulSet` begin one place after the other, so that its replicas spread.

use thiserror::Error;

use super::lookup::{Cluster, DriverOnNode, vote};
use super::segment::{Segment, TooManySegments, allowed, flatten};
use crate::cluster::TopologySelectorTerm;
use crate::proto;

/// From where a volume must be reachable, and where it had best be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirement {
    /// From at least one of these; sorted, each once, none empty.
    pub requisite: Vec<Segment>,
    /// The same, the best first.
    pub preferred: Vec<Segment>,
}

/// All that a requirement depends on.
#[derive(Clone, Copy)]
pub struct TopologyInput<'a> {
    /// Our driver.
    pub driver: &'a str,
    /// The node that the scheduler chose.
    pub selected_node: Option<&'a str>,
    /// The class's `allowedTopologies`.
    pub allowed: &'a [TopologySelectorTerm],
    /// Only the selected node's own place will do.
    pub strict: bool,
    /// Whether a claim without a node gets a requirement at all, if its class allows every place.
    pub immediate: bool,
    /// The claim's name: it decides where the preferred places begin.
    pub claim_name: &'a str,
    /// What the cluster says.
    pub cluster: &'a dyn Cluster,
}

/// What a claim whose requirement cannot be made is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyFinality {
    /// The node is gone: the scheduler must choose another.
    Reschedule,
    /// Wait for the cluster to change.
    NoChange,
}

/// Why no requirement can be made as things stand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The selected node has no `CSINode`.
    #[error("CSINode \"{node}\" of the selected node not found: the node is gone")]
    CsiNodeMissing {
        /// The node.
        node: String,
    },
    /// The selected node itself is gone, although its `CSINode` is still there.
    #[error("selected node \"{node}\" not found")]
    NodeMissing {
        /// The node.
        node: String,
    },
    /// The driver is not there (yet), or told no keys.
    #[error("no topology key found for node \"{node}\": {}", why_no_key(*.registered, .driver))]
    NoKeys {
        /// The node.
        node: String,
        /// Our driver.
        driver: String,
        /// Whether the driver is registered on the node at all.
        registered: bool,
    },
    /// Kubelet has not labelled the node (yet).
    #[error("selected node \"{node}\" lacks the topology labels {}, which CSINode names", .missing.join(", "))]
    LabelsMissing {
        /// The node.
        node: String,
        /// The keys without a label.
        missing: Vec<String>,
    },
    /// The class does not allow the selected node's place.
    #[error("selected node \"{node}\" is at {place}, which is not in the class's allowedTopologies")]
    NotAllowed {
        /// The node.
        node: String,
        /// Its place.
        place: Segment,
    },
    /// No node tells a place.
    #[error("no available topology found: no node has driver {driver} registered with topology keys")]
    NoTopology {
        /// Our driver.
        driver: String,
    },
    /// No node has the labels.
    #[error("topology keys {} were not found on any node", .keys.join(", "))]
    NoNodeHas {
        /// The keys.
        keys: Vec<String>,
    },
    /// The class names too many places.
    #[error(transparent)]
    TooManySegments(#[from] TooManySegments),
}

fn why_no_key(registered: bool, driver: &str) -> String {
    if registered {
        format!("driver {driver} is registered there without any")
    } else {
        format!("driver {driver} is not registered there")
    }
}

impl TopologyError {
    /// What the claim is to do.
    ///
    /// A node that is gone while its `CSINode` lingers is rescheduled, too; the Go sidecar tries it again for ever.
    pub fn finality(&self) -> TopologyFinality {
        match self {
            Self::CsiNodeMissing { .. } | Self::NodeMissing { .. } => TopologyFinality::Reschedule,
            Self::NoKeys { .. }
            | Self::LabelsMissing { .. }
            | Self::NotAllowed { .. }
            | Self::NoTopology { .. }
            | Self::NoNodeHas { .. }
            | Self::TooManySegments(_) => TopologyFinality::NoChange,
        }
    }

    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::CsiNodeMissing { .. } => "CsiNodeNotFound",
            Self::NodeMissing { .. } => "NodeNotFound",
            Self::NoKeys { .. } => "NoTopologyKeys",
            Self::LabelsMissing { .. } => "TopologyLabels",
            Self::NotAllowed { .. } => "TopologyNotAllowed",
            Self::NoTopology { .. } | Self::NoNodeHas { .. } => "NoTopology",
            Self::TooManySegments(_) => "TooManyTopologies",
        }
    }
}

impl Requirement {
    /// As the driver is told.
    pub fn to_proto(&self) -> proto::TopologyRequirement {
        proto::TopologyRequirement {
            requisite: self.requisite.iter().map(Segment::to_proto).collect(),
            preferred: self.preferred.iter().map(Segment::to_proto).collect(),
        }
    }

    /// `segments` in order, the preferred ones from the `start`th on.
    fn rotated(segments: Vec<Segment>, start: usize) -> Option<Self> {
        if segments.is_empty() {
            return None;
        }
        // A copy is turned: the requisite places must stay as they are for the next attempt.
        let mut preferred = segments.clone();
        preferred.rotate_left(start);
        Some(Self { requisite: segments, preferred })
    }
}

/// What to ask of the driver about places, if anything.
pub fn plan_requirement(input: &TopologyInput<'_>) -> Result<Option<Requirement>, TopologyError> {
    match input.selected_node {
        Some(node) => for_node(input, node),
        None => for_claim(input),
    }
}

fn for_node(input: &TopologyInput<'_>, node: &str) -> Result<Option<Requirement>, TopologyError> {
    let keys = keys_of(input, node)?;
    let place = place_of(input, node, &keys)?;
    let not_allowed = || TopologyError::NotAllowed { node: node.to_owned(), place: place.clone() };
    if input.strict {
        if !allowed(&place, input.allowed) {
            return Err(not_allowed());
        }
        return Ok(Requirement::rotated(vec![place], 0));
    }
    let requisite = if input.allowed.is_empty() { aggregate(input, &keys)? } else { distinct(flatten(input.allowed)?) };
    let start = requisite.iter().position(|segment| segment.is_subset_of(&place)).ok_or_else(not_allowed)?;
    Ok(Requirement::rotated(requisite, start))
}

fn for_claim(input: &TopologyInput<'_>) -> Result<Option<Requirement>, TopologyError> {
    let requisite = if !input.allowed.is_empty() {
        distinct(flatten(input.allowed)?)
    } else if input.immediate {
        let keys = vote(input.cluster).ok_or_else(|| TopologyError::NoTopology { driver: input.driver.to_owned() })?;
        aggregate(input, &keys)?
    } else {
        return Ok(None);
    };
    let start = first_place(input.claim_name, requisite.len());
    Ok(Requirement::rotated(requisite, start))
}

fn keys_of(input: &TopologyInput<'_>, node: &str) -> Result<Vec<String>, TopologyError> {
    let keyless =
        |registered| TopologyError::NoKeys { node: node.to_owned(), driver: input.driver.to_owned(), registered };
    match input.cluster.driver_on(node) {
        DriverOnNode::NoCsiNode => Err(TopologyError::CsiNodeMissing { node: node.to_owned() }),
        DriverOnNode::NotRegistered => Err(keyless(false)),
        DriverOnNode::Keys(keys) if keys.is_empty() => Err(keyless(true)),
        DriverOnNode::Keys(keys) => Ok(keys),
    }
}

fn place_of(input: &TopologyInput<'_>, node: &str, keys: &[String]) -> Result<Segment, TopologyError> {
    let labels = input.cluster.labels(node).ok_or_else(|| TopologyError::NodeMissing { node: node.to_owned() })?;
    Segment::of_labels(keys, &labels).ok_or_else(|| {
        let missing = keys.iter().filter(|key| !labels.contains_key(*key)).cloned().collect();
        TopologyError::LabelsMissing { node: node.to_owned(), missing }
    })
}

/// Every place that some node is at, told by all of `keys`. The driver need not run there: it may be able to reach it.
fn aggregate(input: &TopologyInput<'_>, keys: &[String]) -> Result<Vec<Segment>, TopologyError> {
    let mut places = std::collections::HashSet::new();
    input.cluster.each_node(&mut |labels| places.extend(Segment::of_labels(keys, labels)));
    if places.is_empty() {
        let mut keys = keys.to_vec();
        keys.sort();
        return Err(TopologyError::NoNodeHas { keys });
    }
    Ok(distinct(places.into_iter().collect()))
}

fn distinct(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.retain(|segment| !segment.is_empty());
    segments.sort_unstable();
    segments.dedup();
    segments
}

/// With which of `places` a claim of this name begins: by the hash of its `StatefulSet`'s name and its ordinal, or of
/// its own name. The Go sidecar's rule to the letter: replicas that it placed and those that we place must spread
/// together.
fn first_place(claim: &str, places: usize) -> usize {
    let (base, index) = base_and_ordinal(claim);
    let start = fnv1(base.as_bytes()).wrapping_add(index);
    // No claim has 2^32 places; `places` is never zero here, but an empty list has no beginning either.
    usize::try_from(start).unwrap_or_default().checked_rem(places).unwrap_or_default()
}

/// `<template>-<set>-<ordinal>` is the set's name and the ordinal, anything else is its own base.
fn base_and_ordinal(claim: &str) -> (&str, u32) {
    let Some((before, last)) = claim.rsplit_once('-') else { return (claim, 0) };
    // `parse` takes a sign, which no ordinal has.
    let ordinal = last.parse().ok().filter(|_| last.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(ordinal) = ordinal else { return (claim, 0) };
    (before.rsplit_once('-').map_or(before, |(_, set)| set), ordinal)
}

/// FNV-1, not 1a: multiplied first.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_vectors_of_the_go_sidecar_hold() {
        for (claim, base, ordinal, hash) in [
            ("testset-2", "testset", 2, 0x6162_8cc3),
            ("x-testset-2", "testset", 2, 0x6162_8cc3),
            ("testpvcB-testset-2", "testset", 2, 0x6162_8cc3),
            ("testpvc", "testpvc", 0, 0x6469_4d56),
            ("a-b-c", "a-b-c", 0, fnv1(b"a-b-c")),
            ("data-db-+1", "data-db-+1", 0, fnv1(b"data-db-+1")),
            ("data-db-4294967296", "data-db-4294967296", 0, fnv1(b"data-db-4294967296")),
            ("data-db-4294967295", "db", u32::MAX, fnv1(b"db")),
            ("", "", 0, 0x811c_9dc5),
        ] {
            assert_eq!(base_and_ordinal(claim), (base, ordinal), "{claim}");
            assert_eq!(fnv1(base.as_bytes()), hash, "{claim}");
        }
    }

    #[test]
    fn replicas_of_a_set_begin_one_place_after_the_other() {
        let starts: Vec<usize> = (1..=4).map(|replica| first_place(&format!("x-testset-{replica}"), 4)).collect();
        assert_eq!(starts, [0, 1, 2, 3]);
        assert_eq!((first_place("testpvc", 3), first_place("testpvc", 2)), (2, 0));
        assert_eq!(first_place("testset-4294967295", 4), 2, "the sum wraps");
    }
}
