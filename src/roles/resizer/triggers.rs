//! Feeds the resizer's queue: with changes of the cluster, and with all claims at each resync.

use std::sync::Arc;

use crate::cluster::{
    BY_ATTRIBUTES_CLASS, Change, ObjectName, PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass,
};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::{Controllers, look_at_each, with};

use super::context::Context;
use super::job::{Job, WorkKey};
use super::predicates;
use super::progress;

/// The only lane.
const ONLY_LANE: usize = 0;

/// The resizer's queue. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Queue(pub(super) WorkQueue<WorkKey>);

impl Queue {
    /// Feeds the queue from the caches, beginning with the objects that they have already.
    pub(super) fn follow(&self, cx: &Arc<Context>, controllers: &mut Controllers) {
        let both = Arc::new((self.clone(), Arc::clone(cx)));
        controllers.on_store(&cx.stores.claims, with(&both, |(queue, cx), change| queue.on_claim(change, cx)));
        controllers.on_store(&cx.stores.volumes, with(&both, |(queue, cx), change| queue.on_volume(change, cx)));
        if let Some(classes) = &cx.classes {
            controllers.on(classes, with(&both, |(queue, cx), change| queue.on_class(change, cx)));
        }
    }

    fn on_claim(&self, change: &Change<PersistentVolumeClaim>, cx: &Context) {
        if let Some(gone) = change.gone() {
            self.forget(gone, cx);
        }
        if let Some(new) = &change.new {
            let is_turned = |job: &Job| change.old.as_deref().is_none_or(|old| predicates::is_turned(old, new, *job));
            let turned: Vec<Job> = Job::ALL.into_iter().filter(is_turned).collect();
            self.wake(new, &turned, Cause::Changed, cx);
        }
        cx.in_use.sweep();
    }

    fn on_volume(&self, change: &Change<PersistentVolume>, cx: &Context) {
        if !predicates::volume_turns(change) {
            return;
        }
        let Some(bound) = change.new.as_ref().and_then(|volume| volume.spec.claim_ref.as_deref()) else { return };
        let name = ObjectName::namespaced(&bound.namespace, &bound.name);
        let Some(claim) = cx.stores.claims.get(&name) else { return };
        self.wake(&claim, &Job::ALL, Cause::Changed, cx);
    }

    fn on_class(&self, change: &Change<VolumeAttributesClass>, cx: &Context) {
        let Some(class) = predicates::class_appears(change) else { return };
        for claim in cx.stores.claims.find(BY_ATTRIBUTES_CLASS, class) {
            self.wake(&claim, &[Job::Modify], Cause::Changed, cx);
        }
    }

    /// Adds those of these jobs for which there is work. Otherwise a change ends the job's failures, and that it waits.
    fn wake(&self, claim: &PersistentVolumeClaim, jobs: &[Job], cause: Cause, cx: &Context) {
        let volume = cx.volume_of(claim);
        for job in predicates::order(claim).into_iter().filter(|job| jobs.contains(job)) {
            let key = WorkKey { claim: ObjectName::of(claim), job };
            if cx.wants(claim, volume.as_deref(), job) {
                let epoch = predicates::epoch(claim, job);
                self.0.add(key, Activation { cause, lane: ONLY_LANE, epoch });
            } else if cause == Cause::Changed {
                self.0.forget(&key);
                cx.memory.change(&job.id(&claim.metadata.uid), progress::Memory::settled);
            }
        }
    }

    /// The claim is gone: forgets everything about it.
    fn forget(&self, claim: &PersistentVolumeClaim, cx: &Context) {
        for job in Job::ALL {
            self.0.forget(&WorkKey { claim: ObjectName::of(claim), job });
            cx.memory.forget(&job.id(&claim.metadata.uid));
        }
    }

    /// Wakes these jobs of every claim whose volume is not as the claim requests, in case a change was missed.
    pub(super) async fn look_at_all(&self, cx: &Context, jobs: &[Job], cause: Cause) {
        // The volume of another driver's claim may be ours: only the volume says so.
        look_at_each(cx.stores.claims.each(), |claim| self.wake(&claim, jobs, cause, cx)).await;
    }
}
