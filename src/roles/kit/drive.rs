//! The attempt loop: view, decide, do one step, and view again.
//!
//! A role brings its own words for steps and answers. Everything around a step is done here: locks, the end of the term, what is
//! remembered, reports, and what an attempt does about a failure.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::debug;

use crate::queue::{Causes, Key, Outcome, Ticket};

use super::failure::{AttemptError, Reason, Stop};
use super::freshness::{CATCH_UP, LAG_PATIENCE};
use super::io::{Io, Shared};
use super::locks::{HeldLocks, Patience};
use super::memory::{Memory, Remembered};
use super::report::FailureLog;
use super::scope::TermScope;
use super::telling::{Telling, tell};

/// More steps than any attempt needs, including all that are repeated. An attempt with more steps means that the API's answers
/// never show our writes, for example because a webhook rewrites them: then the attempt ends and backs off.
const MAX_STEPS: u32 = 40;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<S> {
    /// One step.
    Do(S),
    /// Some steps side by side: none needs what another brings, and none needs a lock.
    Together(Vec<S>),
    /// Nothing: the key is settled.
    Done,
}

/// How an attempt has ended.
#[derive(Debug)]
pub enum End<'a, R: Reason> {
    /// Nothing is left to do.
    Settled,
    /// It has failed. What is still to be recorded of the failure follows.
    Failed(&'a AttemptError<R>),
}

/// Facts of an attempt when it begins.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Why the key was added.
    pub causes: Causes,
    /// How many attempts have failed before it.
    pub failed_before: u32,
    /// How long the key has waited for a worker.
    pub waited: Duration,
}

/// Facts of an attempt for its reports.
#[derive(Debug)]
pub struct Run<'a> {
    /// How many attempts have failed before it.
    pub failed_before: u32,
    /// Time since the key was added.
    pub age: Duration,
    /// Now.
    pub now: Instant,
    /// Which failures are worth a warning.
    pub failures: &'a FailureLog,
}

