//! The reconciler of changes: the size and the class of a claim, each with a key, a memory and a back-off of its own, so neither
//! delays the other. The policy is [`policy`](super::policy), each step's request or call is in [`perform`](super::perform).

use std::sync::Arc;
use std::time::Duration;

use crate::queue::Outcome;
use crate::roles::kit::drive::Next;
use crate::roles::kit::{AttemptError, End, Memory, Reconcile, Run, Start, Telling};

use super::context::Context;
use super::error::{ChangeError, InvalidChange, Wait};
use super::job::WorkKey;
use super::perform::{Act, Stop, Verbs};
use super::policy::next_step;
use super::progress::{self, Answer, Progress};
use super::report;
use super::step::Step;
use super::view::View;

/// How often a claim whose volume is in use is checked again without a change, to report it if the daemon cannot watch its pods.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The reconciler of the queue of changes.
#[derive(Debug)]
pub(super) struct Changes(pub(super) Arc<Context>);

impl Reconcile for Changes {
    type Key = WorkKey;
    type View = View;
    type Memory = progress::Memory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = InvalidChange;

    fn memory(&self) -> &Memory<progress::Memory> {
        &self.0.memory
    }

    fn is_there(&self, key: &WorkKey, id: &str) -> bool {
        self.0.stores.claims.get(&key.claim).is_some_and(|claim| key.job.id(&claim.metadata.uid) == id)
    }

    fn view(&self, key: &WorkKey) -> Option<View> {
        self.0.view(key)
    }

    fn uid(view: &View) -> &str {
        &view.id
    }

    fn begin(first: &View, _: Start) -> Progress {
        Progress::begin(first.job, first.name(), first.at, &first.memory)
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    fn lock<'a>(view: &'a View, step: &'a Step) -> Option<(&'a str, &'a str)> {
        view.handle.as_deref().filter(|_| step.is_locked()).map(|handle| (handle, handle))
    }

    fn group(view: &View) -> Option<&str> {
        view.rules.pairs.then_some(&view.claim.metadata.uid)
    }

    fn has_answer(progress: &Progress) -> bool {
        progress.has_answer()
    }

    fn keeps_changes(progress: &Progress) -> bool {
        progress.refused.is_some()
    }

    fn intend(memory: &mut progress::Memory, _: &View, step: &Step) {
        memory.intends(step);
    }

    async fn perform(&self, step: Step, view: &View, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        Act { cx: &self.0, seen: view, progress, io }.perform(step).await
    }

    fn tell_step(view: &View, _: &Progress, answer: &Answer) -> Vec<Telling> {
        report::tell_step(view, answer)
    }

    fn apply(memory: &mut progress::Memory, progress: &mut Progress, answer: Answer) {
        memory.apply(progress, answer);
    }

    fn ended(memory: &mut progress::Memory, progress: &mut Progress, end: &End<'_, InvalidChange>) {
        memory.ended(progress, end);
    }

    fn tell(first: &View, progress: &Progress, end: &End<'_, InvalidChange>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, progress, end, run)
    }

    fn retry(first: &View, progress: &Progress, error: &ChangeError) -> Outcome {
        let retry = &first.rules.section.retry;
        match error {
            AttemptError::Reason(InvalidChange::Waits { wait, .. }) => match wait {
                // A change wakes the key.
                Wait::Node | Wait::Class(_) | Wait::Classes | Wait::Volume | Wait::Driver => Outcome::Settled,
                Wait::PodList => Outcome::RetryAfter(retry.initial),
                Wait::Pods => Outcome::RetryAfter(LOOK_AGAIN.min(retry.max)),
                Wait::Infeasible(left) | Wait::NodeRetry(left) => Outcome::RetryAfter(*left),
            },
            // Only another driver, or another request of the user, can help. Both wake the key.
            AttemptError::Reason(InvalidChange::NoExpansion(_) | InvalidChange::NoModification(_)) => Outcome::Settled,
            AttemptError::Reason(InvalidChange::NotStored(..)) => Outcome::RetryAfter(retry.max),
            AttemptError::Driver(_) if progress.refused.as_ref().is_some_and(|refused| refused.is_infeasible) => {
                Outcome::RetryFailedAfter(retry.infeasible)
            }
            _ => error.outcome(),
        }
    }
}
