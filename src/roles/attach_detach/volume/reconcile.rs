//! The reconciler of volumes, with one request for each step. The policy is [`policy`](super::policy).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::names::ANNOTATION_KEPT_AT;
use crate::cluster::{ApiErrorKind, ObjectName, Patch, VolumeAttachment};
use crate::roles::attach_detach::context::Context;
use crate::roles::attach_detach::memory::{SiteMemory, VolumeMemory, Withdrawal};
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::kit::drive::Next;
use crate::roles::kit::{
    AttemptError, Confirmed, End, Io, Memory, NoReason, Op, Part, Reconcile, Run, Start, Stop, Telling, Written,
};

use super::gate::Force;
use super::observe::{inline, is_there, observe};
use super::policy::next_step;
use super::report::{self, CREATE};
use super::view::{Answer, AttemptFailure, Progress, Site, Step, View};

/// Deletes an attachment.
const DELETE: Op = Op("cannot delete the VolumeAttachment");
/// Writes an attachment.
const KEEP: Op = Op("cannot write the VolumeAttachment, to keep it");

/// The reconciler of the queue of volumes. A key is the driver and its id of the volume, so that nothing else is done with a volume at the
/// same time, whatever the number of its nodes.
#[derive(Debug)]
pub(in crate::roles::attach_detach) struct Volumes(pub(in crate::roles::attach_detach) Arc<Context>);

impl Reconcile for Volumes {
    type Key = VolumeId;
    type View = View;
    type Memory = VolumeMemory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<VolumeMemory> {
        &self.0.memory.volumes
    }

    fn view(&self, id: &VolumeId) -> Option<View> {
        Some(observe(&self.0, id)).filter(|view| !view.sites.is_empty())
    }

    fn is_there(&self, id: &VolumeId, _: &str) -> bool {
        is_there(&self.0, id)
    }

    fn uid(view: &View) -> &str {
        view.id.name()
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    fn intend(memory: &mut VolumeMemory, _: &View, step: &Step) {
        // Before the writer of the node's status is woken.
        let (nodes, withdrawal) = match step {
            Step::Withdraw(nodes) => (nodes, Some(Withdrawal::Asked)),
            Step::Restore(nodes) => (nodes, Some(Withdrawal::Ended)),
            _ => return,
        };
        for node in nodes {
            memory.change(node, |site| site.withdrawal = withdrawal);
        }
    }

    async fn perform(
        &self,
        step: Step,
        view: &View,
        _: &Progress,
        io: &Io<'_, VolumeId>,
    ) -> Result<Answer, Stop<NoReason>> {
        match step {
            Step::Track(phases) => Ok(Answer::Tracked(phases, self.0.scope.clock.now())),
            Step::Withdraw(nodes) => {
                self.wake(&nodes);
                Ok(Answer::Withdrawn)
            }
            Step::Restore(nodes) => {
                self.wake(&nodes);
                Ok(Answer::Restored)
            }
            Step::Keep(node) => self.keep(node, view, io).await,
            Step::Delete(node, force) => self.delete(node, force, view, io).await,
            Step::ReadAgain(node) => {
                let Some(held) = view.sites.get(&node).and_then(Site::attachment) else {
                    return Ok(Answer::Read(false));
                };
                let read = io.confirm(&self.0.stores.attachments, held).await?;
                let now = self.0.stores.attachments.get(&ObjectName::of(held.as_ref()));
                let is_live = |now: &VolumeAttachment| now.status.attached && now.metadata.deletion_timestamp.is_none();
                Ok(Answer::Read(read == Confirmed::Yes && now.is_some_and(|now| is_live(&now))))
            }
            Step::Fail(failure) => Err(failure.0.into()),
            Step::Create(node) => self.create(node, view, io).await,
            Step::Tell(news) => Ok(Answer::Told(news)),
            Step::Wait(time) => Err(Stop::Later(time)),
        }
    }

    fn tell_step(view: &View, _: &Progress, answer: &Answer) -> Vec<Telling> {
        report::tell_step(view, answer)
    }

    fn apply(memory: &mut VolumeMemory, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Tracked(found, now) => memory.track(found, now),
            Answer::Withdrawn => {}
            Answer::Restored => (progress.is_restored, progress.kept) = (true, Vec::new()),
            Answer::Kept(node) => {
                memory.change(&node, |site| site.is_kept = true);
                progress.kept.push(node);
            }
            Answer::Deleted(node, _) => memory.change(&node, |site| site.is_deleted = true),
            Answer::NotDeleted(node, failure, retry_at) => {
                memory.change(&node, |site| {
                    (site.refused, site.retry_at) = (site.refused.saturating_add(1), Some(retry_at));
                });
                // Of several the first is told; the others are seen again by the next attempt.
                progress.failed.get_or_insert((node, failure));
            }
            Answer::Unanswered(node, failure, retry_at) => {
                memory.change(&node, |site| {
                    (site.refused, site.retry_at) = (site.refused.saturating_add(1), Some(retry_at));
                    site.is_kept = false;
                });
                progress.failed.get_or_insert((node, failure));
            }
            Answer::Read(is_live) => progress.is_live = Some(is_live),
            Answer::Created(node, uid, version) => {
                memory.sites.insert(node, SiteMemory { uid, created: version, is_kept: true, ..SiteMemory::default() });
            }
            Answer::Told(news) => {
                for news in news {
                    memory.change(&news.node, |site| site.told = Some(news.key));
                }
            }
        }
    }

