//! Tells the demo: a line a step with its time, and a sign of life while a step waits.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long a step may take to be observed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a step that waits says so.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// A step was not observed in time.
#[derive(Debug, Error)]
#[error("not observed within {limit}s: {what}; last seen: {seen}", limit = PATIENCE.as_secs())]
pub struct NotObserved {
    what: String,
    seen: String,
}

/// What an observation came to.
#[derive(Debug)]
pub enum Seen<T> {
    /// It is so, and this is what it looks like.
    Yes(T),
    /// Not yet; this is how things stand.
    NotYet(String),
}

/// Tells the demo.
pub struct Narrator {
    out: Box<dyn Write + Send>,
    began: Instant,
    steps: usize,
    skipped: usize,
}

impl Narrator {
    /// Tells it to `out`, from now on.
    pub fn new(out: Box<dyn Write + Send>, now: Instant) -> Self {
        Self { out, began: now, steps: 0, skipped: 0 }
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

    /// How many steps were observed, and how many were skipped.
    pub fn count(&self) -> (usize, usize) {
        (self.steps, self.skipped)
    }

    /// Since the demo began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Looks again at each change, until `look` sees what it wants or patience ends.
    pub async fn observe<T, C>(
        &mut self,
        what: &str,
        mut changed: impl FnMut() -> C,
        mut look: impl AsyncFnMut() -> Seen<T>,
    ) -> Result<T, NotObserved>
    where
        C: Future<Output = ()>,
    {
        let deadline = Instant::now() + PATIENCE;
        let mut sign = Instant::now() + SIGN_OF_LIFE;
        loop {
            let change = changed();
            let seen = match look().await {
                Seen::Yes(value) => return Ok(value),
                Seen::NotYet(seen) => seen,
            };
            tokio::select! {
                biased;
                waited = timeout_at(deadline, change) => if waited.is_err() {
                    return Err(NotObserved { what: what.to_owned(), seen });
                },
                () = sleep_until(sign) => {
                    sign = Instant::now() + SIGN_OF_LIFE;
                    self.line(format_args!("            ... waiting: {what} ({seen})"));
                }
            }
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
