//! The cache of the snapshot-controller: contents as it first saw them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::snapshot_habits::SnapshotHabits;
use super::{Cluster, Kind, annotation, finalizers, is_deleting, text, uid};

/// The contents as they were first seen, by uid.
#[derive(Debug, Default)]
pub(super) struct Contents(BTreeMap<String, Seen>);

#[derive(Debug)]
struct Seen {
    content: Arc<Value>,
    at: Instant,
}

impl Contents {
    /// These are there.
    pub(super) fn remember(&mut self, contents: &[Arc<Value>]) {
        let now = Instant::now();
        self.0.retain(|known, _| contents.iter().any(|it| uid(it) == known));
        for content in contents {
            let seen = || Seen { content: Arc::clone(content), at: now };
            self.0.entry(uid(content).to_owned()).or_insert_with(seen);
        }
    }

    /// When a finalizer is due, if none is now.
    pub(super) fn next(&self, habits: &SnapshotHabits, now: Instant) -> Option<Instant> {
        let due = self.0.values().map(|seen| seen.at + habits.finalizer_after);
        due.filter(|due| habits.works && *due > now).min()
    }

    /// A content as the cache shows it.
    fn cached<'a>(&'a self, habits: &SnapshotHabits, content: &'a Value) -> &'a Value {
        self.0.get(uid(content)).filter(|_| habits.is_stale).map_or(content, |seen| &seen.content)
    }

    /// Puts a finalizer on a content whose owner, at this place, is known by its uid. Where the cache shows none, the list is
    /// replaced.
    pub(super) fn protect(
        &self,
        cluster: &Cluster,
        habits: &SnapshotHabits,
        (kind, content): (Kind, &Value),
        owner: &str,
        finalizer: &str,
    ) {
        let is_bound = !text(content, &format!("{owner}/uid")).is_empty();
        let is_due = self.0.get(uid(content)).is_some_and(|seen| seen.at + habits.finalizer_after <= Instant::now());
        let is_there = finalizers(content).any(|it| it == finalizer);
        if !is_bound || !is_due || is_there || is_deleting(content) {
            return;
        }
        let cached = self.cached(habits, content);
        let add = if finalizers(cached).next().is_some() {
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}])
        } else {
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}])
        };
        cluster.change_blindly(kind, content, add);
    }

    /// Says on a content that its owner is deleted: all of its annotations are replaced.
    pub(super) fn mark(&self, cluster: &Cluster, habits: &SnapshotHabits, (kind, content): (Kind, &Value), mark: &str) {
        if annotation(content, mark).is_none() {
            let cached = self.cached(habits, content);
            let mut annotations = cached.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
            annotations[mark] = "yes".into();
            let whole = json!([{"op": "replace", "path": "/metadata/annotations", "value": annotations}]);
            cluster.change_blindly(kind, content, whole);
        }
    }
}
