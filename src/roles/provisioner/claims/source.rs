//! Reads the content source, and puts the finalizer on it that keeps it until its last user is done.

use std::collections::BTreeMap;

use crate::cluster::{
    Api, ApiErrorKind, Cache, Cached, ObjectName, PersistentVolume, PersistentVolumeClaim, ReferenceGrant,
    VolumeSnapshot, VolumeSnapshotContent, patch,
};
use crate::roles::kit::{Part, Store, Written};
use crate::roles::provisioner::names;
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::sources::source::Source;
use crate::roles::provisioner::sources::status::SourceStep;

use super::answer::{Happened, SourceRead};
use super::error::{PROTECT_SOURCE, READ_SOURCE, Stop};
use super::memory::ClaimMemory;
use super::observe::Seen;
use super::perform::Act;
use super::request::{RequestInput, build};

/// From here on the claim counts as a user of a source in another namespace. It did not count before.
pub(super) fn admit(memory: &mut ClaimMemory, seen: &Seen) {
    if let Some(source) = source(seen).filter(|source| is_strange(seen, source)) {
        memory.admitted = Some(source);
    }
}

fn source(seen: &Seen) -> Option<SourceKey> {
    seen.source.as_ref().ok().and_then(SourceKey::of_source)
}

fn is_strange(seen: &Seen, source: &SourceKey) -> bool {
    source.name.namespace() != seen.claim.key.name.namespace()
}

impl Act<'_, '_> {
    /// One request about the content source.
    pub(super) async fn source_step(&self, step: SourceStep) -> Result<Happened, Stop> {
        let scope = &self.cx.shared.scope;
        let read = match (step, &self.seen.source) {
            (SourceStep::ListGrants(namespace), _) => {
                let list = async |api: Api| api.list::<ReferenceGrant>(Some(&namespace), None).await;
                let grants = self.io.wait(Box::pin(scope.in_task(list))).await??;
                SourceRead::Grants(grants.map_err(|error| READ_SOURCE.failed(error))?)
            }
            (SourceStep::GetSnapshot, Ok(Source::Snapshot { namespace, name })) => {
                SourceRead::Snapshot(self.read::<VolumeSnapshot>(ObjectName::namespaced(namespace, name)).await?)
            }
            (SourceStep::GetContent(name), _) => {
                SourceRead::Content(self.read::<VolumeSnapshotContent>(ObjectName::cluster(name)).await?)
            }
            (SourceStep::GetClaim, Ok(Source::Claim { namespace, name })) => {
                SourceRead::Claim(self.read::<PersistentVolumeClaim>(ObjectName::namespaced(namespace, name)).await?)
            }
            (SourceStep::GetVolume(name), _) => {
                SourceRead::Volume(self.read::<PersistentVolume>(ObjectName::cluster(name)).await?)
            }
            (SourceStep::Lock, _) => return self.lock_source().await,
            (SourceStep::Protect, _) => return self.protect_source().await,
            (SourceStep::GetSnapshot | SourceStep::GetClaim, _) => return Ok(Happened::Nothing),
        };
        Ok(read.into())
    }

    async fn read<K: Cached>(&self, name: ObjectName) -> Result<Option<Box<K>>, Stop> {
        self.io.get(&name, READ_SOURCE).await.map(|found| found.map(Box::new))
    }

    /// Locks the source. An attempt that removes the finalizer locks it, too, and has counted this claim as a user.
    async fn lock_source(&self) -> Result<Happened, Stop> {
        let (cx, seen) = (self.cx, self.seen);
        if let Some(class) = &seen.class {
            // From here on only the driver may refuse: an invalid claim must not keep the finalizer on a source.
            let attributes_class = self.progress.attributes_class.as_ref();
            let (claim, rules) = (&seen.claim.object, &cx.asking);
            let input = RequestInput { claim, class, rules, source: None, requirement: None, attributes_class };
            if let Err(error) = build(&input) {
                return Ok(self.fail_before_asking(error.into(), None));
            }
        }
        let Some(source) = source(seen) else { return Ok(SourceRead::Protected.into()) };
        let lock = self.io.wait(cx.shared.sources.locks.acquire(&source)).await?;
        // The attempt may have read the source before another one removed the finalizer, which had not counted this claim yet.
        let is_old = is_strange(seen, &source) || cx.shared.sources.releases() != self.progress.beginning.releases;
        Ok(SourceRead::Locked { lock, is_old }.into())
    }

    async fn protect_source(&self) -> Result<Happened, Stop> {
        let (shared, found) = (&self.cx.shared, &self.progress.found);
        let (stores, caches) = (&shared.stores, &shared.caches);
        if let Some(Some(snapshot)) = &found.snapshot {
            let (store, finalizer) = (&stores.snapshots, names::FINALIZER_SNAPSHOT_SOURCE);
            return match self.protect(store, &caches.snapshots, snapshot, finalizer).await {
                // A snapshot that the daemon may not change is restored without its finalizer, and an Event says so (spec 2.5, step 15).
                // If a user deletes the snapshot meanwhile, the driver decides. A claim that is to be cloned has no such exception.
                Err(Stop::Failed(error))
                    if error.is_of(PROTECT_SOURCE)
                        && error.api().is_some_and(|it| it.kind() == ApiErrorKind::Forbidden) =>
                {
                    Ok(SourceRead::Unprotected(error).into())
                }
                protected => protected,
            };
        }
        match &found.claim {
            Some(Some(claim)) => self.protect(&stores.claims, &caches.claims, claim, names::FINALIZER_CLONING).await,
            _ => Ok(SourceRead::Protected.into()),
        }
    }

    /// Adds a finalizer to a source. If the source has changed since it was read, it is read again.
    async fn protect<K: Cached>(
        &self,
        store: &Store<K>,
        cache: &Cache<K>,
        seen: &K,
        finalizer: &str,
    ) -> Result<Happened, Stop> {
        // Another attempt may have written it meanwhile.
        let newer = cache.newer(seen);
        let seen = newer.as_deref().unwrap_or(seen);
        let patch = patch::add_finalizer(seen.meta(), finalizer, &BTreeMap::new());
        let Some(patch) = patch else { return Ok(SourceRead::Protected.into()) };
        match self.io.write(store, seen, (Part::Object, &patch), PROTECT_SOURCE).await {
            Ok(Written::NotFound(error)) => Err(error.into()),
            Ok(Written::Kept | Written::Ended) => Ok(SourceRead::Protected.into()),
            Err(Stop::LookAgain) => Ok(SourceRead::Outdated.into()),
            Err(stop) => Err(stop),
        }
    }
}
