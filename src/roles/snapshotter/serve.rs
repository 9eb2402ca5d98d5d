//! One term of the snapshotter: its queues, what feeds them, and its tasks.

use std::sync::Arc;

use tracing::info;

use crate::cluster::{VolumeGroupSnapshotContent, VolumeSnapshotContent};
use crate::csi::SnapshotActivity;
use crate::diagnostics::{Cell, Fact, Table, table};
use crate::election::Term;
use crate::roles::kit::Controllers;
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::NAME;
use super::config::SnapshotterSection;
use super::content::record::{NameRule, across::Across};
use super::content::told::waiting;
use super::content::work::{Caches, Context, triggers};
use super::group::presence;
use super::lane::{self, Lane, Shared};
use super::names;

/// The calls that are limited: only some may run at the same time.
const SNAPSHOT_CALLS: Table = table! {
    "snapshotCalls", "Calls that restore or delete a snapshot":
        text("snapshot", "snapshot"), seconds("runningSeconds", "running for"), count("waiting", "waiting")
};

/// Why a daemon of a node cannot serve.
const NO_NODE: &str =
    "roles.snapshotter.nodeDeployment.enabled needs the name of the node: set NODE_NAME from spec.nodeName";

/// The role.
#[derive(Debug)]
pub(super) struct Snapshotter {
    pub(super) section: SnapshotterSection,
    pub(super) caches: Caches<VolumeSnapshotContent>,
    /// `None`: groups are off.
    pub(super) groups: Option<Caches<VolumeGroupSnapshotContent>>,
}

impl Serve for Snapshotter {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        let node = match (&role.instance.node, self.section.node_deployment.enabled) {
            (_, false) => None,
            (Some(node), true) => Some(node.clone()),
            (None, true) => return Err(RoleError::Unfit(NO_NODE)),
        };
        // A cluster without the kinds has none of them, and that is known: they are looked for now and then.
        if term.unless_over(self.caches.synced()).await.is_err() {
            return Ok(());
        }
        let groups = self.groups.as_ref().map(|caches| caches.contents.clone());
        let shared = Shared::new(role, Across { snapshots: self.caches.contents.clone(), groups });
        let snapshots = self.snapshots(role, node).context(role, &term, &self.section, &shared);
        info!(takes = snapshots.rules.takes, lists = snapshots.rules.lists, "serving snapshots");
        let mut controllers = Controllers::new(NAME, &role.board, &snapshots.scope);
        lane::work(&snapshots, "Snapshots to take, look up and delete", &mut controllers);
        let groups = self.groups.as_ref().map(|caches| {
            let groups = self.groups(role, caches).context(role, &term, &self.section, &shared);
            controllers.also(serve_groups(role, &groups));
            groups
        });
        controllers.show_facts(&snapshots, facts);
        let waiting = Arc::new((Arc::clone(&snapshots), groups.clone()));
        controllers.show_table(&waiting::TABLE, &waiting, |(snapshots, groups)| {
            let of_groups = groups.iter().flat_map(|groups| lane::waiting(groups));
            waiting::rows(lane::waiting(snapshots).into_iter().chain(of_groups).collect(), snapshots.scope.clock.now())
        });
        controllers.show_table(&SNAPSHOT_CALLS, &snapshots, calls);
        controllers.show(role.board.facts(NAME, self.facts_of_groups(groups.clone())));
        let served = controllers.serve().await;
        lane::end(&snapshots);
        if let Some(groups) = &groups {
            lane::end(groups);
        }
        served
    }
}