/// How a role reconciles a key: its policy, its words for steps and answers, and one request or call for each step.
///
/// All functions without `self` are pure: they reach no cache, client or clock.
pub trait Reconcile: Send + Sync + 'static {
    /// What is worked on.
    type Key: Key;
    /// What one decision is made from: handles to the cached objects, and what is remembered.
    type View: Send + Sync;
    /// What the term remembers of an object.
    type Memory: Remembered;
    /// What one attempt has done so far. It is dropped with the attempt.
    type Progress: Send + Sync;
    /// One request or call, in the role's words.
    type Step: Send;
    /// What it has brought.
    type Answer: Send;
    /// Why an attempt may fail, besides requests and calls.
    type Reason: Reason;

    /// What the term remembers.
    fn memory(&self) -> &Memory<Self::Memory>;

    /// Reads the caches and what is remembered. It decides nothing. `None`: there is nothing to do, and the key is forgotten.
    fn view(&self, key: &Self::Key) -> Option<Self::View>;

    /// The same within an attempt. What that has read for itself may say which facts are needed. An attempt that has done nothing yet sees
    /// what [`view`](Self::view) says: the first decision is made from that.
    fn view_within(&self, key: &Self::Key, _progress: &Self::Progress) -> Option<Self::View> {
        self.view(key)
    }

    /// Whether the object is there still, under the name that the key has.
    fn is_there(&self, key: &Self::Key, uid: &str) -> bool;

    /// The uid of the object that the attempt is about.
    fn uid(view: &Self::View) -> &str;

    /// Whether the attempt that began with `first` goes on with `now`. Another object of the name has an attempt of its own.
    fn is_about(first: &Self::View, now: &Self::View) -> bool {
        Self::uid(first) == Self::uid(now)
    }

    /// Connects the run's trace with that of the object, before anything is logged.
    fn join_trace(_first: &Self::View, _ticket: &Ticket<Self::Key>) {}

    /// What an attempt knows when it begins.
    fn begin(first: &Self::View, start: Start) -> Self::Progress;

    /// The policy.
    fn next_step(view: &Self::View, progress: &Self::Progress) -> Next<Self::Step>;

    /// The volume that is locked while the step is done, by two names if it has two: `CreateVolume` knows that of the object, the
    /// attacher the driver's. After a wait for the lock, the decision is made anew.
    fn lock<'a>(_view: &'a Self::View, _step: &'a Self::Step) -> Option<(&'a str, &'a str)> {
        None
    }

    /// The group of the attempt, if it has one: attempts of a group hold the lock of a volume together.
    fn group(_view: &Self::View) -> Option<&str> {
        None
    }

    /// The attempt has waited for a lock: what it knew may be old.
    fn waited(_progress: &mut Self::Progress) {}

    /// Whether the driver has given an answer that is still to be recorded. Then the end of the term does not end the attempt;
    /// only the loss of the Lease does.
    fn has_answer(_progress: &Self::Progress) -> bool {
        false
    }

    /// Whether that answer is lost with the attempt. Then its write is tried again at once if the API is busy, because an attempt that
    /// gives up has to ask the driver again.
    fn loses_answer(progress: &Self::Progress) -> bool {
        Self::has_answer(progress)
    }

    /// Whether a change that comes from now on wakes the key again, although the attempt still views: what it does by now is to record why
    /// it will fail.
    fn keeps_changes(_progress: &Self::Progress) -> bool {
        false
    }

    /// What must be remembered before the step begins.
    fn intend(_memory: &mut Self::Memory, _view: &Self::View, _step: &Self::Step) {}

    /// Does one step: one verb of [`Io`].
    fn perform(
        &self,
        step: Self::Step,
        view: &Self::View,
        progress: &Self::Progress,
        io: &Io<'_, Self::Key>,
    ) -> impl Future<Output = Result<Self::Answer, Stop<Self::Reason>>> + Send;

    /// The reports as soon as a step has brought its answer.
    fn tell_step(_view: &Self::View, _progress: &Self::Progress, _answer: &Self::Answer) -> Vec<Telling> {
        Vec::new()
    }

    /// What the step has brought.
    fn apply(memory: &mut Self::Memory, progress: &mut Self::Progress, answer: Self::Answer);

    /// Whether steps are left that record why the attempt has failed. Each of them must bring an answer that leaves one less.
    fn records_failure(_progress: &Self::Progress) -> bool {
        false
    }

    /// What the end of the attempt means for what is remembered.
    fn ended(_memory: &mut Self::Memory, _progress: &mut Self::Progress, _end: &End<'_, Self::Reason>) {}

    /// The reports of the attempt that began with `first`. Log lines are written here, because users filter them by
    /// the role's module.
    fn tell(first: &Self::View, progress: &Self::Progress, end: &End<'_, Self::Reason>, run: &Run<'_>) -> Vec<Telling>;

    /// When to try again after a failure.
    fn retry(_first: &Self::View, _progress: &Self::Progress, error: &AttemptError<Self::Reason>) -> Outcome {
        error.outcome()
    }
}

/// A stage before the work on a key that may be another daemon's.
pub trait Admit: Reconcile {
    /// Whether the attempt, which has settled, has found that the key is this daemon's.
    fn admits(progress: &Self::Progress) -> bool;
}

/// Runs one attempt until its key is settled, the attempt fails, or the term is over.
pub async fn drive<R: Reconcile>(reconciler: &R, scope: &TermScope, mut ticket: Ticket<R::Key>) -> Outcome {
    attempt(reconciler, scope, &mut ticket, |_| false).await.unwrap_or(Outcome::Settled)
}

/// Runs one attempt of a stage before the work on a key. `None`: the work begins.
pub async fn admit<A: Admit>(admission: &A, scope: &TermScope, ticket: &mut Ticket<A::Key>) -> Option<Outcome> {
    attempt(admission, scope, ticket, A::admits).await
}

