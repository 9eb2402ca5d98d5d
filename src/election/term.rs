//! A period of leadership, and its proof.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::{Clock, Permit};

/// One period of leadership. Clones share it. A term has two ends. It is *over* when no new work may begin, because it
/// was lost or the Lease should be released. It is *lost* when nothing may be written any more. In between, work in
/// flight ends normally.
#[derive(Clone)]
pub struct Term {
    inner: Arc<Inner>,
    /// Cancelled when the whole term, or this part of it, is over.
    over: CancellationToken,
}

struct Inner {
    id: u64,
    clock: Clock,
    over: CancellationToken,
    lost: CancellationToken,
    state: Mutex<State>,
    vacated: Notify,
}

struct State {
    /// `None`: forever, without leader election.
    valid_until: Option<Instant>,
    guards: usize,
}

/// Nothing may be written: the term is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the leadership term is over")]
pub struct TermOver;

impl Term {
    /// A term that cannot be lost, for a daemon without leader election. It is over when `stop` is cancelled.
    pub fn permanent(stop: &CancellationToken, clock: Clock) -> Self {
        Self::make(0, None, stop, clock)
    }

    pub(super) fn new(id: u64, valid_until: Instant, stop: &CancellationToken, clock: Clock) -> Self {
        Self::make(id, Some(valid_until), stop, clock)
    }

    /// A term whose elector never runs: after so long its deadline has passed, and nobody has noticed.
    #[cfg(test)]
    pub(crate) fn unattended(clock: Clock, lasts: std::time::Duration) -> Self {
        Self::make(1, Some(clock.now() + lasts), &CancellationToken::new(), clock)
    }

    fn make(id: u64, valid_until: Option<Instant>, stop: &CancellationToken, clock: Clock) -> Self {
        let over = stop.child_token();
        let inner = Inner {
            id,
            clock,
            over: over.clone(),
            lost: CancellationToken::new(),
            state: Mutex::new(State { valid_until, guards: 0 }),
            vacated: Notify::new(),
        };
        Self { inner: Arc::new(inner), over }
    }

    /// The same term for one role, which the token can end earlier. The right to write lasts for the whole term, so
    /// that the role's work in flight ends normally while the term continues for the other roles.
    pub fn part(&self) -> (Self, CancellationToken) {
        let over = self.over.child_token();
        (Self { inner: Arc::clone(&self.inner), over: over.clone() }, over)
    }

    /// Counts this process's terms of one Lease from 1; 0 without an election.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Waits until the term is over: it was lost, or the Lease should be released.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Whether the term is over. Work in flight may still continue, see [`may_write`](Self::may_write).
    pub fn is_over(&self) -> bool {
        self.over.is_cancelled() || !self.may_write()
    }

