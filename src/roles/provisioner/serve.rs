//! One term of the provisioner: its queues and the workers.

use std::sync::{Arc, Mutex, Once};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::{info, info_span, warn};

use crate::csi::DriverState;
use crate::election::Term;
use crate::process::{Tasks, watch};
use crate::proto::NodeGetInfoRequest;
use crate::queue::{Backoff, Ticket, WorkQueue};
use crate::roles::provisioner::names;
use crate::roles::role::{Role, RoleContext, RoleError};
use crate::roles::term::finish;
use crate::roles::{Uids, csi_attacher, queues};

use super::capacity::{CapacityDesk, CapacityHintReceiver, CapacityHints, CapacityKnown, Places};
use super::claim::ClaimKey;
use super::config::ProvisionerSection;
use super::decide::Rules;
use super::desk::{Desk, Detaching, Known, ProgressBook};
use super::feed::Shift;
use super::protection::decide::SourceKey;
use super::protection::turns::SourceTurns;
use super::report::Reporter;
use super::request::{NameRule, ProvisionRules};
use super::site::{Home, Locality};
use super::topology::LocalNode;
use super::waits::Waits;
use super::{NAME, capacity, deletion, protection, provision};

/// The name of the queue of content sources.
const QUEUE_SOURCES: &str = "sources";
/// Letting go of sources is rare and quick.
const SOURCE_WORKERS: usize = 4;

/// What the role says of a daemon that does not know its node.
const NO_NODE: &str = "nodeDeployment is enabled, and NODE_NAME is not set: no claim is provisioned";

/// The role.
#[derive(Debug)]
pub(super) struct Provisioner {
    pub(super) section: ProvisionerSection,
    pub(super) known: Known,
    /// Whether the attacher is served by this daemon, too.
    pub(super) beside_attacher: bool,
}

impl Role for Provisioner {
    fn serve<'a>(&'a self, cx: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        self.serve_term(cx, term).boxed()
    }
}

impl Provisioner {
    async fn serve_term(&self, cx: &RoleContext, term: Term) -> Result<(), RoleError> {
        tokio::select! {
            biased;
            () = term.over() => return Ok(()),
            () = self.known.synced() => {}
        }
        let mut met = cx.csi.state();
        loop {
            // What is heard of the driver from here on may be news of its place.
            met.borrow_and_update();
            let Some(locality) = self.locality(cx, &term).await? else { return Ok(()) };
            let home = locality.home().cloned();
            let (part, leave) = term.part();
            let until_moved = async {
                self.moved(cx, &term, &mut met, home.as_ref()).await;
                leave.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                served = self.serve_at(cx, part, locality) => {
                    if served.is_err() || term.is_over() {
                        return served;
                    }
                }
                () = until_moved => {}
            }
        }
    }

