//! The reconciler of data sources: removes the finalizer from a source that no claim needs any more. The policy is
//! [`policy`](super::policy).

use std::sync::Arc;

use tracing::info;

use crate::cluster::{ApiErrorKind, Cached, ObjectName, PersistentVolume, VolumeSnapshotContent, patch};
use crate::roles::kit::drive::Next;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{self, End, Io, Memory, NoReason, Op, Part, Reconcile, Run, Start, Store, Telling, Written};
use crate::roles::provisioner::claims::context::ClaimsContext;
use crate::roles::provisioner::context::Stores;

use super::object::SourceObject;
use super::policy::{Answer, Bound, Progress, Read, Step, View, next_step};
use super::users::is_used;
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};

/// Reads the source.
const FIND: Op = Op("cannot read the data source");
/// Reads the volume or the content that the source is bound to.
const FIND_DRIVER: Op = Op("cannot read the volume or the content behind the data source");
/// Removes our finalizer from the source.
const RELEASE: Op = Op("cannot remove the protection finalizer from the data source");

/// Why a step ended the attempt.
type Stop = kit::Stop<NoReason>;

/// What a step may do.
type Verbs<'a> = Io<'a, SourceKey>;

/// The reconciler of the queue of data sources.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Sources {
    cx: Arc<ClaimsContext>,
    memory: Memory<()>,
}

impl Reconcile for Sources {
    type Key = SourceKey;
    type View = View;
    type Memory = ();
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<()> {
        &self.memory
    }

    /// The caches may lack a source that the API has.
    fn is_there(&self, _: &SourceKey, _: &str) -> bool {
        true
    }

    fn view(&self, key: &SourceKey) -> Option<View> {
        let cached = match key.kind {
            SourceKind::Claim => self.stores().claims.get(&key.name).map(SourceObject::Claim),
            SourceKind::Snapshot => self.stores().snapshots.get(&key.name).map(SourceObject::Snapshot),
        };
        Some(View {
            key: key.clone(),
            id: key.to_string(),
            bound: cached.as_ref().and_then(|source| self.bound(source)),
            is_used: is_used(&self.cx, key),
            is_listed: self.stores().claims.is_listed(),
            cached,
        })
    }

    fn uid(view: &View) -> &str {
        &view.id
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    fn keeps_changes(progress: &Progress) -> bool {
        !matches!(progress.read, Read::NotYet)
    }

    async fn perform(&self, step: Step, view: &View, _: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        let (key, sources) = (&view.key, &self.cx.shared.sources);
        match step {
            Step::Find => self.find(key, io).await.map(Answer::Read),
            Step::List => io.wait(self.stores().claims.list()).await.map(|()| Answer::Nothing),
            Step::FindDriver(kind, bound) => self.find_driver(kind, bound, io).await.map(Answer::Bound),
            Step::Lock => io.wait(sources.locks.acquire(key)).await.map(Answer::Locked),
            Step::Release(source) => {
                let released = match &source {
                    SourceObject::Claim(claim) => release(&self.stores().claims, claim.as_ref(), key.kind, io).await,
                    SourceObject::Snapshot(snapshot) => {
                        release(&self.stores().snapshots, snapshot.as_ref(), key.kind, io).await
                    }
                };
                // Also after an error: the write may have been done.
                sources.note_release();
                released
            }
        }
    }

    fn apply((): &mut (), progress: &mut Progress, answer: Answer) {
        progress.apply(answer);
    }

    fn tell(first: &View, progress: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        match end {
            End::Settled if progress.is_released => {
                info!(source = %first.key, "removed the protection finalizer from the data source");
                vec![Telling::Did("unprotected", None)]
            }
            End::Settled => Vec::new(),
            End::Failed(error) => {
                log_failure!(run, error, { source = %first.key, }, "could not unprotect the data source");
                Vec::new()
            }
        }
    }
}

impl Sources {
    /// For one term.
    pub(in crate::roles::provisioner) fn of(cx: &Arc<ClaimsContext>) -> Self {
        Self { cx: Arc::clone(cx), memory: Memory::default() }
    }

    fn stores(&self) -> &Stores {
        &self.cx.shared.stores
    }

    /// The volume that a claim is bound to, if the cache has it. Contents are not watched.
    fn bound(&self, source: &SourceObject) -> Option<Bound> {
        let bound = source.bound().filter(|_| source.kind() == SourceKind::Claim)?;
        let volume = self.cx.shared.caches.volumes.get(&bound)?;
        Some((bound, self.is_ours(&volume)))
    }

    fn is_ours(&self, volume: &PersistentVolume) -> bool {
        volume.served_by() == Some(self.cx.shared.scope.driver_name.as_str())
    }

    async fn find(&self, key: &SourceKey, io: &Verbs<'_>) -> Result<Read, Stop> {
        let found = match key.kind {
            SourceKind::Claim => io.get(&key.name, FIND).await.map(|it| it.map(Arc::new).map(SourceObject::Claim)),
            SourceKind::Snapshot => {
                io.get(&key.name, FIND).await.map(|it| it.map(Arc::new).map(SourceObject::Snapshot))
            }
        };
        match found {
            Ok(found) => Ok(found.map_or(Read::Absent, Read::Found)),
            // A source that this daemon may not read has no finalizer of ours.
            Err(Stop::Failed(error)) if error.api().is_some_and(|it| it.kind() == ApiErrorKind::Forbidden) => {
                Ok(Read::Absent)
            }
            Err(stop) => Err(stop),
        }
    }

    /// If the bound object is gone, no other driver needs the finalizer.
    async fn find_driver(&self, kind: SourceKind, bound: ObjectName, io: &Verbs<'_>) -> Result<Bound, Stop> {
        let is_ours = match kind {
            SourceKind::Claim => {
                let volume = io.get::<PersistentVolume, _>(&bound, FIND_DRIVER).await?;
                volume.is_none_or(|volume| self.is_ours(&volume))
            }
            SourceKind::Snapshot => {
                let content = io.get::<VolumeSnapshotContent, _>(&bound, FIND_DRIVER).await?;
                content.is_none_or(|content| content.driver == self.cx.shared.scope.driver_name)
            }
        };
        Ok((bound, is_ours))
    }
}

async fn release<K: Cached>(store: &Store<K>, source: &K, kind: SourceKind, io: &Verbs<'_>) -> Result<Answer, Stop> {
    let Some(patch) = patch::remove_finalizer(source.meta(), kind.finalizer()) else { return Ok(Answer::Nothing) };
    Ok(match io.write(store, source, (Part::Object, &patch), RELEASE).await? {
        Written::Kept | Written::Ended => Answer::Released,
        Written::NotFound(_) => Answer::Read(Read::Absent),
    })
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "reconcile_tests.rs"]
mod tests;
