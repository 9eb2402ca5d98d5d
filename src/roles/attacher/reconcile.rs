//! The reconciler of attachments. The policy is [`policy`](super::policy), each step's request or call is in [`perform`](super::perform).

use std::sync::Arc;

use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::kit::drive::Next;
use crate::roles::kit::{AttemptError, End, Memory, Reconcile, Run, Start, Telling};

use super::context::{Context, Objects};
use super::error::{AttachError, InvalidAttachment};
use super::failure::Failure;
use super::perform::{Act, Stop, Verbs};
use super::policy::{Step, next_step};
use super::progress::{self, Answer, Listed, Progress, Wanted};
use super::report;

/// The reconciler of the queue of attachments.
#[derive(Debug)]
pub(super) struct Attachments(pub(super) Arc<Context>);

impl Reconcile for Attachments {
    type Key = String;
    type View = Objects;
    type Memory = progress::Memory;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = InvalidAttachment;

    fn memory(&self) -> &Memory<progress::Memory> {
        &self.0.memory
    }

    fn is_there(&self, name: &String, uid: &str) -> bool {
        self.0.stores.attachments.has(name, uid)
    }

    fn view(&self, name: &String) -> Option<Objects> {
        self.0.find_with_others(name)
    }

    fn uid(view: &Objects) -> &str {
        &view.attachment.uid
    }

    /// Another direction has its own ticket on its own lane.
    fn is_about(first: &Objects, now: &Objects) -> bool {
        now.attachment.uid == first.attachment.uid && now.attachment.direction == first.attachment.direction
    }

    fn join_trace(first: &Objects, ticket: &Ticket<String>) {
        ticket.span().record("operation", first.attachment.direction.label());
        first.join_trace(ticket);
    }

    fn begin(first: &Objects, start: Start) -> Progress {
        let wanted = Wanted { direction: first.attachment.direction, forced: start.causes.contains(Cause::Drift) };
        Progress { wanted, ..Progress::default() }
    }

    fn next_step(view: &Objects, progress: &Progress) -> Next<Step> {
        next_step(&view.view(progress))
    }

    fn lock<'a>(_: &'a Objects, step: &'a Step) -> Option<(&'a str, &'a str)> {
        let volume = match step {
            Step::Publish(publish) => &publish.volume_id,
            Step::Unpublish(unpublish) => &unpublish.volume_id,
            _ => return None,
        };
        Some((volume, volume))
    }

    fn has_answer(progress: &Progress) -> bool {
        progress.has_answer()
    }

    fn intend(memory: &mut progress::Memory, _: &Objects, step: &Step) {
        if matches!(step, Step::Publish(_)) {
            memory.publishes();
        }
    }

    async fn perform(&self, step: Step, view: &Objects, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        Act { cx: &self.0, seen: view, progress, io }.perform(step).await
    }

    fn apply(memory: &mut progress::Memory, progress: &mut Progress, answer: Answer) {
        if matches!(answer, Answer::Published(_)) {
            memory.listed = Listed::Fine;
        }
        progress.apply(answer);
    }

    fn records_failure(progress: &Progress) -> bool {
        progress.failure.as_ref().is_some_and(|failure| !failure.is_recorded)
    }

    fn ended(memory: &mut progress::Memory, progress: &mut Progress, end: &End<'_, InvalidAttachment>) {
        memory.ended(progress.wanted.direction, end);
        if let End::Failed(error) = end {
            progress.failure = Some(Failure::of(error));
        }
    }

    fn tell(first: &Objects, progress: &Progress, end: &End<'_, InvalidAttachment>, run: &Run<'_>) -> Vec<Telling> {
        report::tell(first, progress, end, run)
    }

    fn retry(first: &Objects, _: &Progress, error: &AttachError) -> Outcome {
        match error {
            // Only a change of the volume helps, and that wakes the key (k/k 141541).
            AttemptError::Reason(InvalidAttachment::VolumeDeleting(_)) => {
                Outcome::RetryFailedAfter(first.rules.longest_pause)
            }
            _ => error.outcome(),
        }
    }
}
