//! The common parts of the scenarios of groups, beside [`crate::snapshotting`]: claims with a label, classes, groups, and looks at
//! them.

use std::sync::Arc;

use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::objects::merge;
use crate::snapshotting::{INTENT, SNAPSHOT, annotation, is_ready, name_all};
use crate::world::{PATIENCE, World, settled};

pub(crate) const GROUP: &str = "VolumeGroupSnapshot";
pub(crate) const GROUP_CONTENT: &str = "VolumeGroupSnapshotContent";
pub(crate) const GROUP_CLASS: &str = "VolumeGroupSnapshotClass";

/// Holds a content until the driver has no group for it.
pub(crate) const BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
/// The annotation of a content for which the driver owes a final answer.
pub(crate) const BEGUN: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// On a content: its group is deleted.
pub(crate) const DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";

/// A group that a user has requested.
pub(crate) struct CutGroup {
    /// The name of the `VolumeGroupSnapshot`.
    pub(crate) group: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The name of its content.
    pub(crate) content: String,
    /// The name in the driver's call.
    pub(crate) name: String,
}

/// Something goes wrong with each `CreateVolumeGroupSnapshot`.
pub(crate) fn cutting(action: Action) -> Fault {
    Fault::on(Method::CreateVolumeGroupSnapshot, action)
}

/// The driver cuts the group, and its answer does not come in time: the outcome is unknown.
pub(crate) fn unanswered() -> Fault {
    cutting(Action::DoneButFail { code: Code::DeadlineExceeded, message: "too slow".to_owned() })
}

/// Whether the driver still owes a final answer for a content.
pub(crate) fn is_begun(content: &Value) -> bool {
    annotation(content, BEGUN).is_some()
}

/// The driver's id of the group of a content.
pub(crate) fn handle_in(content: &Value) -> Option<&str> {
    content["status"]["volumeGroupSnapshotHandle"].as_str()
}

impl World {
    /// Two claims that have their volumes, and the label of a group.
    pub(crate) async fn labelled(&self, group: &str) {
        for short in ["one", "two"] {
            let source = self.source(&format!("{group}-{short}")).await;
            let claims = self.namespaced::<PersistentVolumeClaim>();
            let patch = Patch::Merge(json!({"metadata": {"labels": {"group": self.name(group)}}}));
            claims.patch(&source.claim, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// A class of groups that go with their objects; `change` is merged into it. Returns its name.
    pub(crate) async fn group_class(&self, short: &str, change: Value) -> String {
        let name = self.name(short);
        let mut class = json!({"metadata": {"name": name}, "driver": self.driver_name(), "deletionPolicy": "Delete"});
        merge(&mut class, change);
        self.installed(GROUP_CLASS, class).await;
        name
    }

    /// A user asks for a group of the claims that have its label.
    pub(crate) async fn cut_group(&self, short: &str, class: &str) -> CutGroup {
        let group = self.name(short);
        let object = json!({"metadata": {"name": group}, "spec": {"volumeGroupSnapshotClassName": class,
            "source": {"selector": {"matchLabels": {"group": group}}}}});
        let uid = self.installed(GROUP, object).await.uid().unwrap();
        let (content, name) = (format!("groupsnapcontent-{uid}"), format!("groupsnapshot-{uid}"));
        CutGroup { group, uid, content, name }
    }

    /// The same of new claims and by a new class.
    pub(crate) async fn cut_group_anew(&self) -> CutGroup {
        self.labelled("shop").await;
        let class = self.group_class("class", json!({})).await;
        self.cut_group("shop", &class).await
    }

    /// Waits until the content of a group satisfies a condition, and returns it.
    pub(crate) async fn group_until(&self, cut: &CutGroup, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.look_until(GROUP_CONTENT, &cut.content, what, |it| !it.is_null() && holds(it)).await
    }

    /// The `VolumeSnapshots` of a group.
    pub(crate) async fn members_of(&self, cut: &CutGroup) -> Vec<Value> {
        let all = self.installed_kind(SNAPSHOT).list(&ListParams::default()).await.unwrap().items;
        let is_its = |it: &Value| {
            let owners = it["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == cut.uid.as_str()))
        };
        all.iter().map(|it| json!(it)).filter(is_its).collect()
    }

    /// Waits until a group and all its members are ready. Returns its content.
    pub(crate) async fn group_usable(&self, cut: &CutGroup) -> Value {
        self.look_until(GROUP, &cut.group, "ready", is_ready).await;
        settled("both members are ready", PATIENCE, async || {
            let members = self.members_of(cut).await;
            let is_done = members.len() == 2 && members.iter().all(is_ready);
            if is_done { Ok(()) } else { Err(format!("{members:#?}")) }
        })
        .await;
        self.group_until(cut, "ready, and no call is owed", |it| is_ready(it) && !is_begun(it)).await
    }

    /// The same, and waits until nothing of its making is left.
    pub(crate) async fn group_ready(&self, cut: &CutGroup) -> Value {
        self.group_usable(cut).await;
        self.group_until(cut, "nothing of ours", |it| annotation(it, INTENT).is_none()).await
    }

    /// A user deletes a group.
    pub(crate) async fn delete_group(&self, cut: &CutGroup) {
        self.delete_installed(GROUP, &cut.group).await;
    }

    /// Waits until group, content and members are gone.
    pub(crate) async fn group_away(&self, cut: &CutGroup) {
        self.away(GROUP_CONTENT, &cut.content).await;
        self.away(GROUP, &cut.group).await;
        settled("no member is left", PATIENCE, async || {
            let left = self.members_of(cut).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
    }

    /// The same for the only group, and what the driver had.
    pub(crate) async fn group_gone(&self, cut: &CutGroup) {
        self.group_away(cut).await;
        settled("no content is left", PATIENCE, async || {
            let left = self.contents().await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
        let state = self.driver().state();
        assert_eq!((state.groups().len(), state.snapshots().len()), (0, 0));
        assert_eq!(self.driver().violations(), []);
    }

    /// The calls that were to cut a group.
    pub(crate) fn group_cuts(&self) -> Vec<Arc<Call>> {
        self.driver().calls_of(Method::CreateVolumeGroupSnapshot)
    }

    /// Waits until the driver was called this often to cut a group.
    pub(crate) async fn group_cut_times(&self, times: usize) {
        let what = format!("{times} cuts of a group");
        self.driver_until(&what, |driver| driver.calls_of(Method::CreateVolumeGroupSnapshot).len() >= times).await;
    }

    /// The calls to delete a group.
    pub(crate) fn group_deletions(&self) -> Vec<Arc<Call>> {
        self.driver().calls_of(Method::DeleteVolumeGroupSnapshot)
    }

    /// The contents of the driver's groups.
    pub(crate) async fn group_contents(&self) -> Vec<Value> {
        self.contents_of(GROUP_CONTENT).await
    }

    /// Asserts that the driver comes to have exactly the groups that contents name, each once, and that no content is marked.
    pub(crate) async fn assert_no_group_leaked(&self) {
        settled("no group that leaked", PATIENCE, async || {
            let contents = self.group_contents().await;
            let there = self.driver().state().groups().keys().cloned().collect();
            name_all(&contents, handle_in, is_begun, &there).map_err(|what| format!("{what}; {contents:#?}"))
        })
        .await;
    }
}
