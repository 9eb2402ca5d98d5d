//! Groups of snapshots, from the group of a user to its members and back.
//!
//! Here alone, because of the snapshot-controller's habits and the API's faults.

use csi_control_plane::csi::ControllerRpc as Rpc;
use csi_control_plane::process::watch;
use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Profile, Secrets};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::{api, writes};
use crate::ground::Ground;
use crate::grouping::{BOUND, CutGroup, DELETED, GROUP, GROUP_CLASS, GROUP_CONTENT, cutting, is_begun, unanswered};
use crate::snapshotting::{
    CONTENT, INTENT, MEMBER, SNAPSHOT, annotation, error_in, has_finalizer, is_going, is_ready, slow, snapshotter,
};
use crate::world::World;

const GROUPS: &str = "groupsnapshot.storage.k8s.io";

/// A world with groups, whose snapshot-controller has habits that may be changed.
async fn grouping(change: impl FnOnce(&mut Profile)) -> (World, watch::Sender<SnapshotHabits>) {
    let world = World::on(Ground::set, change).await;
    world.install_snapshots().await;
    api(&world).install(GROUPS);
    let habits = world.sandbox().testbed.start_actors_with_snapshots(SnapshotHabits::default());
    (world, habits)
}

#[tokio::test]
async fn s22_s23_a_group_becomes_ready_with_its_members_and_goes_with_one_call() {
    let (world, _habits) = grouping(|_| {}).await;
    let _daemon = world.snapshotter(json!({})).await;
    // Longer than a label or a name may be.
    world.driver().change_state(|state| state.lengthen_ids(200));
    let cut = world.cut_group_anew().await;
    let content = world.group_ready(&cut).await;
    assert!(has_finalizer(&content, BOUND));
    let handle = content["status"]["volumeGroupSnapshotHandle"].as_str().unwrap().to_owned();
    assert!(handle.len() == 200 && world.driver().state().groups().contains_key(&handle), "{handle}");
    for member in world.contents().await {
        assert_eq!(annotation(&member, MEMBER), Some(handle.as_str()));
        assert_eq!(member["status"]["volumeGroupSnapshotHandle"], handle);
    }
    assert_eq!(content["status"]["volumeSnapshotInfoList"].as_array().unwrap().len(), 2);
    let asked = world.group_cuts();
    assert_eq!(
        (asked.len(), asked[0].snapshot.as_deref()),
        (1, Some(cut.name.as_str())),
        "of the uid, and nothing else"
    );
    assert_eq!((world.contents().await.len(), world.cuts_alone()), (2, 0), "members need no class and no call");
    world.assert_no_group_leaked().await;
    world.delete_group(&cut).await;
    world.group_gone(&cut).await;
    let deletions = world.group_deletions();
    assert_eq!((deletions.len(), deletions[0].members.len()), (1, 2));
    assert!(world.deletions().is_empty());
}

/// Every write that takes readiness back from a content, or from a member in the list of a group.
fn readiness_taken_back(world: &World) -> watch::Receiver<Vec<String>> {
    let (seen, flips) = watch::channel(Vec::new());
    api(world).on_commit(move |commit| {
        let (Some(old), Some(new)) = (commit.old, commit.new) else { return };
        let ready = |it: &Value| {
            let listed = it["status"]["volumeSnapshotInfoList"].as_array().cloned().unwrap_or_default();
            let of = |it: &Value| it["readyToUse"] == true;
            [of(&it["status"])].into_iter().chain(listed.iter().map(of)).collect::<Vec<bool>>()
        };
        let (was, is) = (ready(old), ready(new));
        let is_back = |(at, was): (usize, &bool)| *was && !is.get(at).copied().unwrap_or_default();
        if commit.resource.plural.ends_with("contents") && was.iter().enumerate().any(is_back) {
            seen.send_modify(|all: &mut Vec<String>| {
                all.push(format!("{}: {was:?} to {is:?}", new["metadata"]["name"]));
            });
        }
    });
    flips
}