impl Snapshotter {
    fn snapshots(&self, role: &RoleContext, node: Option<String>) -> Lane<'_, VolumeSnapshotContent> {
        let (section, capabilities) = (&self.section, &role.driver.capabilities);
        Lane {
            caches: &self.caches,
            queue: names::CONTENT_QUEUE,
            workers: (section.workers, section.delete_workers()),
            names: NameRule {
                prefix: section.snapshot_name_prefix.clone(),
                uuid_length: section.snapshot_name_uuid_length,
            },
            node,
            capabilities: [
                capabilities.create_delete_snapshot(),
                capabilities.list_snapshots(),
                capabilities.get_snapshot(),
            ],
        }
    }

    fn groups<'a>(
        &self,
        role: &RoleContext,
        caches: &'a Caches<VolumeGroupSnapshotContent>,
    ) -> Lane<'a, VolumeGroupSnapshotContent> {
        let section = &self.section;
        Lane {
            caches,
            queue: names::GROUP_CONTENT_QUEUE,
            workers: (section.group_workers(), section.group_workers()),
            names: NameRule {
                prefix: section.group_snapshot_name_prefix.clone(),
                uuid_length: section.group_snapshot_name_uuid_length,
            },
            node: None,
            // A look at a group comes with the capability to take one.
            capabilities: [role.driver.capabilities.group_snapshots(), false, false],
        }
    }

    fn facts_of_groups(
        &self,
        groups: Option<Arc<Context<VolumeGroupSnapshotContent>>>,
    ) -> impl Fn() -> Vec<Fact> + Send + Sync + 'static {
        let is_per_node = self.section.node_deployment.enabled && self.section.group_snapshots;
        move || {
            let says = match &groups {
                None if is_per_node => "off: the snapshot-controller assigns groups to no node".to_owned(),
                None => "off: roles.snapshotter.groupSnapshots is false".to_owned(),
                Some(groups) => presence::trouble(&groups.stores.caches).unwrap_or_else(|| {
                    let says = if groups.rules.takes {
                        "taken and deleted by the driver"
                    } else {
                        "not supported by the driver, which lacks CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT: contents that need \
                         no call are released"
                    };
                    says.to_owned()
                }),
            };
            vec![Fact::new("groups of snapshots", says)]
        }
    }
}

/// Works groups as soon as their caches are complete, which nobody else waits for.
fn serve_groups(
    role: &RoleContext,
    groups: &Arc<Context<VolumeGroupSnapshotContent>>,
) -> impl Future<Output = Result<(), RoleError>> + Send + 'static {
    let (board, cx) = (role.board.clone(), Arc::clone(groups));
    async move {
        let term = cx.scope.term.clone();
        if term.unless_over(cx.stores.caches.synced()).await.is_err() {
            return Ok(());
        }
        let mut controllers = Controllers::new(NAME, &board, &cx.scope);
        lane::work(&cx, "Groups of snapshots to take, look up and delete", &mut controllers);
        triggers::follow_members(&cx, &mut controllers);
        controllers.task("groups", async move {
            presence::follow(&cx.stores.caches, || triggers::look_at_all(&cx)).await;
        });
        controllers.serve().await
    }
}

/// The role's facts on the status page.
fn facts(cx: &Context<VolumeSnapshotContent>) -> Vec<Fact> {
    let caches = &cx.stores.caches;
    let snapshots = if caches.contents.is_absent() {
        format!("idle: {}", caches.missing().unwrap_or_default())
    } else if !cx.rules.takes {
        "not supported by the driver, which lacks CREATE_DELETE_SNAPSHOT: contents that need no call are released"
            .to_owned()
    } else if let Some(missing) = caches.classes.missing() {
        format!("deleted by the driver, and taken as far as no class is needed: {missing}")
    } else {
        "taken and deleted by the driver".to_owned()
    };
    let readiness = match (cx.rules.gets, cx.rules.lists) {
        (true, _) => "asked for by GetSnapshot",
        (false, true) => "asked for by ListSnapshots",
        (false, false) => "believed: the driver lists no snapshots",
    };
    let unanswered = cx.memory.collect(|memory| memory.unanswered.as_ref().map(drop)).len();
    vec![
        Fact::new("snapshots", snapshots),
        Fact::new("snapshots that were there before", readiness),
        Fact::new("calls without a final answer", unanswered.to_string()),
    ]
}

/// The calls that run, or wait for others about the same snapshot.
fn calls(cx: &Context<VolumeSnapshotContent>) -> Vec<Vec<Cell>> {
    let row = |activity: SnapshotActivity| {
        vec![activity.snapshot_id.into(), activity.running_for.into(), activity.waiting.into()]
    };
    cx.scope.snapshot_locks.snapshot().into_iter().map(row).collect()
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
