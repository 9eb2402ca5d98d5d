//! One attempt at a data source: removes the finalizer from a source that no claim needs any more.

use std::sync::Arc;

use tracing::info;

use crate::cluster::{
    ApiError, ApiErrorKind, Cache, Cached, Meta, ObjectName, PersistentVolume, PersistentVolumeClaim, VolumeSnapshot,
    VolumeSnapshotContent, patch,
};
use crate::csi::VolumeLock;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{Attempt, AttemptError, Next, NoReason, Op, Reconciler, Stop, TermScope};
use crate::roles::provisioner::context::Context;

use super::decide::{End, Presence, Step, View, next_step};
use super::protection::{SourceKey, SourceKind};
use super::source::bound_content;
use super::users::is_used;

/// Reads the source.
const FIND: Op = Op("cannot read the data source");
/// Reads the volume or the content that the source is bound to.
const FIND_DRIVER: Op = Op("cannot read the volume or the content behind the data source");
/// Removes our finalizer from the source.
const RELEASE: Op = Op("cannot remove the protection finalizer from the data source");
/// Reads the source again after a conflict.
const REFRESH: Op = Op("cannot read the data source again after a conflict");

/// Works on the queue of data sources.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct SourceReconciler {
    cx: Arc<Context>,
}

/// A data source, as it was seen.
#[derive(Debug, Clone)]
pub(in crate::roles::provisioner) enum SourceObject {
    /// Another claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A snapshot.
    Snapshot(Arc<VolumeSnapshot>),
}

/// What the API said about the source.
#[derive(Debug, Default)]
enum Read {
    /// The API was not asked.
    #[default]
    NotYet,
    /// It does not have the source.
    Absent,
    /// It has this one.
    Found(SourceObject),
}

/// What one attempt knows beside the caches.
#[derive(Debug, Default)]
pub(in crate::roles::provisioner) struct State {
    /// The source, as it was read.
    read: Read,
    /// Whether the object that the source is bound to belongs to our driver.
    driver: Option<(ObjectName, bool)>,
    /// The source's lock.
    lock: Option<VolumeLock>,
    /// Our finalizer is removed.
    released: bool,
}

/// The input of one decision.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Observed {
    source: Option<SourceObject>,
    view: View,
}

/// The result of a step.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum Event {
    /// Claims were listed.
    Listed,
    /// The source was read. `None`: the API does not have it.
    Read(Option<SourceObject>),
    /// The object that the source is bound to was read. `true`: it belongs to our driver, or there is no such object.
    DriverRead(ObjectName, bool),
    /// The source is locked.
    Locked(VolumeLock),
    /// Our finalizer is removed.
    Released,
}

impl Reconciler for SourceReconciler {
    type Key = SourceKey;
    type State = State;
    type View = Observed;
    type Step = Step;
    type Event = Event;
    type End = End;
    type Reason = NoReason;

    fn scope(&self) -> &TermScope {
        &self.cx.scope
    }

    fn begin(&self, _: &Ticket<SourceKey>) -> Option<State> {
        Some(State::default())
    }

    fn observe(&self, key: &SourceKey, state: &State) -> Observed {
        let cached = self.cached(key);
        let source = match &state.read {
            // The watch may not show it yet.
            Read::Absent => None,
            Read::Found(read) => Some(cached.unwrap_or_else(|| read.clone())),
            Read::NotYet => cached,
        };
        let finalizer = key.kind.finalizer();
        let presence = match &source {
            Some(source) if source.meta().has_finalizer(finalizer) => Presence::Protected,
            Some(_) => Presence::Unprotected,
            None if !matches!(state.read, Read::NotYet) => Presence::Absent,
            None => Presence::Unseen,
        };
        let matters = matches!(presence, Presence::Protected | Presence::Unseen);
        let view = View {
            presence,
            is_used: matters && is_used(&self.cx, key),
            relisted: self.cx.sources.relisted.is_done(),
            is_ours: source.as_ref().and_then(|source| self.is_ours(source, state)),
            locked: state.lock.is_some(),
            released: state.released,
        };
        Observed { source, view }
    }

    fn next_step(&self, seen: &Observed, _: &State) -> Next<Step, End> {
        next_step(&seen.view)
    }

    fn has_answer(&self, _: &State) -> bool {
        false
    }

    fn keeps_changes(&self, state: &State) -> bool {
        !matches!(state.read, Read::NotYet)
    }

