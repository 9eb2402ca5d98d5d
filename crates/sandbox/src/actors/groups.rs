//! The snapshot-controller's part for groups: makes the content of a group, then the contents and snapshots of its members, copies
//! status both ways, and deletes all of it.
//!
//! People create the content of a group that existed before, and the contents of its members: the controller only binds the former. It
//! knows the members by an owner of its own version of the API. What a group owns by another version is left to the garbage collector,
//! which works here, too: it deletes the snapshots of a group that is gone.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::seen::Contents;
use super::snapshot_habits::SnapshotHabits;
use super::snapshot_objects::{MEMBER, SECRETS};
use super::{
    CLAIMS, CONTENTS, Cluster, GROUP_CLASSES, GROUP_CONTENTS, GROUPS, SNAPSHOTS, VOLUMES, finalizers, is_deleting,
    list, place, text, uid,
};

/// Holds the content of a group until the storage is clean.
const CONTENT_BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
/// Holds a group until its content is gone.
const GROUP_BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
/// On the content of a group: the group is deleted.
const GROUP_BEING_DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
/// The keys of a class that name a secret, and the annotations of a content that do.
const GROUP_SECRETS: [(&str, &str); 2] = [
    ("csi.storage.k8s.io/group-snapshotter-secret-name", "groupsnapshot.storage.kubernetes.io/deletion-secret-name"),
    (
        "csi.storage.k8s.io/group-snapshotter-secret-namespace",
        "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace",
    ),
];

/// The controller's memory of the contents of groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    seen: Contents,
}

impl Groups {
    /// Looks at each group and each content once.
    pub(super) fn pass(&mut self, cluster: &Cluster, habits: &SnapshotHabits) {
        self.seen.remember(&cluster.all(GROUP_CONTENTS));
        for group in cluster.all(GROUPS) {
            let content = cluster.one(GROUP_CONTENTS, "", &content_name(&group));
            let content = content.filter(|it| text(it, "/spec/volumeGroupSnapshotRef/uid") == uid(&group));
            if is_deleting(&group) {
                self.delete(cluster, habits, &group, content.as_deref());
            } else if finalizers(&group).all(|it| it != GROUP_BOUND) {
                let all: Vec<&str> = finalizers(&group).chain([GROUP_BOUND]).collect();
                cluster.change(GROUPS, &group, json!({"metadata": {"finalizers": all}}));
            } else if let Some(content) = content {
                tell(cluster, &group, &content);
                make_members(cluster, &group, &content);
            } else if let Some(given) = unbound_content(cluster, &group) {
                let spec = json!({"volumeGroupSnapshotRef": {"uid": uid(&group)}});
                cluster.change(GROUP_CONTENTS, &given, json!({ "spec": spec }));
            } else if let Some(content) = content_of(cluster, &group) {
                cluster.create(content);
            }
        }
        collect(cluster);
        let contents = cluster.all(GROUP_CONTENTS);
        self.seen.remember(&contents);
        for content in contents {
            let content = (GROUP_CONTENTS, &*content);
            self.seen.protect(cluster, habits, content, "/spec/volumeGroupSnapshotRef", CONTENT_BOUND);
        }
    }

    /// When a finalizer is due, if none is now.
    pub(super) fn next(&self, habits: &SnapshotHabits, now: Instant) -> Option<Instant> {
        self.seen.next(habits, now)
    }

    /// Takes a deleted group to its end: its content is marked and deleted, and its members with it.
    fn delete(&self, cluster: &Cluster, habits: &SnapshotHabits, group: &Value, content: Option<&Value>) {
        let members: Vec<_> = cluster.all(SNAPSHOTS).into_iter().filter(|it| is_member(it, group)).collect();
        for member in members.iter().filter(|it| !is_deleting(it)) {
            cluster.delete(SNAPSHOTS, member);
        }
        if let Some(content) = content {
            self.seen.mark(cluster, habits, (GROUP_CONTENTS, content), GROUP_BEING_DELETED);
            let goes = text(content, "/spec/deletionPolicy") == "Delete";
            if goes && habits.deletes && !is_deleting(content) {
                cluster.delete(GROUP_CONTENTS, content);
            }
            if goes || !habits.deletes {
                return;
            }
        }
        if members.is_empty() {
            cluster.let_go(GROUPS, group, GROUP_BOUND);
        }
    }
}

