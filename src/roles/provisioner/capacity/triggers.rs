//! What adds slots to the queue: changes of the cluster, invalidations, and the poll.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::{Change, CsiStorageCapacity, Object, StorageClass};
use crate::queue::Cause;
use crate::roles::kit::{Controllers, with};

use super::context::{NodeSegments, Shared};
use super::desired::Slot;
use super::invalidation::{CapacityInvalidationReceiver, Invalid};
use super::pace::Pace;
use super::volumes;

/// Each poll comes later than configured by up to this share, so that the daemons of a cluster's nodes do not all ask at once.
const POLL_JITTER: f64 = 0.1;

/// Follows the caches. Each one first replays what it holds, and the objects come last: before the classes and the nodes are
/// known, every object seems obsolete.
pub(super) fn follow(
    controllers: &mut Controllers,
    shared: &Arc<Shared>,
    invalidations: &CapacityInvalidationReceiver,
) {
    let stores = &shared.cx.stores;
    controllers.on(&stores.classes, with(shared, class_changed));
    match &shared.cx.nodes {
        NodeSegments::Cluster { nodes, csi_nodes } => {
            controllers.on(nodes, with(shared, node_changed));
            controllers.on(csi_nodes, with(shared, node_changed));
        }
        NodeSegments::Local { node, segment } => {
            let slots = shared.index().node_changed(node, Some(segment.clone()));
            shared.changed(slots);
        }
    }
    let (invalidation, driver) = (invalidations.sender(), shared.cx.scope.driver_name.clone());
    controllers.on(&stores.volumes, move |change| {
        for invalid in volumes::invalid_after(change, &driver) {
            invalidation.add(invalid);
        }
    });
    controllers.follow(&shared.capacities);
    controllers.on_store(&shared.capacities, with(shared, object_changed));
}

fn class_changed(shared: &Shared, change: &Change<StorageClass>) {
    let slots = shared.index().class_changed(change);
    shared.changed(slots);
}

/// An object was created, changed or deleted. Wakes the slots to refresh: none if there is nothing to write, as after our own writes.
fn object_changed(shared: &Shared, change: &Change<CsiStorageCapacity>) {
    let mut slots = shared.index().object_changed(change);
    for slot in &slots {
        shared.memory.change(&slot.to_string(), |held| held.shown(change));
    }
    slots.retain(|slot| !shared.view(slot).writes().is_empty());
    shared.changed(slots);
}

/// A Node or a CSINode has changed. Both are read while the index is locked: of two changes at once, the later reader sees both.
fn node_changed<K: Object>(shared: &Shared, change: &Change<K>) {
    let Some(node) = change.last().map(|object| &*object.meta().name) else { return };
    let slots = {
        let mut index = shared.index();
        let segment = shared.cx.nodes.segment_of(&shared.cx.scope.driver_name, node);
        index.node_changed(node, segment)
    };
    shared.changed(slots);
}

/// Adds every slot now and then, because a backend's capacity also changes without an event in the cluster.
pub(super) async fn poll(shared: Arc<Shared>) {
    let cx = &shared.cx;
    loop {
        tokio::time::sleep(cx.scope.rng.jittered(cx.section.poll_interval, POLL_JITTER)).await;
        let slots: Vec<Slot> = {
            let index = shared.index();
            index.desired().all().chain(index.obsolete()).collect()
        };
        shared.wake(slots, Cause::Resync);
    }
}

/// Adds the slots whose capacity volumes have changed, each at its [`Pace`]. The cause is not `Changed`, because such a cause is over when
/// an attempt looks at its view again, and what changes while the driver is asked may not be in its answer; and because it would end
/// the back-off, so that a driver that fails would be asked once a second while volumes come and go.
pub(super) async fn take_invalidations(shared: Arc<Shared>, receiver: CapacityInvalidationReceiver) {
    let mut pace = Pace::default();
    loop {
        let turn = pace.next();
        let next_turn = async {
            if let Some(at) = turn { tokio::time::sleep_until(at).await } else { std::future::pending().await }
        };
        let invalid = tokio::select! {
            biased;
            invalid = receiver.next() => invalid,
            () = next_turn => BTreeSet::new(),
        };
        let slots: Vec<Slot> = {
            let index = shared.index();
            let desired = index.desired();
            let slots_of = |invalid: &Invalid| match invalid {
                Invalid::Class(class) => desired.of_class(class),
                Invalid::Segments(segments) => desired.touched_by(segments),
                Invalid::Anywhere(class) => desired.anywhere(class),
            };
            invalid.iter().flat_map(slots_of).filter(|slot| desired.wants(slot).is_some()).collect()
        };
        pace.add(slots);
        shared.wake(pace.take(shared.cx.scope.clock.now()), Cause::Resync);
    }
}