/// Runs one attempt. `None`: it has settled, and what it has done so far admits the key.
async fn attempt<R: Reconcile>(
    reconciler: &R,
    scope: &TermScope,
    ticket: &mut Ticket<R::Key>,
    admits: impl FnOnce(&R::Progress) -> bool,
) -> Option<Outcome> {
    ticket.observes();
    let Some(first) = reconciler.view(ticket.key()).map(Arc::new) else { return Some(Outcome::Forget) };
    R::join_trace(&first, ticket);
    let start = Start { causes: ticket.causes(), failed_before: ticket.attempt(), waited: ticket.waited() };
    let progress = R::begin(&first, start);
    let mut attempt = Attempt { reconciler, scope, first, progress, failure: None, refreshes: AtomicU32::new(0) };
    let outcome = match attempt.work(ticket).await {
        Ok(()) => attempt.conclude(ticket),
        Err(interrupted) => interrupted,
    };
    // Its deletion may have been seen while an answer about it was on its way, and is not seen again.
    if attempt.is_gone(ticket) {
        reconciler.memory().forget(R::uid(&attempt.first));
    }
    let is_admitted = attempt.failure.is_none() && outcome == Outcome::Settled && admits(&attempt.progress);
    (!is_admitted).then_some(outcome)
}

/// One run of one key.
struct Attempt<'a, R: Reconcile> {
    reconciler: &'a R,
    scope: &'a TermScope,
    first: Arc<R::View>,
    progress: R::Progress,
    failure: Option<AttemptError<R::Reason>>,
    refreshes: AtomicU32,
}

