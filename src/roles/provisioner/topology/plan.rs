//! The topology requirement of a new volume: the segments that it must be accessible from (spec 4.2 to 4.4). Pure.
//!
//! | selected node | strict | `allowedTopologies` | requisite | preferred |
//! |---|---|---|---|---|
//! | yes | yes | any | the node's segment, if the class allows it | the same |
//! | yes | no | none | the segments of the driver's nodes by the node's keys | starts with the node's segment |
//! | yes | no | some | the allowed segments | starts with the first one that contains the node |
//! | no | – | some | the allowed segments | starts by the claim's name |
//! | no | – | none | the segments by each set of keys that a node has; no requirement if `immediate` is off | starts by the claim's name |
//!
//! A node counts by a set of keys if the driver is registered there with all of them, and the node has a label for each. So one node may
//! be in several segments, of fewer and of more keys. A label whose key the driver has not registered there says nothing (spec 4.3).
//!
//! The claims of one `StatefulSet` start with consecutive segments, so that its replicas spread.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use thiserror::Error;

use super::lookup::{Cluster, DriverOnNode, Registered, key_sets, sorted};
use super::requirement::Requirement;
use super::segment::{Segment, TooManySegments, allowed, flatten};
use crate::cluster::TopologySelectorTerm;

/// The input of a requirement.
#[derive(Clone, Copy)]
pub struct TopologyInput<'a> {
    /// Our driver.
    pub driver: &'a str,
    /// The node that the scheduler has selected.
    pub selected_node: Option<&'a str>,
    /// The class's `allowedTopologies`.
    pub allowed: &'a [TopologySelectorTerm],
    /// Whether only the selected node's own segment is allowed.
    pub strict: bool,
    /// Whether a claim without a selected node gets a requirement if its class allows every segment.
    pub immediate: bool,
    /// The claim's name, which decides the first preferred segment.
    pub claim_name: &'a str,
    /// The cluster.
    pub cluster: &'a dyn Cluster,
}

/// What to do with a claim whose requirement cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyFinality {
    /// The node is gone. The scheduler must select another one.
    Reschedule,
    /// Wait for the cluster to change.
    NoChange,
}

/// Why no requirement can be made now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The nodes cannot be read.
    #[error("the nodes and their topology keys are not known: {0}")]
    Unread(String),
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
    /// The driver is not registered on the node (yet), or without keys.
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
    /// The class does not allow the selected node's segment.
    #[error("selected node \"{node}\" is at {segment}, which is not in the class's allowedTopologies")]
    NotAllowed {
        /// The node.
        node: String,
        /// Its segment.
        segment: Segment,
    },
    /// The driver has topology keys on no node.
    #[error("no available topology found: no node has driver {driver} registered with topology keys")]
    NoTopology {
        /// Our driver.
        driver: String,
    },
    /// Of no set of keys any node has all labels.
    #[error("topologyKeys {sets} were not found on any nodes: {lacking}")]
    NoNodeHas {
        /// The sets of keys, as in `[[rack zone] [zone]]`.
        sets: String,
        /// Which nodes have registered them, and what each lacks.
        lacking: String,
    },
    /// The class allows too many segments.
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
    /// What to do with the claim.
    ///
    /// A claim is also rescheduled if the node is gone and its `CSINode` still exists. The Go sidecar tries it again for ever.
    pub fn finality(&self) -> TopologyFinality {
        match self {
            Self::CsiNodeMissing { .. } | Self::NodeMissing { .. } => TopologyFinality::Reschedule,
            Self::Unread(_)
            | Self::NoKeys { .. }
            | Self::LabelsMissing { .. }
            | Self::NotAllowed { .. }
            | Self::NoTopology { .. }
            | Self::NoNodeHas { .. }
            | Self::TooManySegments(_) => TopologyFinality::NoChange,
        }
    }

    /// One word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unread(_) => "NodesUnreadable",
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
    /// These segments, with the preferred ones rotated to begin at index `start`.
    fn rotated(segments: Vec<Segment>, start: usize) -> Option<Self> {
        if segments.is_empty() {
            return None;
        }
        // Only the copy is rotated. The requisite segments must have the same order at the next attempt.
        let mut preferred = segments.clone();
        preferred.rotate_left(start);
        Some(Self { requisite: segments, preferred })
    }
}

/// The requirement for the driver, if it needs one.
pub fn plan_requirement(input: &TopologyInput<'_>) -> Result<Option<Requirement>, TopologyError> {
    match input.selected_node {
        Some(node) => for_node(input, node),
        None => for_claim(input),
    }
}

fn for_node(input: &TopologyInput<'_>, node: &str) -> Result<Option<Requirement>, TopologyError> {
    check_read(input)?;
    let keys = keys_of(input, node)?;
    let own = segment_of(input, node, &keys)?;
    let not_allowed = || TopologyError::NotAllowed { node: node.to_owned(), segment: own.clone() };
    if input.strict {
        if !allowed(&own, input.allowed) {
            return Err(not_allowed());
        }
        return Ok(Requirement::rotated(vec![own], 0));
    }
    let requisite = if input.allowed.is_empty() {
        // The driver may go from its own node meanwhile.
        let mut segments = segments_by(input, &BTreeSet::from([sorted(&keys)]));
        segments.push(own.clone());
        distinct(segments)
    } else {
        distinct(flatten(input.allowed)?)
    };
    let start = requisite.iter().position(|segment| segment.is_subset_of(&own)).ok_or_else(not_allowed)?;
    Ok(Requirement::rotated(requisite, start))
}

