//! One term of the provisioner: its queues and the workers.

use std::sync::{Arc, Mutex, Once};

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use tracing::{info, info_span, warn};

use crate::csi::DriverState;
use crate::election::Term;
use crate::process::{Tasks, watch};
use crate::proto::NodeGetInfoRequest;
use crate::queue::{Backoff, Ticket, WorkQueue};
use crate::roles::csi_attacher;
use crate::roles::kit::{KeyedLock, TermScope, UidSet, queues, reconcile};
use crate::roles::provisioner::names;
use crate::roles::role::{Role, RoleContext, RoleError};
use crate::roles::term::finish;

use super::{NAME, capacity, deletion};
use crate::roles::provisioner::capacity::{
    CapacityContext, CapacityInvalidation, CapacityInvalidationReceiver, CapacityStores, NodeSegments,
};
use crate::roles::provisioner::claims::ClaimReconciler;
use crate::roles::provisioner::claims::claim::ClaimKey;
use crate::roles::provisioner::claims::decide::Rules;
use crate::roles::provisioner::claims::pending_on::PendingOn;
use crate::roles::provisioner::claims::request::{NameRule, ProvisionRules};
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::context::{ClaimStates, Context, Detaching, Stores};
use crate::roles::provisioner::deletion::DeletionReconciler;
use crate::roles::provisioner::node::scope::{LocalNode, Scope};
use crate::roles::provisioner::reporter::Reporter;
use crate::roles::provisioner::sources::SourceReconciler;
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::topology::NodeTopology;
use crate::roles::provisioner::triggers::Shift;

/// The name of the queue of content sources.
const QUEUE_SOURCES: &str = "sources";
/// To remove a finalizer from a source is rare and quick.
const SOURCE_WORKERS: usize = 4;

/// What the role says of a daemon that does not know its node.
const NO_NODE: &str = "nodeDeployment is enabled, and NODE_NAME is not set: no claim is provisioned";

/// The role.
#[derive(Debug)]
pub(super) struct Provisioner {
    pub(super) section: ProvisionerSection,
    pub(super) stores: Stores,
    /// Whether the attacher is served by this daemon, too.
    pub(super) beside_attacher: bool,
}

impl Role for Provisioner {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        self.serve_term(role, term).boxed()
    }
}