    /// Serves until the term is over, or until what is known of where we are holds no longer.
    async fn serve_at(&self, cx: &RoleContext, term: Term, locality: Locality) -> Result<(), RoleError> {
        let (tasks, mut ends) = Tasks::new(NAME);
        let (hints, heard) = if self.section.capacity.enabled {
            let (hints, heard) = CapacityHints::new();
            (hints, Some(heard))
        } else {
            (CapacityHints::off(), None)
        };
        let (places, stop) = (self.places(&locality), term.stopping());
        let shift = self.shift(cx, &term, locality, hints);
        info!(topology = shift.desk.asking.topology, durable = shift.desk.rules.durable, "serving claims");

        let capacity = self.capacity(cx, &term, places, heard);
        let claims = shift.claims.run(stop.clone(), {
            let desk = shift.desk.clone();
            move |ticket: Ticket<ClaimKey>| provision::handle(desk.clone(), ticket).boxed()
        });
        let volumes = shift.volumes.run(stop.clone(), {
            let desk = shift.desk.clone();
            move |ticket: Ticket<String>| deletion::handle(desk.clone(), ticket).boxed()
        });
        let sources = shift.sources.run(stop, {
            let desk = shift.desk.clone();
            move |ticket: Ticket<SourceKey>| protection::handle(desk.clone(), ticket).boxed()
        });
        let shown = (
            queues::show(&cx.board, NAME, &shift.claims, "Claims in progress", {
                let desk = shift.desk.clone();
                move |key| desk.subject(key)
            }),
            queues::show(&cx.board, NAME, &shift.volumes, "Volumes to delete", |_| None),
            queues::show(&cx.board, NAME, &shift.sources, "Sources to let go of", |_| None),
            cx.board.table(NAME, "Volumes that wait to be detached", &["volume", "#attachments"], {
                let desk = shift.desk.clone();
                move || desk.detaching.all().into_iter().map(|(volume, n)| vec![volume, n.to_string()]).collect()
            }),
            shift.desk.locality.node().map(|_| {
                let desk = shift.desk.clone();
                cx.board.table(
                    NAME,
                    "Claims of no node, or of another",
                    &["claim", "node", "#looks again in, seconds"],
                    move || desk.locality.races(desk.clock.now()),
                )
            }),
            cx.board.tasks(tasks.view()),
        );
        let subscriptions = shift.subscribe();
        tasks.spawn("resync", shift.clone().resync());
        tasks.spawn("sweep", shift.clone().sweep());
        tasks.spawn("figures", shift.clone().figures());

        let result = finish(futures::future::join4(claims, volumes, sources, capacity), &term, &mut ends).await;
        drop(subscriptions);
        drop(shown);
        tasks.abort_all();
        shift.desk.reporter.retire();
        result
    }

    /// Which claims are for this daemon: asked of the driver where each node has one of its own. `None`: the term is over.
    async fn locality(&self, cx: &RoleContext, term: &Term) -> Result<Option<Locality>, RoleError> {
        if !self.section.node_deployment.enabled {
            return Ok(Some(Locality::Cluster));
        }
        let Some(name) = cx.instance.node.clone() else { return Err(RoleError::Unfit(NO_NODE)) };
        let driver = term.fence(cx.driver.client.clone());
        for failures in 1.. {
            let Ok(client) = driver.use_now() else { return Ok(None) };
            let Ok(answer) = term.during(client.node_get_info(NodeGetInfoRequest {})).await else { return Ok(None) };
            match answer {
                Ok(answer) => {
                    let segments = answer.accessible_topology.map(|topology| topology.segments).unwrap_or_default();
                    let node = LocalNode { name, segments: segments.into_iter().collect() };
                    let home = Home::new(node, &self.section, cx.clock.now(), cx.entropy.clone());
                    return Ok(Some(Locality::Node(Box::new(home))));
                }
                Err(error) => warn!(error = %error, "cannot ask the driver for this node's place"),
            }
            tokio::select! {
                biased;
                () = term.over() => return Ok(None),
                () = tokio::time::sleep(self.backoff().delay(failures, None, cx.entropy.fraction())) => {}
            }
        }
        Ok(None)
    }

