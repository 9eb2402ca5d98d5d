//! What a term knows about data sources.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::Clock;
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::KeyedLock;

use super::protection::SourceKey;

/// What the attempts of a term share.
#[derive(Debug)]
pub struct SourceMemory {
    /// A source is locked while its finalizer is added or removed. So an attempt that removes it has counted all users.
    pub locks: KeyedLock<SourceKey>,
    /// How many attempts to remove a finalizer have ended.
    releases: AtomicU64,
    /// The sources that may have lost their last user.
    free: WorkQueue<SourceKey>,
}

impl SourceMemory {
    /// An empty memory. Sources that may be unused are added to the queue `free`.
    pub fn new(clock: Clock, free: WorkQueue<SourceKey>) -> Self {
        Self { locks: KeyedLock::new(clock), releases: AtomicU64::new(0), free }
    }

    /// An attempt to remove a source's finalizer has ended, while the source is locked.
    pub fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// How many attempts to remove a finalizer have ended: a finalizer that was seen when there were less may be gone.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// A claim no longer needs the source: perhaps no claim does.
    pub fn may_be_free(&self, source: SourceKey) {
        self.free.add(source, Activation::of(Cause::Changed));
    }
}
