//! One term of the attach/detach controller: its caches, its queues, and what feeds them (attach-detach spec 11).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, info_span};

use crate::cluster::{
    Cache, CsiDriver, CsiNode, Fields, NodeState, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment,
};
use crate::election::Term;
use crate::roles::kit::{Controllers, Store, TermScope, queues};
use crate::roles::role::{RoleContext, RoleError, Serve};
use crate::roles::wiring::Wiring;

use super::config::AttachDetachSection;
use super::context::{Context, Queues, Stores};
use super::node_status::Nodes;
use super::orphans::Orphans;
use super::volume::Volumes;
use super::volume_id::VolumeId;
use super::{NAME, names, other, triggers, waiting};

/// The role fails when its caches were not listed, or the status of a node could not be written, for this long (spec 15).
const PATIENCE: Duration = Duration::from_secs(300);

/// The role.
#[derive(Debug)]
pub(super) struct AttachDetach {
    pub(super) section: AttachDetachSection,
    pub(super) caches: Caches,
}

/// What is watched.
#[derive(Debug)]
pub(super) struct Caches {
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    nodes: Cache<NodeState>,
    drivers: Cache<CsiDriver>,
    csi_nodes: Cache<CsiNode>,
    attachments: Cache<VolumeAttachment>,
}

impl Caches {
    pub(super) fn wire(wiring: &mut Wiring<'_>) -> Self {
        Self {
            pods: wiring.cache_with(Fields::ATTACH),
            claims: wiring.cache_with(Fields::ATTACH),
            volumes: wiring.cache_with(Fields::ATTACH),
            nodes: wiring.cache_with(Fields::ATTACH),
            drivers: wiring.cache_with(Fields::ATTACH),
            csi_nodes: wiring.cache_with(Fields::ATTACH),
            attachments: wiring.cache_with(Fields::ATTACH),
        }
    }

    async fn synced(&self) {
        self.pods.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
        self.drivers.synced().await;
        self.csi_nodes.synced().await;
        self.attachments.synced().await;
    }

    fn during_term(&self) -> Stores {
        Stores {
            pods: Store::of(&self.pods),
            claims: Store::of(&self.claims),
            volumes: Store::of(&self.volumes),
            nodes: Store::of(&self.nodes),
            drivers: Store::of(&self.drivers),
            csi_nodes: Store::of(&self.csi_nodes),
            attachments: Store::of(&self.attachments),
        }
    }
}

impl Stores {
    /// Waits until all kinds were listed since the term began: what the last leader has written is in the caches then, and what a cache
    /// lacks does not exist.
    async fn listed(&self) {
        tokio::join!(
            self.pods.list(),
            self.claims.list(),
            self.volumes.list(),
            self.nodes.list(),
            self.drivers.list(),
            self.csi_nodes.list(),
            self.attachments.list()
        );
    }
}

impl Serve for AttachDetach {
    /// Serves a term, and begins anew in it when a controller is gone that has kept this one away.
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        while !term.is_over() {
            let (part, leave) = term.part();
            let Some((cx, controllers)) = self.begin(role, &part).await else { break };
            let mut served = pin!(controllers.serve());
            let other_is_gone = async {
                cx.guard.refused().await;
                other::is_gone(&cx.scope).await
            };
            let result = tokio::select! {
                biased;
                result = &mut served => result,
                why = other_is_gone => {
                    info!("{why}: the role begins again");
                    leave.cancel();
                    served.await
                }
            };
            cx.memory.volumes.end();
            result?;
        }
        Ok(())
    }
}

impl AttachDetach {
    /// What a term begins with, once all is listed. `None`: it is over before.
    async fn begin(&self, role: &RoleContext, term: &Term) -> Option<(Arc<Context>, Controllers)> {
        let stores = self.caches.during_term();
        let (clock, begun) = (role.clock, role.clock.now());
        let unlisted = role.board.failure(NAME, move || {
            let is_long = clock.now().saturating_duration_since(begun) >= PATIENCE;
            is_long.then(|| "what there is cannot be listed for more than 5m, and nothing is done meanwhile".to_owned())
        });
        let listed = async { (self.caches.synced().await, stores.listed().await) };
        term.unless_over(listed).await.ok()?;
        drop(unlisted);
        let queues = self.queues(role);
        let scope = TermScope::new(role, term);
        let cx = Arc::new(Context::new(scope, self.section.clone(), stores, queues.clone()));
        triggers::look_for_other(&cx);
        let mut controllers = Controllers::new(NAME, &role.board, &cx.scope);
        controllers.follow(&cx.stores.nodes);
        controllers.follow(&cx.stores.attachments);
        let title = "Volumes to attach or detach";
        controllers.drive(&queues.volumes, title, |_| None, Volumes(Arc::clone(&cx)));
        controllers.drive(&queues.nodes, "Nodes to report to", |_| None, Nodes(Arc::clone(&cx)));
        let title = "Attachments whose volume is gone";
        controllers.drive(&queues.orphans, title, |_| None, Orphans(Arc::clone(&cx)));
        triggers::follow(&cx, &mut controllers);
        controllers.task("resync", triggers::look_at_all(Arc::clone(&cx)));
        controllers.show_table(&waiting::TABLE, &cx, waiting::rows);
        controllers.show_failure(&cx, |cx| cx.guard.failure().or_else(|| unwritten(cx)));
        Some((cx, controllers))
    }

    fn queues(&self, role: &RoleContext) -> Queues {
        let (workers, backoff) = (self.section.workers, self.section.retry.backoff());
        let span = |id: &VolumeId| info_span!(parent: None, "volume", role = NAME, volume = %id);
        let volumes = queues::make(role, names::QUEUE_VOLUMES, &[("attach", workers)], backoff, span);
        let span = |node: &String| info_span!(parent: None, "node", role = NAME, node = %node);
        let nodes = queues::make(role, names::QUEUE_NODES, &[("report", workers)], backoff, span);
        let span = |name: &String| info_span!(parent: None, "attachment", role = NAME, volume_attachment = %name);
        let orphans = queues::make(role, names::QUEUE_ORPHANS, &[("look", 1)], backoff, span);
        Queues { volumes, nodes, orphans }
    }
}

/// That the status of a node cannot be written.
fn unwritten(cx: &Context) -> Option<String> {
    let now = cx.scope.clock.now();
    let is_long = |node: &super::memory::NodeMemory| node.failing_for(now).filter(|time| *time >= PATIENCE);
    let failing = cx.memory.nodes.collect(is_long).len();
    (failing > 0)
        .then(|| format!("the attached volumes of {failing} nodes cannot be reported to them for more than 5m"))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "changes_tests.rs"]
mod changes_tests;