#[tokio::test]
async fn s24_s51_a_group_that_is_not_ready_is_looked_at_without_a_write_until_it_and_its_members_are() {
    let (world, _habits) = grouping(|profile| profile.snapshots_wait = true).await;
    let flips = readiness_taken_back(&world);
    let _daemon = world.snapshotter(json!({})).await;
    let cut = world.cut_group_anew().await;
    world.group_until(&cut, "cut", |it| it["status"]["volumeSnapshotInfoList"].is_array() && !is_begun(it)).await;
    let looks = || world.driver().calls_of(Method::GetVolumeGroupSnapshot).len();
    let first = looks();
    world.driver_until("more looks", |_| looks() >= first + 4).await;
    api(&world).audit().clear();
    let first = looks();
    world.driver_until("more looks", |_| looks() >= first + 4).await;
    let of_groups =
        |world: &World| writes(world).into_iter().filter(|it| it.resource == "volumegroupsnapshotcontents").count();
    assert_eq!((of_groups(&world), world.group_cuts().len()), (0, 1), "no look costs a write");
    let ids: Vec<String> = world.driver().state().snapshots().keys().cloned().collect();
    world.driver().finish_snapshot(&ids[0], true);
    let ready = |it: &Value| {
        let members = it["status"]["volumeSnapshotInfoList"].as_array().unwrap().clone();
        members.iter().filter(|member| member["readyToUse"] == true).count()
    };
    let content = world.group_until(&cut, "one of two is ready", |it| ready(it) == 1).await;
    assert!(!is_ready(&content));
    world.driver().finish_snapshot(&ids[1], true);
    let content = world.group_ready(&cut).await;
    assert_eq!(ready(&content), 2);
    assert_eq!(*flips.borrow(), Vec::<String>::new(), "what was ready stays ready");
}

#[tokio::test]
async fn s24_s25_a_refusal_of_a_group_is_seen_at_once_and_wakes_nothing() {
    for code in [Code::FailedPrecondition, Code::InvalidArgument] {
        let (world, _habits) = grouping(|_| {}).await;
        let _daemon = world.snapshotter(slow()).await;
        world.driver().inject(cutting(Action::fail(code, "no room")).once());
        let cut = world.cut_group_anew().await;
        let content = world.group_until(&cut, "told", |it| !error_in(it).is_empty()).await;
        assert!(
            error_in(&content)
                .starts_with("Failed to create group snapshot: failed to take group snapshot of the volumes ["),
            "{content:#}"
        );
        world.told_on(GROUP, &cut.group, "GroupSnapshotCreationFailed", "no room").await;
        let unmarked = |it: &Value| !is_begun(it) && annotation(it, INTENT).is_none();
        world.group_until(&cut, "unmarked", unmarked).await;
        assert_eq!(world.group_cuts().len(), 1, "nothing but the back-off brings another");
    }
}

#[tokio::test]
async fn s17_the_secrets_of_a_group_are_the_annotations_and_for_looks_the_classes() {
    let secrets = |value: &str| Secrets([("password".to_owned(), value.to_owned())].into());
    let (world, _habits) = grouping(|profile| {
        profile.snapshot_secrets = secrets("cut");
        profile.snapshot_list_secrets = secrets("look");
        profile.controller.remove(&(csi_control_plane::csi::ControllerRpc::ListSnapshots as i32));
        profile.controller.remove(&(csi_control_plane::csi::ControllerRpc::GetSnapshot as i32));
        profile.snapshot_ready_polls = 2;
    })
    .await;
    let _daemon = world.snapshotter(json!({})).await;
    let (cutting, looking) = (world.name("cut"), world.name("look"));
    world.secret(&cutting, &[("password", b"cut")]).await;
    world.secret(&looking, &[("password", b"look")]).await;
    let parameters = json!({
        "csi.storage.k8s.io/group-snapshotter-secret-name": cutting,
        "csi.storage.k8s.io/group-snapshotter-secret-namespace": "default",
        "csi.storage.k8s.io/group-snapshotter-get-secret-name": looking,
        "csi.storage.k8s.io/group-snapshotter-get-secret-namespace": "default",
    });
    world.labelled("shop").await;
    let class = world.group_class("class", json!({ "parameters": parameters })).await;
    let cut = world.cut_group("shop", &class).await;
    world.group_ready(&cut).await;
    let asked = world.group_cuts().remove(0);
    assert!(asked.secrets && asked.cut_group.clone().unwrap().parameters.is_empty());
    assert!(!world.driver().calls_of(Method::GetVolumeGroupSnapshot).is_empty());
    world.delete_group(&cut).await;
    world.group_gone(&cut).await;
}

