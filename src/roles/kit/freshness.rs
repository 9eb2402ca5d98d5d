//! Handles caches that are behind: what a term lists once, what it confirms once, and what it reads again.
//!
//! A standby's caches are warm, but may be late: the last leader may have made changes that the watch has not delivered
//! yet. So a new leader lists once before it concludes anything from an absence, and reads an object once before it
//! calls the driver to change anything for it.

use std::time::Duration;

use tokio::sync::OnceCell;

use crate::cluster::{Api, ApiError, Cache, Cached, ObjectName};

use super::failure::{AttemptError, Op, Reason, Stop};

/// How soon an attempt observes again if a cache is behind. Usually the watch delivers the change before and wakes the
/// key.
pub const CATCH_UP: Duration = Duration::from_millis(200);
/// If a cache is behind for longer than this, it is an ordinary failure: the role reports it once and backs off.
pub const LAG_PATIENCE: Duration = Duration::from_secs(5);

/// Reads an object that a cache lacks.
const LOOK_UP: Op = Op("cannot read an object that the watch has not shown");

/// A list that a term waits for once.
#[derive(Debug, Default)]
pub struct ListedOnce(OnceCell<()>);

impl ListedOnce {
    /// Whether the list is complete.
    pub fn is_done(&self) -> bool {
        self.0.initialized()
    }

    /// Waits for the list. `list` is called if it was not requested before.
    pub async fn wait<F: Future<Output = ()>>(&self, list: impl FnOnce() -> F) {
        self.0.get_or_init(list).await;
    }
}

/// The result of a second read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The API has a newer object, or the cache has it now: observe again.
    Newer,
    /// The API has the same object as the cache.
    Same,
    /// The API has no such object, or another one under the same name. The watch will deliver this, too.
    Gone,
}

/// Reads an object again for its cache. An absence does not change the cache, because only the watch may remove an
/// object. An *older* version is an error: the API's storage was restored from a backup, so nothing can be concluded from the cache. A list
/// is requested that replaces every object.
pub async fn read_again<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K) -> Result<Freshness, ApiError> {
    let Some(object) = api.get_opt::<K>(&ObjectName::of(seen)).await? else { return Ok(Freshness::Gone) };
    if object.meta().uid != seen.meta().uid {
        return Ok(Freshness::Gone);
    }
    compare(api, cache, seen, object)
}

/// Gives a cache the object that was read, and says whether that is newer than `seen`. The error is that of [`read_again`].
pub fn compare<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K, object: K) -> Result<Freshness, ApiError> {
    let (name, read) = (ObjectName::of(seen), object.meta().version());
    api.give(cache, object);
    // Compared with the current cache, not with an earlier one: the conflicting write may be our own and already in the
    // cache.
    let is_same = cache.get(&name).is_some_and(|held| held.meta().resource_version == seen.meta().resource_version);
    match read.zip(seen.meta().version()) {
        Some((read, held)) if is_same && read < held => {
            cache.went_back();
            Err(ApiError::went_back::<K>(name, read, held))
        }
        _ if is_same => Ok(Freshness::Same),
        _ => Ok(Freshness::Newer),
    }
}

/// Reads an object that its cache lacks, before anything is said about that: the watch may be late.
pub async fn look_up<K: Cached>(api: &Api, cache: &Cache<K>, name: &ObjectName) -> Result<Option<K>, ApiError> {
    api.in_version_of(cache).get_opt(name).await
}

/// The end of an attempt for the reason that a cache lacks an object. If the API has it, the attempt waits for the watch; if the API
/// does not say, that is the failure.
pub async fn lacks<K: Cached, R: Reason>(api: &Api, cache: &Cache<K>, name: &ObjectName, reason: R) -> Stop<R> {
    match look_up(api, cache, name).await {
        Ok(None) => reason.into(),
        Ok(Some(_)) => Stop::Behind(AttemptError::Unseen(K::KIND, name.to_string())),
        Err(error) => LOOK_UP.failed(error).into(),
    }
}

/// Waits until the cache has every object that is older than this version of `seen`, which may have come in an answer before the watch
/// got as far. The error is that of [`read_again`].
pub async fn catch_up<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K) -> Result<(), ApiError> {
    if cache.is_ahead(seen) {
        cache.caught_up(seen).await;
    }
    // The whole list is older than the object.
    if cache.is_ahead(seen) {
        read_again(api, cache, seen).await?;
    }
    Ok(())
}
