//! The reconciler of attachments. The I/O of each step is in [`perform`].

use std::sync::Arc;

use futures::future::join_all;
use tracing::info;

use crate::cluster::PersistentVolume;
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::{Attempt, Next, Reconciler, Stop, TermScope};

use super::attachment::Direction;
use super::context::{Context, Objects};
use super::decide::{Done, Progress, Step, next_step};
use super::error::{AttachError, InvalidAttachment, REFRESH};
use super::perform;

/// The reconciler of the queue of attachments.
#[derive(Debug)]
pub(super) struct Attachments(pub(super) Arc<Context>);

/// The state of one attempt.
#[derive(Debug)]
pub(super) struct State {
    /// The objects at the start of the attempt.
    first: Objects,
    /// The driver and the recorded state disagree: repeat the operation although the state says that it is done.
    forced: bool,
    progress: Progress,
}

impl State {
    fn direction(&self) -> Direction {
        self.first.attachment.direction
    }

    /// It is another object now, or has another direction: it has its own ticket on its own lane.
    fn is_about(&self, now: &Objects) -> bool {
        now.attachment.uid == self.first.attachment.uid && now.attachment.direction == self.direction()
    }
}

impl Reconciler for Attachments {
    type Key = String;
    type State = State;
    type View = Option<Objects>;
    type Step = Step;
    type Event = Done;
    type End = ();
    type Reason = InvalidAttachment;

    fn scope(&self) -> &TermScope {
        &self.0.scope
    }

    fn begin(&self, ticket: &Ticket<String>) -> Option<State> {
        let first = self.0.find(ticket.key())?;
        ticket.span().record("operation", first.attachment.direction.label());
        first.join_trace(ticket);
        let forced = ticket.causes().contains(Cause::Drift);
        Some(State { first, forced, progress: Progress::default() })
    }

    fn observe(&self, key: &String, _: &State) -> Option<Objects> {
        self.0.find_with_others(key)
    }

    fn next_step(&self, now: &Option<Objects>, state: &State) -> Next<Step, ()> {
        let Some(now) = now.as_ref().filter(|now| state.is_about(now)) else { return Next::Done(()) };
        match next_step(&now.view(&self.0.rules, state.forced, &state.progress)) {
            Step::Settled => Next::Done(()),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.progress.has_answer(state.direction())
    }

    async fn perform(
        &self,
        step: Step,
        now: &Option<Objects>,
        state: &State,
        attempt: &mut Attempt<'_, String>,
    ) -> Result<Done, Stop<InvalidAttachment>> {
        let (cx, secret) = (&*self.0, state.progress.secret.as_ref());
        let Some(now) = now else { return Ok(Done::Nothing) };
        // A new leader's watch may not have shown yet that another attachment needs the volume there, or needs it no more.
        let depends_on_others = matches!(step, Step::Unpublish(_)) || !now.others.is_empty();
        if depends_on_others && !cx.relisted.is_done() {
            let listed = cx.relisted.wait(|| cx.stores.attachments.relisted());
            attempt.park(&cx.scope.term, listed).await?;
            return Ok(Done::Nothing);
        }
        match step {
            // `next_step` has ended the attempt.
            Step::Settled => Ok(Done::Nothing),
            Step::Refuse(reason) => perform::refuse(cx, now, reason).await,
            Step::Prepare(preparations) => {
                let all = join_all(preparations.into_iter().map(|one| perform::prepare(cx, now, one))).await;
                let all: Result<Vec<Done>, _> = all.into_iter().collect();
                Ok(all?.into_iter().find(|done| matches!(done, Done::ReadSecret(_))).unwrap_or(Done::Nothing))
            }
            Step::Publish(publish) => {
                if !attempt.lock(&publish.volume_id, &cx.scope.volume_locks, &cx.scope.term).await? {
                    return Ok(Done::Nothing);
                }
                if let Some(done) = perform::confirm(cx, now).await? {
                    return Ok(done);
                }
                if let Some(done) = perform::confirm_volume(cx, now).await? {
                    return Ok(done);
                }
                let context = perform::publish(cx, now, *publish, secret).await?;
                attempt.unlock();
                Ok(Done::Published(context))
            }
            Step::Unpublish(unpublish) => {
                if !attempt.lock(&unpublish.volume_id, &cx.scope.volume_locks, &cx.scope.term).await? {
                    return Ok(Done::Nothing);
                }
                if let Some(done) = perform::confirm(cx, now).await? {
                    return Ok(done);
                }
                let done = perform::unpublish(cx, now, *unpublish, secret).await?;
                attempt.unlock();
                if let Done::Skipped(skip) = done {
                    cx.report_skip(now, skip);
                }
                Ok(done)
            }
            Step::SkipUnpublish(skip) => {
                cx.report_skip(now, skip);
                Ok(Done::Skipped(skip))
            }
            Step::RecordAttached(context) => perform::record_attached(cx, now, &context).await,
            Step::Release => perform::release(cx, now).await,
            Step::RecordDetached => perform::record_detached(cx, now).await,
        }
    }

    fn apply(&self, state: &mut State, done: Done) {
        state.progress.apply(done);
    }

    /// Reads the attachment and its volume again.
    async fn refresh(
        &self,
        now: &Option<Objects>,
        error: &AttachError,
    ) -> Result<Option<Done>, Stop<InvalidAttachment>> {
        let Some(now) = now else { return Ok(None) };
        let api = self.0.scope.api.use_now()?;
        let stores = &self.0.stores;
        let read = read_again(api, &stores.attachments, now.object.as_ref()).await;
        let attachment = read.map_err(|error| REFRESH.failed(error))?;
        if attachment == Freshness::Gone {
            return Ok(Some(Done::FoundGone));
        }
        let volume = match &now.volume {
            None => Freshness::Same,
            Some(volume) => {
                let read = read_again::<PersistentVolume>(api, &stores.volumes, volume).await;
                read.map_err(|error| REFRESH.failed(error))?
            }
        };
        // The 404 of the write was wrong if the API has the objects.
        let is_newer = [attachment, volume].contains(&Freshness::Newer);
        let is_hearsay = error.says_not_found() && volume != Freshness::Gone;
        Ok((is_newer || is_hearsay).then_some(Done::Nothing))
    }

    async fn conclude(&self, ticket: &Ticket<String>, state: State, ended: Result<(), AttachError>) -> Outcome {
        let first = &state.first;
        self.0.forget_gone(first);
        match ended {
            Ok(()) => {
                let did_something = state.progress.did_something(state.direction());
                let done = match state.direction() {
                    Direction::Attach if did_something => {
                        info!(node = first.attachment.node, "attached");
                        Some("attached")
                    }
                    Direction::Detach if did_something && state.progress.skipped.is_none() => {
                        info!(node = first.attachment.node, "detached");
                        Some("detached")
                    }
                    Direction::Attach | Direction::Detach => None,
                };
                if let Some(done) = done {
                    ticket.did(done, Some(first.subject()));
                }
                self.0.report_success(ticket, first, did_something);
                Outcome::Settled
            }
            Err(error) => self.0.report_failure(ticket, first, &error).await,
        }
    }
}
