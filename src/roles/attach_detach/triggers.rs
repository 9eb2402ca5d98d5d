//! Which change of the cluster wakes which key: attach-detach spec 4.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{
    BY_NODE, BY_POD_CLAIM, BY_VOLUME, Change, CsiDriver, Managers, Moment, NodeState, ObjectName, Origin,
    PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment,
};
use crate::queue::{Activation, Cause};
use crate::roles::kit::{Controllers, look_at_each, with};

use super::context::Context;
use super::counts::Counts;
use super::guard::{made_by_other, written_by_other};
use super::memory::NodeMemory;
use super::unresolved::Unresolved;
use super::volume_id::VolumeId;

/// In how many parts everything is looked at in a period.
const PARTS: u32 = 60;

/// Wakes keys for all cached objects, and then for each change.
pub(super) fn follow(cx: &Arc<Context>, controllers: &mut Controllers) {
    // What the wishes of pods are read from comes before the pods, and attachments come last: the others tell of which volume they are.
    controllers.on_store(&cx.stores.drivers, with(cx, driver_changed));
    controllers.on_store(&cx.stores.claims, with(cx, claim_changed));
    controllers.on_store(&cx.stores.volumes, with(cx, volume_changed));
    controllers.on_store(&cx.stores.nodes, with(cx, node_changed));
    controllers.on_store(&cx.stores.pods, with(cx, pod_changed));
    controllers.on_store(&cx.stores.attachments, with(cx, attachment_changed));
}

/// Row 1. A pod of another uid under the name is another pod.
fn pod_changed(cx: &Context, change: &Change<Pod>) {
    let (old, new) = (change.old.as_deref(), change.new.as_ref());
    if let Some(gone) = change.gone() {
        cx.forget(gone);
    }
    if let Some(new) = new.filter(|new| old.map(pod_facts) != Some(pod_facts(new))) {
        cx.resolve(new);
    }
}

fn pod_facts(pod: &Pod) -> impl PartialEq {
    let Pod { metadata, claims, node, has_ended, attach, .. } = pod;
    (&metadata.uid, metadata.deletion_timestamp, claims, node, has_ended, attach)
}

/// Row 2.
fn claim_changed(cx: &Context, change: &Change<PersistentVolumeClaim>) {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let is_news = change.origin != Origin::Replay && old.map(claim_facts) != new.map(claim_facts);
    if let Some(claim) = new.or(old).filter(|_| is_news) {
        resolve_users(cx, &ObjectName::of(claim));
    }
}

fn claim_facts(claim: &PersistentVolumeClaim) -> impl PartialEq {
    let PersistentVolumeClaim { metadata, spec, status } = claim;
    (&metadata.uid, &metadata.owner_references, &spec.volume_name, &status.phase)
}

fn resolve_users(cx: &Context, claim: &ObjectName) {
    for pod in cx.stores.pods.find(BY_POD_CLAIM, claim.name()) {
        if pod.metadata.namespace.as_deref() == claim.namespace() {
            cx.resolve(&pod);
        }
    }
}

/// Row 3. Its attachments may have a volume now, or it is of another kind.
fn volume_changed(cx: &Context, change: &Change<PersistentVolume>) {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let is_news = change.origin != Origin::Replay && old.map(volume_facts) != new.map(volume_facts);
    let Some(volume) = new.or(old).filter(|_| is_news) else { return };
    if let Some(claim) = volume.claim() {
        resolve_users(cx, &claim);
    }
    for held in cx.stores.attachments.find(BY_VOLUME, &volume.metadata.name) {
        wake(cx, &held, true);
    }
    [old, new].into_iter().flatten().filter_map(Context::id_of).for_each(|id| cx.queues.wake_volume(&id));
}

fn volume_facts(volume: &PersistentVolume) -> impl PartialEq {
    let PersistentVolume { metadata, spec, .. } = volume;
    (Context::id_of(volume), &metadata.uid, &spec.claim_ref, &spec.access_modes)
}

/// Row 4.
fn attachment_changed(cx: &Context, change: &Change<VolumeAttachment>) {
    let by_other = made_by_other(change);
    // The nodes that wait for something learn that the other controller is active.
    let is_by_other = by_other.is_some();
    cx.guard.found(by_other);
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    // Also what this process has written: the attacher beside this role writes the status.
    if let Some(gone) = change.gone() {
        // Its volume is told before it is forgotten.
        wake(cx, gone, is_reportable(Some(gone)));
        cx.memory.attachments.forget(&gone.metadata.uid);
        cx.memory.orphans.forget(&gone.metadata.uid);
    }
    if let Some(new) = new {
        let (was, is) = (is_reportable(old), is_reportable(Some(new)));
        let can_wait = is && !was && cx.memory.nodes.change(&new.spec.node_name, NodeMemory::can_wait);
        wake(cx, new, is_by_other || (was != is && !can_wait));
    }
}

/// Whether its node may report it.
fn is_reportable(held: Option<&VolumeAttachment>) -> bool {
    held.is_some_and(|held| held.status.attached && held.metadata.deletion_timestamp.is_none())
}

/// Wakes the volume of an attachment, or the attachment itself, and its node if the change matters to that.
fn wake(cx: &Context, held: &VolumeAttachment, matters_to_node: bool) {
    match cx.learn(held) {
        Some((id, _)) => cx.queues.wake_volume(&id),
        None => cx.queues.wake_orphan(&held.metadata.name),
    }
    if matters_to_node {
        cx.queues.wake_node(&held.spec.node_name);
    }
}

