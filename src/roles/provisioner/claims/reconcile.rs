//! Reconciles a claim: the hooks of the attempt loop. The steps are in [`super::create`], [`super::discard`] and [`super::perform`].
//!
//! The claim's state is in the term's [`ClaimStates`](super::states::ClaimStates). It is written there *before* each step whose
//! outcome might be lost, so that a panic or a cancelled run loses nothing.

use std::sync::Arc;

use crate::cluster::ApiErrorKind;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::{CATCH_UP, Freshness, read_again};
use crate::roles::kit::{Attempt, Next, Reconciler, TermScope};

use super::attempt::{Event, Happened, State};
use super::claim::ClaimKey;
use super::decide::{Ignored, NameStatus, Step, next_step};
use super::error::{AttemptError, ClaimReason, InvalidClaim, REFRESH, RESCHEDULE, Stop};
use super::observe::{Look, Observed};
use super::phase::Phase;
use super::state::Reported;
use super::transition::Change;
use crate::roles::provisioner::context::Context;

/// Reconciles the claims of the queue.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct ClaimReconciler {
    pub(in crate::roles::provisioner) cx: Arc<Context>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum End {
    /// The volume exists.
    Provisioned,
    /// There is nothing to do.
    Ignored(Ignored),
    /// A step has failed. Its result was applied before.
    Failed(AttemptError),
}

impl ClaimReconciler {
    /// A reconciler with the term's shared context.
    pub(in crate::roles::provisioner) fn new(cx: Arc<Context>) -> Self {
        Self { cx }
    }

    fn look<'a>(&'a self, state: &'a State) -> Look<'a> {
        Look { cx: &self.cx, state }
    }

    /// Drops the state of an ignored claim: no request was sent. But a claim that waits for another node keeps its reported failure,
    /// so that the recovery is reported, too.
    fn drop_entry(&self, mut state: State, why: Ignored) {
        if why == Ignored::NoNode && state.known.reported != Reported::default() {
            state.known.apply(Change::Renewed);
            self.cx.note_end(state.known);
        } else {
            self.cx.forget_state(&state.known.claim.key.uid);
        }
    }

    /// The PersistentVolume exists. Until the cache has it, only the claim's state says so: another run must not call the driver a
    /// second time (R59).
    fn settle(&self, mut state: State) {
        let look = self.look(&state);
        let claim = &state.known.claim;
        let is_seen = claim.volume_name.is_some() || (state.seen.is_none() && look.place(claim) == NameStatus::Ours);
        if is_seen {
            self.cx.forget_state(&state.known.claim.key.uid);
        } else {
            state.known.apply(Change::SuccessTold);
            self.cx.note_end(state.known);
        }
    }
}

impl Reconciler for ClaimReconciler {
    type Key = ClaimKey;
    type State = State;
    type View = Observed;
    type Step = Step;
    type Event = Event;
    type End = End;
    type Reason = ClaimReason;

    fn scope(&self) -> &TermScope {
        &self.cx.scope
    }

    fn begin(&self, ticket: &Ticket<ClaimKey>) -> Option<State> {
        State::begin(&self.cx, ticket.key())
    }

    fn observe(&self, key: &ClaimKey, state: &State) -> Observed {
        self.look(state).observe(key)
    }

    fn next_step(&self, now: &Observed, state: &State) -> Next<Step, End> {
        if let Some(failure) = &state.failure {
            return Next::Done(End::Failed(failure.clone()));
        }
        match next_step(&self.look(state).view(now)) {
            Step::Settled => Next::Done(End::Provisioned),
            Step::Ignore(why) => Next::Done(End::Ignored(why)),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.known.has_answer()
    }

    fn keeps_changes(&self, state: &State) -> bool {
        state.failure.is_some() || state.found.is_read()
    }

    async fn perform(
        &self,
        step: Step,
        now: &Observed,
        state: &State,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Event, Stop> {
        let look = self.look(state);
        if state.is_changed {
            self.cx.note(state.known.clone());
        }
        let claim = now.present.then(|| now.claim.clone());
        let happened = match look.perform(step, now, attempt).await {
            Ok(happened) => happened,
            // Admission may have refused because the claim has changed: read the claim, and decide again.
            Err(Stop::Failed(error)) if error.is_of(RESCHEDULE) && is_forbidden(&error) => {
                return self.refresh(now, &error).await?.ok_or_else(|| error.into());
            }
            Err(ended) => return Err(ended),
        };
        Ok(Event { claim, happened })
    }

    fn apply(&self, state: &mut State, event: Event) {
        state.apply(event);
    }

    async fn refresh(&self, now: &Observed, error: &AttemptError) -> Result<Option<Event>, Stop> {
        if !error.is_of(RESCHEDULE) {
            return Ok(None);
        }
        let (cx, renewed) = (&self.cx, Event { claim: None, happened: Happened::Renewed });
        let read = read_again(cx.scope.api.use_now()?, &cx.stores.claims, now.claim.object.as_ref()).await;
        match read.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Ok(Some(renewed)),
            Freshness::Same => Ok(None),
            Freshness::Gone if cx.find(&now.claim.key).is_none() => Ok(Some(renewed)),
            Freshness::Gone => Err(Stop::Behind(error.clone())),
        }
    }

    async fn conclude(&self, ticket: &Ticket<ClaimKey>, mut state: State, ended: Result<End, AttemptError>) -> Outcome {
        let (cx, key) = (&self.cx, ticket.key());
        let now = self.observe(key, &state);
        if now.present {
            state.known.claim = now.claim.clone();
        }
        let error = match ended {
            Ok(End::Provisioned) => {
                self.look(&state).tell_success(&now, ticket);
                self.settle(state);
                cx.dismiss(&now.claim);
                cx.forget(key);
                return Outcome::Settled;
            }
            Ok(End::Ignored(why)) => {
                self.look(&state).tell_ignored(why);
                let has_ended = state.is_changed;
                self.drop_entry(state, why);
                cx.dismiss(&now.claim);
                cx.forget(key);
                return match why {
                    Ignored::Gone => Outcome::Forget,
                    // Our driver has given its final answer for another node's claim: check again which node has the claim.
                    Ignored::Elsewhere if has_ended => Outcome::RetryAfter(CATCH_UP),
                    _ => Outcome::Settled,
                };
            }
            Ok(End::Failed(error)) | Err(error) => error,
        };
        if matches!(error, AttemptError::Reason(ClaimReason::Invalid(InvalidClaim::Source(_)))) {
            cx.dismiss(&now.claim);
        }
        let is_created = matches!(state.known.phase(), Phase::Created(_));
        if is_created && self.look(&state).place(&now.claim) == NameStatus::Ours {
            // The API has stored the PersistentVolume, although its answer was an error or was lost.
            cx.note_end(state.known);
            return Outcome::RetryAfter(CATCH_UP);
        }
        let told = self.tell_failure(ticket, &state, &now, &error);
        state.known.reported.failure = told.or(state.known.reported.failure);
        let is_idle = matches!(state.known.phase(), Phase::Idle { .. });
        cx.note_end(state.known);
        if error.is_infeasible() && is_idle {
            return Outcome::RetryFailedAfter(cx.section.retry.infeasible);
        }
        error.retry(cx.stores.snapshots.is_known())
    }
}

fn is_forbidden(error: &AttemptError) -> bool {
    error.api().is_some_and(|error| error.kind() == ApiErrorKind::Forbidden)
}
