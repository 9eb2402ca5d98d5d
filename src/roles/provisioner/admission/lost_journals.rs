//! The journals of nodes that are gone. Their drivers are gone, too, so no daemon can finish the requests, and a volume may be left over in the
//! node's storage. The daemons of the other nodes delete each segment in which nothing is left over, and report what is: on the status page,
//! in a metric and in the log. A node that comes back finds its entries, and its daemon finishes them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use super::lost::LostNodes;
use crate::cluster::{Api, ApiError, Node, ObjectName, PersistentVolume};
use crate::diagnostics::Cell;
use crate::journal::{self, LostEntry};
use crate::process::ErrorChain;
use crate::roles::provisioner::claims::entry::Entry;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::journal::{namespace, place, volume_of};
use crate::roles::provisioner::node::reach::Place;
use crate::roles::provisioner::topology::Segment;
use crate::roles::role::RoleContext;

/// How often a daemon looks for the journals of nodes that are gone. Each time it lists the driver's segments.
const LOOK: Duration = Duration::from_secs(3600);
/// The same while something is reported, so that the report ends soon after a person has deleted the entry.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Clears the journals of nodes that are gone.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct LostJournals {
    shared: Arc<Context>,
    /// Where the journals are. `None`: `durableIntent` is false.
    namespace: Option<String>,
    nodes: LostNodes,
}

impl LostJournals {
    /// For one term.
    pub(in crate::roles::provisioner) fn new(shared: &Arc<Context>, role: &RoleContext) -> Self {
        let namespace = shared.section.durable_intent.then(|| namespace(role));
        let nodes = LostNodes::new(&role.meter, &role.driver.name);
        Self { shared: Arc::clone(shared), namespace, nodes }
    }

    /// The rows of the table of volumes that may be left over.
    pub(in crate::roles::provisioner) fn rows(&self, now: Timestamp) -> Vec<Vec<Cell>> {
        self.nodes.rows(now)
    }

    /// Clears the journal of a node that is gone. A node that the API has is not gone, whatever the cache says.
    pub(super) async fn node_is_gone(&self, node: &str) {
        let cleared = self.shared.scope.in_task(async |api| self.clear_lost_journal(&api, node).await).await;
        if let Ok(Err(error)) = cleared {
            warn!(node, error = %ErrorChain(&error), "cannot clear the journal of a node that is gone");
        }
    }

    async fn clear_lost_journal(&self, api: &Api, node: &str) -> Result<(), ApiError> {
        let Some(namespace) = &self.namespace else { return Ok(()) };
        if api.get_opt::<Node>(&ObjectName::cluster(node)).await?.is_some() {
            self.nodes.put(node, Vec::new());
            return Ok(());
        }
        let place = place(namespace, &self.shared.scope.driver_name, Some(node));
        let lost = journal::clear_lost::<Entry>(api, &place, |entry| self.is_stored_on(node, entry)).await?;
        if lost.deleted > 0 {
            info!(node, objects = lost.deleted, "deleted the journal of a node that is gone");
        }
        for LostEntry { segment, key, content } in self.nodes.put(node, lost.entries) {
            let (claim, volume) =
                content.map(|(_, entry)| (entry.key().to_string(), volume_of(&entry))).unwrap_or_default();
            let remedy = journal::remedy(&segment, &key);
            warn!(node, %segment, key, claim, volume, remedy, "a node is gone and has left an entry in its journal: the volume may be left over in its storage");
        }
        Ok(())
    }

    /// Whether the PersistentVolume of an entry of this node is stored. One of the same name may be another node's.
    fn is_stored_on(&self, node: &str, entry: &Entry) -> bool {
        let nowhere = Segment::default();
        let of_node = entry.request.requirement.as_ref().and_then(|requirement| requirement.requisite.first());
        let place = Place { node, segment: of_node.unwrap_or(&nowhere) };
        let is_there = |volume: &PersistentVolume| {
            volume.served_by() == Some(self.shared.scope.driver_name.as_str())
                && place.is_within(&volume.spec.node_affinity)
        };
        self.shared.caches.volumes.named(&entry.request.volume_name).is_some_and(|volume| is_there(&volume))
    }

    /// Clears the journals of nodes that are gone: once when the term begins, and then once an hour, or more often while something is
    /// reported.
    pub(in crate::roles::provisioner) async fn clear(&self) {
        loop {
            let looked = self.shared.scope.in_task(async |api| self.look_for_lost_nodes(&api).await).await;
            if let Ok(Err(error)) = looked {
                warn!(error = %ErrorChain(&error), "cannot look for the journals of nodes that are gone");
            }
            let wait = if self.nodes.is_empty() { LOOK } else { LOOK_AGAIN };
            // Random, because the daemons of all nodes may have started at the same time.
            tokio::time::sleep(wait.mul_f64(0.5 + self.shared.scope.rng.fraction())).await;
        }
    }

    async fn look_for_lost_nodes(&self, api: &Api) -> Result<(), ApiError> {
        let Some(namespace) = &self.namespace else { return Ok(()) };
        let nodes = journal::nodes(api, namespace, &self.shared.scope.driver_name).await?;
        self.nodes.retain(&nodes);
        for node in nodes.iter().filter(|node| Some(node.as_str()) != self.shared.deployment.node()) {
            self.node_is_gone(node).await;
        }
        Ok(())
    }
}
