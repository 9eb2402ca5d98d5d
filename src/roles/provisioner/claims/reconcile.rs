//! Works a claim: the attempt loop's hooks. What a step does is in [`super::create`], [`super::discard`], [`super::perform`] and
//! [`crate::roles::provisioner::node::ownership`].
//!
//! How far the claim is lives in the term's states, which are written *before* each step whose outcome might be lost, so that a
//! panic or a cancelled run loses nothing.

use std::sync::Arc;

use tracing::debug;

use crate::cluster::ApiErrorKind;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::{Attempt, Next, Reconciler, TermScope};

use super::attempt::{Event, Happened, State};
use super::claim::ClaimKey;
use super::decide::{Ignored, NameStatus, Step, next_step};
use super::error::{AttemptError, BECOME_OWNER, ClaimReason, InvalidClaim, REFRESH, Stop};
use super::observe::{Look, Observed};
use super::phase::Phase;
use super::state::{ClaimState, Reported};
use super::transition::Change;
use crate::roles::provisioner::context::Context;

/// Works the queue of claims.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct ClaimReconciler {
    pub(in crate::roles::provisioner) cx: Arc<Context>,
    scope: TermScope,
    pub(in crate::roles::provisioner) failures: FailureLog,
}

/// How an attempt ended.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum End {
    /// The volume exists.
    Provisioned,
    /// There is nothing to do.
    Ignored(Ignored),
    /// A step has failed, after what it brought was noted.
    Failed(AttemptError),
}

impl ClaimReconciler {
    /// Works claims with what a term's tickets share.
    pub(in crate::roles::provisioner) fn new(cx: Arc<Context>, scope: TermScope) -> Self {
        Self { cx, scope, failures: FailureLog::default() }
    }

    fn look<'a>(&'a self, state: &'a State) -> Look<'a> {
        Look { cx: &self.cx, state }
    }

    /// Nothing is begun, so that nothing needs to be known. But a claim that waits for another node is not over: people who were
    /// told of a failure are told of its end.
    fn drop_entry(&self, mut state: State, why: Ignored) {
        if why == Ignored::NoNode && state.known.reported != Reported::default() {
            state.known.apply(Change::LetGo);
            self.cx.states.put(state.known);
        } else {
            self.cx.states.forget(&state.known.claim.key.uid);
        }
    }

    /// The volume object exists. While the cache has not seen it, that is known from the entry alone: another run must not
    /// ask the driver a second time (R59).
    fn settle(&self, mut state: State) {
        let look = self.look(&state);
        let claim = &state.known.claim;
        let is_seen = claim.volume_name.is_some() || (state.seen.is_none() && look.place(claim) == NameStatus::Ours);
        if is_seen {
            self.cx.states.forget(&state.known.claim.key.uid);
        } else {
            state.known.apply(Change::SuccessTold);
            self.cx.states.put(state.known);
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
        &self.scope
    }

    fn begin(&self, ticket: &Ticket<ClaimKey>) -> Option<State> {
        let (cx, key) = (&self.cx, ticket.key());
        let found = cx.find(key);
        let mut known = match (cx.states.get(&key.uid), found) {
            (Some(mut known), found) => {
                known.claim = found.unwrap_or(known.claim);
                known
            }
            (None, found) => ClaimState::at_first_sight(found?),
        };
        known.apply(Change::Renewed);
        Some(State::new(known, cx.clock.now()))
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
            Step::Release { .. } if state.has_time(&now.claim) => Next::Do(Step::GiveWay),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.known.has_answer()
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
            self.cx.states.put(state.known.clone());
        }
        look.forget_race(now);
        let claim = now.present.then(|| now.claim.clone());
        if step == Step::GiveWay {
            look.tell_success(now);
            state.way.leave();
            look.give_way(attempt).await;
            return Ok(Event { claim, happened: Change::SuccessTold.into() });
        }
        if matches!(step, Step::SaveIntent | Step::Create | Step::SaveVolume) {
            state.way.set_out(&self.cx.haste);
        }
        // Boxed, and gone while the claim gives way: thousands do so at once.
        let happened = match Box::pin(look.perform(step, now, attempt)).await {
            Ok(happened) => happened,
            Err(Stop::Failed(error)) if look.is_only_looking(&error, now) => {
                debug!(error = error.message(), "cannot compute the requested capacity: taking the claim without it");
                Happened::Room(true)
            }
            // Admission refuses what it would not refuse for the claim as it is by now.
            Err(Stop::Failed(error)) if error.is_of_a_claim_write() && is_forbidden(&error) => {
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
        if !error.is_of_a_claim_write() {
            return Ok(None);
        }
        let (cx, renewed) = (&self.cx, Event { claim: None, happened: Happened::Renewed });
        let read = read_again(cx.api.use_now()?, &cx.stores.claims, now.claim.object.as_ref()).await;
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
                self.look(&state).tell_success(&now);
                self.settle(state);
                cx.dismiss(&now.claim);
                cx.forget(key);
                return Outcome::Settled;
            }
            Ok(End::Ignored(why)) => {
                self.look(&state).tell_ignored(why);
                self.drop_entry(state, why);
                cx.dismiss(&now.claim);
                cx.forget(key);
                return if why == Ignored::Gone { Outcome::Forget } else { Outcome::Settled };
            }
            Ok(End::Failed(error)) | Err(error) => error,
        };
        if matches!(error, AttemptError::Reason(ClaimReason::Invalid(InvalidClaim::Source(_)))) {
            cx.dismiss(&now.claim);
        }
        let told = self.tell_failure(ticket, &state, &now, &error);
        state.known.reported.failure = told.or(state.known.reported.failure);
        let is_idle = matches!(state.known.phase(), Phase::Idle { .. });
        cx.states.put(state.known);
        if error.is_infeasible() && is_idle { Outcome::RetryAfter(cx.section.retry.infeasible) } else { error.retry() }
    }
}

fn is_forbidden(error: &AttemptError) -> bool {
    error.api().is_some_and(|error| error.kind() == ApiErrorKind::Forbidden)
}

impl Look<'_> {
    /// If the claim has no owner yet, ignore errors while its room is looked for (spec 2.14): take it anyway, so that exactly one
    /// node reports the error.
    fn is_only_looking(&self, error: &AttemptError, now: &Observed) -> bool {
        now.is_nobodys() && self.known().is_unasked() && self.state.asked.fits.is_none() && !error.is_of(BECOME_OWNER)
    }

    /// Lets the claims that have no volume object yet go first.
    async fn give_way(&self, attempt: &mut Attempt<'_, ClaimKey>) {
        let (cx, key) = (self.cx, attempt.ticket.key().clone());
        // Looked at by thousands once a second, so it is not parsed.
        let is_patient = || {
            let claim = cx.stores.claims.get(&key.name);
            let claim = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(&*key.uid));
            claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        };
        let others = async {
            tokio::select! {
                biased;
                () = cx.term.over() => {}
                () = cx.haste.give_way(is_patient) => {}
            }
        };
        attempt.ticket.park(others).await;
    }
}
