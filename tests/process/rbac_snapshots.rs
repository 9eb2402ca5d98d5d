//! Work that needs each of the snapshotter's rights: contents of a snapshot and of a group with a secret, which the driver or the API
//! refuses once, a content that is being deleted, and a group that is, with the content of one of its snapshots. There is no
//! snapshot-controller: the test makes its changes itself.

use std::sync::Arc;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use serde_json::{Value, json};
use tonic::Code;

use super::program::eventually;
use super::rbac::{USER, conflict};
use super::theatre::{DRIVER, Theatre};

const API: &str = "snapshot.storage.k8s.io/v1";
const PREFIX: &str = "snapshot.storage.kubernetes.io";
const GROUPS: &str = "groupsnapshot.storage.k8s.io";

fn contents() -> &'static Resource {
    resources::of_kind(API, "VolumeSnapshotContent").unwrap()
}

fn content(theatre: &Theatre, name: &str) -> Option<Arc<Value>> {
    theatre.testbed.api.object(contents(), "", name)
}

/// A stage with the kinds of snapshots and of groups.
pub(crate) async fn open() -> Theatre {
    let theatre = Theatre::open().await;
    theatre.testbed.install_snapshots();
    theatre.testbed.api.install(GROUPS);
    theatre
}

/// The group's content, with its class.
fn put_group(theatre: &Theatre) {
    let (api, protection) = (format!("{GROUPS}/v1"), "volumegroupsnapshotcontent-bound-protection");
    theatre.put(json!({"apiVersion": api, "kind": "VolumeGroupSnapshotClass", "metadata": {"name": "groups"},
        "driver": DRIVER, "deletionPolicy": "Delete"}));
    theatre.put(json!({"apiVersion": api, "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": "group", "finalizers": [format!("groupsnapshot.storage.kubernetes.io/{protection}")]},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "volumeGroupSnapshotClassName": "groups",
            "source": {"volumeHandles": ["source"]},
            "volumeGroupSnapshotRef": {"namespace": "default", "name": "group", "uid": "uid-of-group"}}}));
}

async fn group_ready(theatre: &Theatre) {
    let contents = resources::of_kind(&format!("{GROUPS}/v1"), "VolumeGroupSnapshotContent").unwrap();
    let group = || theatre.testbed.api.object(contents, "", "group");
    eventually("the group is ready", async || (group()?["status"]["readyToUse"] == true).then_some(())).await;
}

/// A `VolumeSnapshot` that the group owns, and its content, for one of the group's snapshots.
fn put_member(theatre: &Theatre) {
    let api = format!("{GROUPS}/v1");
    let owner = json!({"apiVersion": api, "kind": "VolumeGroupSnapshot", "name": "group", "uid": "uid-of-group"});
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshot",
        "metadata": {"name": "member", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"source": {"volumeSnapshotContentName": "member"}}}));
    let snapshots = resources::of_kind(API, "VolumeSnapshot").unwrap();
    let uid = theatre.testbed.api.object(snapshots, "default", "member").unwrap()["metadata"]["uid"].clone();
    let snapshot = theatre.driver().state().snapshots().iter().find(|(_, it)| !it.group.is_empty()).unwrap().0.clone();
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshotContent", "metadata": {"name": "member"},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"snapshotHandle": snapshot},
            "volumeSnapshotRef": {"namespace": "default", "name": "member", "uid": uid}}}));
}

/// Deletes the group's content as the snapshot-controller does. Meanwhile comes the content of one of its snapshots, of which only the
/// owner of its `VolumeSnapshot` says that it is of the group.
async fn group_gone(theatre: &Theatre) {
    let refused = Action::fail(Code::Internal, "not yet");
    theatre.driver().inject(Fault::on(Method::DeleteVolumeGroupSnapshot, refused));
    for method in [Method::GetSnapshot, Method::ListSnapshots] {
        theatre.driver().inject(Fault::on(method, Action::Lie(Lie::SnapshotGroup(String::new()))));
    }
    let contents = resources::of_kind(&format!("{GROUPS}/v1"), "VolumeGroupSnapshotContent").unwrap();
    let lost = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
    let mark = PatchBody::Merge(json!({"metadata": {"annotations": {lost: "yes"}}}));
    theatre.testbed.api.patch_object(contents, "", "group", mark, false).unwrap();
    theatre.testbed.api.delete_object(contents, "", "group").unwrap();
    put_member(theatre);
    ready(theatre, "member").await;
    theatre.driver().clear_faults();
    let is_gone = async || theatre.testbed.api.object(contents, "", "group").is_none().then_some(());
    eventually("the group is gone", is_gone).await;
}

