//! How old a cache may be: what a term lists once, what it confirms once, and what it reads again.
//!
//! A standby's caches are warm, and they may be late. What the watch has not brought yet, the leader before may have changed.
//! So a new leader lists once before it concludes anything from an absence, and asks the API once about an object before it has
//! the driver change anything for it.

use std::time::Duration;

use tokio::sync::OnceCell;

use crate::cluster::{Api, ApiError, Cache, Cached, ObjectName};

/// How soon an attempt looks again where a cache is behind. The watch brings the change in a moment, and that wakes the key.
pub const CATCH_UP: Duration = Duration::from_millis(200);
/// A cache that is behind for longer than this is a failure like any other: the role reports it once and backs off.
pub const LAG_PATIENCE: Duration = Duration::from_secs(5);

/// A list that a term waits for once.
#[derive(Debug, Default)]
pub struct ListedOnce(OnceCell<()>);

impl ListedOnce {
    /// Whether the list has come.
    pub fn is_done(&self) -> bool {
        self.0.initialized()
    }

    /// Waits for the list, which `list` asks for if nobody has asked before.
    pub async fn wait<F: Future<Output = ()>>(&self, list: impl FnOnce() -> F) {
        self.0.get_or_init(list).await;
    }
}

/// What a second look at the API has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The API shows a newer object, or the cache has it by now: look again.
    Newer,
    /// The API shows what the cache has: another look would see the same.
    Same,
    /// The API has no such object, or another one under the same name. The watch will say so, too.
    Gone,
}

/// Reads an object again for its cache. An absence is not put into the cache, since only the watch may take an object out of it.
pub async fn read_again<K: Cached>(api: &Api, cache: &Cache<K>, seen: &K) -> Result<Freshness, ApiError> {
    let name = ObjectName::of(seen);
    let Some(object) = api.get_opt::<K>(&name).await? else { return Ok(Freshness::Gone) };
    if object.meta().uid != seen.meta().uid {
        return Ok(Freshness::Gone);
    }
    cache.apply_own_write(object);
    // Not compared with the cache of a moment ago: the write that outran ours may be our own, and be in there already.
    let is_same = cache.get(&name).is_some_and(|held| held.meta().resource_version == seen.meta().resource_version);
    Ok(if is_same { Freshness::Same } else { Freshness::Newer })
}
