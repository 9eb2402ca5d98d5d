//! The reconciler of attachments of unknown volumes. The policy is [`policy`](super::policy).

use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;

use crate::cluster::{BY_NODE, EventTarget, ObjectName, VolumeAttachment};
use crate::roles::attach_detach::context::Context;
use crate::roles::attach_detach::guard::Permit;
use crate::roles::attach_detach::memory::OrphanMemory;
use crate::roles::attach_detach::{metrics, names};
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{End, Io, Memory, NoReason, Op, Reconcile, Run, Start, Stop, Telling};

use super::policy::{Facts, Step, next_step};

/// Deletes the attachment.
const DELETE: Op = Op("cannot delete the VolumeAttachment whose volume is gone");

/// The reconciler of the queue of orphans.
#[derive(Debug)]
pub(in crate::roles::attach_detach) struct Orphans(pub(in crate::roles::attach_detach) Arc<Context>);

/// An attachment, and what is known of it.
#[derive(Debug)]
pub(in crate::roles::attach_detach) struct View {
    held: Arc<VolumeAttachment>,
    facts: Facts,
    /// The node, for the Event.
    node: Option<EventTarget>,
    events: bool,
}

/// What a step has brought.
#[derive(Debug)]
pub(in crate::roles::attach_detach) enum Answer {
    Noted(Instant),
    Forgotten,
    Deleted,
}

impl Reconcile for Orphans {
    type Key = String;
    type View = View;
    type Memory = OrphanMemory;
    type Progress = ();
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<OrphanMemory> {
        &self.0.memory.orphans
    }

    fn view(&self, name: &String) -> Option<View> {
        let cx = &self.0;
        let held = cx.stores.attachments.named(name)?;
        let memory = cx.memory.orphans.read(&held.metadata.uid, OrphanMemory::clone);
        let node = cx.stores.nodes.named(&held.spec.node_name);
        let settle = cx.until_detach();
        let permit = if settle.is_zero() { cx.permit() } else { Permit::After(settle) };
        let now = cx.scope.clock.now();
        let facts = Facts {
            is_known: cx.learn(&held).is_some(),
            is_done: memory.is_done || held.metadata.deletion_timestamp.is_some(),
            is_managed: node.as_ref().is_none_or(|node| cx.manages(node)),
            may_be_wanted: self.may_be_wanted(&held),
            permit,
            unknown: memory.since.map(|since| now.saturating_duration_since(since)),
            grace: cx.section.orphan_grace,
        };
        let node = node.map(|node| EventTarget::of(node.as_ref()));
        Some(View { held, facts, node, events: cx.section.events })
    }

    fn is_there(&self, name: &String, uid: &str) -> bool {
        self.0.stores.attachments.has(name, uid)
    }

    fn uid(view: &View) -> &str {
        &view.held.metadata.uid
    }

    fn begin(_: &View, _: Start) {}

    fn next_step(view: &View, (): &()) -> Next<Step> {
        next_step(view.facts)
    }

    async fn perform(&self, step: Step, view: &View, (): &(), io: &Io<'_, String>) -> Result<Answer, Stop<NoReason>> {
        match step {
            Step::Note => Ok(Answer::Noted(self.0.scope.clock.now())),
            Step::Forget => Ok(Answer::Forgotten),
            Step::Delete => {
                io.delete_unchanged(&self.0.stores.attachments, view.held.as_ref(), DELETE).await?;
                Ok(Answer::Deleted)
            }
            Step::Wait(time) => Err(Stop::Later(time)),
        }
    }

    fn tell_step(view: &View, (): &(), answer: &Answer) -> Vec<Telling> {
        let count = |action: &str| Telling::Count(&metrics::ORPHANS, vec![("action", action.to_owned())]);
        match answer {
            Answer::Noted(_) => Vec::new(),
            Answer::Forgotten => vec![count(if view.facts.is_known { "recovered" } else { "kept" })],
            Answer::Deleted => {
                let (name, on_node) = (&view.held.metadata.name, &view.held.spec.node_name);
                let volume = view.held.spec.source.persistent_volume_name.as_deref().unwrap_or("(inline)");
                warn!(name = &**name, node = on_node, volume, "deleted a VolumeAttachment whose volume is gone");
                let text = format!(
                    "deleted VolumeAttachment {name}, whose volume {volume} is gone: driver {} may not be able to detach it",
                    view.held.spec.attacher
                );
                let event =
                    view.node.clone().filter(|_| view.events).map(|on| Telling::warning(on, names::ORPHAN, text));
                [count("deleted")].into_iter().chain(event).collect()
            }
        }
    }

    fn apply(memory: &mut OrphanMemory, (): &mut (), answer: Answer) {
        match answer {
            Answer::Noted(now) => memory.since = Some(now),
            Answer::Forgotten => memory.since = None,
            Answer::Deleted => memory.is_done = true,
        }
    }

    fn tell(first: &View, (): &(), end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        if let End::Failed(error) = end {
            log_failure!(run, error, { name = &*first.held.metadata.name, }, "cannot delete the VolumeAttachment whose volume is gone");
        }
        Vec::new()
    }
}

impl Orphans {
    /// Whether a pod on the node may want the volume: a claim of the pod names it, or the pod's volumes are not all known yet.
    fn may_be_wanted(&self, held: &VolumeAttachment) -> bool {
        let cx = &self.0;
        let is_named = |pod: &crate::cluster::Pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let claims =
                pod.claims.iter().filter_map(|name| cx.stores.claims.get(&ObjectName::namespaced(namespace, name)));
            claims.into_iter().any(|it| {
                it.spec.volume_name.is_some() && it.spec.volume_name == held.spec.source.persistent_volume_name
            })
        };
        cx.stores
            .pods
            .find(BY_NODE, &held.spec.node_name)
            .iter()
            .any(|pod| is_named(pod) || cx.memory.pods.read(&pod.metadata.uid, |wishes| wishes.open().next().is_some()))
    }
}
