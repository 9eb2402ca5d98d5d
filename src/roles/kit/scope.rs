//! The resources of all handlers of a term, for every role.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::events::EventsMode;
use super::failure::NoTurn;
use super::fence::Fenced;
use super::report::FailureLog;
use crate::cluster::{Api, Cache, Cached, EventKind, EventRecorder, EventTarget, ObjectName, WriteTurn};
use crate::csi::listing::list;
use crate::csi::{
    Capabilities, Client, ListedVolume, NextPass, Pages, Pass, RpcError, SnapshotLocks, VolumeLocks, VolumePasses,
};
use crate::election::{Term, TermOver};
use crate::journal::{Content, Journal, OpenError, Opened, Place};
use crate::process::{Clock, Rng, error_chain};
use crate::proto::ListVolumesRequest;
use crate::roles::role::RoleContext;
use crate::telemetry::Meter;

/// The resources of all handlers of a term. The clients are fenced: they work only during the term.
#[derive(Debug)]
pub struct TermScope {
    /// The driver's name.
    pub driver_name: String,
    /// The driver's capabilities.
    pub capabilities: Capabilities,
    /// The right to write, which ends with the term.
    pub term: Term,
    /// The API client, usable only during the term.
    pub(super) api: Fenced<Api>,
    /// The driver, usable only during the term.
    pub(super) driver: Fenced<Client>,
    /// One mutating call per volume at a time, across all roles.
    pub volume_locks: VolumeLocks,
    /// Restores of a snapshot beside each other, its deletion alone, across all roles.
    pub snapshot_locks: SnapshotLocks,
    /// The passes over the driver's volumes: one at a time, across all roles.
    pub passes: VolumePasses,
    /// Kubernetes Events.
    pub events: EventRecorder,
    /// Which failures are worth a warning.
    pub failures: FailureLog,
    /// Metrics.
    pub meter: Meter,
    /// Clock.
    pub clock: Clock,
    /// Random numbers.
    pub rng: Rng,
}

impl TermScope {
    /// The resources of a role during `term`. Its calls to the driver have the deadline `csi.timeout`.
    pub fn new(role: &RoleContext, term: &Term) -> Self {
        Self::with_timeout(role, term, None)
    }

    /// The same for a role with a deadline of its own for its calls. `None`: `csi.timeout`.
    pub fn with_timeout(role: &RoleContext, term: &Term, timeout: Option<Duration>) -> Self {
        let client = &role.driver.client;
        let driver = timeout.map_or_else(|| client.clone(), |timeout| client.with_timeout(timeout));
        Self {
            driver_name: role.driver.name.clone(),
            capabilities: role.driver.capabilities.clone(),
            term: term.clone(),
            api: Fenced::of(term, role.api.clone()),
            driver: Fenced::of(term, driver),
            volume_locks: role.driver.operations.clone(),
            snapshot_locks: role.driver.snapshots.clone(),
            passes: role.driver.passes.clone(),
            events: role.events.clone(),
            failures: FailureLog::default(),
            meter: role.meter.clone(),
            clock: role.clock,
            rng: role.rng.clone(),
        }
    }

    /// The same for a role whose section says which Events it writes.
    #[must_use]
    pub fn with_events(self, mode: EventsMode) -> Self {
        let events = if mode == EventsMode::All { self.events.counting_soon() } else { self.events.clone() };
        Self { events, ..self }
    }

    /// The turn to write the object that `seen` shows: hold it until the cache has the answer. If another role has written the object
    /// meanwhile, the attempt looks again, because the patch of an older version would fail.
    pub async fn write_turn<K: Cached>(&self, cache: &Cache<K>, seen: &K) -> Result<WriteTurn, NoTurn> {
        // An answer of the driver may still have to be recorded, so only the loss of the Lease ends the wait.
        let turn = self.term.until_lost(cache.write_turn(&ObjectName::of(seen))).await?;
        if cache.newer(seen).is_some() { Err(NoTurn::Outdated) } else { Ok(turn) }
    }

    /// Calls the driver.
    pub async fn ask<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<Result<T, RpcError>, TermOver>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let client = self.driver.use_now()?.clone();
        self.term.during(call(client)).await
    }

    /// The pass over the driver's volumes that has come next. Makes it, if it is this role's turn, and gives it to all roles. A pass that
    /// the end of the term cuts is no pass: another role makes it.
    pub async fn volume_pass(&self, next: NextPass) -> Result<Arc<Pass>, TermOver> {
        let turn = match next {
            NextPass::Made(pass) => return Ok(pass),
            NextPass::Make(turn) => turn,
        };
        let Pages { size: max_entries, timeout, .. } = turn.pages();
        let started = self.clock.now();
        let ask = |starting_token| async move {
            let request = ListVolumesRequest { max_entries, starting_token };
            let page = self.ask(async |driver: Client| driver.with_timeout(timeout).list_volumes(request).await);
            Ok::<_, TermOver>(page.await?.map(ListedVolume::page))
        };
        let result = list("ListVolumes", ask).await?;
        match &result {
            Ok(listing) => {
                debug!(pages = listing.pages(), volumes = listing.entries().len(), "listed the driver's volumes");
            }
            Err(error) => warn!(error = error_chain(error), "could not list the driver's volumes"),
        }
        Ok(turn.end(Pass { started, finished: self.clock.now(), result }))
    }

    /// Opens a journal of the term.
    pub async fn open_journal<E: Content>(&self, place: Place) -> Result<(Journal<E>, Vec<Opened<E>>), OpenError> {
        Journal::open(&self.term, self.api.for_journal(), place, self.meter.clone(), self.clock).await
    }

    /// Does work at the API that no verb does: a task of the term looks for something, or clears it away, or several attempts share what
    /// one of them reads.
    pub async fn in_task<T, F>(&self, work: impl FnOnce(Api) -> F) -> Result<T, TermOver>
    where
        F: Future<Output = T>,
    {
        let api = self.api.use_now()?.clone();
        Ok(work(api).await)
    }

    /// Records an Event, which is sent only while the term lasts.
    pub fn event(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str) {
        self.events.record(target, kind, reason, note, self.term.permit());
    }

    /// Records an Event of low priority: it is dropped if more than a few dozen wait, or if this daemon begins to stop. The release
    /// of the Lease does not wait for it.
    pub fn event_low(&self, target: &EventTarget, kind: EventKind, reason: &str, note: &str) {
        let term = self.term.clone();
        self.events.record_low(target, kind, reason, note, Arc::new(move || !term.is_over()));
    }
}
