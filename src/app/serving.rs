//! Serves one role again and again: what a failed or panicking role costs is a pause, never the process.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tracing::{error, info};

use crate::diagnostics::Board;
use crate::process::{Clock, ErrorChain, error_chain};
use crate::roles::RoleError;
use crate::telemetry::{Meter, names};

use super::role_states::{Phase, RoleStates};

/// The pause before a role whose term failed is served again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause. After a role was served for longer than this, the pause is reset to the first.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where the service of a role is shown and counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Serving<'a> {
    pub(super) states: &'a RoleStates,
    pub(super) board: &'a Board,
    pub(super) meter: &'a Meter,
    pub(super) clock: Clock,
}

/// The time for which a role is served.
pub(super) trait Span {
    /// Its number; 0: all the time.
    fn number(&self) -> u64;
    /// Whether it is over.
    fn is_over(&self) -> bool;
    /// Resolves when it is over.
    fn over(&self) -> impl Future<Output = ()> + Send;
}

impl Serving<'_> {
    /// Serves a role until the span is over, again after each error.
    pub(super) async fn until_over<S: Span, F>(&self, role: &'static str, span: &S, mut serve: impl FnMut() -> F)
    where
        F: Future<Output = Result<(), RoleError>>,
    {
        let Self { states, board, meter, clock } = *self;
        let serving = meter.gauge(&names::ROLE_SERVING, &[("role", role)]);
        let mut pauses = Pauses::default();
        while !span.is_over() {
            let begun = clock.now();
            states.enter(role, Phase::Serving, clock.now());
            serving.set(1.0);
            info!(role, term = span.number(), "serving");
            let served = AssertUnwindSafe(serve()).catch_unwind().await;
            let result = served.unwrap_or_else(|panic| Err(RoleError::panicked(panic.as_ref())));
            serving.set(0.0);
            let Err(error) = result else { break };
            if let RoleError::TaskEnded(end) = &error {
                meter.counter(&names::TASK_FAILURES, &[("task", &end.task)]).increment(1);
                board.task_failed(end);
            }
            let pause = pauses.after(clock.now().saturating_duration_since(begun));
            error!(role, error = %ErrorChain(&error), pause = ?pause, "the term ended in an error; serving again after a pause");
            meter.counter(&names::ROLE_RESTARTS, &[("role", role)]).increment(1);
            states.failed(role, error_chain(&error), clock.now());
            states.enter(role, Phase::Restarting, clock.now());
            tokio::select! {
                biased;
                () = span.over() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        info!(role, term = span.number(), "term served");
    }
}

/// The pauses before a role is served again.
#[derive(Debug)]
struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Pauses {
    /// The pause after a failure of a role that was served for this time.
    fn after(&mut self, served: Duration) -> Duration {
        let pause = if served > LONGEST_PAUSE { FIRST_PAUSE } else { self.next };
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_fails_again_and_again_is_served_ever_later_and_one_that_held_out_at_once() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..8).map(|_| pauses.after(Duration::from_secs(2)).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses.after(LONGEST_PAUSE), LONGEST_PAUSE, "just about as long as it was waited for");
        assert_eq!(pauses.after(LONGEST_PAUSE + FIRST_PAUSE), FIRST_PAUSE);
        assert_eq!(pauses.after(FIRST_PAUSE), 2 * FIRST_PAUSE);
    }
}
