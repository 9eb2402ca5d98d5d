//! What people do with snapshots and with groups of them, and what the cluster holds of both.

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::pure::resources::{Resource, find};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::{DRIVER, NAMESPACE, SOURCE, World, is_deleting, name, text};

/// The label of the claims that a group is of.
const LABEL: (&str, &str) = ("app", "shop");
/// What a content has whose request is recorded on it.
pub(crate) const INTENT: &str = "csi-control-plane.io/snapshotting";

/// A kind of snapshots: of one volume, or of several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    group: &'static str,
    owners: &'static str,
    contents: &'static str,
    /// Where a content says whose it is.
    pub(crate) owner: &'static str,
    /// Where a content tells of what the driver has.
    pub(crate) handle: &'static str,
    /// The annotation of a content that the driver was called for.
    pub(crate) mark: &'static str,
    /// The annotation of a content whose owner is deleted.
    lost: &'static str,
}

/// A snapshot of one volume.
pub(crate) const SINGLE: Cut = Cut {
    group: "snapshot.storage.k8s.io",
    owners: "volumesnapshots",
    contents: "volumesnapshotcontents",
    owner: "/spec/volumeSnapshotRef/uid",
    handle: "/status/snapshotHandle",
    mark: "snapshot.storage.kubernetes.io/volumesnapshot-being-created",
    lost: "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
};
/// A group of snapshots.
pub(crate) const GROUP: Cut = Cut {
    group: "groupsnapshot.storage.k8s.io",
    owners: "volumegroupsnapshots",
    contents: "volumegroupsnapshotcontents",
    owner: "/spec/volumeGroupSnapshotRef/uid",
    handle: "/status/volumeGroupSnapshotHandle",
    mark: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created",
    lost: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted",
};
/// Both.
pub(crate) const CUTS: [Cut; 2] = [SINGLE, GROUP];

