//! The journal's interface for a role: open, record, remove, list. The task in [`run`](super::run) does the writing.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::error::{JournalError, OpenError};
use super::format::{self, Content, Contents, Key, Stored};
use super::ledger::{JournalStatus, Ledger, Recorded};
use super::metrics::JournalMetrics;
use super::place::{Place, SEGMENTS};
use crate::cluster::{Api, ConfigMap};
use crate::election::{Fenced, TermOver};
use crate::process::Clock;
use crate::telemetry::Meter;

/// An entry that was in the journal before this term, or that another writer has added.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened<E> {
    /// Its key.
    pub key: String,
    /// When it was first recorded.
    pub at: Timestamp,
    /// Its content.
    pub content: E,
}

/// An entry, for the status page.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<E> {
    /// Its key.
    pub key: String,
    /// Time since it was first recorded.
    pub age: Duration,
    /// Its content.
    pub content: E,
}

/// The journal of one driver in one term, or of a driver on one node. Clones share it. [`run`](Self::run) writes the
/// entries; it must run as a task of the term.
pub struct Journal<E>(pub(super) Arc<Inner<E>>);

/// What waits for an entry to be durable.
pub(super) type Waiter = oneshot::Sender<Result<(), JournalError>>;

pub(super) struct Inner<E> {
    pub(super) api: Fenced<Api>,
    pub(super) place: Place,
    pub(super) clock: Clock,
    pub(super) metrics: JournalMetrics,
    /// Wakes [`Journal::run`] after a change.
    pub(super) wake: Notify,
    origin: Instant,
    ledger: Mutex<Ledger<Waiter>>,
    content: PhantomData<fn() -> E>,
}

impl<E: Content> Journal<E> {
    /// Reads all segments from the API at once, and returns the journal and its entries. Changes nothing in the API, also
    /// if a segment cannot be read.
    pub async fn open(
        api: Fenced<Api>,
        place: Place,
        meter: Meter,
        clock: Clock,
    ) -> Result<(Self, Vec<Opened<E>>), OpenError> {
        let reads = join_all((0..SEGMENTS).map(|n| fetch::<E>(&api, &place, n))).await;
        let mut found = Vec::with_capacity(SEGMENTS);
        for read in reads {
            found.push(read?.map(|contents| (contents.object, contents.entries)));
        }
        let ledger = Ledger::open(found);
        let opened = ledger.entries().filter_map(|(key, _, text)| opened(key, text)).collect();
        let metrics = JournalMetrics::new(&meter, &place.driver);
        metrics.show(&ledger, clock.wall());
        let inner = Inner {
            api,
            place,
            clock,
            metrics,
            wake: Notify::new(),
            origin: clock.now(),
            ledger: Mutex::new(ledger),
            content: PhantomData,
        };
        Ok((Self(Arc::new(inner)), opened))
    }

    /// Makes the entry durable, and returns once the API has confirmed it. If the same content is durable already, it
    /// returns at once. Another content under the same key replaces the entry. After an error, the entry is as it was before.
    pub async fn record(&self, key: &str, content: &E) -> Result<(), JournalError> {
        let unwritable = |source: Option<serde_json::Error>| JournalError::Unwritable {
            key: key.to_owned(),
            source: source.map(Arc::new),
        };
        if !format::is_key(key) {
            return Err(unwritable(None));
        }
        let (sender, receiver) = oneshot::channel();
        let recorded = {
            let mut ledger = self.0.lock();
            let at = ledger.time_of(key, self.0.clock.wall());
            let text = format::text(at, content).map_err(|error| unwritable(Some(error)))?;
            let recorded = ledger.record(&Key::from(key), text.into(), at, sender, self.0.now());
            answer(&mut ledger);
            recorded
        };
        match recorded {
            Recorded::Durable => return Ok(()),
            Recorded::Failed(error) => return Err(error),
            Recorded::Waits => self.0.wake.notify_one(),
        }
        receiver.await.unwrap_or(Err(JournalError::TermOver(TermOver)))
    }

    /// Drops an entry that is no longer needed from memory. The next write to its object removes it there.
    pub fn remove(&self, key: &str) {
        let mut ledger = self.0.lock();
        ledger.remove(key, self.0.now());
        answer(&mut ledger);
        drop(ledger);
        self.0.wake.notify_one();
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> Vec<Row<E>> {
        let now = self.0.clock.wall();
        let texts: Vec<(Key, Arc<str>)> =
            self.0.lock().entries().map(|(key, _, text)| (Arc::clone(key), Arc::clone(text))).collect();
        let mut opened: Vec<Opened<E>> = texts.iter().filter_map(|(key, text)| opened(key, text)).collect();
        opened.sort_by_key(|entry| entry.at);
        let row = |Opened { key, at, content }| {
            let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            Row { key, age, content }
        };
        opened.into_iter().map(row).collect()
    }

    /// The journal as a whole, for the status page.
    pub fn status(&self) -> JournalStatus {
        self.0.lock().status()
    }
}

/// Reads segment `n`.
pub(super) async fn fetch<E: Content>(
    api: &Fenced<Api>,
    place: &Place,
    n: usize,
) -> Result<Option<Contents>, OpenError> {
    let Some(object) = api.use_now()?.get_opt::<ConfigMap>(&place.segment(n)).await? else { return Ok(None) };
    Ok(Some(format::read::<E>(place, n, object).map_err(Arc::new)?))
}

/// An entry from its text. Only texts that can be read get into a ledger.
fn opened<E: Content>(key: &Key, text: &str) -> Option<Opened<E>> {
    let (at, content) = format::parse(text).ok()?;
    Some(Opened { key: key.to_string(), at, content })
}

/// An entry from its copy on an object.
pub(super) fn opened_from<E: Content>(stored: &Stored) -> Option<Opened<E>> {
    opened(&stored.key, &stored.text)
}

/// Sends the outcomes to the waiting callers of [`Journal::record`]. Returns how many callers there were.
pub(super) fn answer(ledger: &mut Ledger<Waiter>) -> usize {
    let settled = ledger.take_settled();
    let count = settled.len();
    for (waiter, outcome) in settled {
        // The caller may have stopped waiting.
        let _ = waiter.send(outcome);
    }
    count
}

impl<E> Inner<E> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger<Waiter>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the journal was opened.
    pub(super) fn now(&self) -> Duration {
        self.clock.now() - self.origin
    }

    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.origin + at
    }
}

impl<E> Clone for Journal<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for Journal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("place", &self.0.place).finish_non_exhaustive()
    }
}
