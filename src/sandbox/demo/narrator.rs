//! Prints the demo: a line per step with its time, and a message while a step waits.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The default bound of a step's observation.
pub(in crate::sandbox) const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of the messages of a waiting step.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Between two looks at least: a step that waits keeps no core busy, however often something changes.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A step was not observed in time.
#[derive(Debug, Error)]
#[error("step {step} was not observed within {limit}s: {what}; last seen: {seen}; {world}", limit = .limit.as_secs_f64())]
pub struct NotObserved {
    step: usize,
    limit: Duration,
    what: String,
    seen: String,
    world: String,
}

impl NotObserved {
    /// The same with what else there was to see at that time.
    #[must_use]
    pub fn in_world(self, world: String) -> Self {
        Self { world, ..self }
    }
}

/// The result of an observation.
#[derive(Debug)]
pub enum Seen<T> {
    /// It was observed, and this is what it looks like.
    Yes(T),
    /// Not yet; this is how things stand.
    NotYet(String),
}

/// Prints the demo.
pub struct Narrator {
    out: Box<dyn Write + Send>,
    step_timeout: Duration,
    began: Instant,
    steps: usize,
    skipped: usize,
}

impl Narrator {
    /// Prints to `out`, from now on. Each step may take so long to be observed.
    pub fn new(out: Box<dyn Write + Send>, step_timeout: Duration, now: Instant) -> Self {
        Self { out, step_timeout, began: now, steps: 0, skipped: 0 }
    }

    /// A heading or a hint, without a time.
    pub fn say(&mut self, text: impl fmt::Display) {
        self.line(format_args!("{text}"));
    }

    /// A step that was observed.
    pub fn step(&mut self, text: impl fmt::Display) {
        self.steps += 1;
        let time = self.began.elapsed().as_secs_f64();
        self.line(format_args!("{time:>8.3}s  {text}"));
    }

    /// A step that this driver cannot play, and why.
    pub fn skip(&mut self, text: impl fmt::Display, reason: &str) {
        self.skipped += 1;
        self.line(format_args!("       -    skipped: {text} ({reason})"));
    }

    /// The numbers of observed and of skipped steps.
    pub fn count(&self) -> (usize, usize) {
        (self.steps, self.skipped)
    }

    /// Since the demo began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The bound of each step.
    pub(super) fn step_timeout(&self) -> Duration {
        self.step_timeout
    }

    /// Looks again at each change, until `look` succeeds or the time is over.
    pub async fn observe<T, C>(
        &mut self,
        what: &str,
        mut changed: impl FnMut() -> C,
        mut look: impl AsyncFnMut() -> Seen<T>,
    ) -> Result<T, NotObserved>
    where
        C: Future<Output = ()>,
    {
        let deadline = Instant::now() + self.step_timeout;
        let mut sign = Instant::now() + SIGN_OF_LIFE;
        let mut seen = "nothing".to_owned();
        loop {
            let change = changed();
            match timeout_at(deadline, look()).await {
                Ok(Seen::Yes(value)) => return Ok(value),
                Ok(Seen::NotYet(found)) => seen = found,
                // The next wait ends at once.
                Err(_) => {}
            }
            let next_look = Instant::now() + LOOK_PAUSE;
            let change = async {
                change.await;
                sleep_until(next_look).await;
            };
            tokio::pin!(change);
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(deadline) => return Err(self.not_observed(what, seen)),
                    () = sleep_until(sign) => {
                        sign = Instant::now() + SIGN_OF_LIFE;
                        self.line(format_args!("            ... waiting: {what} ({seen})"));
                    }
                    () = &mut change => break,
                }
            }
        }
    }

    /// The step that comes next was waited for in vain.
    pub(super) fn not_observed(&self, what: &str, seen: String) -> NotObserved {
        NotObserved {
            step: self.steps + 1,
            limit: self.step_timeout,
            what: what.to_owned(),
            seen,
            world: "nothing else is known".to_owned(),
        }
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        // A reader that went away does not end the demo.
        let _: io::Result<()> = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
    }
}

impl fmt::Debug for Narrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Narrator").field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_ends_in_time_and_spins_neither_where_changes_never_cease_nor_where_none_comes() {
        for changes_at_once in [true, false] {
            let mut narrator = Narrator::new(Box::new(io::sink()), STEP_TIMEOUT, Instant::now());
            narrator.step("the first one");
            let (begun, mut looks) = (Instant::now(), 0_u32);
            let changed = || async move {
                if !changes_at_once {
                    std::future::pending::<()>().await;
                }
            };
            let look = async || {
                looks += 1;
                assert!(looks < 10_000, "it spins");
                Seen::<()>::NotYet("its phase is Pending".to_owned())
            };
            let error = narrator.observe("the claim is bound", changed, look).await.unwrap_err();
            assert_eq!(begun.elapsed().as_secs(), STEP_TIMEOUT.as_secs());
            let most = if changes_at_once { STEP_TIMEOUT.as_millis() / LOOK_PAUSE.as_millis() + 1 } else { 1 };
            assert!(u128::from(looks) <= most, "{looks} looks");
            let said = error.in_world("claim a is Pending".to_owned()).to_string();
            let told = "step 2 was not observed within 60s: the claim is bound; last seen: its phase is Pending; claim a is Pending";
            assert_eq!(said, told);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_gets_no_answer_ends_in_time() {
        let mut narrator = Narrator::new(Box::new(io::sink()), STEP_TIMEOUT, Instant::now());
        let begun = Instant::now();
        let look = async || std::future::pending::<Seen<()>>().await;
        let observed = narrator.observe("an answer", || std::future::ready(()), look).await;
        assert!(observed.is_err());
        assert_eq!(begun.elapsed().as_secs(), STEP_TIMEOUT.as_secs());
    }
}
