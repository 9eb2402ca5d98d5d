//! The snapshot-controller: makes and binds contents for snapshots, copies their status, and deletes them.
//!
//! It has the habits of the real one that a role which cuts snapshots must survive: its finalizer comes some time after the
//! content, and it replaces whole maps and lists by what it has in its cache, without a precondition. How late and how
//! stale it is, tests decide ([`SnapshotHabits`]). Its part for groups is in `groups`. Left out: Events, distributed snapshotting, and errors of its own.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::groups::Groups;
use super::seen::Contents;
use super::snapshot_habits::SnapshotHabits;
use super::snapshot_objects::{
    BEING_DELETED, BOUND_CLAIM, CONTENT_BOUND, SNAPSHOT_BOUND, SNAPSHOT_SOURCE, class_for, content_for, copied_status,
    is_for, is_ready,
};
use super::{
    CLAIMS, CONTENTS, Cluster, SNAPSHOT_CLASSES, SNAPSHOTS, VOLUMES, finalizers, is_deleting, list, place, text, uid,
};
use base::process::watch;

/// The controller. It remembers how it first saw each content, by its uid.
#[derive(Debug)]
pub(super) struct Snapshots {
    habits: watch::Receiver<SnapshotHabits>,
    seen: Contents,
    groups: Groups,
}

impl Snapshots {
    pub(super) fn new(habits: watch::Receiver<SnapshotHabits>) -> Self {
        Self { habits, seen: Contents::default(), groups: Groups::default() }
    }

    /// Waits for other habits.
    pub(super) async fn changed(&mut self) {
        if self.habits.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Looks at each snapshot, each content and each claim once.
    pub(super) fn pass(&mut self, cluster: &Cluster) {
        let habits = self.habits.borrow().clone();
        if !habits.works {
            return;
        }
        self.groups.pass(cluster, &habits);
        self.seen.remember(&cluster.all(CONTENTS));
        for snapshot in cluster.all(SNAPSHOTS) {
            if is_deleting(&snapshot) {
                self.delete(cluster, &habits, &snapshot);
            } else {
                look_at(cluster, &snapshot);
            }
        }
        let contents = cluster.all(CONTENTS);
        self.seen.remember(&contents);
        for content in contents {
            let content = (CONTENTS, &*content);
            self.seen.protect(cluster, &habits, content, "/spec/volumeSnapshotRef", CONTENT_BOUND);
        }
        for claim in cluster.all(CLAIMS).iter().filter(|it| finalizers(it).any(|it| it == BOUND_CLAIM)) {
            let unready = |it: &Value| is_of(it, claim) && !is_ready(it);
            if !cluster.all(SNAPSHOTS).iter().any(|it| unready(it)) {
                cluster.let_go(CLAIMS, claim, BOUND_CLAIM);
            }
        }
    }

    /// When a finalizer is due, if none is now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let habits = self.habits.borrow();
        self.seen.next(&habits, now).into_iter().chain(self.groups.next(&habits, now)).min()
    }

    /// Takes a deleted snapshot to its end: its content is marked, then deleted if its policy says so, then the snapshot is
    /// let go of.
    fn delete(&self, cluster: &Cluster, habits: &SnapshotHabits, snapshot: &Value) {
        let (namespace, name) = place(snapshot);
        let restores = |claim: &Value| {
            place(claim).0 == namespace
                && text(claim, "/status/phase") == "Pending"
                && text(claim, "/spec/dataSource/kind") == "VolumeSnapshot"
                && text(claim, "/spec/dataSource/name") == name
        };
        if cluster.all(CLAIMS).iter().any(|claim| restores(claim)) {
            return;
        }
        let content = cluster.one(CONTENTS, "", &content_name(snapshot));
        let Some(content) = content.filter(|it| text(it, "/spec/volumeSnapshotRef/uid") == uid(snapshot)) else {
            release(cluster, snapshot, &[SNAPSHOT_SOURCE, SNAPSHOT_BOUND]);
            return;
        };
        self.seen.mark(cluster, habits, (CONTENTS, &*content), BEING_DELETED);
        if !habits.deletes {
            return;
        }
        let goes = text(&content, "/spec/deletionPolicy") == "Delete";
        if goes && !is_deleting(&content) {
            cluster.delete(CONTENTS, &content);
        }
        release(cluster, snapshot, if goes { &[SNAPSHOT_SOURCE] } else { &[SNAPSHOT_SOURCE, SNAPSHOT_BOUND] });
    }
}

