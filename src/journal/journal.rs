//! The journal's interface for a role: open, record, remove, list. The task in [`run`](super::run) does the writing.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::error::{JournalError, OpenError};
use super::format::{self, Content, Contents, Key, Stored};
use super::ledger::{JournalStatus, Ledger, LeftBecause, Recorded};
use super::metrics::JournalMetrics;
use super::place::{Place, SEGMENTS, selector};
use super::told::warn_foreign;
use crate::cluster::names::ANNOTATION_JOURNAL_NODE;
use crate::cluster::{Api, ConfigMap, ObjectName, SmolStr};
use crate::election::{Term, TermOver};
use crate::process::Clock;
use crate::process::Permitted as _;
use crate::telemetry::Meter;

/// An entry that was in the journal before this term, or that another writer has added.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened<E> {
    /// Its key.
    pub key: String,
    /// When it was first recorded.
    pub at: Timestamp,
    /// A version of the API from before that: what came of the request has a later one. Empty: unknown.
    pub since: SmolStr,
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

/// An entry that the daemon does not act on.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftRow<E> {
    /// The object that has it.
    pub segment: ObjectName,
    /// The entry.
    pub entry: Opened<E>,
    /// Why the daemon does not act on it.
    pub because: LeftReason,
}

/// Why the daemon does not act on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftReason {
    /// It does not prove that nothing came of its request (J10).
    Unproven,
    /// It appeared when no daemon could have written it.
    Appeared,
    /// It was not written for the object that it is on (J9).
    Foreign,
}

impl From<LeftBecause> for LeftReason {
    fn from(because: LeftBecause) -> Self {
        match because {
            LeftBecause::Unproven => Self::Unproven,
            LeftBecause::Appeared => Self::Appeared,
        }
    }
}

/// The journal of one driver in one term, or of a driver on one node. Clones share it. [`run`](Self::run) writes the
/// entries; it must run as a task of the term.
pub struct Journal<E>(pub(super) Arc<Inner<E>>);

/// What waits for an entry to be durable.
pub(super) type Waiter = oneshot::Sender<Result<(), JournalError>>;

pub(super) struct Inner<E> {
    pub(super) api: DuringTerm,
    pub(super) place: Place,
    pub(super) clock: Clock,
    pub(super) metrics: JournalMetrics,
    /// Wakes [`Journal::run`] after a change.
    pub(super) wake: Notify,
    origin: Instant,
    ledger: Mutex<Ledger<Waiter>>,
    content: PhantomData<fn() -> E>,
}

/// The API, as long as the term lasts.
pub(super) struct DuringTerm {
    api: Api,
    term: Term,
}

impl DuringTerm {
    /// For a request that begins now.
    pub(super) fn use_now(&self) -> Result<&Api, TermOver> {
        if self.term.may_write() { Ok(&self.api) } else { Err(TermOver) }
    }
}

impl<E: Content> Journal<E> {
    /// Reads all segments from the API at once, and returns the journal and its entries. Changes nothing in the API, also
    /// if a segment cannot be read.
    pub async fn open(
        term: &Term,
        api: Api,
        place: Place,
        meter: Meter,
        clock: Clock,
    ) -> Result<(Self, Vec<Opened<E>>), OpenError> {
        let api = DuringTerm { api: api.permitted(term.permit()), term: term.clone() };
        let reads = join_all((0..SEGMENTS).map(|n| fetch::<E>(&api, &place, n))).await;
        let mut found = Vec::with_capacity(SEGMENTS);
        for read in reads {
            found.push(read?);
        }
        let ledger = Ledger::open(found);
        for (n, entry) in ledger.foreign() {
            warn_foreign::<E>(&place, n, entry);
        }
        let opened = ledger.all().filter_map(|it| opened_from(&it)).collect();
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
        self.change(|ledger, now| ledger.remove(key, now));
    }

    /// Leaves an entry alone: the daemon must not act on it, because it does not prove that nothing came of its request. It stays on its
    /// object, and on the status page, until a person deletes it there.
    pub fn leave(&self, key: &str) {
        self.change(|ledger, now| _ = ledger.leave(key, now));
    }

    /// Changes what is wanted, and has it written.
    fn change(&self, change: impl FnOnce(&mut Ledger<Waiter>, Duration)) {
        let mut ledger = self.0.lock();
        change(&mut ledger, self.0.now());
        answer(&mut ledger);
        drop(ledger);
        self.0.wake.notify_one();
    }