impl Provisioner {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        tokio::select! {
            biased;
            () = term.over() => return Ok(()),
            () = self.stores.synced() => {}
        }
        let mut met = role.csi.state();
        loop {
            // What is heard of the driver from here on may be news of its place.
            met.borrow_and_update();
            let Some(scope) = self.scope(role, &term).await? else { return Ok(()) };
            let home = scope.home().cloned();
            let (part, leave) = term.part();
            let until_moved = async {
                self.moved(role, &term, &mut met, home.as_ref()).await;
                leave.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                served = self.serve_at(role, part, scope) => {
                    if served.is_err() || term.is_over() {
                        return served;
                    }
                }
                () = until_moved => {}
            }
        }
    }

    /// Serves until the term is over, or until what is known of where we are holds no longer.
    async fn serve_at(&self, role: &RoleContext, term: Term, scope: Scope) -> Result<(), RoleError> {
        let (tasks, mut ends) = Tasks::new(NAME);
        let (capacity, invalidations) = if self.section.capacity.enabled {
            let (capacity, invalidations) = CapacityInvalidation::new();
            (capacity, Some(invalidations))
        } else {
            (CapacityInvalidation::off(), None)
        };
        let (nodes, stop) = (self.node_segments(&scope), term.stopping());
        let shift = self.shift(role, &term, scope, capacity);
        info!(topology = shift.cx.asking.topology, durable = shift.cx.rules.durable, "serving claims");

        let capacity = self.capacity(role, &term, nodes, invalidations);
        let claims = shift.claims.run(stop.clone(), {
            let claims = Arc::new(ClaimReconciler::new(shift.cx.clone(), TermScope::new(NAME, role, &term)));
            move |ticket: Ticket<ClaimKey>| {
                let claims = Arc::clone(&claims);
                async move { reconcile(claims.as_ref(), ticket).await }.boxed()
            }
        });
        let volumes = shift.volumes.run(stop.clone(), {
            let deletions = DeletionReconciler::new(shift.cx.clone(), TermScope::new(NAME, role, &term));
            let deletions = Arc::new(deletions);
            move |ticket: Ticket<String>| {
                let deletions = Arc::clone(&deletions);
                async move { reconcile(deletions.as_ref(), ticket).await }.boxed()
            }
        });
        let sources = shift.sources.run(stop, {
            let sources = Arc::new(SourceReconciler::new(shift.cx.clone(), TermScope::new(NAME, role, &term)));
            move |ticket: Ticket<SourceKey>| {
                let sources = Arc::clone(&sources);
                async move { reconcile(sources.as_ref(), ticket).await }.boxed()
            }
        });
        let shown = (
            queues::show(&role.board, NAME, &shift.claims, "Claims in progress", {
                let cx = shift.cx.clone();
                move |key| cx.subject(key)
            }),
            queues::show(&role.board, NAME, &shift.volumes, "Volumes to delete", |_| None),
            queues::show(&role.board, NAME, &shift.sources, "Data sources to unprotect", |_| None),
            role.board.table(NAME, "Volumes waiting to be detached", &["volume", "#attachments"], {
                let cx = shift.cx.clone();
                move || cx.detaching.all().into_iter().map(|(volume, n)| vec![volume, n.to_string()]).collect()
            }),
            shift.cx.scope.node().map(|_| {
                let cx = shift.cx.clone();
                role.board.table(
                    NAME,
                    "Claims without a node, or of another node",
                    &["claim", "node", "#looks again in, seconds"],
                    move || cx.scope.races(cx.clock.now()),
                )
            }),
            role.board.tasks(tasks.view()),
        );
        let subscriptions = shift.subscribe();
        tasks.spawn("resync", shift.clone().resync());
        tasks.spawn("sweep", shift.clone().sweep());
        tasks.spawn("figures", shift.clone().figures());

        let queues = futures::future::join3(claims, volumes, sources).map(Ok);
        let work = futures::future::try_join(queues, capacity).map_ok(drop);
        let result = finish(work, &term, &mut ends, &subscriptions).await;
        drop(subscriptions);
        drop(shown);
        tasks.abort_all();
        shift.cx.reporter.retire();
        result
    }

    /// Which claims are for this daemon: asked of the driver where each node has one of its own. `None`: the term is over.
    async fn scope(&self, role: &RoleContext, term: &Term) -> Result<Option<Scope>, RoleError> {
        if !self.section.node_deployment.enabled {
            return Ok(Some(Scope::Cluster));
        }
        let Some(name) = role.instance.node.clone() else { return Err(RoleError::Unfit(NO_NODE)) };
        let driver = term.fence(role.driver.client.clone());
        for failures in 1.. {
            let Ok(client) = driver.use_now() else { return Ok(None) };
            let Ok(answer) = term.during(client.node_get_info(NodeGetInfoRequest {})).await else { return Ok(None) };
            match answer {
                Ok(answer) => {
                    let segments = answer.accessible_topology.map(|topology| topology.segments).unwrap_or_default();
                    let node = NodeTopology { name, segments: segments.into_iter().collect() };
                    let home = LocalNode::new(node, &self.section, role.clock.now(), role.rng.clone());
                    return Ok(Some(Scope::Node(Box::new(home))));
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

    /// Waits until the driver of this node has come back and says that the node is at another place. Whatever was worked out for
    /// the old one is of no use then: the driver refuses it, or makes volumes that nobody asked for.
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
            if let Ok(Some(scope)) = self.scope(role, term).await
                && let Some(now) = scope.home().filter(|now| *now != held)
            {
                info!(was = ?held.segments, is = ?now.segments, "the driver reports a new topology for this node: restarting the role");
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// The segments of the driver's nodes, for the capacity loop.
    fn node_segments(&self, scope: &Scope) -> Option<NodeSegments> {
        match (scope, &self.stores.nodes) {
            (Scope::Node(home), _) => Some(home.places()),
            (Scope::Cluster, Some((nodes, csi_nodes))) => {
                Some(NodeSegments::Cluster { nodes: nodes.clone(), csi_nodes: csi_nodes.clone() })
            }
            (Scope::Cluster, None) => None,
        }
    }

    /// Publishes the driver's capacity, if the configuration says so.
    async fn capacity(
        &self,
        role: &RoleContext,
        term: &Term,
        nodes: Option<NodeSegments>,
        invalidations: Option<CapacityInvalidationReceiver>,
    ) -> Result<(), RoleError> {
        let (Some(nodes), Some(invalidations), Some(capacities)) = (nodes, invalidations, &self.stores.capacities)
        else {
            return Ok(());
        };
        let (section, backoff) = (self.section.capacity.clone(), self.backoff());
        let cx = CapacityContext {
            scope: TermScope::new(NAME, role, term),
            queue: capacity::queue(role, &section, backoff),
            section,
            backoff,
            stores: CapacityStores { classes: self.stores.classes.clone(), capacities: capacities.clone() },
            nodes,
            instance: role.instance.clone(),
            board: role.board.clone(),
        };
        capacity::run(cx, invalidations).await
    }

    fn backoff(&self) -> Backoff {
        self.section.retry.section().backoff()
    }

    fn shift(&self, role: &RoleContext, term: &Term, scope: Scope, capacity: CapacityInvalidation) -> Shift {
        let (section, backoff) = (&self.section, self.backoff());
        let lanes = [("release", SOURCE_WORKERS)];
        let sources = queues::make(
            role,
            QUEUE_SOURCES,
            &lanes,
            backoff,
            |key: &SourceKey| info_span!(parent: None, "source", role = NAME, source = %key),
        );
        let lanes = [("provision", section.workers)];
        let claims = queues::make(
            role,
            names::QUEUE_CLAIMS,
            &lanes,
            backoff,
            |key: &ClaimKey| info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %key),
        );
        let lanes = [("delete", section.delete_workers())];
        let volumes = queues::make(
            role,
            names::QUEUE_DELETIONS,
            &lanes,
            backoff,
            |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key),
        );
        let cx = Arc::new(self.cx(role, term, scope, capacity, sources.clone()));
        Shift { cx, claims, volumes, sources }
    }

    fn cx(
        &self,
        role: &RoleContext,
        term: &Term,
        scope: Scope,
        capacity: CapacityInvalidation,
        free_sources: WorkQueue<SourceKey>,
    ) -> Context {
        let (section, driver) = (&self.section, &role.driver);
        let capabilities = &driver.capabilities;
        let rules = Rules {
            driver: driver.name.clone(),
            mark: names::provisioning_finalizer(&driver.name),
            durable: section.durable_intent,
        };
        let asking = ProvisionRules {
            driver: driver.name.clone(),
            names: NameRule {
                prefix: section.volume_name_prefix.clone(),
                uuid_length: section.volume_name_uuid_length,
            },
            multi_writer: capabilities.single_node_multi_writer(),
            topology: section.topology && capabilities.volume_accessibility_constraints(),
            default_fs_type: section.default_fs_type.clone(),
            extra_create_metadata: section.extra_create_metadata,
            publish_readonly: section.publish_readonly,
        };
        let attaches = capabilities.publish_unpublish();
        Context {
            rules,
            deletion: deletion::decide::Rules {
                driver: driver.name.clone(),
                finalizer: names::FINALIZER_PROVISIONER,
                attaches,
            },
            asking,
            capabilities: capabilities.clone(),
            section: section.clone(),
            stores: self.stores.clone(),
            identity: identity(role, scope.node()),
            scope,
            capacity,
            term: term.clone(),
            api: term.fence(role.api.clone()),
            driver: term.fence(driver.client.clone()),
            operations: driver.operations.clone(),
            events: role.events.clone(),
            reporter: Reporter::new(role.meter.clone(), driver.name.clone()),
            clock: role.clock,
            attacher_finalizer: (self.beside_attacher && attaches).then(|| csi_attacher::finalizer(&driver.name)),
            states: ClaimStates::default(),
            haste: Arc::default(),
            pending_on: PendingOn::default(),
            topology_keys: Mutex::default(),
            cut: Once::new(),
            detaching: Detaching::default(),
            deleted: UidSet::default(),
            relisted: tokio::sync::OnceCell::new(),
            relisted_claims: tokio::sync::OnceCell::new(),
            source_locks: KeyedLock::new(role.clock),
            admitted: UidSet::default(),
            free_sources,
        }
    }
}

impl Stores {
    async fn synced(&self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.attachments.synced().await;
        self.snapshots.synced().await;
        if let Some((nodes, csi_nodes)) = &self.nodes {
            nodes.synced().await;
            csi_nodes.synced().await;
        }
    }
}

/// What is written on volumes about who made them: `<milliseconds>-<number>-<driver>`, and `-<node>` where each node has a
/// daemon of its own, as the Go sidecar does.
fn identity(role: &RoleContext, node: Option<&str>) -> String {
    let number = (role.rng.fraction() * 10_000.0).floor();
    let identity = format!("{}-{number}-{}", role.clock.wall().as_millisecond(), role.driver.name);
    node.map_or_else(|| identity.clone(), |node| format!("{identity}-{node}"))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
