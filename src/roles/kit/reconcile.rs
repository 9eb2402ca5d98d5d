//! The attempt loop of all roles: observe, decide, do one step, and observe again.

use tracing::debug;

use crate::csi::VolumeLocks;
use crate::election::{Term, TermOver};
use crate::queue::{Key, Outcome, Ticket};

use super::failure::{AttemptError, Reason, Stop};
use super::freshness::{CATCH_UP, LAG_PATIENCE};
use super::locks::{HeldLocks, Patience};
use super::scope::TermScope;

/// More steps than any attempt needs, including all refreshes. An attempt with more steps means that the API's answers
/// never show our writes, for example because a webhook rewrites them: then the attempt ends and backs off.
const MAX_STEPS: u32 = 40;
/// How often one attempt reads its objects again because a precondition failed. After that it conflicts with another
/// writer too often, and backs off.
const MAX_REFRESHES: u32 = 3;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<S, E> {
    /// One step of I/O.
    Do(S),
    /// The attempt has ended with this result.
    Done(E),
}

/// How a role reconciles a key. One attempt calls `begin` once, then `observe`, `next_step`, `perform` and `apply` in
/// turn, then `conclude`.
pub trait Reconciler: Send + Sync + 'static {
    /// What is worked on.
    type Key: Key;
    /// The state of one attempt, in addition to the caches.
    type State: Send + Sync;
    /// The observed objects of one decision.
    type View: Send + Sync;
    /// One request or call.
    type Step: Send;
    /// The outcome of a step.
    type Event: Send;
    /// The result of a successful attempt.
    type End: Send;
    /// Why it may fail.
    type Reason: Reason;

    /// The role's resources during the term.
    fn scope(&self) -> &TermScope;

    /// The initial state of an attempt. `None`: there is nothing to do, and the key is forgotten.
    fn begin(&self, ticket: &Ticket<Self::Key>) -> Option<Self::State>;

    /// Reads the caches. It writes nothing, and uses neither the clock nor random numbers.
    fn observe(&self, key: &Self::Key, state: &Self::State) -> Self::View;

    /// The policy: pure.
    fn next_step(&self, view: &Self::View, state: &Self::State) -> Next<Self::Step, Self::End>;

    /// Whether the driver has given an answer that is still to be recorded. Then the end of the term does not end the attempt;
    /// only the loss of the Lease does.
    fn has_answer(&self, state: &Self::State) -> bool;

    /// Whether a change that comes from now on wakes the key again, although the attempt still observes: it has failed and only
    /// records that, or it decides by what it has read from the API, which the change may have made old.
    fn keeps_changes(&self, _: &Self::State) -> bool {
        false
    }

    /// Performs one step. It does not change the state.
    fn perform(
        &self,
        step: Self::Step,
        view: &Self::View,
        state: &Self::State,
        attempt: &mut Attempt<'_, Self::Key>,
    ) -> impl Future<Output = Result<Self::Event, Stop<Self::Reason>>> + Send;

    /// Applies a step's outcome to the state: pure.
    fn apply(&self, state: &mut Self::State, event: Self::Event);

    /// A write has failed because the view was old: reads the objects again. `None`: they have not changed, so a new
    /// decision would be the same, and the attempt fails with this error.
    fn refresh(
        &self,
        view: &Self::View,
        error: &AttemptError<Self::Reason>,
    ) -> impl Future<Output = Result<Option<Self::Event>, Stop<Self::Reason>>> + Send;

    /// Reports the attempt's end, and returns the key's outcome. The volumes are already unlocked.
    fn conclude(
        &self,
        ticket: &Ticket<Self::Key>,
        state: Self::State,
        ended: Result<Self::End, AttemptError<Self::Reason>>,
    ) -> impl Future<Output = Outcome> + Send;
}

/// One run of one key, as `perform` sees it.
#[derive(Debug)]
pub struct Attempt<'a, K: Key> {
    /// The queue's ticket.
    pub ticket: &'a mut Ticket<K>,
    locks: HeldLocks,
    patience: Patience,
    refreshes: u32,
}

impl<'a, K: Key> Attempt<'a, K> {
    /// Nothing is locked.
    pub fn new(ticket: &'a mut Ticket<K>) -> Self {
        Self { ticket, locks: HeldLocks::default(), patience: Patience::UntilOver, refreshes: 0 }
    }

    /// Locks a volume for this attempt. `false`: the attempt had to wait, so its view may be old and it must observe
    /// again.
    pub async fn lock(&mut self, volume: &str, locks: &VolumeLocks, term: &Term) -> Result<bool, TermOver> {
        self.lock_pair(volume, volume, locks, term).await
    }