    fn tell(first: &View, _: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, end, run)
    }
}

impl Volumes {
    /// Wakes the writers of these nodes' status.
    fn wake(&self, nodes: &[String]) {
        for node in nodes {
            self.0.queues.wake_node(node);
        }
    }

    async fn create(&self, node: String, view: &View, io: &Io<'_, VolumeId>) -> Result<Answer, Stop<NoReason>> {
        let name = view.id.attachment_name(&node);
        let Some(body) = view.sites.get(&node).and_then(|site| body(view, &node, &name, site)) else {
            // The pod that wanted it is gone, or its volume: look again.
            return Err(Stop::LookAgain);
        };
        match io.create::<VolumeAttachment, NoReason>(&ObjectName::cluster(&name), &body, CREATE).await {
            Ok(made) => {
                let version = made.metadata.version();
                Ok(Answer::Created(node, made.metadata.uid, version))
            }
            // Another leader, or an attempt whose answer was lost, has made it: the watch will show whether it fits.
            Err(Stop::Failed(error)) if error.api().is_some_and(|it| it.kind() == ApiErrorKind::Conflict) => {
                Err(Stop::Behind(AttemptError::Unseen("VolumeAttachment", name)))
            }
            Err(stop) => Err(stop),
        }
    }

    /// A deletion names the version that it was decided on, so that none is done which was sent before this.
    async fn keep(&self, node: String, view: &View, io: &Io<'_, VolumeId>) -> Result<Answer, Stop<NoReason>> {
        let Some(held) = view.sites.get(&node).and_then(Site::attachment) else {
            return Err(Stop::LookAgain);
        };
        let annotations = json!({ ANNOTATION_KEPT_AT: self.0.scope.clock.wall().to_string() });
        let patch = Patch::Merge(json!({ "metadata": { "uid": held.metadata.uid, "annotations": annotations } }));
        match io.write(&self.0.stores.attachments, held.as_ref(), (Part::Object, &patch), KEEP).await? {
            Written::Kept => Ok(Answer::Kept(node)),
            Written::Ended | Written::NotFound(_) => Err(Stop::LookAgain),
        }
    }

    async fn delete(
        &self,
        node: String,
        force: Option<Force>,
        view: &View,
        io: &Io<'_, VolumeId>,
    ) -> Result<Answer, Stop<NoReason>> {
        let site = view.sites.get(&node);
        let Some((site, held)) = site.and_then(|site| Some((site, site.attachment()?))) else {
            return Err(Stop::LookAgain);
        };
        match io.delete_unchanged(&self.0.stores.attachments, held.as_ref(), DELETE).await {
            Ok(_) => Ok(Answer::Deleted(node, force)),
            Err(Stop::Failed(error)) => {
                let delay = self.0.section.retry.backoff().delay(site.memory.refused.saturating_add(1), None, 0.0);
                let (retry_at, is_unanswered) =
                    (self.0.scope.clock.now() + delay, error.api().is_some_and(|it| it.kind().is_unanswered()));
                let answer = if is_unanswered { Answer::Unanswered } else { Answer::NotDeleted };
                Ok(answer(node, AttemptFailure(error), retry_at))
            }
            Err(stop) => Err(stop),
        }
    }
}

/// A new attachment. Its name and its body are of the same volume.
fn body(view: &View, node: &str, name: &str, site: &Site) -> Option<Value> {
    let wisher = site.wishers.first()?;
    let source = match &wisher.wish.volume {
        Some(volume) => json!({ "persistentVolumeName": &**volume }),
        None => json!({ "inlineVolumeSpec": inline(wisher, &view.id)?.to_spec() }),
    };
    Some(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": { "attacher": view.id.driver(), "nodeName": node, "source": source },
    }))
}