/// Row 5.
fn node_changed(cx: &Context, change: &Change<NodeState>) {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let Some(name) = new.or(old).map(|node| &*node.metadata.name) else { return };
    if let Some(new) = new {
        let is_ready = new.ready.as_ref().is_some_and(|ready| ready.status == "True");
        let written = cx.memory.nodes.change(name, |memory| {
            memory.last_in_use = None;
            if is_ready {
                memory.ready = Some(new.metadata.uid.clone());
            }
            memory.written
        });
        if change.origin != Origin::OwnWrite {
            cx.guard.found(written_by_other(new, written));
        }
    } else if let Some(old) = old {
        // A list that lacks the node does not say what its kubelet used last: it may have begun to use what was reported to it.
        let is_unseen = change.origin == Origin::Relist;
        let reported = old.volumes_attached.iter().filter(|_| is_unseen).map(|volume| &volume.name);
        let used = old.volumes_in_use.iter().chain(reported).cloned().collect();
        cx.memory.nodes.change(name, |memory| memory.last_in_use = Some(used));
    }
    let is_turned = old.map(node_facts) != new.map(node_facts);
    if change.origin != Origin::OwnWrite && (is_turned || old.map(node_lists) != new.map(node_lists)) {
        let (before, now) = (old.map(names_on), new.map(names_on));
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        let named: BTreeSet<&str> = before.symmetric_difference(&now).map(|(_, name)| *name).collect();
        for id in volumes_of_node(cx, name) {
            if is_turned || named.contains(id.name()) {
                cx.queues.wake_volume(&id);
            }
        }
        cx.queues.wake_node(name);
    }
}

/// What matters to every volume of a node.
fn node_facts(node: &NodeState) -> impl PartialEq {
    let NodeState { metadata, ready, is_managed, is_out_of_service, .. } = node;
    (&metadata.uid, ready, is_managed, is_out_of_service)
}

/// What matters to its report, and each name to the volume of that name.
fn node_lists(node: &NodeState) -> impl PartialEq {
    (&node.volumes_in_use, &node.volumes_attached)
}

/// The names in both lists, each with its list.
fn names_on(node: &NodeState) -> BTreeSet<(bool, &str)> {
    let used = node.volumes_in_use.iter().map(|name| (true, &**name));
    used.chain(node.volumes_attached.iter().map(|volume| (false, &*volume.name))).collect()
}

/// The volumes that have an attachment to the node, or are wanted there. What no name leads to is woken by itself.
fn volumes_of_node(cx: &Context, name: &str) -> BTreeSet<VolumeId> {
    let attached = cx.stores.attachments.find(BY_NODE, name).into_iter().filter_map(|held| {
        let id = cx.learn(&held).map(|(id, _)| id);
        if id.is_none() {
            cx.queues.wake_orphan(&held.metadata.name);
        }
        id
    });
    attached.chain(cx.wanted_on(name)).collect()
}

/// Row 6.
fn driver_changed(cx: &Context, change: &Change<CsiDriver>) {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    let facts = |driver: &CsiDriver| driver.spec.attach_required;
    if old.map(facts) == new.map(facts) {
        return;
    }
    cx.driver_changed(old, new);
    if change.origin != Origin::Replay {
        for pod in cx.stores.pods.all() {
            cx.resolve(&pod);
        }
    }
}

/// Row 8: looks at everything once in a period, spread over it, in case a change was missed. Never shortens a back-off.
pub(super) async fn look_at_all(cx: Arc<Context>) {
    let again = Activation::of(Cause::Resync);
    let (mut counts, mut unresolved) = (Counts::default(), Unresolved::default());
    loop {
        // Grace of a driver may have ended.
        look_at_each(cx.stores.pods.each(), |pod| cx.resolve_quietly(&pod)).await;
        unresolved.tell(&cx);
        let held = cx.stores.attachments.all();
        let volumes: BTreeSet<_> = held.iter().filter_map(|held| Some(cx.learn(held)?.0)).chain(cx.wanted()).collect();
        let nodes = cx.stores.nodes.all();
        counts.show(&cx);
        let (volumes, part): (Vec<_>, Duration) = (volumes.into_iter().collect(), cx.section.resync / PARTS);
        let share = |count: usize| count.div_ceil(PARTS as usize).max(1);
        let (mut volumes, mut nodes) = (volumes.chunks(share(volumes.len())), nodes.chunks(share(nodes.len())));
        for _ in 0..PARTS {
            tokio::time::sleep(part).await;
            volumes.next().into_iter().flatten().for_each(|id| cx.queues.volumes.add(id.clone(), again));
            let nodes = nodes.next().into_iter().flatten();
            nodes.for_each(|node| cx.queues.nodes.add(node.metadata.name.to_string(), again));
        }
        for held in held.iter().filter(|held| cx.learn(held).is_none()) {
            cx.queues.orphans.add(held.metadata.name.to_string(), again);
        }
    }
}

/// Whether the other controller has made an attachment shortly before the term: then it is given time to show whether it is active. This
/// compares with the API's clock: a skew makes this wait shorter or longer, and nothing else.
pub(super) fn look_for_other(cx: &Context) {
    let time = cx.section.resync.saturating_mul(2);
    let wall = cx.scope.clock.wall();
    let is_young = |held: &VolumeAttachment| {
        let made = held.metadata.creation_timestamp.map(Moment::timestamp);
        made.is_some_and(|made| wall.duration_since(made).unsigned_abs() < time)
    };
    let is_theirs = |held: &VolumeAttachment| held.metadata.managers.contains(Managers::SPEC);
    if cx.stores.attachments.all().iter().any(|held| is_theirs(held) && is_young(held)) {
        cx.guard.delay(time);
    }
}
