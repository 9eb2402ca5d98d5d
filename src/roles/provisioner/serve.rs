//! One term of the provisioner: its queues and the workers.

use std::sync::Arc;

use tracing::{info, warn};

use crate::csi::{Client, DriverState};
use crate::diagnostics::{Fact, Table, table};
use crate::election::Term;
use crate::process::watch;
use crate::proto::NodeGetInfoRequest;
use crate::queue::Backoff;
use crate::roles::kit::{Controllers, TermScope, UnknownValues};
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::admission::{LostJournals, NodeAdmission};
use super::capacity::{
    CapacityContext, CapacityInvalidation, CapacityInvalidationReceiver, CapacityStores, NodeSegments,
};
use super::claim::ClaimKey;
use super::claims::Claims;
use super::config::ProvisionerSection;
use super::context::{Caches, Context};
use super::deletion::Deletions;
use super::deletion::context::{DETACHING, DeletionContext};
use super::node::deployment::{Deployment, LocalNode};
use super::reporter::Reporter;
use super::topology::NodeTopology;
use super::triggers::Triggers;
use super::unprotect::Sources;
use super::{NAME, capacity, journal, unknown};

/// The claims that this node's daemon may take, and does not have.
const OTHER_CLAIMS: Table = table! {
    "otherNodesClaims", "Claims without a node, or of another node":
        text("claim", "claim"), text("node", "node"), seconds("nextLookSeconds", "looks again in")
};

/// The error of a daemon that does not know its node.
const NO_NODE: &str = "nodeDeployment is enabled, and NODE_NAME is not set: no claim is provisioned";

/// The role.
#[derive(Debug)]
pub(super) struct Provisioner {
    pub(super) section: ProvisionerSection,
    pub(super) caches: Caches,
    /// Whether this daemon hosts the attacher, too.
    pub(super) beside_attacher: bool,
}

impl Serve for Provisioner {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        tokio::select! {
            biased;
            () = term.over() => return Ok(()),
            () = self.synced(role) => {}
        }
        let mut met = role.csi.state();
        loop {
            // From here on, a change of the driver may mean that its node has moved.
            met.borrow_and_update();
            let Some(deployment) = self.deployment(role, &term).await? else { return Ok(()) };
            let home = deployment.local().map(|local| local.topology().clone());
            let (part, leave) = term.part();
            let until_moved = async {
                self.moved(role, &term, &mut met, home.as_ref()).await;
                leave.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                served = self.serve_at(role, part, deployment) => {
                    if served.is_err() || term.is_over() {
                        return served;
                    }
                }
                () = until_moved => {}
            }
        }
    }
}

impl Provisioner {
    async fn synced(&self, role: &RoleContext) {
        let asks_for_nodes = self.section.topology && role.driver.capabilities.volume_accessibility_constraints();
        self.caches.synced(asks_for_nodes).await;
    }

