//! The task that reads and writes segments as the ledger says.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::error::{JournalError, OpenError};
use super::format::{self, Content, Version};
use super::journal::{Inner, Journal, Opened, answer, fetch, opened_from};
use super::ledger::{Commit, Compared, Found, Next, Outcome};
use super::told::{warn_appeared, warn_foreign};
use crate::cluster::{ApiError, ApiErrorKind, ConfigMapMeta};
use crate::election::TermOver;
use crate::process::error_chain;

/// How often the metrics are updated while there are entries.
const TICK: Duration = Duration::from_secs(1);

/// A request that has ended.
enum Done {
    Read(usize, Found),
    Write(Arc<Commit>, Outcome),
}

impl<E: Content> Journal<E> {
    /// Writes recorded and removed entries until the term ends; then it waits to be dropped. If it finds entries of another
    /// writer, the journal adopts them, and it calls `adopted` for each. There is one `run` per journal: once it is dropped,
    /// nothing can be recorded any more.
    pub async fn run(self, adopted: impl Fn(Opened<E>) + Send + 'static) {
        let inner = &*self.0;
        let _closing = Closing(inner);
        let mut requests = FuturesUnordered::new();
        let mut shown = inner.clock.now();
        loop {
            let (next, is_empty) = {
                let mut ledger = inner.lock();
                let next = ledger.next(inner.now());
                answer(&mut ledger);
                let now = inner.clock.now();
                if ledger.is_empty() || now >= shown + TICK {
                    inner.metrics.show(&ledger, inner.clock.wall());
                    shown = now;
                }
                (next, ledger.is_empty())
            };
            // An empty journal needs no tick.
            let tick = (!is_empty).then_some(shown + TICK);
            let timer = match next {
                Next::Read(n) => {
                    requests.push(inner.perform(Step::Read(n)));
                    continue;
                }
                Next::Write(commit) => {
                    requests.push(inner.perform(Step::Write(commit)));
                    continue;
                }
                Next::WaitUntil(at) => Some(inner.instant(at)),
                Next::Idle => None,
            };
            tokio::select! {
                biased;
                Some(done) = requests.next(), if !requests.is_empty() => {
                    for entry in inner.finish(done) {
                        adopted(entry);
                    }
                }
                // Callers that are about to record an entry do so first, and share the commit.
                () = inner.wake.notified() => tokio::task::yield_now().await,
                () = sleep_until(timer) => {}
                () = sleep_until(tick) => {}
            }
        }
    }
}

/// A request to be made.
enum Step {
    Read(usize),
    Write(Arc<Commit>),
}

impl<E: Content> Inner<E> {
    async fn perform(&self, step: Step) -> Done {
        match step {
            Step::Read(n) => Done::Read(n, self.read(n).await),
            Step::Write(commit) => {
                let outcome = match self.write(&commit).await {
                    Ok(Ok(object)) => Outcome::Stored(Version::of(&object.metadata)),
                    Ok(Err(error)) => Outcome::of(error, commit.basis.is_none()),
                    Err(TermOver) => Outcome::NotSent,
                };
                Done::Write(commit, outcome)
            }
        }
    }

    async fn read(&self, n: usize) -> Found {
        match fetch::<E>(&self.api, &self.place, n).await {
            Ok(None) => Found::Absent,
            Ok(Some(contents)) => Found::Segment(contents),
            Err(OpenError::Unreadable(fault)) => Found::Unreadable(fault),
            Err(OpenError::Api(error)) if error.kind() != ApiErrorKind::NotPermitted => Found::Failed(error),
            Err(OpenError::Api(_) | OpenError::TermOver(_)) => Found::NotSent,
        }
    }

    async fn write(&self, commit: &Commit) -> Result<Result<ConfigMapMeta, ApiError>, TermOver> {
        let name = self.place.segment(commit.segment);
        let api = self.api.use_now()?;
        Ok(match &commit.basis {
            None => api.create(&name, &format::creation(&self.place, commit.segment)).await,
            Some(basis) => api.patch(&name, &format::change(basis, &commit.set, &commit.since, &commit.remove)).await,
        })
    }

    /// Passes the end of a request to the ledger. Returns the entries of another writer.
    fn finish(&self, done: Done) -> Vec<Opened<E>> {
        let mut ledger = self.lock();
        match done {
            Done::Read(n, found) => {
                let error = match &found {
                    Found::Unreadable(fault) => Some(error_chain(fault.as_ref())),
                    Found::Failed(error) => Some(error_chain(error)),
                    Found::Absent | Found::Segment(_) | Found::NotSent => None,
                };
                let compared = ledger.compare(n, found, self.now());
                answer(&mut ledger);
                drop(ledger);
                self.report(n, error.as_deref(), &compared);
                compared.adopted.iter().filter_map(opened_from).collect()
            }
            Done::Write(commit, outcome) => {
                self.metrics.wrote(&commit, &outcome);
                // An outage of the API has lines of its own.
                let failure = outcome.failure().filter(|error| !error.is_of_outage());
                let error = failure.map(|error| error_chain(error));
                ledger.written(commit.segment, outcome, self.now());
                let answered = answer(&mut ledger);
                drop(ledger);
                // Otherwise the callers that wait for the write report the error.
                if let Some(error) = error.filter(|_| answered == 0) {
                    let segment = self.place.segment(commit.segment);
                    warn!(%segment, error, "cannot bring a segment of the journal up to date, will try again");
                }
                Vec::new()
            }
        }
    }

    /// Logs what a read has found.
    fn report(&self, n: usize, error: Option<&str>, compared: &Compared) {
        let segment = self.place.segment(n);
        if compared.has_broken {
            error!(%segment, error, "a segment of the journal has become unreadable: nothing is recorded until it is repaired");
        }
        if compared.has_failed {
            warn!(%segment, error, "cannot read a segment of the journal, will try again");
        }
        if compared.is_repaired {
            info!(%segment, "the segment of the journal is readable again");
        }
        if compared.rewritten > 0 {
            self.metrics.rewritten.increment(compared.rewritten as u64);
            let entries = compared.rewritten;
            warn!(%segment, entries, "entries of the journal were deleted or edited: they are written again");
        }
        for stored in &compared.foreign {
            warn_foreign::<E>(&self.place, n, stored);
        }
        for stored in &compared.appeared {
            warn_appeared::<E>(&self.place, n, stored);
        }
        if compared.dismissed > 0 {
            let entries = compared.dismissed;
            info!(%segment, entries, "entries of the journal that were left alone were deleted");
        }
        if !compared.adopted.is_empty() {
            let entries = compared.adopted.len();
            warn!(%segment, entries, "found entries of another writer in the journal");
        }
    }
}

/// When the task ends, this ends the calls of `record` that still wait.
struct Closing<'a, E>(&'a Inner<E>);

impl<E> Drop for Closing<'_, E> {
    fn drop(&mut self) {
        let mut ledger = self.0.lock();
        ledger.close(&JournalError::TermOver(TermOver));
        answer(&mut ledger);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => future::pending().await,
    }
}
