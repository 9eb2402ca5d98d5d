//! The snapshot-controller's habits, which tests may change. Pure.

use std::time::Duration;

/// The snapshot-controller's habits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHabits {
    /// Whether it works at all.
    pub works: bool,
    /// The time between seeing a content and adding its finalizer.
    pub finalizer_after: Duration,
    /// Whether its cache shows contents as they were when it first saw them: what others wrote since is wiped by its writes.
    pub is_stale: bool,
    /// Whether it deletes the contents of deleted snapshots, as opposed to only marking them.
    pub deletes: bool,
}

impl Default for SnapshotHabits {
    /// The habits of a quiet day.
    fn default() -> Self {
        Self { works: true, finalizer_after: Duration::ZERO, is_stale: false, deletes: true }
    }
}