    /// Serves until the term is over, or until this node's topology changes.
    async fn serve_at(&self, role: &RoleContext, term: Term, deployment: Deployment) -> Result<(), RoleError> {
        let (capacity, invalidations) = if self.section.capacity.enabled {
            let (capacity, invalidations) = CapacityInvalidation::new();
            (capacity, Some(invalidations))
        } else {
            (CapacityInvalidation::off(), None)
        };
        let nodes = self.node_segments(&deployment);
        let queues = self.queues(role);
        let (journal, opened) = if self.section.durable_intent {
            let opened = journal::open(role, &term, deployment.node(), self.backoff()).await;
            let Some((journal, opened)) = opened else { return Ok(()) };
            (Some(journal), opened)
        } else {
            (None, Vec::new())
        };
        let triggers = Arc::new(self.triggers(role, &term, deployment, capacity, queues, journal));
        let Triggers { queues, shared, claims, deletion } = &*triggers;
        // First the requests of an earlier term: they use data sources, and nothing may be decided about a source
        // before.
        for entry in opened {
            triggers.resume(entry);
        }
        info!(topology = claims.asking.topology, durable = claims.rules.durable, "serving claims");

        let mut controllers = Controllers::new(NAME, &role.board, &shared.scope);
        controllers.follow(&shared.stores.claims);
        controllers.follow(&shared.stores.volumes);
        controllers.follow(&shared.stores.snapshots);
        let lost = Arc::new(LostJournals::new(shared, role));
        let subject = {
            let claims = Arc::clone(claims);
            move |key: &ClaimKey| claims.subject(key)
        };
        let (title, work) = ("Claims in progress", Claims(Arc::clone(claims)));
        if let Some(local) = shared.deployment.local() {
            let admission = NodeAdmission::of(claims, local, &lost);
            controllers.drive_admitted(&queues.claims, title, subject, admission, work);
        } else {
            controllers.drive(&queues.claims, title, subject, work);
        }
        let volumes = shared.stores.volumes.clone();
        let subject = move |name: &String| volumes.named(name)?.subject();
        controllers.drive(&queues.volumes, "Volumes to delete", subject, Deletions(Arc::clone(deletion)));
        let sources = Sources::of(claims);
        controllers.drive(&queues.sources, "Data sources to unprotect", |_| None, sources);
        Self::show(role, &triggers, &mut controllers);
        Self::run_journal(role, &triggers, lost, &mut controllers);
        triggers.follow(&mut controllers);
        look_for_unknown_values(shared, &mut controllers);
        let all = Arc::clone(&triggers);
        controllers.resync(self.section.resync, all, |triggers| async move { triggers.look_at_all().await });
        let of_sweep = Arc::clone(&triggers);
        controllers.task("sweep", async move { of_sweep.sweep().await });
        let (of_figures, reporter) = (Arc::clone(&triggers), Reporter::new(&role.meter, &role.driver.name));
        controllers.task("figures", async move { of_figures.figures(reporter).await });
        if let Some(capacity) = self.capacity(role, &term, nodes, invalidations) {
            controllers.also(capacity);
        }
        controllers.serve().await
    }

    /// Writes the journal, and shows it on the status page.
    fn run_journal(
        role: &RoleContext,
        triggers: &Arc<Triggers>,
        lost: Arc<LostJournals>,
        controllers: &mut Controllers,
    ) {
        let Some(journal) = &triggers.claims.journal.entries else { return };
        let adopting = Arc::clone(triggers);
        controllers.task("journal", journal.clone().run(move |entry| adopting.resume(entry)));
        let shown = Arc::new((journal.clone(), triggers.queues.claims.clone(), Arc::clone(&lost)));
        controllers.show_facts(&shown, |(journal, ..)| journal::facts(journal));
        controllers.show_table(&journal::TABLE, &shown, |(journal, claims, _)| journal::rows(journal, claims));
        let clock = role.clock;
        controllers.show_table(&journal::LEFT_TABLE, &shown, move |(journal, _, lost)| {
            let now = clock.wall();
            let mut rows = journal::left_rows(journal, now);
            rows.extend(lost.rows(now));
            rows
        });
        if triggers.shared.deployment.local().is_some() {
            controllers.task("lost nodes", async move { lost.clear().await });
        }
    }

    /// The tables of the status page.
    fn show(role: &RoleContext, triggers: &Triggers, controllers: &mut Controllers) {
        controllers.show_table(&DETACHING, &triggers.deletion, DeletionContext::detaching);
        controllers.show_facts(&triggers.claims, |claims| {
            let told = claims.topology.keys().told().filter(|_| claims.asking.topology);
            told.map(|value| Fact::new("topology", value)).into_iter().collect()
        });
        if let Some(local) = triggers.shared.deployment.local() {
            let clock = role.clock;
            controllers.show_table(&OTHER_CLAIMS, local, move |local| local.rows(clock.now()));
        }
    }

    /// Which claims are for this daemon. With one daemon per node, the driver is asked for the node's topology. `None`:
    /// the term is over.
    async fn deployment(&self, role: &RoleContext, term: &Term) -> Result<Option<Deployment>, RoleError> {
        if !self.section.node_deployment.enabled {
            let central = Deployment::central(self.caches.nodes.clone(), &role.driver.name, &self.section);
            return Ok(Some(central));
        }
        let Some(name) = role.instance.node.clone() else { return Err(RoleError::Unfit(NO_NODE)) };
        let scope = TermScope::with_timeout(role, term, self.section.timeout);
        for failures in 1.. {
            let get_info = async |driver: Client| driver.node_get_info(NodeGetInfoRequest {}).await;
            let Ok(answer) = scope.ask(get_info).await else { return Ok(None) };
            match answer {
                Ok(answer) => {
                    let segments = answer.accessible_topology.map(|topology| topology.segments).unwrap_or_default();
                    let node = NodeTopology { name, segments: segments.into_iter().collect() };
                    let home =
                        LocalNode::new(node, &role.driver.name, &self.section, role.clock.now(), role.rng.clone());
                    return Ok(Some(Deployment::Node(Arc::new(home))));
                }
                Err(error) => warn!(error = %error, "cannot get this node's topology from the driver"),
            }
            tokio::select! {
                biased;
                () = term.over() => return Ok(None),
                () = tokio::time::sleep(self.backoff().delay(failures, None, role.rng.fraction())) => {}
            }
        }
        Ok(None)
    }

