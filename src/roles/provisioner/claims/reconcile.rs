//! The reconciler of claims. The policy is [`policy`], each step's request or call is in [`perform`](super::perform).

use std::sync::Arc;

use crate::queue::Outcome;
use crate::roles::kit::drive::Next;
use crate::roles::kit::freshness::CATCH_UP;
use crate::roles::kit::{End, Io, Memory, Reconcile, Run, Start, Telling};
use crate::roles::provisioner::sources::status::SourceStep;

use super::answer::Answer;
use super::context::ClaimsContext;
use super::decide::{NameStatus, Step};
use super::error::{AttemptError, ClaimReason, Stop};
use super::memory::ClaimMemory;
use super::observe::{Look, Seen, begin};
use super::perform::Act;
use super::phase::Phase;
use super::progress::{self, Progress};
use super::{policy, report, source};
use crate::roles::provisioner::claim::ClaimKey;

/// The reconciler of the queue of claims.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Claims(pub(in crate::roles::provisioner) Arc<ClaimsContext>);

impl Reconcile for Claims {
    type Key = ClaimKey;
    type View = Seen;
    type Memory = ClaimMemory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = ClaimReason;

    fn memory(&self) -> &Memory<ClaimMemory> {
        &self.0.memory
    }

    /// The work on a claim that is gone ends only with the driver's final answer.
    fn is_there(&self, key: &ClaimKey, uid: &str) -> bool {
        self.0.shared.find(key).is_some() || self.0.memory.read(uid, |it| it.state.is_some())
    }

    fn view(&self, key: &ClaimKey) -> Option<Seen> {
        let progress = Progress::new(begin(&self.0, key)?);
        self.view_within(key, &progress)
    }

    fn view_within(&self, key: &ClaimKey, progress: &Progress) -> Option<Seen> {
        Some(Look { cx: &self.0, progress }.observe(key))
    }

    fn uid(seen: &Seen) -> &str {
        &seen.claim.key.uid
    }

    fn begin(first: &Seen, _: Start) -> Progress {
        Progress::new(first.beginning.clone())
    }

    fn next_step(seen: &Seen, progress: &Progress) -> Next<Step> {
        policy::next_step(seen, progress)
    }

    fn lock<'a>(seen: &'a Seen, step: &'a Step) -> Option<(&'a str, &'a str)> {
        policy::lock(seen, step)
    }

    /// A failure is noted and told also if the term is over.
    fn has_answer(progress: &Progress) -> bool {
        progress.known.has_answer() || progress.failure.is_some()
    }

    /// The term remembers how far the claim is.
    fn loses_answer(_: &Progress) -> bool {
        false
    }

    /// The attempt has failed, or it decides by what it has read from the API, which a change may have made old.
    fn keeps_changes(progress: &Progress) -> bool {
        progress.failure.is_some() || progress.found.is_read()
    }

    fn intend(memory: &mut ClaimMemory, seen: &Seen, step: &Step) {
        if *step == Step::Source(SourceStep::Lock) {
            source::admit(memory, seen);
        }
    }

    async fn perform(
        &self,
        step: Step,
        seen: &Seen,
        progress: &Progress,
        io: &Io<'_, ClaimKey>,
    ) -> Result<Answer, Stop> {
        let act = Act { cx: &self.0, seen, progress, io };
        let happened = match act.perform(step).await {
            // The API has stored the PersistentVolume, although its answer was an error or was lost.
            Err(Stop::Failed(_))
                if matches!(progress.known.phase(), Phase::Created(_))
                    && act.look().place(&seen.claim) == NameStatus::Ours =>
            {
                return Err(Stop::Later(CATCH_UP));
            }
            happened => happened?,
        };
        let claim = seen.present.then(|| seen.claim.clone());
        Ok(Answer { claim, volume_name: seen.volume_name.clone(), happened })
    }

    fn tell_step(seen: &Seen, progress: &Progress, answer: &Answer) -> Vec<Telling> {
        report::tell_step(seen, progress, answer)
    }

    fn apply(memory: &mut ClaimMemory, progress: &mut Progress, answer: Answer) {
        progress::apply(memory, progress, answer);
    }

    fn records_failure(progress: &Progress) -> bool {
        !progress.is_failure_noted
    }

    fn ended(_: &mut ClaimMemory, progress: &mut Progress, end: &End<'_, ClaimReason>) {
        progress::ended(progress, end);
    }

    fn tell(first: &Seen, progress: &Progress, end: &End<'_, ClaimReason>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, progress, end, run)
    }

    fn retry(first: &Seen, progress: &Progress, error: &AttemptError) -> Outcome {
        if error.is_infeasible() && matches!(progress.known.phase(), Phase::Idle { .. }) {
            return Outcome::RetryFailedAfter(first.section.retry.infeasible);
        }
        error.retry(first.watches_snapshots)
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "cuts_tests.rs"]
mod cuts_tests;
