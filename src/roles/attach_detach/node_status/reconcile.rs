//! The writer of a node's status, with one request for each step. The policy is [`policy`](super::policy).
//!
//! One key is one node, so that at most one patch of it is under way, and what several volumes want of it is written at once. Its view is
//! read after all that its volumes have asked for, so what it confirms was out of the status when the node was last written or read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{BY_NODE, Moment, ObjectName};
use crate::roles::attach_detach::context::Context;
use crate::roles::attach_detach::memory::{NodeMemory, SiteMemory, VolumeMemory, Withdrawal};
use crate::roles::attach_detach::metrics;
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{
    Confirmed, End, Io, Memory, NoReason, Op, Part, Reconcile, Run, Start, Stop, Telling, Written,
};

use super::policy::{Attachment, Progress, Step, View, next_step, patch, report};

/// Writes the list.
const WRITE: Op = Op("cannot write the attached volumes into the status of the node");

/// The reconciler of the queue of nodes.
#[derive(Debug)]
pub(in crate::roles::attach_detach) struct Nodes(pub(in crate::roles::attach_detach) Arc<Context>);

/// What a step has brought.
#[derive(Debug)]
pub(in crate::roles::attach_detach) enum Answer {
    /// The node was written; its version.
    Written(Option<u128>),
    /// It was read.
    Read,
    /// There is no such node any more.
    Gone,
    /// The volumes know.
    Confirmed,
}

impl Reconcile for Nodes {
    type Key = String;
    type View = View;
    type Memory = NodeMemory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<NodeMemory> {
        &self.0.memory.nodes
    }

    fn view(&self, name: &String) -> Option<View> {
        let cx = &self.0;
        // What comes while the rest is read counts as one that is still awaited, and so wakes the node too early and not too late.
        let (came, gathering) = cx.memory.nodes.read(name, |memory| (memory.came, memory.gathering));
        let node = cx.stores.nodes.named(name);
        let wanted = wanted(cx, name);
        let (mut reports, mut asked, mut coming) = (BTreeMap::new(), Vec::new(), 0);
        for held in cx.stores.attachments.find(BY_NODE, name) {
            let uid = &held.metadata.uid;
            let Some((id, is_own)) = cx.learn(&held) else { continue };
            // An attachment of another name, or of another volume, is never reported.
            if !is_own || !cx.is_of(&held, &id, name) {
                continue;
            }
            let of_site = |site: &SiteMemory| (site.withdrawal, site.is_kept, site.is_deleted);
            let remembered = |memory: &VolumeMemory| memory.site(name, uid).map(of_site).unwrap_or_default();
            let (withdrawal, is_kept, is_deleted) = cx.memory.volumes.read(id.name(), remembered);
            if withdrawal == Some(Withdrawal::Asked) {
                asked.push((id.clone(), uid.clone()));
            }
            let attachment = Attachment {
                is_attached: held.status.attached,
                is_deleting: held.metadata.deletion_timestamp.is_some() || is_deleted,
                is_wanted: withdrawal == Some(Withdrawal::Ended) || wanted.contains_key(&id),
                is_withdrawn: matches!(withdrawal, Some(Withdrawal::Asked | Withdrawal::Confirmed)),
                is_kept,
            };
            coming += u64::from(attachment.is_on_its_way() && held.status.attach_error.is_none());
            reports.insert(id, report(attachment));
        }
        // So is what the queue of volumes has not come to yet.
        let is_unseen = |id: &&VolumeId| cx.memory.volumes.read(id.name(), |memory| !memory.sites.contains_key(name));
        let unseen = wanted.keys().filter(|id| !reports.contains_key(*id)).filter(is_unseen).count();
        coming += u64::try_from(unseen).unwrap_or(u64::MAX);
        Some(View {
            name: name.clone(),
            is_managed: node.as_ref().is_none_or(|node| cx.manages(node)),
            is_written: cx.section.write_node_status,
            permit: cx.permit(),
            node,
            reports,
            asked,
            coming,
            came,
            wanted,
            gathering,
            now: cx.scope.clock.now(),
        })
    }

    fn is_there(&self, name: &String, _: &str) -> bool {
        // What was last seen of a node that is gone counts for as long as it has attachments.
        let stores = &self.0.stores;
        stores.nodes.named(name).is_some() || !stores.attachments.find(BY_NODE, name).is_empty()
    }