    /// Cancelled when the term is over.
    pub fn stopping(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Waits until nothing may be written any more.
    pub async fn lost(&self) {
        self.inner.lost.cancelled().await;
    }

    /// Whether we may write now, by the local clock. After a freeze past the deadline this is false even before the
    /// elector runs again.
    pub fn may_write(&self) -> bool {
        if self.inner.lost.is_cancelled() {
            return false;
        }
        let valid_until = self.lock().valid_until;
        valid_until.is_none_or(|until| self.inner.clock.now() < until)
    }

    /// A permit that calls [`may_write`](Self::may_write).
    pub fn permit(&self) -> Permit {
        let term = self.clone();
        Arc::new(move || term.may_write())
    }

    /// Runs `work` unless the term is lost before it ends. A call in flight is then cancelled, because another replica
    /// may already lead.
    pub async fn until_lost<F: Future>(&self, work: F) -> Result<F::Output, TermOver> {
        tokio::select! {
            biased;
            output = work => Ok(output),
            () = self.lost() => Err(TermOver),
        }
    }

    /// Waits for `others`, unless the term is over before: then no new work may begin.
    pub async fn unless_over<F: Future>(&self, others: F) -> Result<F::Output, TermOver> {
        tokio::select! {
            biased;
            () = self.over() => Err(TermOver),
            output = others => Ok(output),
        }
    }

    /// The answer to a call for an object, unless the term is lost before. A failure after the loss of the term is not
    /// a failure of the object and is not reported: the call may never have been sent, or the event that ended the term
    /// has cut its connection. A success counts even then.
    pub async fn during<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<Result<T, E>, TermOver> {
        // By reference: by value it would be part of this future and of the one within.
        match self.until_lost(pin!(call)).await? {
            Err(_) if !self.may_write() => Err(TermOver),
            answer => Ok(answer),
        }
    }

    /// Starts to serve the term, unless it is over.
    pub fn enter(&self) -> Option<TermGuard> {
        let in_time = self.may_write();
        let mut state = self.lock();
        // Checked under the lock: after the elector has seen that the term is over and has no guard, no guard may be
        // created.
        if !in_time || self.over.is_cancelled() {
            return None;
        }
        state.guards += 1;
        drop(state);
        Some(TermGuard(self.clone()))
    }

    pub(super) fn renew(&self, valid_until: Instant) {
        self.lock().valid_until = Some(valid_until);
    }

    pub(super) fn valid_until(&self) -> Option<Instant> {
        self.lock().valid_until
    }

    pub(super) fn lose(&self) {
        self.inner.lost.cancel();
        self.inner.over.cancel();
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.lock().guards == 0
    }

    /// Waits until the term has no guards.
    pub(super) async fn vacated(&self) {
        while !self.is_vacant() {
            self.inner.vacated.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("id", &self.inner.id).field("over", &self.is_over()).finish_non_exhaustive()
    }
}

/// A guard of a served term. While one exists, a stopping elector continues to renew.
#[derive(Debug)]
pub struct TermGuard(Term);

impl TermGuard {
    /// The term served.
    pub fn term(&self) -> &Term {
        &self.0
    }
}

impl Drop for TermGuard {
    fn drop(&mut self) {
        self.0.lock().guards -= 1;
        // The elector is the only waiter; the permit is kept for it.
        self.0.inner.vacated.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TEN: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn r52_the_right_to_write_ends_by_the_clock_even_if_no_elector_runs() {
        let clock = Clock::system();
        let term = Term::new(1, clock.now() + TEN, &CancellationToken::new(), clock);
        assert!(term.may_write());
        tokio::time::advance(TEN).await;
        assert!(!term.may_write());
        assert!(term.is_over() && term.enter().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn handing_back_lets_work_in_flight_write_and_nobody_new_enter() {
        let (clock, stop) = (Clock::system(), CancellationToken::new());
        let term = Term::new(1, clock.now() + TEN, &stop, clock);
        let guard = term.enter().unwrap();
        stop.cancel();
        term.over().await;
        assert!(term.is_over() && term.may_write() && term.enter().is_none());
        assert!(!term.is_vacant());
        drop(guard);
        term.vacated().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_term_ends_with_the_daemon_only() {
        let stop = CancellationToken::new();
        let term = Term::permanent(&stop, Clock::system());
        tokio::time::advance(1_000_000 * TEN).await;
        assert!(!term.is_over());
        stop.cancel();
        assert!(term.is_over() && term.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_over_may_end_its_work_and_the_rest_goes_on() {
        let clock = Clock::system();
        let term = Term::new(1, clock.now() + TEN, &CancellationToken::new(), clock);
        let ((part, leave), (other, _stay)) = (term.part(), term.part());
        leave.cancel();
        part.over().await;
        assert!(part.is_over() && part.enter().is_none());
        assert!(part.may_write(), "what is in flight may write to its end");
        assert!(!term.is_over() && !other.is_over() && term.enter().is_some());
        term.lose();
        assert!(other.is_over());
        assert!(!part.may_write(), "a lost term is lost for all its parts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_after_the_term_says_nothing_and_every_other_answer_counts() {
        let clock = Clock::system();
        let term = Term::new(1, clock.now() + TEN, &CancellationToken::new(), clock);
        let call = |answer: Result<&'static str, &'static str>, takes: Duration| async move {
            tokio::time::sleep(takes).await;
            answer
        };
        assert_eq!(term.during(call(Err("no"), TEN / 2)).await, Ok(Err("no")));
        assert_eq!(term.during(call(Err("no"), TEN)).await, Err(TermOver));
        assert_eq!(term.during(call(Ok("done"), TEN)).await, Ok(Ok("done")), "what is done is done");
        term.lose();
        assert_eq!(term.during(call(Ok("done"), TEN)).await, Err(TermOver), "a lost term waits for nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_others_is_sent_home_when_the_term_is_to_be_wound_down() {
        let stop = CancellationToken::new();
        let term = Term::permanent(&stop, Clock::system());
        assert_eq!(term.unless_over(async { "done" }).await, Ok("done"));
        let ends = async {
            tokio::time::sleep(TEN).await;
            stop.cancel();
        };
        let wait = tokio::time::timeout(2 * TEN, term.unless_over(std::future::pending::<()>()));
        let (waited, ()) = futures::future::join(wait, ends).await;
        assert_eq!(waited.unwrap(), Err(TermOver));
        assert!(term.may_write(), "what is in flight goes on");
        assert_eq!(term.unless_over(async { "done" }).await, Err(TermOver), "nothing is begun");
    }

    #[tokio::test(start_paused = true)]
    async fn losing_a_term_fences_at_once() {
        let clock = Clock::system();
        let term = Term::new(1, clock.now() + TEN, &CancellationToken::new(), clock);
        term.lose();
        term.lost().await;
        assert!(!term.permit()());
        assert!(!term.may_write());
    }
}