impl<R: Reconcile> Attempt<'_, R> {
    /// Does steps until none is left. The error is the outcome of an attempt that is not reported.
    async fn work(&mut self, ticket: &mut Ticket<R::Key>) -> Result<(), Outcome> {
        let scope = self.scope;
        let (mut held, mut first) = (HeldLocks::default(), Some(Arc::clone(&self.first)));
        for _ in 0..MAX_STEPS {
            let Some(view) = first.take().or_else(|| self.look(ticket)) else { return Ok(()) };
            let steps = match R::next_step(&view, &self.progress) {
                Next::Done => return Ok(()),
                Next::Do(step) => vec![step],
                Next::Together(steps) => steps,
            };
            // When the term is over, no new step begins, but what has happened is still recorded. So a stop waits for one call to the
            // driver, not for several.
            let has_answer = self.failure.is_none() && R::has_answer(&self.progress);
            let patience = if has_answer || self.failure.is_some() { Patience::UntilLost } else { Patience::UntilOver };
            if scope.term.is_over() && patience == Patience::UntilOver {
                return Err(Outcome::Interrupted);
            }
            match steps.first().and_then(|step| R::lock(&view, step)) {
                None => held.release(),
                Some(volume) => {
                    let (locks, term) = (&scope.volume_locks, &scope.term);
                    let at_once = match R::group(&view) {
                        None => held.lock(locks, volume, term, patience, ticket).await,
                        Some(group) => held.lock_for(locks, (volume.0, group), term, patience, ticket).await,
                    };
                    if !at_once.map_err(|_| Outcome::Interrupted)? {
                        R::waited(&mut self.progress);
                        continue;
                    }
                }
            }
            let mut stopped = None;
            let is_lost = has_answer && R::loses_answer(&self.progress);
            for answer in self.perform(steps, &view, ticket, (patience, is_lost)).await {
                match answer {
                    Ok(answer) => self.apply(&view, answer, ticket),
                    // Of several the first counts.
                    Err(stop) => stopped = stopped.or(Some(stop)),
                }
            }
            if let Some(stop) = stopped {
                self.stop(stop, ticket)?;
            }
            if self.failure.is_some() {
                held.release();
                if !R::records_failure(&self.progress) {
                    return Ok(());
                }
            }
        }
        self.stop(AttemptError::Endless(MAX_STEPS).into(), ticket)
    }

    /// What the next decision is made from. `None`: the object that the attempt is about is there no more.
    fn look(&self, ticket: &Ticket<R::Key>) -> Option<Arc<R::View>> {
        // What changes while a failure is recorded wakes the key again.
        if self.failure.is_none() && !R::keeps_changes(&self.progress) {
            ticket.observes();
        }
        let now = self.reconciler.view_within(ticket.key(), &self.progress)?;
        R::is_about(&self.first, &now).then(|| Arc::new(now))
    }

    async fn perform(
        &self,
        steps: Vec<R::Step>,
        view: &R::View,
        ticket: &mut Ticket<R::Key>,
        (patience, has_answer): (Patience, bool),
    ) -> Vec<Result<R::Answer, Stop<R::Reason>>> {
        let (reconciler, progress) = (self.reconciler, &self.progress);
        reconciler.memory().change(R::uid(&self.first), |memory| {
            for step in &steps {
                R::intend(memory, view, step);
            }
        });
        let ticket = Mutex::new(ticket);
        let shared = &Shared { scope: self.scope, ticket, patience, has_answer, refreshes: &self.refreshes };
        let one = async |step| reconciler.perform(step, view, progress, &Io::of(shared)).await;
        join_all(steps.into_iter().map(one)).await
    }

    fn apply(&mut self, view: &R::View, answer: R::Answer, ticket: &Ticket<R::Key>) {
        let progress = &mut self.progress;
        for telling in R::tell_step(view, progress, &answer) {
            tell(telling, self.scope, ticket);
        }
        self.reconciler.memory().change(R::uid(&self.first), |memory| R::apply(memory, progress, answer));
    }

    fn stop(&mut self, stop: Stop<R::Reason>, ticket: &Ticket<R::Key>) -> Result<(), Outcome> {
        match stop {
            Stop::LookAgain => Ok(()),
            Stop::TermOver => Err(Outcome::Interrupted),
            Stop::Later(wait) => Err(Outcome::RetryAfter(wait)),
            Stop::Behind(error) if ticket.age() < LAG_PATIENCE => {
                debug!(error = error.message(), "the cache is behind: looking again");
                Err(Outcome::RetryAfter(CATCH_UP))
            }
            Stop::Failed(error) | Stop::Behind(error) => self.fail(error, ticket),
        }
    }

    /// The attempt has failed: reports that now. The steps that record the failure follow.
    fn fail(&mut self, error: AttemptError<R::Reason>, ticket: &Ticket<R::Key>) -> Result<(), Outcome> {
        if self.failure.is_some() {
            debug!(error = error.message(), "could not record why the attempt has failed");
            return Err(self.outcome(ticket));
        }
        ticket.note(error.message());
        if self.is_gone(ticket) {
            debug!(error = error.message(), "the attempt has failed, and its object is gone");
            return Err(Outcome::Forget);
        }
        self.end(&End::Failed(&error), ticket);
        self.failure = Some(error);
        Ok(())
    }

    fn conclude(&mut self, ticket: &Ticket<R::Key>) -> Outcome {
        if self.failure.is_none() {
            self.end(&End::Settled, ticket);
        }
        self.outcome(ticket)
    }

    fn outcome(&self, ticket: &Ticket<R::Key>) -> Outcome {
        match &self.failure {
            None => Outcome::Settled,
            // Nobody would ever look at it again.
            Some(_) if self.is_gone(ticket) => Outcome::Forget,
            Some(error) => R::retry(&self.first, &self.progress, error),
        }
    }

    fn end(&mut self, end: &End<'_, R::Reason>, ticket: &Ticket<R::Key>) {
        let (scope, progress) = (self.scope, &mut self.progress);
        self.reconciler.memory().change(R::uid(&self.first), |memory| R::ended(memory, progress, end));
        let run = Run {
            failed_before: ticket.attempt(),
            age: ticket.age(),
            now: scope.clock.now(),
            failures: &scope.failures,
        };
        for telling in R::tell(&self.first, progress, end, &run) {
            tell(telling, scope, ticket);
        }
    }

    /// Whether the object that the attempt began with is there no more.
    fn is_gone(&self, ticket: &Ticket<R::Key>) -> bool {
        !self.reconciler.is_there(ticket.key(), R::uid(&self.first))
    }
}
