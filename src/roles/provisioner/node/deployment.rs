//! Whether one daemon serves the cluster or each node has its own: which claims and volumes are for this daemon, and
//! where the nodes are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cache, CsiNode, Node, PersistentVolume, StorageClass};
use crate::diagnostics::Cell;
use crate::process::Rng;

use super::contention::{Manners, Race};
use super::reach::Place;
use crate::roles::kit::Memory;
use crate::roles::provisioner::capacity::NodeSegments;
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::topology::{
    Cluster, DriverOnNode, NodeTopology, Registered, Requirement, Segment, TopologyError, TopologyInput,
    plan_requirement,
};

/// Which claims and volumes are for this daemon.
#[derive(Debug)]
pub enum Deployment {
    /// All of them: one daemon serves the cluster.
    Central(ClusterNodes),
    /// Those of one node, which has its own daemon.
    Node(Arc<LocalNode>),
}

/// How the topology requirement of a claim's volume is built.
#[derive(Debug, Clone)]
struct TopologyRules {
    driver: String,
    strict: bool,
    immediate: bool,
}

impl TopologyRules {
    fn new(driver: &str, section: &ProvisionerSection) -> Self {
        Self { driver: driver.to_owned(), strict: section.strict_topology, immediate: section.immediate_topology }
    }

    fn requirement(
        &self,
        cluster: &dyn Cluster,
        selected_node: Option<&str>,
        class: &StorageClass,
        claim_name: &str,
    ) -> Result<Option<Requirement>, TopologyError> {
        plan_requirement(&TopologyInput {
            driver: &self.driver,
            selected_node,
            allowed: &class.allowed_topologies,
            strict: self.strict,
            immediate: self.immediate,
            claim_name,
            cluster,
        })
    }
}

/// The cluster's nodes as the caches have them.
#[derive(Debug)]
pub struct ClusterNodes {
    caches: Option<(Cache<Node>, Cache<CsiNode>)>,
    rules: TopologyRules,
}

/// The node that a daemon works for.
#[derive(Debug)]
pub struct LocalNode {
    node: NodeTopology,
    place: Segment,
    rules: TopologyRules,
    competes: bool,
    manners: Manners,
    /// What the term remembers of claims.
    pub races: Memory<Race>,
    origin: Instant,
    rng: Rng,
}

impl LocalNode {
    /// This node, at the place that its driver reports. `now` is any moment.
    pub fn new(node: NodeTopology, driver: &str, section: &ProvisionerSection, now: Instant, rng: Rng) -> Self {
        let settings = &section.node_deployment;
        Self {
            place: Segment::new(node.segments.clone()),
            node,
            rules: TopologyRules::new(driver, section),
            competes: settings.immediate_binding,
            manners: Manners {
                base: settings.base_delay,
                max: settings.max_delay,
                poll: section.capacity.poll_interval,
            },
            races: Memory::default(),
            origin: now,
            rng,
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    fn here(&self) -> Place<'_> {
        Place { node: &self.node.name, segment: &self.place }
    }

    /// The node's topology, as its driver reports it.
    pub fn topology(&self) -> &NodeTopology {
        &self.node
    }

    /// The node's topology for the capacity loop.
    pub fn places(&self) -> NodeSegments {
        NodeSegments::Local { node: self.node.name.clone(), segment: self.place.clone() }
    }

    /// Whether this daemon takes claims that no node was selected for.
    pub fn competes(&self) -> bool {
        self.competes
    }

    /// Time, from any fixed moment.
    pub fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    /// The contention after the wait before the next look at the claim has begun.
    pub fn begun(&self, race: &Race, claim: &Claim, now: Instant) -> Race {
        let mut race = race.clone();
        let selected = claim.selected_node.as_deref();
        race.begin(&claim.key, selected, &self.manners, self.since(now), self.rng.fraction());
        race
    }

    /// The contention after the driver had no room for the claim here.
    pub fn without_room(&self, race: &Race, now: Instant) -> Race {
        let mut race = race.clone();
        race.no_room(&self.manners, self.since(now));
        race
    }

    /// The claims that this node may take, and the claims that other nodes own: each with that node and the seconds
    /// until the next look.
    pub fn rows(&self, now: Instant) -> Vec<Vec<Cell>> {
        let now = self.since(now);
        self.races.collect(|race| {
            race.row(now).map(|(claim, node, wait)| vec![claim.to_string().into(), node.into(), wait.into()])
        })
    }
}

impl Deployment {
    /// One daemon for the cluster. `caches`: the nodes, if topology matters.
    pub fn central(caches: Option<(Cache<Node>, Cache<CsiNode>)>, driver: &str, section: &ProvisionerSection) -> Self {
        Self::Central(ClusterNodes { caches, rules: TopologyRules::new(driver, section) })
    }

