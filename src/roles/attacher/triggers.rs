//! The triggers of the attacher's queues: changes of the cluster, and a periodic resync.

use std::sync::Arc;

use crate::cluster::{BY_NODE, BY_VOLUME, Change, CsiNode, PersistentVolume, VolumeAttachment};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::drive::Next;
use crate::roles::kit::{Controllers, Wake, look_at_each, with};

use super::attachment::{direction_of, epoch_of};
use super::context::Context;
use super::policy::{next_step, wants_release};
use super::predicates;
use super::progress::Progress;

/// The attacher's queues. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    /// Attachments by name, with a lane for each direction.
    pub(super) attachments: WorkQueue<String>,
    /// Volumes by name.
    pub(super) volumes: WorkQueue<String>,
}

impl Queues {
    /// Adds keys for all cached objects, and then for each change.
    pub(super) fn follow(&self, cx: &Arc<Context>, controllers: &mut Controllers) {
        let (both, stores) = (Arc::new((self.clone(), Arc::clone(cx))), &cx.stores);
        controllers.on_store(&stores.attachments, with(&both, |(queues, cx), change| queues.on_attachment(change, cx)));
        controllers.on_store(&stores.volumes, with(&both, |(queues, cx), change| queues.on_volume(change, cx)));
        controllers.on_store(&stores.nodes, with(&both, |(queues, cx), change| queues.on_node(change, cx)));
    }

    fn on_attachment(&self, change: &Change<VolumeAttachment>, cx: &Context) {
        if let Some(old) = &change.old
            && change.new.as_ref().is_some_and(|new| new.metadata.uid != old.metadata.uid)
        {
            self.forget(old, cx);
        }
        if let Some(object) = change.last() {
            match predicates::attachment_wake(change, &cx.rules.driver) {
                Wake::Now => self.wake(object, Cause::Changed),
                Wake::Forget => self.forget(object, cx),
                Wake::No => {}
            }
        }
        if let Some(volume) = predicates::volume_to_release(change) {
            self.wake_volume(volume.to_owned(), Cause::Changed);
        }
    }

    fn on_volume(&self, change: &Change<PersistentVolume>, cx: &Context) {
        let Some(object) = change.last() else { return };
        let name = object.metadata.name.to_string();
        match predicates::volume_wake(change, &cx.rules) {
            Wake::Now => self.wake_volume(name.clone(), Cause::Changed),
            Wake::Forget => self.volumes.forget(&name),
            Wake::No => {}
        }
        if predicates::volume_unblocks(change) {
            self.wake_unsettled(&cx.stores.attachments.find(BY_VOLUME, &name), cx);
        }
    }

    fn on_node(&self, change: &Change<CsiNode>, cx: &Context) {
        let Some(node) = change.new.as_deref().map(|node| &*node.metadata.name) else { return };
        if predicates::node_unblocks(change, &cx.rules.driver) {
            self.wake_unsettled(&cx.stores.attachments.find(BY_NODE, node), cx);
        }
    }

    pub(super) fn wake(&self, object: &VolumeAttachment, cause: Cause) {
        let activation = Activation { cause, lane: direction_of(object).lane(), epoch: epoch_of(object) };
        self.attachments.add(object.metadata.name.to_string(), activation);
    }

    fn wake_volume(&self, name: String, cause: Cause) {
        self.volumes.add(name, Activation::of(cause));
    }

    /// The attachment is gone, possibly by force: forgets all state about it.
    fn forget(&self, object: &VolumeAttachment, cx: &Context) {
        self.attachments.forget(&object.metadata.name.to_string());
        cx.memory.forget(&object.metadata.uid);
    }

    /// Wakes those of our attachments that are not settled.
    fn wake_unsettled(&self, objects: &[Arc<VolumeAttachment>], cx: &Context) {
        for object in objects.iter().filter(|object| object.spec.attacher == cx.rules.driver) {
            if object.metadata.deletion_timestamp.is_some() || !object.status.attached {
                self.wake(object, Cause::Changed);
            }
        }
    }

    /// Wakes all unsettled keys, in case a wake-up was missed. Never shortens a back-off.
    pub(super) async fn look_at_all(&self, cx: &Context) {
        look_at_each(cx.stores.attachments.own(), |object| {
            let unsettled = cx
                .about(Arc::clone(&object))
                .is_some_and(|objects| next_step(&objects.view(&Progress::default())) != Next::Done);
            if unsettled {
                self.wake(&object, Cause::Resync);
            }
        })
        .await;
        look_at_each(cx.stores.volumes.own(), |volume| {
            if wants_release(&volume, &cx.rules) {
                self.wake_volume(volume.metadata.name.to_string(), Cause::Resync);
            }
        })
        .await;
    }
}
