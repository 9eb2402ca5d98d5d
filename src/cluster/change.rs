//! What has happened to an object, as subscribers hear of it. Pure.

use std::sync::Arc;

use super::objects::Cached;

/// Where a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The object was in the cache when the subscription began.
    Replay,
    /// A watch event.
    Watch,
    /// A list.
    Relist,
    /// Our own write.
    OwnWrite,
}

/// One object's change. An add has no `old`, a delete no `new`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<K> {
    /// The old object.
    pub old: Option<Arc<K>>,
    /// The new object.
    pub new: Option<Arc<K>>,
    /// The source of the event.
    pub origin: Origin,
}

impl<K> Change<K> {
    /// The object as it is now, or as it was last.
    pub fn last(&self) -> Option<&K> {
        self.new.as_deref().or(self.old.as_deref())
    }
}

impl<K: Cached> Change<K> {
    /// The object that is there no more: it was deleted, or another one has its name.
    pub fn gone(&self) -> Option<&Arc<K>> {
        let is_gone = |old: &Arc<K>| self.new.as_ref().is_none_or(|new| new.meta().uid != old.meta().uid);
        self.old.as_ref().filter(|old| is_gone(old))
    }
}