/// A node that is not known is not gone: no claim is sent to another node for that.
fn check_read(input: &TopologyInput<'_>) -> Result<(), TopologyError> {
    input.cluster.unread().map_or(Ok(()), |why| Err(TopologyError::Unread(why)))
}

fn for_claim(input: &TopologyInput<'_>) -> Result<Option<Requirement>, TopologyError> {
    let requisite = if !input.allowed.is_empty() {
        distinct(flatten(input.allowed)?)
    } else if input.immediate {
        check_read(input)?;
        everywhere(input)?
    } else {
        return Ok(None);
    };
    let start = first_segment(input.claim_name, requisite.len());
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

fn segment_of(input: &TopologyInput<'_>, node: &str, keys: &[String]) -> Result<Segment, TopologyError> {
    let labels = input.cluster.labels(node).ok_or_else(|| TopologyError::NodeMissing { node: node.to_owned() })?;
    Segment::of_labels(keys, &labels).ok_or_else(|| {
        let missing = keys.iter().filter(|key| !labels.contains_key(*key)).cloned().collect();
        TopologyError::LabelsMissing { node: node.to_owned(), missing }
    })
}

/// The segments of the driver's nodes, by each set of keys that one of them has. A set whose nodes all lack a label adds none.
fn everywhere(input: &TopologyInput<'_>) -> Result<Vec<Segment>, TopologyError> {
    let sets = key_sets(input.cluster);
    if sets.is_empty() {
        return Err(TopologyError::NoTopology { driver: input.driver.to_owned() });
    }
    let segments = segments_by(input, &sets);
    if segments.is_empty() {
        let shown: Vec<String> = sets.iter().map(|keys| format!("[{}]", keys.join(" "))).collect();
        return Err(TopologyError::NoNodeHas { sets: format!("[{}]", shown.join(" ")), lacking: lacking(input) });
    }
    Ok(distinct(segments))
}

/// The segments of all nodes by these sets of keys.
fn segments_by(input: &TopologyInput<'_>, sets: &BTreeSet<Vec<String>>) -> Vec<Segment> {
    let mut segments = HashSet::new();
    input.cluster.each_registered(&mut |it| {
        let Some(labels) = it.labels else { return };
        let covered = sets.iter().filter(|keys| keys.iter().all(|key| it.keys.contains(key)));
        segments.extend(covered.filter_map(|keys| Segment::of_labels(keys, labels)));
    });
    segments.into_iter().collect()
}

/// What each node with keys lacks, of the first nodes by name.
fn lacking(input: &TopologyInput<'_>) -> String {
    const NAMED: usize = 3;
    let mut nodes = BTreeMap::new();
    input.cluster.each_registered(&mut |&Registered { node, keys, labels }| {
        if !keys.is_empty() {
            let lacks = match labels {
                None => format!("there is no node \"{node}\""),
                Some(labels) => {
                    let missing = sorted(keys).into_iter().filter(|key| !labels.contains_key(key));
                    format!("node \"{node}\" lacks the labels {}", missing.collect::<Vec<_>>().join(", "))
                }
            };
            nodes.insert(node.to_owned(), lacks);
        }
    });
    let more = nodes.len().saturating_sub(NAMED);
    let mut told: Vec<String> = nodes.into_values().take(NAMED).collect();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

fn distinct(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.retain(|segment| !segment.is_empty());
    segments.sort_unstable();
    segments.dedup();
    segments
}

/// The index of the first preferred segment, of `count`, for a claim of this name: the hash of the name of its `StatefulSet` plus its
/// ordinal, or the hash of its own name. This is exactly the Go sidecar's rule, so that a set spreads even if one replica was
/// provisioned by the Go sidecar and the next one by this daemon.
fn first_segment(claim: &str, count: usize) -> usize {
    let (base, index) = base_and_ordinal(claim);
    let start = fnv1(base.as_bytes()).wrapping_add(index);
    // A usize holds every u32. `count` is never zero here, and an empty list has no first index either.
    usize::try_from(start).unwrap_or_default().checked_rem(count).unwrap_or_default()
}

/// The set's name and the ordinal of `<template>-<set>-<ordinal>`. Any other name is its own base, with ordinal 0.
fn base_and_ordinal(claim: &str) -> (&str, u32) {
    let Some((before, last)) = claim.rsplit_once('-') else { return (claim, 0) };
    // `parse` accepts a sign, and an ordinal has none.
    let ordinal = last.parse().ok().filter(|_| last.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(ordinal) = ordinal else { return (claim, 0) };
    (before.rsplit_once('-').map_or(before, |(_, set)| set), ordinal)
}

/// FNV-1. Unlike FNV-1a, it multiplies first.
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
    fn replicas_of_a_set_start_with_consecutive_segments() {
        let starts: Vec<usize> = (1..=4).map(|replica| first_segment(&format!("x-testset-{replica}"), 4)).collect();
        assert_eq!(starts, [0, 1, 2, 3]);
        assert_eq!((first_segment("testpvc", 3), first_segment("testpvc", 2)), (2, 0));
        assert_eq!(first_segment("testset-4294967295", 4), 2, "the sum wraps");
    }
}