impl Cut {
    /// Makes a content for this owner with these annotations, after the last one has been taken away.
    pub(crate) fn content(self, world: &World, owner: &str, annotations: &Value) {
        let kind = self.kind(self.contents).unwrap();
        let _ = world.api.delete_object(kind, "", owner);
        let (single, group) = (self == SINGLE, format!("{}/v1", self.group));
        let reference = json!({ "namespace": NAMESPACE, "name": owner, "uid": owner });
        let source = if single { json!({ "volumeHandle": "v" }) } else { json!({ "volumeHandles": ["v", "w"] }) };
        let member = if single { "volumeSnapshotRef" } else { "volumeGroupSnapshotRef" };
        world.create(json!({ "apiVersion": group, "kind": kind.kind,
            "metadata": { "name": owner, "annotations": annotations },
            "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "source": source, member: reference } }));
    }

    fn kind(self, plural: &str) -> Option<&'static Resource> {
        find(self.group, "v1", plural)
    }
}

/// Whether the request on a content was written for another one.
pub(crate) fn is_copy(content: &Value) -> bool {
    let intent = content["metadata"]["annotations"][INTENT].as_str();
    let written: Option<Value> = intent.and_then(|it| serde_json::from_str(it).ok());
    written.is_some_and(|it| it["uid"] != content["metadata"]["uid"])
}

impl World {
    /// A volume that was there before, with a claim that a group may be of.
    fn bound_claim(&self, claim: &str) {
        let handle = format!("{claim}-volume");
        self.driver.seed([handle.as_str()]);
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": claim },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "namespace": NAMESPACE, "name": claim },
                "csi": { "driver": DRIVER, "volumeHandle": handle } } }));
        let mut labels = json!({});
        labels[LABEL.0] = LABEL.1.into();
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": claim, "namespace": NAMESPACE, "labels": labels },
            "spec": { "storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "volumeName": claim,
                "resources": { "requests": { "storage": "1Gi" } } } }));
    }

    /// A claim with a volume, and a class of snapshots with this policy.
    pub(crate) fn snapshot_class(&self, policy: &str) {
        self.bound_claim(SOURCE);
        self.create(json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": "gold" }, "driver": DRIVER, "deletionPolicy": policy }));
    }

    pub(crate) fn delete_snapshot_class(&self) {
        self.api.delete_object(SINGLE.kind("volumesnapshotclasses").unwrap(), "", "gold").unwrap();
    }

    /// Somebody wants a snapshot of the source.
    pub(crate) fn want_snapshot(&self) {
        self.create(json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": SOURCE, "namespace": NAMESPACE },
            "spec": { "volumeSnapshotClassName": "gold", "source": { "persistentVolumeClaimName": SOURCE } } }));
    }

    /// Two claims with volumes, and a class of groups with this policy.
    pub(crate) fn group_class(&self, policy: &str) {
        for claim in [SOURCE, "second"] {
            self.bound_claim(claim);
        }
        self.create(json!({ "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass",
            "metadata": { "name": "gold" }, "driver": DRIVER, "deletionPolicy": policy }));
    }

    /// Somebody wants a group of snapshots of both.
    pub(crate) fn want_group(&self) {
        let mut labels = json!({});
        labels[LABEL.0] = LABEL.1.into();
        self.create(json!({ "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
            "metadata": { "name": SOURCE, "namespace": NAMESPACE },
            "spec": { "volumeGroupSnapshotClassName": "gold", "source": { "selector": { "matchLabels": labels } } } }));
    }

    pub(crate) fn contents(&self, cut: Cut) -> Vec<Value> {
        cut.kind(cut.contents).map(|kind| self.all(kind)).unwrap_or_default()
    }

    /// The snapshots, or the groups, that users want.
    pub(crate) fn owners(&self, cut: Cut) -> Vec<Value> {
        cut.kind(cut.owners).map(|kind| self.all(kind)).unwrap_or_default()
    }

    /// What the scenario is about, and its content.
    fn owned(&self, cut: Cut) -> (Option<Value>, Option<Value>) {
        let owner = self.owners(cut).into_iter().find(|it| name(it) == SOURCE);
        let uid = owner.as_ref().map(|it| text(it, "/metadata/uid").to_owned()).unwrap_or_default();
        let content = self.contents(cut).into_iter().find(|it| !uid.is_empty() && text(it, cut.owner) == uid);
        (owner, content)
    }

    fn delete_cut(&self, cut: Cut) {
        let _ = self.api.delete_object(cut.kind(cut.owners).unwrap(), NAMESPACE, SOURCE);
    }

    pub(crate) fn delete_group(&self) {
        self.delete_cut(GROUP);
    }

    /// From now on the driver must have this, and what belongs to it. What it has deleted already, nobody can keep.
    fn keep(&self, handle: &str) {
        let state = self.driver.state();
        if state.snapshots().contains_key(handle) || state.groups().contains_key(handle) {
            let all = [handle.to_owned()].into_iter().chain(state.members(handle));
            self.kept_cuts.lock().unwrap().extend(all.map(|handle| (handle, Instant::now())));
        }
    }

    fn patch_content(&self, cut: Cut, content: &str, patch: Value) {
        let kind = cut.kind(cut.contents).unwrap();
        self.api.patch_object(kind, "", content, PatchBody::Merge(patch), false).unwrap();
    }

    /// As a user keeps a snapshot: if its content has a handle, that is set to `Retain`, and both objects are deleted. Otherwise what
    /// the user wanted is deleted. `by_force`: the finalizers, too.
    pub(crate) fn keep_cut(&self, cut: Cut, by_force: bool) {
        let (_, content) = self.owned(cut);
        if let Some(content) = content.filter(|it| !text(it, cut.handle).is_empty()) {
            self.keep(text(&content, cut.handle));
            self.retain_and_delete(cut, &content, by_force);
        } else {
            self.delete_cut(cut);
        }
    }

    fn retain_and_delete(&self, cut: Cut, content: &Value, by_force: bool) {
        self.patch_content(cut, name(content), json!({ "spec": { "deletionPolicy": "Retain" } }));
        self.delete_cut(cut);
        let bare = json!({ "metadata": { "finalizers": null } });
        let owners = cut.kind(cut.owners).unwrap();
        if by_force {
            let _ = self.api.patch_object(owners, NAMESPACE, SOURCE, PatchBody::Merge(bare.clone()), false);
            self.patch_content(cut, name(content), bare);
        }
        let _ = self.api.delete_object(cut.kind(cut.contents).unwrap(), "", name(content));
    }

    /// The policy is changed to `Retain` before anybody knows what the driver has, and both objects are deleted.
    pub(crate) fn retain_cut(&self, cut: Cut) {
        let (_, content) = self.owned(cut);
        let Some(content) = content else { return self.delete_cut(cut) };
        if !text(&content, cut.handle).is_empty() {
            self.keep(text(&content, cut.handle));
        }
        self.retain_and_delete(cut, &content, false);
    }

    /// The objects are removed by force, and a backup brings the content back: as it was saved, where a request stands on it, and
    /// otherwise with the handle as its source, which the guides of backups say. It has another uid, and nobody wants it.
    pub(crate) fn restore_cut(&self, cut: Cut) {
        let (_, saved) = self.owned(cut);
        let Some(mut saved) = saved else { return self.delete_cut(cut) };
        let handle = text(&saved, cut.handle).to_owned();
        if !handle.is_empty() {
            self.keep(&handle);
        }
        self.retain_and_delete(cut, &saved, true);
        if !handle.is_empty() && saved["metadata"]["annotations"].get(INTENT).is_none() {
            let members: Vec<String> = self.driver.state().members(&handle).into_iter().collect();
            let group = json!({ "volumeGroupSnapshotHandle": handle, "volumeSnapshotHandles": members });
            saved["spec"]["source"] = if cut == GROUP {
                json!({ "groupSnapshotHandles": group })
            } else {
                json!({ "snapshotHandle": handle })
            };
            saved["spec"]["deletionPolicy"] = "Retain".into();
        }
        let of = |member: &str| saved["metadata"].get(member).cloned().unwrap_or_default();
        self.create(json!({ "apiVersion": saved["apiVersion"], "kind": saved["kind"], "spec": saved["spec"],
            "metadata": { "name": of("name"), "annotations": of("annotations"), "finalizers": of("finalizers") } }));
    }

    /// Nothing says any more that a call is unanswered, and what it was for is deleted: as a daemon leaves it that marks nothing.
    pub(crate) fn unmark_and_delete_cut(&self, cut: Cut) {
        if let (_, Some(content)) = self.owned(cut) {
            let mut bare = json!({});
            for key in [cut.mark, INTENT] {
                bare[key] = Value::Null;
            }
            self.patch_content(cut, name(&content), json!({ "metadata": { "annotations": bare } }));
        }
        self.delete_cut(cut);
    }

    /// A backup brings the content back, and the copy is deleted as the snapshot-controller deletes contents.
    pub(crate) fn restore_and_delete_cut(&self, cut: Cut) {
        self.restore_cut(cut);
        let kind = cut.kind(cut.contents).unwrap();
        let lives = |it: &&Value| !is_deleting(it);
        for content in self.contents(cut).iter().filter(lives) {
            let mut lost = json!({});
            lost[cut.lost] = "yes".into();
            self.patch_content(cut, name(content), json!({ "metadata": { "annotations": lost } }));
            let _ = self.api.delete_object(kind, "", name(content));
        }
    }
}