fn content_name(group: &Value) -> String {
    match text(group, "/spec/source/volumeGroupSnapshotContentName") {
        "" => format!("groupsnapcontent-{}", uid(group)),
        named => named.to_owned(),
    }
}

/// The content that existed before the group: both name each other, and the content has no uid of a group yet.
fn unbound_content(cluster: &Cluster, group: &Value) -> Option<Arc<Value>> {
    let named = text(group, "/spec/source/volumeGroupSnapshotContentName");
    let content = cluster.one(GROUP_CONTENTS, "", named).filter(|_| !named.is_empty())?;
    let of_ref = |field: &str| text(&content, &format!("/spec/volumeGroupSnapshotRef/{field}"));
    let is_for = (of_ref("namespace"), of_ref("name")) == place(group) && of_ref("uid").is_empty();
    is_for.then_some(content)
}

/// The content of a group of the claims that its labels select; none as long as one of them has no volume.
fn content_of(cluster: &Cluster, group: &Value) -> Option<Value> {
    let (namespace, name) = place(group);
    let labels = group.pointer("/spec/source/selector/matchLabels")?.as_object()?;
    let has = |claim: &Value| labels.iter().all(|(key, value)| claim["metadata"]["labels"].get(key) == Some(value));
    let claims: Vec<_> = cluster.all(CLAIMS).into_iter().filter(|it| place(it).0 == namespace && has(it)).collect();
    let handle = |claim: &Arc<Value>| {
        let volume = cluster.one(VOLUMES, "", text(claim, "/spec/volumeName"))?;
        Some(text(&volume, "/spec/csi/volumeHandle").to_owned()).filter(|it| !it.is_empty())
    };
    let handles: Vec<String> = claims.iter().map(handle).collect::<Option<_>>()?;
    let class = cluster.one(GROUP_CLASSES, "", text(group, "/spec/volumeGroupSnapshotClassName"))?;
    if handles.is_empty() {
        return None;
    }
    let mut annotations = Map::new();
    for (key, annotation) in GROUP_SECRETS {
        if let Some(value) = class.get("parameters").and_then(|it| it.get(key)) {
            annotations.insert(annotation.to_owned(), value.clone());
        }
    }
    let mut content = json!({"apiVersion": group.get("apiVersion"), "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": content_name(group)}, "spec": {
            "deletionPolicy": class.get("deletionPolicy"), "driver": class.get("driver"),
            "source": {"volumeHandles": handles}, "volumeGroupSnapshotClassName": place(&class).1,
            "volumeGroupSnapshotRef": {"namespace": namespace, "name": name, "uid": uid(group)}}});
    if !annotations.is_empty() {
        content["metadata"]["annotations"] = annotations.into();
    }
    Some(content)
}

/// The status of a group, from its content.
fn tell(cluster: &Cluster, group: &Value, content: &Value) {
    let status = |member: &str| content.get("status").and_then(|it| it.get(member)).cloned().unwrap_or_default();
    let ready = status("readyToUse") == true;
    let mut told = json!({"boundVolumeGroupSnapshotContentName": place(content).1, "readyToUse": ready});
    for member in ["creationTime", "error"] {
        told[member] = if member == "error" && ready { Value::Null } else { status(member) };
    }
    let there = group.get("status").cloned().unwrap_or_default();
    let is_news =
        told.as_object().into_iter().flatten().any(|(name, value)| there.get(name).unwrap_or(&Value::Null) != value);
    if is_news {
        cluster.change_status(GROUPS, group, &told);
    }
}