    async fn perform(
        &self,
        step: Step,
        seen: &Observed,
        _: &State,
        attempt: &mut Attempt<'_, SourceKey>,
    ) -> Result<Event, Stop<NoReason>> {
        let (cx, term) = (&self.cx, &self.cx.scope.term);
        let key = attempt.ticket.key().clone();
        match (step, &seen.source) {
            (Step::Relist, _) => {
                attempt.park(term, cx.relist_claims()).await?;
                Ok(Event::Listed)
            }
            (Step::Lock, _) => Ok(Event::Locked(cx.sources.locks.lock(&key, attempt.ticket, term).await?)),
            (Step::FindDriver, Some(source)) => self.find_driver(source).await,
            (Step::Release, Some(source)) => self.release(source).await,
            (Step::Find | Step::FindDriver | Step::Release, _) => match self.read(key.kind, &key.name).await? {
                // A source that this daemon may not read has no finalizer of ours.
                Err(error) if error.kind() == ApiErrorKind::Forbidden => Ok(Event::Read(None)),
                read => Ok(Event::Read(read.map_err(|error| FIND.failed(error))?)),
            },
        }
    }

    fn apply(&self, state: &mut State, event: Event) {
        match event {
            Event::Listed => {}
            Event::Read(source) => state.read = source.map_or(Read::Absent, Read::Found),
            Event::DriverRead(name, is_ours) => state.driver = Some((name, is_ours)),
            Event::Locked(lock) => state.lock = Some(lock),
            Event::Released => state.released = true,
        }
    }

    async fn refresh(&self, seen: &Observed, error: &AttemptError<NoReason>) -> Result<Option<Event>, Stop<NoReason>> {
        let Some(seen) = &seen.source else { return Ok(None) };
        let read = self.read(seen.kind(), &seen.name()).await?.map_err(|error| REFRESH.failed(error))?;
        // The write found no object, but this read does: write again at the next attempt.
        let is_denied = error.api().is_some_and(|error| error.kind() == ApiErrorKind::NotFound);
        let is_same = |read: &SourceObject| read.meta().resource_version == seen.meta().resource_version;
        if !is_denied && read.as_ref().is_some_and(is_same) {
            return Ok(None);
        }
        match &read {
            Some(SourceObject::Claim(claim)) => self.cx.stores.claims.apply_own_write(claim.as_ref().clone()),
            Some(SourceObject::Snapshot(snapshot)) => {
                self.cx.stores.snapshots.apply_own_write(snapshot.as_ref().clone());
            }
            None => {}
        }
        Ok(Some(Event::Read(read)))
    }

    async fn conclude(
        &self,
        ticket: &Ticket<SourceKey>,
        state: State,
        ended: Result<End, AttemptError<NoReason>>,
    ) -> Outcome {
        // Unlock the source first.
        drop(state);
        let key = ticket.key();
        match ended {
            Ok(End::Left) => Outcome::Settled,
            Ok(End::Released) => {
                info!(source = %key, "removed the protection finalizer from the data source");
                ticket.did("unprotected", None);
                Outcome::Settled
            }
            Err(error) => {
                log_failure!(
                    self.cx.failures,
                    self.cx.scope.clock.now(),
                    &error,
                    { source = %key, attempt = ticket.attempt() + 1, },
                    "could not unprotect the data source"
                );
                ticket.note(error.message());
                error.outcome()
            }
        }
    }
}

impl SourceReconciler {
    /// For one term.
    pub(in crate::roles::provisioner) fn new(cx: Arc<Context>) -> Self {
        Self { cx }
    }

    fn cached(&self, key: &SourceKey) -> Option<SourceObject> {
        let stores = &self.cx.stores;
        match key.kind {
            SourceKind::Claim => stores.claims.get(&key.name).map(SourceObject::Claim),
            SourceKind::Snapshot => stores.snapshots.get(&key.name).map(SourceObject::Snapshot),
        }
    }

    /// Whether we may remove the finalizer: the provisioners of other drivers use the same one. `None`: the object that
    /// the source is bound to must be read first.
    ///
    /// A source that has lost its volume or content names no driver any more, and no driver can create a volume from
    /// it. The finalizer then keeps nothing but the object, and no other provisioner would ever remove it.
    fn is_ours(&self, source: &SourceObject, state: &State) -> Option<bool> {
        let Some(bound) = source.bound() else { return Some(true) };
        if source.kind() == SourceKind::Claim
            && let Some(volume) = self.cx.stores.volumes.get(&bound)
        {
            return Some(self.is_volume_ours(&volume));
        }
        // The watch may be behind, and contents are not watched.
        state.driver.as_ref().filter(|(name, _)| *name == bound).map(|(_, is_ours)| *is_ours)
    }