    /// The same for a volume with two names.
    pub async fn lock_pair(
        &mut self,
        one: &str,
        other: &str,
        locks: &VolumeLocks,
        term: &Term,
    ) -> Result<bool, TermOver> {
        self.locks.lock(locks, (one, other), term, self.patience, self.ticket).await
    }

    /// Unlocks the volumes.
    pub fn unlock(&mut self) {
        self.locks.release();
    }

    /// Waits without holding a worker. The wait ends with the term, or with the Lease if an answer must still be
    /// recorded.
    pub async fn park<F: Future>(&mut self, term: &Term, wait: F) -> Result<F::Output, TermOver> {
        match self.patience {
            Patience::UntilOver => self.ticket.park(term.unless_over(wait)).await,
            Patience::UntilLost => self.ticket.park(term.until_lost(wait)).await,
        }
    }
}

/// Runs one attempt until its key is settled, the attempt fails, or the term is over.
pub async fn reconcile<R: Reconciler>(reconciler: &R, mut ticket: Ticket<R::Key>) -> Outcome {
    match attempt(reconciler, &mut ticket).await {
        Ok((state, ended)) => reconciler.conclude(&ticket, state, ended).await,
        Err(outcome) => outcome,
    }
}

/// How an attempt ended, with its state.
type Ended<R> = (<R as Reconciler>::State, Result<<R as Reconciler>::End, AttemptError<<R as Reconciler>::Reason>>);

/// Runs one attempt without its conclusion. The error is the outcome of an attempt that has nothing to conclude.
async fn attempt<R: Reconciler>(reconciler: &R, ticket: &mut Ticket<R::Key>) -> Result<Ended<R>, Outcome> {
    let Some(mut state) = reconciler.begin(ticket) else { return Err(Outcome::Forget) };
    let mut attempt = Attempt::new(ticket);
    let ended = work(reconciler, &mut state, &mut attempt).await;
    // Unlocks the volumes before the key can run again.
    drop(attempt);
    let ended = match ended {
        Ok(end) => Ok(end),
        Err(Stop::TermOver) => return Err(Outcome::Interrupted),
        Err(Stop::Later(wait)) => return Err(Outcome::RetryAfter(wait)),
        Err(Stop::LookAgain) => return Err(Outcome::RetryAfter(CATCH_UP)),
        Err(Stop::Behind(error)) if ticket.age() < LAG_PATIENCE => {
            debug!(error = error.message(), "the cache is behind: looking again");
            return Err(Outcome::RetryAfter(CATCH_UP));
        }
        Err(Stop::Failed(error) | Stop::Behind(error)) => Err(error),
    };
    Ok((state, ended))
}

async fn work<R: Reconciler>(
    reconciler: &R,
    state: &mut R::State,
    attempt: &mut Attempt<'_, R::Key>,
) -> Result<R::End, Stop<R::Reason>> {
    for _ in 0..MAX_STEPS {
        if !reconciler.keeps_changes(state) {
            // Before the read: what changes after it is news.
            attempt.ticket.observes();
        }
        let view = reconciler.observe(attempt.ticket.key(), state);
        let step = match reconciler.next_step(&view, state) {
            Next::Done(end) => return Ok(end),
            Next::Do(step) => step,
        };
        let has_answer = reconciler.has_answer(state);
        // When the term is over, no new step begins, but the driver's answer is still recorded. So a stop waits for one
        // call to the driver, not for several.
        if reconciler.scope().term.is_over() && !has_answer {
            return Err(Stop::TermOver);
        }
        attempt.patience = if has_answer { Patience::UntilLost } else { Patience::UntilOver };
        let event = match reconciler.perform(step, &view, state, attempt).await {
            Ok(event) => event,
            Err(Stop::LookAgain) => continue,
            Err(ended) => refresh_after(reconciler, ended, &view, attempt).await?,
        };
        reconciler.apply(state, event);
    }
    Err(AttemptError::Endless(MAX_STEPS).into())
}

/// After a failed precondition, reads the objects again and continues without a report. Any other error ends the
/// attempt.
async fn refresh_after<R: Reconciler>(
    reconciler: &R,
    stop: Stop<R::Reason>,
    view: &R::View,
    attempt: &mut Attempt<'_, R::Key>,
) -> Result<R::Event, Stop<R::Reason>> {
    let Stop::Failed(error) = stop else { return Err(stop) };
    if !error.is_stale() || attempt.refreshes >= MAX_REFRESHES {
        return Err(error.into());
    }
    attempt.refreshes += 1;
    debug!(error = error.message(), "a precondition failed: reading again");
    reconciler.refresh(view, &error).await?.ok_or_else(|| error.into())
}
