//! Feeds the resizer's queue: with changes of the cluster, and with all claims at each resync.

use std::sync::Arc;

use crate::cluster::{BY_ATTRIBUTES_CLASS, Change, ObjectName, PersistentVolume, PersistentVolumeClaim};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::Controllers;

use super::context::{Context, Objects};
use super::memory::{Job, WorkKey};
use super::predicates;

/// The only lane.
const ONLY_LANE: usize = 0;

/// The resizer's queue. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Queue(pub(super) WorkQueue<WorkKey>);

impl Queue {
    /// Feeds the queue from the caches, beginning with the objects that they have already.
    pub(super) fn follow(&self, cx: &Arc<Context>, controllers: &mut Controllers) {
        controllers.on(&cx.stores.claims, {
            let (queue, cx) = (self.clone(), Arc::clone(cx));
            move |change| queue.on_claim(change, &cx)
        });
        controllers.on(&cx.stores.volumes, {
            let (queue, cx) = (self.clone(), Arc::clone(cx));
            move |change| queue.on_volume(change, &cx)
        });
        if let Some(classes) = &cx.stores.classes {
            controllers.on(classes, {
                let (queue, cx) = (self.clone(), Arc::clone(cx));
                move |change| {
                    let Some(class) = predicates::class_appears(change) else { return };
                    for claim in cx.stores.claims.find(BY_ATTRIBUTES_CLASS, class) {
                        queue.wake(&cx.about(claim), Job::Modify, Cause::Changed, &cx);
                    }
                }
            });
        }
    }

    fn on_claim(&self, change: &Change<PersistentVolumeClaim>, cx: &Context) {
        if let Some(old) = change.old.as_deref()
            && change.new.as_deref().is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            self.forget(old, cx);
        }
        let Some(new) = &change.new else { return };
        let now = cx.about(Arc::clone(new));
        for job in predicates::order(new) {
            if change.old.as_deref().is_none_or(|old| predicates::is_turned(old, new, job)) {
                self.wake(&now, job, Cause::Changed, cx);
            }
        }
    }

    fn on_volume(&self, change: &Change<PersistentVolume>, cx: &Context) {
        if !predicates::volume_turns(change) {
            return;
        }
        let Some(bound) = change.new.as_ref().and_then(|volume| volume.spec.claim_ref.as_deref()) else { return };
        let name = ObjectName::namespaced(&bound.namespace, &bound.name);
        let Some(claim) = cx.stores.claims.get(&name) else { return };
        let now = cx.about(claim);
        for job in predicates::order(&now.claim) {
            self.wake(&now, job, Cause::Changed, cx);
        }
    }

    /// Adds the job if there is work. Otherwise forgets its failures, and that it waits.
    fn wake(&self, now: &Objects, job: Job, cause: Cause, cx: &Context) {
        let key = WorkKey { claim: now.name(), job };
        let (volume, driver) = (now.volume.as_deref(), cx.scope.driver_name.as_str());
        if predicates::wants(&now.claim, volume, job, driver, cx.expansion.get()) {
            let epoch = predicates::epoch(&now.claim, job);
            self.0.add(key, Activation { cause, lane: ONLY_LANE, epoch });
        } else {
            self.0.forget(&key);
            cx.report_settled(now.uid(), job);
        }
    }

    /// The claim is gone: forgets everything about it.
    fn forget(&self, claim: &PersistentVolumeClaim, cx: &Context) {
        let name = ObjectName::of(claim);
        for job in Job::ALL {
            self.0.forget(&WorkKey { claim: name.clone(), job });
        }
        cx.forget(&name, &claim.metadata.uid);
    }

    /// Wakes these jobs of every claim whose volume is not as the claim requests, in case a change was missed.
    pub(super) fn look_at_all(&self, cx: &Context, jobs: &[Job], cause: Cause) {
        for claim in cx.stores.claims.all() {
            let now = cx.about(claim);
            let (volume, driver) = (now.volume.as_deref(), cx.scope.driver_name.as_str());
            for job in predicates::order(&now.claim).into_iter().filter(|job| jobs.contains(job)) {
                if predicates::wants(&now.claim, volume, job, driver, cx.expansion.get()) {
                    self.wake(&now, job, cause, cx);
                }
            }
        }
    }
}