/// Creates or binds a snapshot's content, and copies the content's state into the snapshot.
fn look_at(cluster: &Cluster, snapshot: &Value) {
    let mut wanted = vec![SNAPSHOT_SOURCE];
    let content = cluster.one(CONTENTS, "", &content_name(snapshot));
    let is_bound = !text(snapshot, "/status/boundVolumeSnapshotContentName").is_empty();
    if is_bound && content.as_ref().is_some_and(|it| text(it, "/spec/deletionPolicy") == "Delete") {
        wanted.push(SNAPSHOT_BOUND);
    }
    if wanted.iter().any(|wanted| finalizers(snapshot).all(|it| it != *wanted)) {
        let mut all: Vec<&str> = finalizers(snapshot).collect();
        all.extend(wanted.into_iter().filter(|it| finalizers(snapshot).all(|there| there != *it)));
        cluster.change(SNAPSHOTS, snapshot, json!({"metadata": {"finalizers": all}}));
        return;
    }
    let class = text(snapshot, "/spec/volumeSnapshotClassName");
    if !class.is_empty() && cluster.one(SNAPSHOT_CLASSES, "", class).is_none() {
        let message = format!(
            "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"{class}\" not found"
        );
        tell(cluster, snapshot, &json!({"error": {"message": message}}));
        return;
    }
    match content {
        Some(content) if is_for(&content, snapshot) => {
            if text(&content, "/spec/volumeSnapshotRef/uid").is_empty() {
                bind(cluster, snapshot, &content);
            } else {
                tell(cluster, snapshot, &copied_status(&content));
            }
        }
        None if is_ready(snapshot) => {
            let message = "VolumeSnapshotContent is missing";
            tell(cluster, snapshot, &json!({"readyToUse": false, "error": {"message": message}}));
        }
        // Also if another writer has removed the finalizer that it had.
        None if text(snapshot, "/spec/source/volumeSnapshotContentName").is_empty() => make_content(cluster, snapshot),
        // The content is another snapshot's, maybe of the same name, or does not exist yet.
        _ => {}
    }
}

/// The content that a snapshot names, or that is made for it.
fn content_name(snapshot: &Value) -> String {
    match text(snapshot, "/spec/source/volumeSnapshotContentName") {
        "" => format!("snapcontent-{}", uid(snapshot)),
        named => named.to_owned(),
    }
}

fn bind(cluster: &Cluster, snapshot: &Value, content: &Value) {
    let mut spec = json!({"volumeSnapshotRef": {"uid": uid(snapshot)}});
    let class = text(snapshot, "/spec/volumeSnapshotClassName");
    if !class.is_empty() {
        spec["volumeSnapshotClassName"] = class.into();
    }
    cluster.change(CONTENTS, content, json!({ "spec": spec }));
}

fn make_content(cluster: &Cluster, snapshot: &Value) {
    let (namespace, name) = place(snapshot);
    let Some(claim) = cluster.one(CLAIMS, namespace, text(snapshot, "/spec/source/persistentVolumeClaimName")) else {
        return;
    };
    let volume = cluster.one(VOLUMES, "", text(&claim, "/spec/volumeName"));
    let ours = |volume: &Arc<Value>| text(volume, "/spec/claimRef/uid") == uid(&claim);
    let Some(volume) = volume.filter(ours).filter(|_| text(&claim, "/status/phase") == "Bound") else { return };
    let classes = cluster.all(SNAPSHOT_CLASSES);
    let Some(class) = class_for(&classes, snapshot, &volume) else { return };
    if text(snapshot, "/spec/volumeSnapshotClassName").is_empty() {
        let spec = json!({"volumeSnapshotClassName": place(class).1});
        cluster.change(SNAPSHOTS, snapshot, json!({ "spec": spec }));
        return;
    }
    if finalizers(&claim).all(|it| it != BOUND_CLAIM) {
        if !is_deleting(&claim) {
            let all: Vec<&str> = finalizers(&claim).chain([BOUND_CLAIM]).collect();
            cluster.change(CLAIMS, &claim, json!({"metadata": {"finalizers": all}}));
        }
        return;
    }
    let Some(content) = content_for(&content_name(snapshot), snapshot, &volume, class) else { return };
    if cluster.create(content) {
        tracing::debug!(snapshot = name, "the snapshot-controller has made a content");
    }
}

/// Writes what has changed of a snapshot's status.
fn tell(cluster: &Cluster, snapshot: &Value, status: &Value) {
    let mut changed = Map::new();
    let told = |member: &str| snapshot.get("status").and_then(|it| it.get(member)).unwrap_or(&Value::Null);
    for (member, value) in status.as_object().into_iter().flatten().filter(|(member, value)| told(member) != *value) {
        changed.insert(member.clone(), value.clone());
    }
    if !changed.is_empty() {
        cluster.change_status(SNAPSHOTS, snapshot, &Value::Object(changed));
    }
}

/// Takes these finalizers off a snapshot.
fn release(cluster: &Cluster, snapshot: &Value, gone: &[&str]) {
    let rest: Vec<&str> = finalizers(snapshot).filter(|it| !gone.contains(it)).collect();
    if rest.len() < list(snapshot, "/metadata/finalizers").len() {
        cluster.change(SNAPSHOTS, snapshot, json!({"metadata": {"finalizers": rest}}));
    }
}

/// Whether a snapshot is to be cut of this claim.
fn is_of(snapshot: &Value, claim: &Value) -> bool {
    let (namespace, name) = place(claim);
    place(snapshot).0 == namespace && text(snapshot, "/spec/source/persistentVolumeClaimName") == name
}
