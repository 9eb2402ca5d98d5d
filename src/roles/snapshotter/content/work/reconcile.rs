//! The reconciler of contents. The policy is [`next_step`], each step's
//! request or call is in [`perform`].

use std::sync::Arc;

use crate::queue::Outcome;
use crate::roles::kit::drive::Next;
use crate::roles::kit::{AttemptError, End, Io, Memory, Reconcile, Run, Start, Stop, Telling};
use crate::roles::snapshotter::content::policy::{Answer, Observed, Progress, Step, decide::next_step};
use crate::roles::snapshotter::content::record::error::{is_infeasible_create, is_infeasible_delete};
use crate::roles::snapshotter::content::record::{ContentError, InvalidSnapshot, Operation};
use crate::roles::snapshotter::content::told::report;

use super::call::{Act, Driven};
use super::{context::Context, memory, memory::ContentKey, perform::perform};

/// The reconciler of a queue of contents.
#[derive(Debug)]
pub(in crate::roles::snapshotter) struct Contents<K: Driven>(pub(in crate::roles::snapshotter) Arc<Context<K>>);

impl<K: Driven> Reconcile for Contents<K> {
    type Key = ContentKey;
    type View = Observed<K>;
    type Memory = memory::Memory<K>;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = InvalidSnapshot;

    fn memory(&self) -> &Memory<memory::Memory<K>> {
        &self.0.memory
    }

    fn view(&self, key: &ContentKey) -> Option<Observed<K>> {
        self.0.observe(key, None)
    }

    fn view_within(&self, key: &ContentKey, progress: &Progress) -> Option<Observed<K>> {
        self.0.observe(key, Some(progress))
    }

    /// A content that was removed by force is worked until its call has a final answer.
    fn is_there(&self, key: &ContentKey, uid: &str) -> bool {
        self.0.stores.contents.has(&key.name, uid) || self.0.is_unanswered(uid)
    }

    fn uid(view: &Observed<K>) -> &str {
        view.now.uid()
    }

    fn begin(first: &Observed<K>, _: Start) -> Progress {
        first.begin()
    }

    fn next_step(view: &Observed<K>, progress: &Progress) -> Next<Step> {
        match next_step(&view.view(progress)) {
            Step::Settled => Next::Done,
            step => Next::Do(step),
        }
    }

    fn has_answer(progress: &Progress) -> bool {
        progress.has_answer()
    }

    /// The term remembers it.
    fn loses_answer(_: &Progress) -> bool {
        false
    }

    fn keeps_changes(progress: &Progress) -> bool {
        progress.keeps_changes()
    }

    fn intend(memory: &mut memory::Memory<K>, view: &Observed<K>, step: &Step) {
        memory.intends(&view.now.content, step);
    }

    async fn perform(
        &self,
        step: Step,
        view: &Observed<K>,
        progress: &Progress,
        io: &Io<'_, ContentKey>,
    ) -> Result<Answer, Stop<InvalidSnapshot>> {
        perform(&Act { cx: &self.0, seen: view, progress, io }, step).await
    }

    fn tell_step(view: &Observed<K>, progress: &Progress, answer: &Answer) -> Vec<Telling> {
        report::tell_step(view, progress, answer)
    }

    fn apply(memory: &mut memory::Memory<K>, progress: &mut Progress, answer: Answer) {
        memory.apply(progress, answer);
    }

    fn ended(memory: &mut memory::Memory<K>, progress: &mut Progress, end: &End<'_, InvalidSnapshot>) {
        memory.ended(progress, end);
    }

    fn tell(first: &Observed<K>, progress: &Progress, end: &End<'_, InvalidSnapshot>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, progress, end, run)
    }

    fn retry(first: &Observed<K>, progress: &Progress, error: &ContentError) -> Outcome {
        let is_infeasible = match progress.operation() {
            Operation::Delete => is_infeasible_delete(error),
            Operation::Create | Operation::Ready => is_infeasible_create(error),
        };
        match (error, progress.pause) {
            // The failures of the cut do not count against the looks that follow, for which the key was added anew.
            (AttemptError::Reason(InvalidSnapshot::Waits(..)), Some(pause)) if !progress.has_cut => {
                Outcome::RetryAfter(pause)
            }
            // What is waited for wakes the key. Of a driver that takes no snapshots, only another one helps, and its term begins anew.
            (AttemptError::Reason(InvalidSnapshot::Waits(..) | InvalidSnapshot::Unsupported { .. }), _) => {
                Outcome::Settled
            }
            _ if is_infeasible => Outcome::RetryFailedAfter(first.section.retry.infeasible),
            _ => error.outcome(),
        }
    }
}
