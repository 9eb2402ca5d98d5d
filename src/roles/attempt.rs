//! What attempts at keys have in common, whatever the role.

use crate::cluster::{Api, ApiError, Cache, Cached, ObjectName};

/// Reads an object again for its cache. `false`: there is nothing newer than what was `seen`, so another look would see the
/// same.
pub async fn read_again<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K) -> Result<bool, ApiError> {
    let name = ObjectName::of(seen);
    // Where it is gone the watch will say so; nothing is taken out of the cache on hearsay.
    if let Some(object) = api.get_opt(&name).await? {
        cache.absorb(object);
    }
    // Not compared with the cache of a moment ago: the write that outran ours may be our own, and be in there already.
    Ok(cache.get(&name).is_none_or(|held| held.meta().resource_version != seen.meta().resource_version))
}