/// Creates a content that the snapshot-controller has bound to a snapshot.
pub(crate) fn put_content(theatre: &Theatre, name: &str, source: &Value) {
    let annotations = json!({format!("{PREFIX}/deletion-secret-name"): "keys",
        format!("{PREFIX}/deletion-secret-namespace"): "default"});
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshotContent",
        "metadata": {"name": name, "annotations": annotations,
            "finalizers": [format!("{PREFIX}/volumesnapshotcontent-bound-protection")]},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "volumeSnapshotClassName": "snapshots", "source": source,
            "volumeSnapshotRef": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}")}}}));
}

/// Marks a content as one for which the driver was called.
pub(crate) fn mark(theatre: &Theatre, name: &str) {
    let mark = json!({"metadata": {"annotations": {format!("{PREFIX}/volumesnapshot-being-created"): "yes"}}});
    theatre.testbed.api.patch_object(contents(), "", name, PatchBody::Merge(mark), false).unwrap();
}

/// Deletes a content as the snapshot-controller does.
pub(crate) fn delete_content(theatre: &Theatre, name: &str) {
    let mark = json!({"metadata": {"annotations": {format!("{PREFIX}/volumesnapshot-being-deleted"): "yes"}}});
    theatre.testbed.api.patch_object(contents(), "", name, PatchBody::Merge(mark), false).unwrap();
    theatre.testbed.api.delete_object(contents(), "", name).unwrap();
}

/// Creates the class of the contents and their secret.
pub(crate) fn put_class(theatre: &Theatre) {
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"user": "me"}}));
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshotClass", "metadata": {"name": "snapshots"},
        "driver": DRIVER, "deletionPolicy": "Delete"}));
}

/// Waits until a content's snapshot is ready to use.
pub(crate) async fn ready(theatre: &Theatre, name: &str) {
    let is_ready = async || (content(theatre, name)?["status"]["readyToUse"] == true).then_some(());
    eventually(&format!("the snapshot of {name} is ready"), is_ready).await;
}

/// Waits until a content is gone.
pub(crate) async fn gone(theatre: &Theatre, name: &str) {
    eventually(&format!("{name} is gone"), async || content(theatre, name).is_none().then_some(())).await;
}

pub(crate) fn begin(theatre: &Theatre) {
    put_class(theatre);
    theatre.driver().seed(["source"]);
    put_content(theatre, "going", &json!({"snapshotHandle": theatre.driver().cut_snapshot("old", "source").unwrap()}));
    delete_content(theatre, "going");
    let fails = Fault::on(Method::CreateSnapshot, Action::fail(Code::Internal, "no luck"));
    theatre.driver().inject(fails.once());
    conflict(theatre, "snapshot.storage.k8s.io", "volumesnapshotcontents");
    put_content(theatre, "content", &json!({"volumeHandle": "source"}));
    conflict(theatre, GROUPS, "volumegroupsnapshotcontents");
    put_group(theatre);
    put_strays(theatre);
    put_doomed(theatre);
}

/// A group that is being deleted, and a content that names its snapshot: who owns the `VolumeSnapshot` of that is read.
fn put_doomed(theatre: &Theatre) {
    let (snapshot, object) = (theatre.driver().cut_snapshot("doomed", "source").unwrap(), "doomed");
    let named = json!({"namespace": "default", "name": object, "uid": "uid-of-doomed"});
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshotContent", "metadata": {"name": object},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"snapshotHandle": snapshot},
            "volumeSnapshotRef": named.clone()}}));
    let contents = resources::of_kind(&format!("{GROUPS}/v1"), "VolumeGroupSnapshotContent").unwrap();
    let protection = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
    let lost = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
    let handles = json!({"volumeGroupSnapshotHandle": "group-of-old", "volumeSnapshotHandles": [snapshot]});
    theatre.put(json!({"apiVersion": format!("{GROUPS}/v1"), "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": object, "finalizers": [protection], "annotations": {lost: "yes"}},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"groupSnapshotHandles": handles},
            "volumeGroupSnapshotRef": named}}));
    theatre.testbed.api.delete_object(contents, "", object).unwrap();
}

/// Contents whose classes are not there, and are looked up.
fn put_strays(theatre: &Theatre) {
    let object = json!({"namespace": "default", "name": "stray", "uid": "uid-of-stray"});
    theatre.put(json!({"apiVersion": API, "kind": "VolumeSnapshotContent", "metadata": {"name": "stray"},
        "spec": {"driver": DRIVER, "deletionPolicy": "Retain", "volumeSnapshotClassName": "nowhere",
            "source": {"volumeHandle": "source"}, "volumeSnapshotRef": object.clone()}}));
    theatre.put(json!({"apiVersion": format!("{GROUPS}/v1"), "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": "stray"},
        "spec": {"driver": DRIVER, "deletionPolicy": "Retain", "volumeGroupSnapshotClassName": "nowhere",
            "source": {"volumeHandles": ["source"]}, "volumeGroupSnapshotRef": object}}));
}

pub(crate) async fn done(theatre: &Theatre) {
    ready(theatre, "content").await;
    group_ready(theatre).await;
    gone(theatre, "going").await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
    group_gone(theatre).await;
}
