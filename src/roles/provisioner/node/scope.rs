//! Which claims and volumes are for this daemon, and what it knows of where nodes are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cache, CsiNode, Node, ObjectName, PersistentVolume, StorageClass};
use crate::process::Rng;

use super::contention::{Contention, Holder, Manners, Sight, Verdict, is_within_reach, may_be_within_reach};
use crate::roles::provisioner::capacity::NodeSegments;
use crate::roles::provisioner::claims::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::decide::{Ownership, waits_for_consumer};
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::topology::{
    Cluster, DriverOnNode, NodeTopology, Segment, TopologyInput, plan_requirement,
};

/// Which claims and volumes are for this daemon.
#[derive(Debug)]
pub enum Scope {
    /// All: there is one daemon for the cluster.
    Cluster,
    /// Those of one node, which has a daemon of its own.
    Node(Box<LocalNode>),
}

/// What one attempt has asked about whose claim it is.
#[derive(Debug, Default)]
pub struct Asked {
    /// Whether the API has the node of this name, for which the claim was.
    pub holder: Option<(String, Holder)>,
    /// Whether our driver has room, as far as that could be found out.
    pub fits: Option<bool>,
}

/// The node that a daemon works for.
#[derive(Debug)]
pub struct LocalNode {
    node: NodeTopology,
    place: Segment,
    competes: bool,
    manners: Manners,
    races: Mutex<Contention>,
    origin: Instant,
    rng: Rng,
}

impl LocalNode {
    /// This node, where the driver says that it is. `now` is any moment.
    pub fn new(node: NodeTopology, section: &ProvisionerSection, now: Instant, rng: Rng) -> Self {
        let settings = &section.node_deployment;
        Self {
            place: Segment::new(node.segments.clone()),
            node,
            competes: settings.immediate_binding,
            manners: Manners {
                base: settings.base_delay,
                max: settings.max_delay,
                poll: section.capacity.poll_interval,
            },
            races: Mutex::default(),
            origin: now,
            rng,
        }
    }

    /// The same for those who tell of the driver's capacity.
    pub fn places(&self) -> NodeSegments {
        NodeSegments::Local { node: self.node.name.clone(), segment: self.place.clone() }
    }

    fn races(&self) -> MutexGuard<'_, Contention> {
        self.races.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }

    /// Whether our node is one that the class allows.
    fn is_in_reach(&self, cx: &Context, claim: &Claim, class: &StorageClass) -> bool {
        class.allowed_topologies.is_empty()
            || plan_requirement(&TopologyInput {
                driver: &cx.rules.driver,
                selected_node: Some(&self.node.name),
                allowed: &class.allowed_topologies,
                strict: cx.section.strict_topology,
                immediate: cx.section.immediate_topology,
                claim_name: claim.key.name.name(),
                cluster: &self.node,
            })
            .is_ok()
    }

    fn ownership(
        &self,
        cx: &Context,
        claim: &Claim,
        class: Option<&StorageClass>,
        asked: &Asked,
        now: Instant,
    ) -> Ownership {
        let selected = claim.holder();
        let holder = asked.holder.as_ref().filter(|(node, _)| Some(node) == selected.as_ref());
        // A claim whose class is missing is its node's affair, and without a node nobody's: Kubernetes itself tells of it.
        let sight = Sight {
            own: &self.node.name,
            selected: selected.as_deref(),
            immediate: class.is_some_and(|class| !waits_for_consumer(class)),
            competes: self.competes,
            in_reach: class.is_some_and(|class| self.is_in_reach(cx, claim, class)),
            holder: holder.map(|(_, found)| *found),
        };
        let verdict = self.races().verdict(&claim.key, &sight, self.since(now));
        match verdict {
            Verdict::Begin => Ownership::Unwatched,
            Verdict::Mine => Ownership::Here,
            Verdict::Other { look_again } => Ownership::Elsewhere { look_again: Some(look_again) },
            Verdict::Ignore => Ownership::Elsewhere { look_again: None },
            Verdict::AskForHolder => Ownership::Held,
            Verdict::Free => Ownership::Abandoned,
            Verdict::Compete { delay } => Ownership::Free { wait: delay, has_room: false },
            Verdict::Claim => Ownership::Free { wait: Duration::ZERO, has_room: asked.fits == Some(true) },
        }
    }
}

impl Scope {
    /// This node's name, where each node has a daemon of its own.
    pub fn node(&self) -> Option<&str> {
        self.home().map(|node| node.name.as_str())
    }

    /// This node as its driver has told, where each node has a daemon of its own.
    pub fn home(&self) -> Option<&NodeTopology> {
        match self {
            Self::Cluster => None,
            Self::Node(home) => Some(&home.node),
        }
    }