/// Makes the members of a group, and fills their status again and again until the group is ready.
fn make_members(cluster: &Cluster, group: &Value, content: &Value) {
    let handle = text(content, "/status/volumeGroupSnapshotHandle");
    let (namespace, _) = place(group);
    let lists = ["/status/volumeSnapshotInfoList", "/status/volumeSnapshotHandlePairList"];
    let infos = lists.into_iter().flat_map(|path| list(content, path));
    for info in infos.filter(|_| !handle.is_empty()) {
        let hash = hash(uid(group), text(info, "/volumeHandle"));
        let (of_content, of_snapshot) = (format!("snapcontent-{hash}"), format!("snapshot-{hash}"));
        let Some(member) = cluster.one(CONTENTS, "", &of_content) else {
            cluster.create(member_content(content, info, (&of_content, namespace, &of_snapshot)));
            continue;
        };
        if cluster.one(SNAPSHOTS, namespace, &of_snapshot).is_none() {
            let (api_version, owner) = (group.get("apiVersion"), place(group).1);
            cluster.create(json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {"name": of_snapshot, "namespace": namespace, "ownerReferences": [{
                    "apiVersion": api_version, "kind": "VolumeGroupSnapshot", "name": owner, "uid": uid(group)}]},
                "spec": {"source": {"volumeSnapshotContentName": of_content}}}));
            continue;
        }
        let is_over = group.pointer("/status/readyToUse") == Some(&Value::Bool(true));
        let is_filled = !text(&member, "/status/volumeGroupSnapshotHandle").is_empty();
        if is_over && is_filled {
            continue;
        }
        let mut status = json!({"volumeGroupSnapshotHandle": handle});
        for name in ["snapshotHandle", "creationTime", "restoreSize", "readyToUse"] {
            if let Some(value) = info.get(name) {
                status[name] = value.clone();
            }
        }
        let there = member.get("status").cloned().unwrap_or_default();
        if there.get("readyToUse") == Some(&Value::Bool(true)) {
            // The controller is woken by groups alone. Here every change wakes it: it would take back at once what the sidecar says.
            status["readyToUse"] = Value::Bool(true);
        }
        if status.as_object().into_iter().flatten().any(|(name, value)| there.get(name) != Some(value)) {
            cluster.change_status(CONTENTS, &member, &status);
        }
    }
}

fn member_content(content: &Value, info: &Value, (name, namespace, snapshot): (&str, &str, &str)) -> Value {
    let mut annotations = Map::new();
    annotations.insert(MEMBER.to_owned(), text(content, "/status/volumeGroupSnapshotHandle").into());
    for ((_, of_group), (_, of_member)) in GROUP_SECRETS.into_iter().zip(SECRETS) {
        if let Some(value) = content["metadata"]["annotations"].get(of_group) {
            annotations.insert(of_member.to_owned(), value.clone());
        }
    }
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": name, "annotations": annotations}, "spec": {
            "deletionPolicy": text(content, "/spec/deletionPolicy"), "driver": text(content, "/spec/driver"),
            "source": {"volumeHandle": text(info, "/volumeHandle")},
            "volumeSnapshotRef": {"namespace": namespace, "name": snapshot}}})
}

/// Whether a snapshot is a member of this group.
fn is_member(snapshot: &Value, group: &Value) -> bool {
    let version = group.get("apiVersion");
    let is_group = |owner: &Value| text(owner, "/uid") == uid(group) && owner.get("apiVersion") == version;
    list(snapshot, "/metadata/ownerReferences").iter().any(is_group)
}

/// Deletes the snapshots of groups that are gone.
fn collect(cluster: &Cluster) {
    let groups = cluster.all(GROUPS);
    let is_gone = |owner: &Value| {
        text(owner, "/kind") == "VolumeGroupSnapshot" && groups.iter().all(|group| uid(group) != text(owner, "/uid"))
    };
    for snapshot in cluster.all(SNAPSHOTS).iter().filter(|it| !is_deleting(it)) {
        if list(snapshot, "/metadata/ownerReferences").iter().any(is_gone) {
            cluster.delete(SNAPSHOTS, snapshot);
        }
    }
}

/// The parts of a member's names.
fn hash(group: &str, volume: &str) -> String {
    let digest = Sha256::new().chain_update(group).chain_update(volume).finalize();
    digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