    fn is_volume_ours(&self, volume: &PersistentVolume) -> bool {
        volume.served_by() == Some(self.cx.scope.driver_name.as_str())
    }

    async fn find_driver(&self, source: &SourceObject) -> Result<Event, Stop<NoReason>> {
        let Some(bound) = source.bound() else { return Ok(Event::Listed) };
        let api = self.cx.scope.api.use_now()?;
        let failed = |error: ApiError| FIND_DRIVER.failed(error);
        let is_ours = match source.kind() {
            SourceKind::Claim => {
                let volume = api.get_opt::<PersistentVolume>(&bound).await.map_err(failed)?;
                volume.is_none_or(|volume| self.is_volume_ours(&volume))
            }
            SourceKind::Snapshot => {
                let content = api.get_opt::<VolumeSnapshotContent>(&bound).await.map_err(failed)?;
                content.is_none_or(|content| content.driver == self.cx.scope.driver_name)
            }
        };
        Ok(Event::DriverRead(bound, is_ours))
    }

    async fn release(&self, source: &SourceObject) -> Result<Event, Stop<NoReason>> {
        let stores = &self.cx.stores;
        match source {
            SourceObject::Claim(claim) => {
                self.remove_finalizer(claim.as_ref(), SourceKind::Claim, &stores.claims).await
            }
            SourceObject::Snapshot(snapshot) => {
                self.remove_finalizer(snapshot.as_ref(), SourceKind::Snapshot, &stores.snapshots).await
            }
        }
    }

    /// The patch fails if the finalizer is not where it was seen, or where another role of this process has left it meanwhile.
    async fn remove_finalizer<K: Cached>(
        &self,
        source: &K,
        kind: SourceKind,
        cache: &Cache<K>,
    ) -> Result<Event, Stop<NoReason>> {
        let name = ObjectName::of(source);
        let _turn = self.cx.scope.term.until_lost(cache.write_turn(&name)).await?;
        let newer = cache.newer(source);
        if let Some(patch) = patch::remove_finalizer(newer.as_deref().unwrap_or(source).meta(), kind.finalizer()) {
            let api = self.cx.scope.api.use_now()?;
            let written = api.patch::<K>(&name, &patch).await;
            // Also after an error: the write may have been done.
            self.cx.sources.note_release();
            cache.apply_own_write(written.map_err(|error| RELEASE.failed(error))?);
        }
        Ok(Event::Released)
    }

    /// Reads a source. `None`: there is none.
    async fn read(
        &self,
        kind: SourceKind,
        name: &ObjectName,
    ) -> Result<Result<Option<SourceObject>, ApiError>, Stop<NoReason>> {
        let api = self.cx.scope.api.use_now()?;
        Ok(match kind {
            SourceKind::Claim => api.get_opt(name).await.map(|it| it.map(Arc::new).map(SourceObject::Claim)),
            SourceKind::Snapshot => api.get_opt(name).await.map(|it| it.map(Arc::new).map(SourceObject::Snapshot)),
        })
    }
}

impl SourceObject {
    fn kind(&self) -> SourceKind {
        match self {
            Self::Claim(_) => SourceKind::Claim,
            Self::Snapshot(_) => SourceKind::Snapshot,
        }
    }

    fn meta(&self) -> &Meta {
        match self {
            Self::Claim(claim) => &claim.metadata,
            Self::Snapshot(snapshot) => &snapshot.metadata,
        }
    }

    fn name(&self) -> ObjectName {
        match self {
            Self::Claim(claim) => ObjectName::of(claim.as_ref()),
            Self::Snapshot(snapshot) => ObjectName::of(snapshot.as_ref()),
        }
    }

    /// The volume or the content that the source is bound to.
    fn bound(&self) -> Option<ObjectName> {
        let bound = match self {
            Self::Claim(claim) => claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()),
            Self::Snapshot(snapshot) => bound_content(snapshot),
        };
        bound.map(ObjectName::cluster)
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "reconcile_tests.rs"]
mod tests;