    /// This node, with one daemon per node.
    pub fn local(&self) -> Option<&Arc<LocalNode>> {
        match self {
            Self::Central(_) => None,
            Self::Node(local) => Some(local),
        }
    }

    /// The name of this node, with one daemon per node.
    pub fn node(&self) -> Option<&str> {
        self.local().map(|local| local.name())
    }

    /// Whether the claim is for this daemon.
    pub fn is_ours(&self, claim: &Claim) -> bool {
        self.local().is_none_or(|local| claim.selected_node.as_deref() == Some(local.name()))
    }

    /// Whether another node owns the claim.
    pub fn is_anothers(&self, claim: &Claim) -> bool {
        self.local().is_some_and(|local| claim.selected_node.as_deref().is_some_and(|node| node != local.name()))
    }

    /// The claim is settled or gone: drops its contention.
    pub fn forget(&self, claim: &ClaimKey) {
        if let Self::Node(local) = self {
            local.races.forget(&claim.uid);
        }
    }

    /// Whether this daemon's driver can reach the volume, and so delete it.
    pub fn is_here(&self, volume: &PersistentVolume) -> bool {
        self.local().is_none_or(|local| local.here().is_within(&volume.spec.node_affinity))
    }

    /// Whether the volume may be at this daemon's driver: nothing says that it is elsewhere.
    pub fn may_be_here(&self, volume: &PersistentVolume) -> bool {
        self.local().is_none_or(|local| local.here().may_be_within(&volume.spec.node_affinity))
    }

    /// The topology requirement for a volume of the class.
    pub fn requirement(
        &self,
        selected: Option<&str>,
        class: &StorageClass,
        claim: &str,
    ) -> Result<Option<Requirement>, TopologyError> {
        match self {
            Self::Central(nodes) => nodes.rules.requirement(nodes, selected, class, claim),
            Self::Node(local) => local.rules.requirement(&local.node, selected, class, claim),
        }
    }
}

impl Cluster for ClusterNodes {
    fn unread(&self) -> Option<String> {
        let (nodes, csi_nodes) = self.caches.as_ref()?;
        csi_nodes.unknown().or_else(|| nodes.unknown())
    }

    fn driver_on(&self, node: &str) -> DriverOnNode {
        let found = self.caches.as_ref().and_then(|(_, csi_nodes)| csi_nodes.named(node));
        match found.as_deref().map(|found| found.topology_keys(&self.rules.driver).map(<[String]>::to_vec)) {
            None => DriverOnNode::NoCsiNode,
            Some(None) => DriverOnNode::NotRegistered,
            Some(Some(keys)) => DriverOnNode::Keys(keys),
        }
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        let found = self.caches.as_ref().and_then(|(nodes, _)| nodes.named(node))?;
        Some(found.metadata.labels.clone().unwrap_or_default())
    }

    fn each_registered(&self, see: &mut dyn FnMut(&Registered<'_>)) {
        let (Some((nodes, csi_nodes)), unlabelled) = (&self.caches, BTreeMap::new()) else { return };
        for csi_node in csi_nodes.all() {
            let Some(keys) = csi_node.topology_keys(&self.rules.driver) else { continue };
            let name = &csi_node.metadata.name;
            let node = nodes.named(name);
            let labels = node.as_ref().map(|node| node.metadata.labels.as_ref().unwrap_or(&unlabelled));
            see(&Registered { node: name, keys, labels });
        }
    }
}