    fn uid(view: &View) -> &str {
        &view.name
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    fn intend(memory: &mut NodeMemory, view: &View, step: &Step) {
        if let Step::Gather(_) = step {
            memory.gathering = Some(view.now);
        }
        memory.expected = view.came.saturating_add(view.coming);
    }

    async fn perform(
        &self,
        step: Step,
        view: &View,
        _: &Progress,
        io: &Io<'_, String>,
    ) -> Result<Answer, Stop<NoReason>> {
        let nodes = &self.0.stores.nodes;
        match (step, &view.node) {
            (Step::Write(list), Some(node)) => {
                let written = io.write(nodes, node.as_ref(), (Part::Status, &patch(node, &list)), WRITE).await;
                self.wrote(&view.name, written.as_ref());
                match written? {
                    Written::Kept => {
                        let now = nodes.get(&ObjectName::of(node.as_ref()));
                        if let Some(now) = &now {
                            self.0.reported(&view.name, node, now);
                        }
                        Ok(Answer::Written(now.and_then(|now| now.metadata.version())))
                    }
                    Written::Ended | Written::NotFound(_) => Ok(Answer::Gone),
                }
            }
            (Step::Read, Some(node)) => match io.confirm(nodes, node.as_ref()).await? {
                Confirmed::Yes => Ok(Answer::Read),
                // The watch will show the one that has replaced it, and wake this key.
                Confirmed::NotFound | Confirmed::Replaced => Ok(Answer::Gone),
            },
            (Step::Confirm(asked), _) => {
                for (id, uid) in asked {
                    self.0.memory.volumes.change(id.name(), |memory| memory.confirm(&view.name, &uid));
                    self.0.queues.wake_volume(&id);
                }
                Ok(Answer::Confirmed)
            }
            (Step::Gather(time) | Step::Wait(time), _) => Err(Stop::Later(time)),
            (Step::Write(_) | Step::Read, None) => Ok(Answer::Gone),
        }
    }

    fn apply(memory: &mut NodeMemory, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Written(version) => {
                progress.is_fresh = true;
                memory.written = version.or(memory.written);
            }
            Answer::Read => progress.is_fresh = true,
            Answer::Gone => progress.is_gone = true,
            Answer::Confirmed => {}
        }
    }

    fn ended(memory: &mut NodeMemory, _: &mut Progress, end: &End<'_, NoReason>) {
        if let End::Settled = end {
            (memory.failing, memory.gathering) = (None, None);
        }
    }

    fn tell(first: &View, _: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        if let End::Failed(error) = end {
            log_failure!(run, error, { node = first.name, }, "cannot report the attached volumes to the node");
        }
        Vec::new()
    }
}

/// What pods on a node want, and how long the oldest pod that wants it is there. This compares with the API's clock, in whole seconds.
fn wanted(cx: &Context, node: &str) -> BTreeMap<VolumeId, Duration> {
    let (mut wanted, wall) = (BTreeMap::new(), cx.scope.clock.wall());
    for pod in cx.stores.pods.find(BY_NODE, node) {
        let made = pod.metadata.creation_timestamp.map(Moment::timestamp);
        let age = made.and_then(|made| wall.duration_since(made).try_into().ok()).unwrap_or(Duration::ZERO);
        cx.memory.pods.read(&pod.metadata.uid, |wishes| {
            for wish in wishes.wanted() {
                let oldest = wanted.entry(wish.id.clone()).or_insert(age);
                *oldest = age.max(*oldest);
            }
        });
    }
    wanted
}

impl Nodes {
    /// Counts a write, and notes since when they fail.
    fn wrote(&self, name: &str, written: Result<&Written, &Stop<NoReason>>) {
        let result = match written {
            Ok(Written::Kept) => "ok",
            Ok(Written::Ended | Written::NotFound(_)) => "gone",
            Err(Stop::LookAgain) => "conflict",
            Err(Stop::Failed(_)) => {
                let now = self.0.scope.clock.now();
                self.0.memory.nodes.change(name, |memory| memory.failing = memory.failing.or(Some(now)));
                "error"
            }
            Err(Stop::TermOver | Stop::Later(_) | Stop::Behind(_)) => return,
        };
        self.0.scope.meter.counter(&metrics::STATUS_WRITES, &[("result", result)]).increment(1);
    }
}
