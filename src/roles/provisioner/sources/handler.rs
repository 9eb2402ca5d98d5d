//! The handler of content sources, and the search for those that were left behind.

use std::sync::Arc;

use tracing::{info, warn};

use super::source::bound_content;
use crate::cluster::patch;
use crate::cluster::{
    ApiError, ApiErrorKind, BY_SOURCE, Cache, Cached, Object, ObjectName, PersistentVolume, PersistentVolumeClaim,
    VolumeSnapshot, VolumeSnapshotContent,
};
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::names;

use super::protection::{SourceKey, SourceKind, is_releasable, is_user};

/// Why an attempt ended without its source being settled.
type Stop = attempt::Stop<ApiError>;

/// A kind of content source.
trait Held: Cached {
    /// What protects it.
    const FINALIZER: &'static str;

    /// Whether the finalizer is ours to remove: other drivers' provisioners use the same one.
    ///
    /// What has lost its volume or its content names no driver any more, and can't be made into a volume by any: the finalizer
    /// keeps nothing but the object, and nobody else would ever take it off.
    fn is_of_our_driver(&self, cx: &Context) -> impl Future<Output = Result<bool, Stop>> + Send;
}

impl Held for PersistentVolumeClaim {
    const FINALIZER: &'static str = names::FINALIZER_CLONING;

    async fn is_of_our_driver(&self, cx: &Context) -> Result<bool, Stop> {
        let Some(name) = self.spec.volume_name.as_deref().filter(|name| !name.is_empty()) else { return Ok(true) };
        let name = ObjectName::cluster(name);
        let volume = match cx.stores.volumes.get(&name) {
            Some(volume) => Some(volume),
            // The watch may be behind.
            None => fetch::<PersistentVolume>(cx, &name).await?.map(Arc::new),
        };
        Ok(volume.is_none_or(|volume| volume.spec.csi.as_ref().is_some_and(|csi| csi.driver == cx.rules.driver)))
    }
}

impl Held for VolumeSnapshot {
    const FINALIZER: &'static str = names::FINALIZER_SNAPSHOT_SOURCE;

    async fn is_of_our_driver(&self, cx: &Context) -> Result<bool, Stop> {
        let Some(content) = bound_content(self) else { return Ok(true) };
        let content = fetch::<VolumeSnapshotContent>(cx, &ObjectName::cluster(content)).await?;
        Ok(content.is_none_or(|content| content.driver == cx.rules.driver))
    }
}

/// Works one ticket of the source queue.
pub(in crate::roles::provisioner) async fn handle(cx: Arc<Context>, mut ticket: Ticket<SourceKey>) -> Outcome {
    let key = ticket.key().clone();
    let result = match key.kind {
        SourceKind::Claim => release(&cx, &mut ticket, &cx.stores.claims).await,
        SourceKind::Snapshot => release(&cx, &mut ticket, &cx.stores.snapshots).await,
    };
    match result {
        Ok(true) => {
            info!(source = %key, "let go of the source");
            Outcome::Settled
        }
        Ok(false) => Outcome::Settled,
        Err(Stop::Failed(error)) => {
            let message = error.message();
            warn!(error = message, source = %key, "could not let go of the source");
            ticket.note(message);
            error.outcome()
        }
        Err(stop) => stop.outcome(),
    }
}

/// Takes the finalizer off a source that nobody uses, in the source's turn: whoever begins to use it meanwhile puts the
/// finalizer on again.
async fn release<K: Held>(cx: &Context, ticket: &mut Ticket<SourceKey>, cache: &Cache<K>) -> Result<bool, Stop> {
    let key = &ticket.key().clone();
    let Some(seen) = find(cx, key, cache).await? else { return Ok(false) };
    if cx.relisted_claims.get().is_none() && is_free(cx, key, seen.as_ref()) {
        ticket.park(cx.term.unless_over(cx.relist_claims())).await?;
    }
    if !is_free(cx, key, seen.as_ref()) || !seen.is_of_our_driver(cx).await? {
        return Ok(false);
    }
    let _turn = cx.source_turns.take(key, ticket, &cx.term).await?;
    // Should it have changed since it was read, then the patch fails.
    let mut source = cache.get(&key.name).unwrap_or(seen);
    for is_last in [false, true] {
        if !is_free(cx, key, source.as_ref()) {
            return Ok(false);
        }
        let Some(patch) = patch::remove_finalizer(source.meta(), K::FINALIZER) else { return Ok(false) };
        let api = cx.api.use_now()?;
        match api.patch::<K>(&key.name, &patch).await {
            Ok(written) => {
                cache.apply_own_write(written);
                return Ok(true);
            }
            Err(error) if error.kind() == ApiErrorKind::NotFound => return Ok(false),
            Err(error) if !is_last && error.kind() == ApiErrorKind::PreconditionFailed => {
                let fresh = api.get::<K>(&key.name).await?;
                source = Arc::new(fresh.clone());
                cache.apply_own_write(fresh);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The source as the cache has it. What that lacks is read, unless somebody needs it: the watch may be behind, the kind of
/// snapshots may have come a moment ago, and where we may not watch them the cache never has one.
async fn find<K: Held>(cx: &Context, key: &SourceKey, cache: &Cache<K>) -> Result<Option<Arc<K>>, Stop> {
    if let Some(seen) = cache.get(&key.name) {
        return Ok(Some(seen));
    }
    if is_used(cx, key) {
        return Ok(None);
    }
    match fetch::<K>(cx, &key.name).await {
        // What we may not read, we have not protected.
        Err(Stop::Failed(error)) if error.kind() == ApiErrorKind::Forbidden => Ok(None),
        found => Ok(found?.map(Arc::new)),
    }
}

/// Whether a source carries our finalizer, and no claim that is known needs it.
fn is_free<K: Held>(cx: &Context, key: &SourceKey, source: &K) -> bool {
    is_releasable(source.meta().finalizers(), K::FINALIZER, || is_used(cx, key))
}

/// Whether a claim needs a source.
fn is_used(cx: &Context, key: &SourceKey) -> bool {
    if cx.states.is_used(key) {
        return true;
    }
    let rules = &cx.rules;
    let found = cx.stores.claims.find(BY_SOURCE, &key.index_value());
    // The look-up knows no groups: a populator's kind may have the same name.
    let mut naming = found.iter().filter(|claim| SourceKey::of(claim).as_ref() == Some(key));
    naming.any(|claim| {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        is_user(claim, cx.states.is_begun(uid), cx.admitted.has(uid), &rules.driver, &rules.mark)
    })
}

/// Reads what may not be there.
async fn fetch<K: Object>(cx: &Context, name: &ObjectName) -> Result<Option<K>, Stop> {
    Ok(cx.api.use_now()?.get_opt(name).await?)
}

/// The sources that carry the finalizer and that nobody uses.
pub(in crate::roles::provisioner) fn sweep(cx: &Context) -> Vec<SourceKey> {
    let mut free = Vec::new();
    for claim in cx.stores.claims.all() {
        let key = SourceKey { kind: SourceKind::Claim, name: ObjectName::of(claim.as_ref()) };
        if is_free(cx, &key, claim.as_ref()) {
            free.push(key);
        }
    }
    for snapshot in cx.stores.snapshots.all() {
        let key = SourceKey { kind: SourceKind::Snapshot, name: ObjectName::of(snapshot.as_ref()) };
        if is_free(cx, &key, snapshot.as_ref()) {
            free.push(key);
        }
    }
    free
}