#[tokio::test]
async fn s35_ns15_without_the_kinds_of_groups_snapshots_are_taken_and_the_page_says_why_groups_are_not() {
    let (world, daemon) = World::with_snapshotter(json!({})).await;
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    world.page_names(&daemon, &["has no VolumeGroupSnapshotContents"]).await;
    let off = World::snapshotting(|_| {}).await;
    let daemon = off.snapshotter(json!({"groupSnapshots": false})).await;
    off.page_names(&daemon, &["roles.snapshotter.groupSnapshots is false"]).await;
}

#[tokio::test]
async fn s35_groups_that_may_not_be_read_hold_no_snapshot_up_and_are_served_once_they_may() {
    let (world, _habits) = grouping(|_| {}).await;
    let forbid = |resource: &'static str| {
        let on = Matching::any().verb("list").user(world.name("daemon")).resource(resource);
        let forbidden = Rejection::forbidden(GROUPS, resource, "", "no");
        api(&world).faults().add(ApiFault::on(on, ApiAction::Refuse(forbidden)))
    };
    let refused = ["volumegroupsnapshotcontents", "volumegroupsnapshotclasses"].map(forbid);
    let daemon = world.snapshotter(json!({})).await;
    let single = world.cut_anew("cut").await;
    world.ready(&single).await;
    world.page_names(&daemon, &["the right to list and watch on volumegroupsnapshotclasses"]).await;
    for fault in refused {
        api(&world).faults().remove(fault);
    }
    let cut = world.cut_group_anew().await;
    // It looks again each minute.
    let is_cut = async || if world.group_cuts().is_empty() { Err("not yet") } else { Ok(()) };
    crate::world::settled("a group is taken", 2 * crate::world::PATIENCE, is_cut).await;
    world.group_until(&cut, "ready", is_ready).await;
}

#[tokio::test]
async fn l2_s55_marks_that_are_wiped_come_back_and_a_deletion_survives_our_writes() {
    for code in [None, Some(Code::Internal)] {
        let (world, habits) = grouping(|_| {}).await;
        let _daemon = world.snapshotter(json!({})).await;
        world.driver().inject(match code {
            None => cutting(Action::Hold).once(),
            Some(code) => cutting(Action::fail(code, "not now")),
        });
        let cut = world.cut_group_anew().await;
        world.group_cut_times(1).await;
        habits.send_modify(|it| (it.is_stale, it.deletes) = (code.is_none(), false));
        world.delete_group(&cut).await;
        world.group_until(&cut, "marked as deleted", |it| annotation(it, DELETED).is_some()).await;
        if code.is_some() {
            let before = world.group_cuts().len();
            world.group_cut_times(before + 3).await;
        } else {
            let is_back = |it: &Value| is_begun(it) && annotation(it, INTENT).is_some();
            world.group_until(&cut, "marked again", is_back).await;
        }
        assert!(annotation(&world.look(GROUP_CONTENT, &cut.content).await, DELETED).is_some());
        habits.send_modify(|it| it.deletes = true);
        world.driver().clear_faults();
        world.driver().release();
        world.group_gone(&cut).await;
    }
}

#[tokio::test]
async fn s41_the_next_daemon_asks_for_a_group_as_it_was_asked_for() {
    let (world, _habits) = grouping(|_| {}).await;
    let first = world.daemon_on("first", snapshotter(json!({}))).await;
    world.driver().inject(unanswered());
    let cut = world.cut_group_anew().await;
    world.group_cut_times(1).await;
    first.stop().await.unwrap();
    world.delete_installed(GROUP_CLASS, &world.name("class")).await;
    world.delete_group(&cut).await;
    world.group_until(&cut, "to go", is_going).await;
    world.driver().clear_faults();
    let before = world.group_cuts();
    let _second = world.daemon_on("second", snapshotter(json!({"groupSnapshotNamePrefix": "other"}))).await;
    world.group_gone(&cut).await;
    let after = world.group_cuts();
    assert!(after.len() > before.len());
    assert_eq!(after.last().unwrap().cut_group, before[0].cut_group, "the same name and parameters");
    assert_eq!(world.group_deletions().len(), 1);
}