    /// Waits until the driver of this node has come back and says that the node is at another place. Whatever was worked out for
    /// the old one is of no use then: the driver refuses it, or makes volumes that nobody asked for.
    async fn moved(
        &self,
        cx: &RoleContext,
        term: &Term,
        met: &mut watch::Receiver<DriverState>,
        held: Option<&LocalNode>,
    ) {
        let Some(held) = held else { return std::future::pending().await };
        while met.changed().await.is_ok() {
            if met.borrow_and_update().ready().is_none() {
                continue;
            }
            if let Ok(Some(locality)) = self.locality(cx, term).await
                && let Some(now) = locality.home().filter(|now| *now != held)
            {
                info!(was = ?held.segments, is = ?now.segments, "the driver is back with this node at another place: serving anew");
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Where the driver's nodes are, for those who tell of its capacity.
    fn places(&self, locality: &Locality) -> Option<Places> {
        match (locality, &self.known.nodes) {
            (Locality::Node(home), _) => Some(home.places()),
            (Locality::Cluster, Some((nodes, csi_nodes))) => {
                Some(Places::Cluster { nodes: nodes.clone(), csi_nodes: csi_nodes.clone() })
            }
            (Locality::Cluster, None) => None,
        }
    }

    /// Keeps the scheduler informed of the room that is left, if that is wanted.
    async fn capacity(
        &self,
        cx: &RoleContext,
        term: &Term,
        places: Option<Places>,
        heard: Option<CapacityHintReceiver>,
    ) {
        let (Some(places), Some(heard), Some(capacities)) = (places, heard, &self.known.capacities) else { return };
        let desk = CapacityDesk {
            role: NAME,
            driver: cx.driver.name.clone(),
            has_get_capacity: cx.driver.capabilities.get_capacity(),
            section: self.section.capacity.clone(),
            backoff: self.backoff(),
            known: CapacityKnown { classes: self.known.classes.clone(), capacities: capacities.clone() },
            places,
            api: term.fence(cx.api.clone()),
            client: term.fence(cx.driver.client.clone()),
            instance: cx.instance.clone(),
            board: cx.board.clone(),
            meter: cx.meter.clone(),
            clock: cx.clock,
            entropy: cx.entropy.clone(),
        };
        capacity::run(desk, heard, term.stopping()).await;
    }

    fn backoff(&self) -> Backoff {
        self.section.retry.section().backoff()
    }

    fn shift(&self, cx: &RoleContext, term: &Term, locality: Locality, hints: CapacityHints) -> Shift {
        let (section, backoff) = (&self.section, self.backoff());
        let lanes = [("release", SOURCE_WORKERS)];
        let sources = queues::make(
            cx,
            QUEUE_SOURCES,
            &lanes,
            backoff,
            |key: &SourceKey| info_span!(parent: None, "source", role = NAME, source = %key),
        );
        let lanes = [("provision", section.workers)];
        let claims = queues::make(
            cx,
            names::QUEUE_CLAIMS,
            &lanes,
            backoff,
            |key: &ClaimKey| info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %key),
        );
        let lanes = [("delete", section.delete_workers())];
        let volumes = queues::make(
            cx,
            names::QUEUE_DELETIONS,
            &lanes,
            backoff,
            |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key),
        );
        let desk = Arc::new(self.desk(cx, term, locality, hints, sources.clone()));
        Shift { desk, claims, volumes, sources }
    }

    fn desk(
        &self,
        cx: &RoleContext,
        term: &Term,
        locality: Locality,
        hints: CapacityHints,
        free_sources: WorkQueue<SourceKey>,
    ) -> Desk {
        let (section, driver) = (&self.section, &cx.driver);
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
        Desk {
            rules,
            deletion: deletion::decide::Rules {
                driver: driver.name.clone(),
                finalizer: names::FINALIZER_PROVISIONER,
                attaches,
            },
            asking,
            capabilities: capabilities.clone(),
            section: section.clone(),
            known: self.known.clone(),
            identity: identity(cx, locality.node()),
            locality,
            hints,
            term: term.clone(),
            api: term.fence(cx.api.clone()),
            driver: term.fence(driver.client.clone()),
            operations: driver.operations.clone(),
            events: cx.events.clone(),
            reporter: Reporter::new(cx.meter.clone(), driver.name.clone()),
            clock: cx.clock,
            attacher_finalizer: (self.beside_attacher && attaches).then(|| csi_attacher::finalizer(&driver.name)),
            progress: ProgressBook::default(),
            haste: Arc::default(),
            waits: Waits::default(),
            topology_keys: Mutex::default(),
            cut: Once::new(),
            detaching: Detaching::default(),
            deleted: Uids::default(),
            relisted: tokio::sync::OnceCell::new(),
            relisted_claims: tokio::sync::OnceCell::new(),
            source_turns: SourceTurns::new(cx.clock),
            admitted: Uids::default(),
            free_sources,
        }
    }
}

impl Known {
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
fn identity(cx: &RoleContext, node: Option<&str>) -> String {
    let number = (cx.entropy.fraction() * 10_000.0).floor();
    let identity = format!("{}-{number}-{}", cx.clock.wall().as_millisecond(), cx.driver.name);
    node.map_or_else(|| identity.clone(), |node| format!("{identity}-{node}"))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