    /// Whose claim it is, as things stand `now`. Nothing changes by the question.
    pub fn ownership(
        &self,
        cx: &Context,
        claim: &Claim,
        class: Option<&StorageClass>,
        asked: &Asked,
        now: Instant,
    ) -> Ownership {
        match self {
            Self::Cluster => Ownership::Here,
            Self::Node(home) => home.ownership(cx, claim, class, asked, now),
        }
    }

    /// Begins the wait after which the claim is looked at again.
    pub fn begin_wait(&self, claim: &Claim, now: Instant) {
        if let Self::Node(home) = self {
            let (selected, now) = (claim.holder(), home.since(now));
            home.races().begin(&claim.key, selected.as_deref(), &home.manners, now, home.rng.fraction());
        }
    }

    /// Whether another node's daemon has the claim.
    pub fn is_anothers(&self, claim: &Claim) -> bool {
        let Self::Node(home) = self else { return false };
        claim.holder().is_some_and(|node| node != home.node.name)
    }

    /// There is no room for a claim here: how long to wait until it is looked for again.
    pub fn no_room(&self, claim: &ClaimKey, now: Instant) -> Duration {
        let Self::Node(home) = self else { return Duration::ZERO };
        let verdict = home.races().no_room(claim, &home.manners, home.since(now));
        if let Verdict::Compete { delay } = verdict { delay } else { home.manners.poll }
    }

    /// Another node was quicker.
    pub fn lost(&self, claim: &ClaimKey) {
        if let Self::Node(home) = self {
            home.races().lost(claim);
        }
    }

    /// The claim is settled, or gone.
    pub fn forget(&self, claim: &ClaimKey) {
        if let Self::Node(home) = self {
            home.races().forget(claim);
        }
    }

    /// The claims that this node may take unless another does, and those that another has: each with that node, and in how
    /// many seconds it is looked at again.
    pub fn races(&self, now: Instant) -> Vec<Vec<String>> {
        let Self::Node(home) = self else { return Vec::new() };
        let row = |(claim, node, wait): (&ClaimKey, Option<&str>, Option<Duration>)| {
            let seconds = wait.unwrap_or_default().as_secs();
            vec![claim.to_string(), node.unwrap_or_default().to_owned(), seconds.to_string()]
        };
        home.races().all(home.since(now)).map(row).collect()
    }

    /// Whether a volume is where this daemon's driver can delete it.
    pub fn is_here(&self, volume: &PersistentVolume) -> bool {
        match self {
            Self::Cluster => true,
            Self::Node(home) => is_within_reach(&volume.spec.node_affinity, &home.place),
        }
    }

    /// Whether a volume may be one that this daemon's driver has: nothing says that it is elsewhere.
    pub fn may_be_here(&self, volume: &PersistentVolume) -> bool {
        match self {
            Self::Cluster => true,
            Self::Node(home) => may_be_within_reach(&volume.spec.node_affinity, &home.place),
        }
    }

    /// Shows what is known of where nodes are.
    pub fn with_cluster<R>(&self, cx: &Context, look: impl FnOnce(&dyn Cluster) -> R) -> R {
        match self {
            Self::Cluster => look(&Cached { nodes: cx.stores.nodes.as_ref(), driver: &cx.rules.driver }),
            Self::Node(home) => look(&home.node),
        }
    }
}

/// The cluster as the caches have it.
struct Cached<'a> {
    nodes: Option<&'a (Cache<Node>, Cache<CsiNode>)>,
    driver: &'a str,
}

impl Cluster for Cached<'_> {
    fn driver_on(&self, node: &str) -> DriverOnNode {
        let found = self.nodes.and_then(|(_, csi_nodes)| csi_nodes.get(&ObjectName::cluster(node)));
        match found.as_deref().map(|found| found.topology_keys(self.driver).map(<[String]>::to_vec)) {
            None => DriverOnNode::NoCsiNode,
            Some(None) => DriverOnNode::NotRegistered,
            Some(Some(keys)) => DriverOnNode::Keys(keys),
        }
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        let found = self.nodes.and_then(|(nodes, _)| nodes.get(&ObjectName::cluster(node)))?;
        Some(found.metadata.labels.clone().unwrap_or_default())
    }

    fn each_registration(&self, see: &mut dyn FnMut(&[String])) {
        let Some((_, csi_nodes)) = self.nodes else { return };
        for node in csi_nodes.all() {
            if let Some(keys) = node.topology_keys(self.driver) {
                see(keys);
            }
        }
    }

    fn each_node(&self, see: &mut dyn FnMut(&BTreeMap<String, String>)) {
        let Some((nodes, _)) = self.nodes else { return };
        for node in nodes.all() {
            if let Some(labels) = &node.metadata.labels {
                see(labels);
            }
        }
    }
}