#[tokio::test]
async fn l9_a_group_whose_content_is_taken_away_by_force_is_deleted_at_the_driver() {
    let (world, _habits) = grouping(|_| {}).await;
    let _daemon = world.snapshotter(json!({})).await;
    world.driver().inject(cutting(Action::Hold).once());
    let cut = world.cut_group_anew().await;
    world.group_cut_times(1).await;
    world.delete_group(&cut).await;
    world.group_until(&cut, "to go", is_going).await;
    world.edit(GROUP_CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
    world.away(GROUP_CONTENT, &cut.content).await;
    world.driver().release();
    let is_asked = |driver: &csi_control_plane::sandbox::driver::Driver| {
        !driver.calls_of(Method::DeleteVolumeGroupSnapshot).is_empty() && driver.state().snapshots().is_empty()
    };
    world.driver_until("deleted", is_asked).await;
    assert_eq!(world.group_deletions().len(), 1);
    world.group_gone(&cut).await;
}

#[tokio::test]
async fn i3_a_group_and_the_snapshots_of_its_volumes_take_turns() {
    let (world, _habits) = grouping(|_| {}).await;
    let _daemon = world.snapshotter(json!({})).await;
    let source = world.source("single").await;
    let claims = world.namespaced::<k8s_openapi::api::core::v1::PersistentVolumeClaim>();
    let patch = kube::api::Patch::Merge(json!({"metadata": {"labels": {"group": world.name("shop")}}}));
    claims.patch(&source.claim, &kube::api::PatchParams::default(), &patch).await.unwrap();
    let single = world.snapshot_class("single-class", json!({})).await;
    world.driver().inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    let alone = world.cut("alone", &source, &single).await;
    world.cut_times(&alone, 1).await;
    let cut = world.cut_group_anew().await;
    world.group_until(&cut, "there", |_| true).await;
    // The snapshot of another volume is not held up by a group that waits.
    world.another_is_ready("other").await;
    assert!(world.group_cuts().is_empty(), "the volume is the snapshot's turn");
    world.driver().release();
    world.look_until(GROUP, &cut.group, "ready", is_ready).await;
    assert_eq!(world.driver().violations(), []);
}

impl World {
    /// How often the driver was called for a single snapshot.
    fn cuts_alone(&self) -> usize {
        self.driver().calls_of(Method::CreateSnapshot).len()
    }
}

/// A user keeps a snapshot of a group in a content of its own: the driver would delete that with the group.
#[tokio::test]
async fn a_group_waits_with_its_deletion_for_a_content_that_keeps_one_of_its_snapshots() {
    let (world, _habits) = grouping(|_| {}).await;
    let _daemon = world.snapshotter(slow()).await;
    let cut = world.cut_group_anew().await;
    let (theirs, member) = world.content_of_a_member(&cut, "Retain").await;
    world.delete_group(&cut).await;
    world.told_on(GROUP_CONTENT, &cut.content, "GroupSnapshotDeleteError", &theirs).await;
    let content = world.look(GROUP_CONTENT, &cut.content).await;
    assert!(is_going(&content) && has_finalizer(&content, BOUND));
    assert!(world.group_deletions().is_empty() && world.driver().state().snapshots().contains_key(&member));
    // Nothing but its end wakes the group: the back-off is longer than any test.
    world.delete_installed(CONTENT, &theirs).await;
    world.group_gone(&cut).await;
    assert_eq!((world.group_deletions().len(), world.deletions().len()), (1, 0));
}

#[tokio::test]
async fn a_group_does_not_wait_for_a_content_with_policy_delete_whose_status_names_it() {
    let (world, _habits) = grouping(|_| {}).await;
    let _daemon = world.snapshotter(slow()).await;
    let cut = world.cut_group_anew().await;
    let (theirs, _) = world.content_of_a_member(&cut, "Delete").await;
    world.delete_group(&cut).await;
    world.group_away(&cut).await;
    world.delete_installed(CONTENT, &theirs).await;
    world.group_gone(&cut).await;
    assert_eq!((world.group_deletions().len(), world.deletions().len()), (1, 0));
}

/// As in Kubernetes' own suite: an administrator has made all contents, and the garbage collector deletes the `VolumeSnapshots` once
/// their group is gone.
#[tokio::test]
async fn a_group_that_was_there_before_goes_though_its_volume_snapshots_go_after_it() {
    let bare = |profile: &mut Profile| {
        *profile = std::mem::take(profile).without(Rpc::GetSnapshot).without(Rpc::ListSnapshots);
    };
    let (world, _habits) = grouping(bare).await;
    let _daemon = world.snapshotter(json!({})).await;
    let (group, members) = world.cut_group_behind();
    let (name, content) = (world.name("group"), world.name("group-content"));
    let source = json!({"volumeGroupSnapshotContentName": content});
    let uid =
        world.installed(GROUP, json!({"metadata": {"name": name}, "spec": {"source": source}})).await.uid().unwrap();
    let owner =
        json!([{"apiVersion": format!("{GROUPS}/v1beta2"), "kind": "VolumeGroupSnapshot", "name": name, "uid": uid}]);
    for (short, id) in ["one", "two"].into_iter().zip(&members) {
        let member = world.content_by_hand(short, json!({"snapshotHandle": id}), json!({})).await;
        let snapshot = json!({"metadata": {"name": format!("{member}-snapshot"), "ownerReferences": owner},
            "spec": {"source": {"volumeSnapshotContentName": member}}});
        world.installed(SNAPSHOT, snapshot).await;
        let is_ready = |it: &Value| is_ready(it) && !it["spec"]["volumeSnapshotRef"]["uid"].is_null();
        let member = world.content_until(&member, "ready and bound", is_ready).await;
        assert_eq!(member["status"]["volumeGroupSnapshotHandle"], Value::Null, "nothing on it names the group");
    }
    let handles = json!({"volumeGroupSnapshotHandle": group, "volumeSnapshotHandles": members});
    let spec = json!({"driver": world.driver_name(), "deletionPolicy": "Delete", "source": {"groupSnapshotHandles": handles},
        "volumeGroupSnapshotRef": {"namespace": "default", "name": name}});
    world.installed(GROUP_CONTENT, json!({"metadata": {"name": content}, "spec": spec})).await;
    world.look_until(GROUP, &name, "ready", is_ready).await;
    world.delete_installed(GROUP, &name).await;
    let cut = CutGroup { group: name, uid, content, name: String::new() };
    world.group_gone(&cut).await;
    assert_eq!(world.group_deletions().len(), 1);
}

impl World {
    /// A group of two volumes that the driver has and no object stands for: its id, and those of its snapshots.
    fn cut_group_behind(&self) -> (String, Vec<String>) {
        let volumes = ["behind-1", "behind-2"];
        self.driver().seed(volumes);
        let request = CreateVolumeGroupSnapshotRequest {
            name: "behind".to_owned(),
            source_volume_ids: volumes.map(str::to_owned).to_vec(),
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        let (profile, now) = (self.driver().profile(), self.sandbox().testbed.clock.wall());
        let made = self.driver().change_state(|state| state.create_group(&profile, &request, now));
        let group = made.unwrap().group_snapshot.unwrap();
        (group.group_snapshot_id, group.snapshots.into_iter().map(|it| it.snapshot_id).collect())
    }

    /// A content that a user has made for a snapshot of a group: its name, and the driver's id of the snapshot.
    async fn content_of_a_member(&self, cut: &CutGroup, policy: &str) -> (String, String) {
        let content = self.group_ready(cut).await;
        let member = content["status"]["volumeSnapshotInfoList"][1]["snapshotHandle"].as_str().unwrap().to_owned();
        let kept = json!({"spec": {"deletionPolicy": policy}});
        let theirs = self.content_by_hand("theirs", json!({"snapshotHandle": member}), kept).await;
        self.content_until(&theirs, "ready", is_ready).await;
        (theirs, member)
    }
}
