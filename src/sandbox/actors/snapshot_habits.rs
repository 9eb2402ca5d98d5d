//! What tests decide of the snapshot-controller. Pure.

use std::time::Duration;

/// What the snapshot-controller does in its own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHabits {
    /// Whether it works at all.
    pub works: bool,
    /// How long after it has seen a content it puts its finalizer on.
    pub finalizer_after: Duration,
    /// Whether its cache shows contents as they were when it first saw them: what others wrote since is wiped by its writes.
    pub is_stale: bool,
    /// Whether it deletes the contents of deleted snapshots, as opposed to only marking them.
    pub deletes: bool,
}

impl Default for SnapshotHabits {
    /// As on a quiet day.
    fn default() -> Self {
        Self { works: true, finalizer_after: Duration::ZERO, is_stale: false, deletes: true }
    }
}
