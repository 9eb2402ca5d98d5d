//! What is known of one segment's object. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::entry::size;
use super::write::Commit;
use super::{Key, Stored, Unreadable};
use crate::cluster::ApiError;
use crate::journal::format::Version;

/// The shortest and the longest wait after a failed request that nothing waits for.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// After this time a write without an answer can no longer take effect: a server gives up a request after a minute.
pub(super) const LATEST: Duration = Duration::from_secs(120);

/// One segment.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// The object, if there is one.
    pub(super) object: Option<Version>,
    /// The keys on the object that were written for it.
    pub(super) copies: BTreeMap<Key, Copy>,
    /// The entries on the object that were not. The daemon neither changes nor believes them, and writes new entries elsewhere.
    pub(super) foreign: Vec<Stored>,
    /// The copies that the next write removes.
    pub(super) dead: BTreeSet<Key>,
    /// Since when there are any.
    pub(super) dead_since: Option<Duration>,
    /// The entries whose home this is, and their bytes.
    pub(super) live: BTreeSet<Key>,
    pub(super) live_bytes: usize,
    /// The bytes of the entries here that are left alone.
    pub(super) left_bytes: usize,
    /// Those of them that are pending, in the order of their recording.
    pub(super) queue: BTreeMap<u64, Key>,
    /// The texts of writes without a known outcome. Such a write may still take effect while the object has the version that it
    /// builds on.
    pub(super) attempted: BTreeMap<Key, BTreeSet<Arc<str>>>,
    /// When the last of these writes has ended.
    attempted_at: Duration,
    /// Whether one of these writes creates the object: it still could after a deletion.
    may_be_created: bool,
    pub(super) under_way: Option<UnderWay>,
    /// The object may differ from the known version.
    pub(super) in_doubt: bool,
    /// The object is no segment that this version can use.
    pub(super) fault: Option<Arc<Unreadable>>,
    /// When the API last confirmed the known version of the object.
    pub(super) looked_at: Duration,
    pub(super) reading: Retry,
    pub(super) writing: Retry,
    /// Why the last read failed, until one succeeds.
    pub(super) read_error: Option<ApiError>,
}

/// A key on an object.
#[derive(Debug)]
pub(super) struct Copy {
    bytes: usize,
    /// Another writer has changed the value.
    pub(super) is_edited: bool,
}

/// A request about the object.
#[derive(Debug)]
pub(super) enum UnderWay {
    Read,
    Write { since: Duration, commit: Arc<Commit> },
}

/// The failures in a row, and when to try again.
#[derive(Debug, Default)]
pub(super) struct Retry {
    failures: u32,
    pub(super) at: Duration,
}

impl Segment {
    pub(super) fn add_copy(&mut self, key: &Key, text: &str) {
        self.copies.insert(Arc::clone(key), Copy { bytes: size(key, text), is_edited: false });
    }

    pub(super) fn bytes(&self) -> usize {
        self.copies.values().map(|copy| copy.bytes).sum()
    }

    pub(super) fn set_dead(&mut self, key: &Key, is_dead: bool, now: Duration) {
        if is_dead {
            self.dead.insert(Arc::clone(key));
            self.dead_since.get_or_insert(now);
        } else if self.dead.remove(key) && self.dead.is_empty() {
            self.dead_since = None;
        }
    }

    /// Whether a write can begin.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none() && !self.in_doubt && self.fault.is_none()
    }

    /// Whether a write that is under way sets this key.
    pub(super) fn is_writing(&self, key: &str) -> bool {
        let Some(UnderWay::Write { commit, .. }) = &self.under_way else { return false };
        commit.set.iter().any(|(set, _)| **set == *key)
    }

    /// Whether entries can only be written after a read that waits for its back-off.
    pub(super) fn is_unreachable(&self, now: Duration) -> bool {
        self.under_way.is_none() && self.in_doubt && self.reading.at > now
    }

    /// Notes the keys and texts of a write that the API did not confirm.
    pub(super) fn attempt(&mut self, commit: &Commit, now: Duration) {
        self.attempted_at = now;
        if commit.basis.is_none() {
            // A new object has no entries.
            self.may_be_created = true;
            return;
        }
        for (key, text) in &commit.set {
            self.attempted.entry(Arc::clone(key)).or_default().insert(Arc::clone(text));
        }
    }

    /// Whether a write of ours may have set this text.
    pub(super) fn has_attempted(&self, key: &str, text: &str) -> bool {
        self.attempted.get(key).is_some_and(|texts| texts.contains(text))
    }
}

impl Segment {
    /// Forgets the attempted writes that can no longer take effect, now that the object's version is known. A patch builds on
    /// one version, so it cannot take effect after another write.
    pub(super) fn settle_attempts(&mut self, is_unchanged: bool, now: Duration) {
        let are_passed = !is_unchanged && !self.may_be_created;
        if are_passed || now >= self.attempted_at + LATEST {
            self.attempted.clear();
            self.may_be_created = false;
        }
    }
}

impl Retry {
    /// Waits longer after each failure, and at least as long as the server asked for.
    pub(super) fn fail(&mut self, error: &ApiError, now: Duration) {
        let delay = FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LAST_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.at = now + delay.max(error.retry_after().unwrap_or_default());
    }
}