    /// The keys that are wanted, of all that are on an object or may yet be.
    pub fn keys(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.0.lock().keys().filter(|key| is_wanted(key)).map(ToString::to_string).collect()
    }

    /// A version of the API from before the entry of this key was first durable.
    pub fn since(&self, key: &str) -> Option<SmolStr> {
        self.0.lock().since(key)
    }

    /// Whether no successor can find an entry of this key that it would act on.
    pub fn is_gone(&self, key: &str) -> bool {
        self.0.lock().is_gone(key)
    }

    /// Waits until no successor can find an entry of this key (J8). Returns at once if there is none, and after `patience` with the
    /// reason why the entry is still there.
    pub async fn gone(&self, key: &str, patience: Duration) -> Result<(), JournalError> {
        let (sender, receiver) = oneshot::channel();
        let is_gone = {
            let mut ledger = self.0.lock();
            let is_gone = ledger.when_gone(&Key::from(key), sender).is_some();
            answer(&mut ledger);
            is_gone
        };
        if is_gone {
            return Ok(());
        }
        self.0.wake.notify_one();
        match tokio::time::timeout(patience, receiver).await {
            Ok(outcome) => outcome.unwrap_or(Err(JournalError::TermOver(TermOver))),
            Err(_) => Err(JournalError::Kept(self.0.lock().obstacle().map(Box::new))),
        }
    }

    /// The entries that are left alone, and those on objects that they were not written for, oldest first.
    pub fn left(&self) -> Vec<LeftRow<E>> {
        let ledger = self.0.lock();
        let left = ledger.left().map(|left| (left.segment, left.stored.clone(), left.because.into()));
        let foreign = ledger.foreign().map(|(n, stored)| (n, stored.clone(), LeftReason::Foreign));
        let all: Vec<_> = left.chain(foreign).collect();
        drop(ledger);
        let row = |(n, stored, because): (usize, Stored, LeftReason)| {
            let entry = opened_from(&stored)?;
            Some(LeftRow { segment: self.0.place.segment(n), entry, because })
        };
        let mut rows: Vec<LeftRow<E>> = all.into_iter().filter_map(row).collect();
        rows.sort_by_key(|row| row.entry.at);
        rows
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
        let stored: Vec<Stored> = self.0.lock().all().collect();
        let mut opened: Vec<Opened<E>> = stored.iter().filter_map(opened_from).collect();
        opened.sort_by_key(|entry| entry.at);
        let row = |Opened { key, at, content, .. }| {
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
    api: &DuringTerm,
    place: &Place,
    n: usize,
) -> Result<Option<Contents>, OpenError> {
    fetch_with::<E>(api.use_now()?, place, n).await
}

async fn fetch_with<E: Content>(api: &Api, place: &Place, n: usize) -> Result<Option<Contents>, OpenError> {
    let Some(object) = api.get_opt::<ConfigMap>(&place.segment(n)).await? else { return Ok(None) };
    Ok(Some(format::read::<E>(place, n, object).map_err(Arc::new)?))
}

/// Reads the entries of the journals that other roles or other daemons of the driver keep, copies among them: of the one at `place`, and
/// of those of nodes in the same namespace. Changes nothing.
pub async fn read<E: Content>(api: &Api, place: &Place) -> Result<Vec<Opened<E>>, OpenError> {
    let labels = selector(&place.driver);
    let of_nodes = api.list::<ConfigMap>(Some(&place.namespace), Some(&labels));
    let (reads, of_nodes) = join(join_all((0..SEGMENTS).map(|n| fetch_with::<E>(api, place, n))), of_nodes).await;
    let mut segments = reads.into_iter().filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    for object in of_nodes? {
        let Some(node) = object.metadata.annotation(ANNOTATION_JOURNAL_NODE) else { continue };
        let place = place.of_node(node);
        // No daemon reads one of another name.
        let n = Place::names(&place.stem).iter().position(|name| **name == *object.metadata.name);
        if let Some(n) = n {
            segments.push(format::read::<E>(&place, n, object).map_err(Arc::new)?);
        }
    }
    let all = segments.iter().flat_map(|Contents { entries, copies, .. }| entries.iter().chain(copies));
    Ok(all.filter_map(opened_from).collect())
}

/// An entry from its copy on an object. Only texts that can be read get into a ledger.
pub(super) fn opened_from<E: Content>(stored: &Stored) -> Option<Opened<E>> {
    let (at, content) = format::parse(&stored.text).ok()?;
    Some(Opened { key: stored.key.to_string(), at, since: stored.since.clone(), content })
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
        self.ledger.lock()
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