    /// Returns when this node's driver has come back with another topology. Decisions for the old topology are useless
    /// then: the driver refuses them, or creates volumes in the wrong place.
    async fn moved(
        &self,
        role: &RoleContext,
        term: &Term,
        met: &mut watch::Receiver<DriverState>,
        held: Option<&NodeTopology>,
    ) {
        let Some(held) = held else { return std::future::pending().await };
        while met.changed().await.is_ok() {
            if met.borrow_and_update().ready().is_none() {
                continue;
            }
            if let Ok(Some(deployment)) = self.deployment(role, term).await
                && let Some(now) = deployment.local().map(|local| local.topology()).filter(|now| *now != held)
            {
                info!(was = ?held.segments, is = ?now.segments, "the driver reports a new topology for this node: restarting the role");
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// The segments of the driver's nodes, for the capacity loop.
    fn node_segments(&self, deployment: &Deployment) -> Option<NodeSegments> {
        match (deployment.local(), &self.caches.nodes) {
            (Some(local), _) => Some(local.places()),
            (None, Some((nodes, csi_nodes))) => {
                Some(NodeSegments::Cluster { nodes: nodes.clone(), csi_nodes: csi_nodes.clone() })
            }
            (None, None) => None,
        }
    }

    /// The work that publishes the driver's capacity, if the configuration says so.
    fn capacity(
        &self,
        role: &RoleContext,
        term: &Term,
        nodes: Option<NodeSegments>,
        invalidations: Option<CapacityInvalidationReceiver>,
    ) -> Option<impl Future<Output = Result<(), RoleError>> + use<>> {
        let (section, backoff) = (self.section.capacity.clone(), self.backoff());
        let cx = CapacityContext {
            scope: Arc::new(TermScope::with_timeout(role, term, self.section.timeout).with_events(self.section.events)),
            queue: capacity::queue(role, &section, backoff),
            section,
            backoff,
            stores: CapacityStores {
                classes: self.caches.classes.clone(),
                capacities: self.caches.capacities.clone()?,
                volumes: self.caches.volumes.clone(),
            },
            nodes: nodes?,
            instance: role.instance.clone(),
            board: role.board.clone(),
        };
        Some(capacity::run(cx, invalidations?))
    }

    pub(super) fn backoff(&self) -> Backoff {
        self.section.retry.backoff()
    }
}

impl Caches {
    /// Waits for what every claim and every deletion needs. Snapshots only wake the claims that are made from them, and the API is
    /// asked for each of them: no claim waits for their list. Nodes are waited for if the driver asks for them, and until their lists
    /// are known to fail: then only the claims that need a node's labels wait.
    pub(super) async fn synced(&self, asks_for_nodes: bool) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.attachments.synced().await;
        if let (Some((nodes, csi_nodes)), true) = (&self.nodes, asks_for_nodes) {
            nodes.settled().await;
            csi_nodes.settled().await;
        }
    }
}

/// Tells of the values that are not known.
fn look_for_unknown_values(shared: &Context, controllers: &mut Controllers) {
    let values = UnknownValues::shown(shared.scope.clock, controllers);
    let driver = || shared.scope.driver_name.clone();
    controllers.on(&shared.caches.claims, {
        let driver = driver();
        values.of(move |claim| unknown::of_claim(claim, &driver))
    });
    controllers.on(&shared.caches.volumes, {
        let (driver, by_node) = (driver(), shared.deployment.local().is_some());
        values.of(move |volume| unknown::of_volume(volume, &driver, by_node))
    });
    let driver = driver();
    controllers.on(&shared.caches.classes, values.of(move |class| unknown::of_class(class, &driver)));
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
