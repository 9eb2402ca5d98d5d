//! One term of the provisioner: its queues and the workers.

use std::sync::{Arc, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::{info, info_span, warn};

use crate::cluster::ObjectName;
use crate::csi::capabilities::ControllerRpc;
use crate::csi::{Client, DriverState};
use crate::diagnostics::{Column, Fact, Table};
use crate::election::Term;
use crate::journal::{Journal, Opened};
use crate::process::watch;
use crate::proto::NodeGetInfoRequest;
use crate::queue::Backoff;
use crate::roles::csi_attacher;
use crate::roles::kit::{Controllers, EventsMode, TermScope, UnknownValues, queues};
use crate::roles::provisioner::names;
use crate::roles::role::{Role, RoleContext, RoleError};

use super::{NAME, capacity, journal, unknown};
use crate::roles::provisioner::capacity::{
    CapacityContext, CapacityInvalidation, CapacityInvalidationReceiver, CapacityStores, NodeSegments,
};
use crate::roles::provisioner::claim::ClaimKey;
use crate::roles::provisioner::claims::Claims;
use crate::roles::provisioner::claims::context::{ClaimsContext, RequestJournal};
use crate::roles::provisioner::claims::decide::Rules;
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::claims::histories::Histories;
use crate::roles::provisioner::claims::request::{NameRule, ProvisionRules};
use crate::roles::provisioner::config::ProvisionerSection;
use crate::roles::provisioner::context::{Context, Stores};
use crate::roles::provisioner::deletion::Deletions;
use crate::roles::provisioner::deletion::context::{DETACHING, DeletionContext};
use crate::roles::provisioner::deletion::policy as deletion;
use crate::roles::provisioner::node::NodeAdmission;
use crate::roles::provisioner::node::deployment::{Deployment, LocalNode};
use crate::roles::provisioner::node::lost::LostNodes;
use crate::roles::provisioner::reporter::Reporter;
use crate::roles::provisioner::sources::Sources;
use crate::roles::provisioner::sources::memory::SourceMemory;
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::topology::{NodeTopology, TopologyWarnings};
use crate::roles::provisioner::triggers::Queues;

/// The claims that this node's daemon may take, and does not have.
const OTHER_CLAIMS: Table = Table {
    name: "otherNodesClaims",
    title: "Claims without a node, or of another node",
    columns: &[
        Column::text("claim", "claim"),
        Column::text("node", "node"),
        Column::seconds("nextLookSeconds", "looks again in"),
    ],
};

/// One worker: to remove a finalizer from a source is rare and quick.
const SOURCE_WORKERS: usize = 4;

/// The error of a daemon that does not know its node.
const NO_NODE: &str = "nodeDeployment is enabled, and NODE_NAME is not set: no claim is provisioned";

/// The role.
#[derive(Debug)]
pub(super) struct Provisioner {
    pub(super) section: ProvisionerSection,
    pub(super) stores: Stores,
    /// Whether this daemon hosts the attacher, too.
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

    async fn synced(&self, role: &RoleContext) {
        let asks_for_nodes = self.section.topology && role.driver.capabilities.volume_accessibility_constraints();
        self.stores.synced(asks_for_nodes).await;
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
        let cx = Arc::new(self.context(role, &term, deployment, capacity, &queues, journal));
        // First the requests of an earlier term: they use data sources, and nothing may be decided about a source
        // before.
        for entry in opened {
            queues.resume(&cx, entry);
        }
        info!(topology = cx.claims.asking.topology, durable = cx.claims.rules.durable, "serving claims");

        let mut controllers = Controllers::new(NAME, &role.board, &term);
        let subject = {
            let cx = Arc::clone(&cx);
            move |key: &ClaimKey| cx.subject(key)
        };
        let (title, claims) = ("Claims in progress", Claims::of(&cx, &mut controllers));
        if let Some(local) = cx.deployment.local() {
            let admission = NodeAdmission::of(&cx, local, &mut controllers);
            controllers.drive_admitted(&queues.claims, title, subject, admission, claims);
        } else {
            controllers.drive(&queues.claims, title, subject, claims);
        }
        cx.deletion.follow(&mut controllers);
        let volumes = cx.deletion.volumes.clone();
        let subject = move |name: &String| volumes.get(&ObjectName::cluster(name))?.subject();
        controllers.drive(&queues.volumes, "Volumes to delete", subject, Deletions(Arc::clone(&cx)));
        let sources = Sources::of(&cx, &mut controllers);
        controllers.drive(&queues.sources, "Data sources to unprotect", |_| None, sources);
        Self::show(role, &cx, &mut controllers);
        Self::run_journal(role, &cx, &queues, &mut controllers);
        queues.follow(&cx, &mut controllers);
        look_for_unknown_values(&cx, &mut controllers);
        controllers.resync(self.section.resync, {
            let (queues, cx) = (queues.clone(), Arc::clone(&cx));
            move || {
                let (queues, cx) = (queues.clone(), Arc::clone(&cx));
                async move { queues.look_at_all(&cx).await }
            }
        });
        controllers.task("sweep", queues.clone().sweep(Arc::clone(&cx)));
        let reporter = Reporter::new(role.meter.clone(), role.driver.name.clone());
        controllers.task("figures", queues.clone().figures(Arc::clone(&cx), reporter));
        if let Some(capacity) = self.capacity(role, &term, nodes, invalidations) {
            controllers.also(capacity);
        }
        controllers.serve().await
    }

    /// Writes the journal, and shows it on the status page.
    fn run_journal(role: &RoleContext, cx: &Arc<Context>, queues: &Queues, controllers: &mut Controllers) {
        let Some(journal) = &cx.claims.journal.entries else { return };
        let (adopting, resumed) = (queues.clone(), Arc::clone(cx));
        let adopt = move |entry: Opened<Entry>| adopting.resume(&resumed, entry);
        controllers.task("journal", journal.clone().run(adopt));
        let shown = journal.clone();
        controllers.show(role.board.facts(NAME, move || journal::facts(&shown)));
        let (shown, claims) = (journal.clone(), queues.claims.clone());
        let rows = move || journal::rows(&shown, &claims);
        controllers.show(role.board.table(NAME, &journal::TABLE, rows));
        let (shown, of_nodes) = (journal.clone(), Arc::clone(cx));
        let rows = move || {
            let now = of_nodes.scope.clock.wall();
            let mut rows = journal::left_rows(&shown, now);
            rows.extend(of_nodes.claims.journal.lost_nodes.rows(now));
            rows
        };
        controllers.show(role.board.table(NAME, &journal::LEFT_TABLE, rows));
        if cx.deployment.local().is_some() {
            let cx = Arc::clone(cx);
            controllers.task("lost nodes", async move { cx.clear_lost_journals().await });
        }
    }

    /// The tables of the status page.
    fn show(role: &RoleContext, cx: &Arc<Context>, controllers: &mut Controllers) {
        let of_detaching = Arc::clone(cx);
        controllers.show(role.board.table(NAME, &DETACHING, move || of_detaching.deletion.detaching()));
        let of_topology = Arc::clone(cx);
        controllers.show(role.board.facts(NAME, move || {
            let keys = of_topology.claims.topology.keys.lock().unwrap_or_else(PoisonError::into_inner);
            let told = keys.told().filter(|_| of_topology.claims.asking.topology);
            told.map(|value| Fact { name: "topology".to_owned(), value }).into_iter().collect()
        }));
        if cx.deployment.local().is_none() {
            return;
        }
        let of_nodes = Arc::clone(cx);
        controllers.show(role.board.table(NAME, &OTHER_CLAIMS, move || {
            of_nodes.deployment.local().map(|local| local.rows(of_nodes.scope.clock.now())).unwrap_or_default()
        }));
    }

    /// Which claims are for this daemon. With one daemon per node, the driver is asked for the node's topology. `None`:
    /// the term is over.
    async fn deployment(&self, role: &RoleContext, term: &Term) -> Result<Option<Deployment>, RoleError> {
        if !self.section.node_deployment.enabled {
            let central = Deployment::central(self.stores.nodes.clone(), &role.driver.name, &self.section);
            return Ok(Some(central));
        }
        let Some(name) = role.instance.node.clone() else { return Err(RoleError::Unfit(NO_NODE)) };
        let scope = TermScope::with_timeout(NAME, role, term, self.section.timeout);
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
        match (deployment.local(), &self.stores.nodes) {
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
            scope: TermScope::with_timeout(NAME, role, term, self.section.timeout).with_events(self.section.events),
            queue: capacity::queue(role, &section, backoff),
            section,
            backoff,
            stores: CapacityStores {
                classes: self.stores.classes.clone(),
                capacities: self.stores.capacities.clone()?,
                volumes: self.stores.volumes.clone(),
            },
            nodes: nodes?,
            instance: role.instance.clone(),
            board: role.board.clone(),
        };
        Some(capacity::run(cx, invalidations?))
    }

    fn backoff(&self) -> Backoff {
        self.section.retry.backoff()
    }

    fn queues(&self, role: &RoleContext) -> Queues {
        let (section, backoff) = (&self.section, self.backoff());
        let lanes = [("provision", section.workers)];
        let span = |key: &ClaimKey| info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %key);
        let claims = queues::make(role, names::QUEUE_CLAIMS, &lanes, backoff, span);
        let lanes = [("delete", section.delete_workers())];
        let span = |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key);
        let volumes = queues::make(role, names::QUEUE_DELETIONS, &lanes, backoff, span);
        let lanes = [("release", SOURCE_WORKERS)];
        let span = |key: &SourceKey| info_span!(parent: None, "source", role = NAME, source = %key);
        Queues { claims, volumes, sources: queues::make(role, names::QUEUE_SOURCES, &lanes, backoff, span) }
    }

    fn context(
        &self,
        role: &RoleContext,
        term: &Term,
        deployment: Deployment,
        capacity: CapacityInvalidation,
        queues: &Queues,
        journal: Option<Journal<Entry>>,
    ) -> Context {
        let (section, driver) = (&self.section, &role.driver);
        let capabilities = &driver.capabilities;
        let rules = Rules {
            driver: driver.name.clone(),
            durable: section.durable_intent,
            per_node: deployment.local().is_some(),
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
            attributes_classes: section.attributes_classes,
        };
        let attaches = capabilities.publish_unpublish();
        let lacks = if capabilities.controller_service() {
            (!capabilities.has(ControllerRpc::CreateDeleteVolume)).then_some("CREATE_DELETE_VOLUME")
        } else {
            Some("CONTROLLER_SERVICE")
        };
        let deletion = deletion::Rules {
            driver: driver.name.clone(),
            finalizer: names::FINALIZER_PROVISIONER,
            attaches,
            lacks,
            honors_policy: section.honor_reclaim_policy,
            without_secret: section.delete_without_secret,
            has_events: section.events != EventsMode::None,
        };
        Context {
            scope: TermScope::with_timeout(NAME, role, term, self.section.timeout).with_events(self.section.events),
            claims: ClaimsContext {
                rules: rules.into(),
                asking: asking.into(),
                identity: identity(role, deployment.node()),
                attacher_finalizer: (self.beside_attacher && attaches).then(|| csi_attacher::finalizer(&driver.name)),
                topology: TopologyWarnings::default(),
                histories: Histories::default(),
                journal: RequestJournal {
                    namespace: journal.as_ref().map(|_| journal::namespace(role)),
                    entries: journal,
                    lost_nodes: LostNodes::new(&role.meter, &driver.name),
                },
                memory: queues.memory_of_claims(),
            },
            deletion: DeletionContext::new(deletion, &self.stores.volumes, &self.stores.attachments),
            section: Arc::new(section.clone()),
            stores: self.stores.clone(),
            deployment,
            capacity,
            sources: SourceMemory::new(role.clock, queues.sources.clone()),
        }
    }
}

impl Stores {
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
fn look_for_unknown_values(cx: &Arc<Context>, controllers: &mut Controllers) {
    let values = UnknownValues::shown(cx.scope.clock, controllers);
    let driver = || cx.scope.driver_name.clone();
    controllers.on(&cx.stores.claims, {
        let driver = driver();
        values.of(move |claim| unknown::of_claim(claim, &driver))
    });
    controllers.on(&cx.stores.volumes, {
        let (driver, by_node) = (driver(), cx.deployment.local().is_some());
        values.of(move |volume| unknown::of_volume(volume, &driver, by_node))
    });
    let driver = driver();
    controllers.on(&cx.stores.classes, values.of(move |class| unknown::of_class(class, &driver)));
}

/// The identity that is written into the attributes of each volume: `<milliseconds>-<number>-<driver>`, and `-<node>`
/// with one daemon per node, as the Go sidecar writes it.
fn identity(role: &RoleContext, node: Option<&str>) -> String {
    let number = (role.rng.fraction() * 10_000.0).floor();
    let identity = format!("{}-{number}-{}", role.clock.wall().as_millisecond(), role.driver.name);
    node.map_or_else(|| identity.clone(), |node| format!("{identity}-{node}"))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
