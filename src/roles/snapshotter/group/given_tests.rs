//! Groups that were there before their contents: which contents of their snapshots go with them.

use super::*;
use crate::cluster::VolumeSnapshotContent;
use crate::proto::CreateVolumeGroupSnapshotRequest;
use crate::proto::controller_service_capability::rpc::Type as Rpc;
use crate::roles::snapshotter::content::record::Content as _;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io/v1";

/// The driver's group, by its id, and its snapshots.
fn cut_behind(world: &World) -> (String, Vec<String>) {
    let (driver, now) = (&world.served.testbed.driver, world.served.context.clock.wall());
    let request = CreateVolumeGroupSnapshotRequest {
        name: "theirs".into(),
        source_volume_ids: VOLUMES.map(str::to_owned).to_vec(),
        ..CreateVolumeGroupSnapshotRequest::default()
    };
    let profile = driver.profile();
    let cut = driver.change_state(|state| state.create_group(&profile, &request, now)).unwrap().group_snapshot.unwrap();
    (cut.group_snapshot_id, cut.snapshots.into_iter().map(|it| it.snapshot_id).collect())
}

fn kind(kind: &str) -> &'static Resource {
    resources::of_kind(SNAPSHOTS, kind).unwrap()
}

/// An administrator's content for a snapshot of the group, with this policy, and its `VolumeSnapshot`, which this group owns.
fn create_member(world: &World, name: &str, id: &str, (policy, owner): (&str, &str)) {
    let api = &world.served.testbed.api;
    // As a program writes it that knows an older version: the snapshot-controller does not count such a VolumeSnapshot as a member.
    let owners = json!([{ "apiVersion": format!("{GROUP}/v1beta2"), "kind": "VolumeGroupSnapshot", "name": "all", "uid": owner }]);
    let snapshot = api
        .create_value(json!({ "apiVersion": SNAPSHOTS, "kind": "VolumeSnapshot",
        "metadata": { "name": name, "namespace": "shop", "ownerReferences": owners },
        "spec": { "source": { "volumeSnapshotContentName": name } } }))
        .unwrap();
    api.create_value(json!({ "apiVersion": SNAPSHOTS, "kind": "VolumeSnapshotContent", "metadata": { "name": name },
        "spec": { "driver": world.served.context.driver.name, "deletionPolicy": policy, "source": { "snapshotHandle": id },
            "volumeSnapshotRef": { "namespace": "shop", "name": name, "uid": snapshot["metadata"]["uid"] } } }))
        .unwrap();
}

fn content_of(world: &World, name: &str) -> Option<Arc<Value>> {
    world.served.testbed.api.object(kind("VolumeSnapshotContent"), "", name)
}

fn group_in_status(world: &World, name: &str) -> Option<String> {
    Some(content_of(world, name)?["status"]["volumeGroupSnapshotHandle"].as_str()?.to_owned())
}

async fn member_ready(world: &World, name: &str) {
    let is_ready = |world: &World| content_of(world, name).is_some_and(|it| it["status"]["readyToUse"] == true);
    world.until("the member is ready", is_ready).await;
}

fn import(world: &World, group: &str, members: &[String]) {
    let handles = json!({ "volumeGroupSnapshotHandle": group, "volumeSnapshotHandles": members });
    world.create(&json!({ "groupSnapshotHandles": handles }));
    // As the snapshot-controller does once it is bound.
    world.patch(json!({ "metadata": { "finalizers": [FIN] } }));
}

async fn given_world(profile: Profile) -> World {
    let world = world(profile).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    world.served.testbed.api.create_value(namespace).unwrap();
    world
}

/// A driver that says nothing of single snapshots, and so not of which group they are.
fn silent() -> Profile {
    Profile::default().without(Rpc::ListSnapshots).without(Rpc::GetSnapshot)
}

/// A group with contents that were ready before the group had one, so that nothing on them names the group.
async fn imported(members: [(&str, &str); 2]) -> World {
    let world = given_world(silent()).await;
    let (group, ids) = cut_behind(&world);
    for ((name, id), member) in ["one", "two"].into_iter().zip(&ids).zip(members) {
        create_member(&world, name, id, member);
        member_ready(&world, name).await;
        assert_eq!(group_in_status(&world, name), None);
    }
    import(&world, &group, &ids);
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    world
}

/// A pre-provisioned group of Kubernetes' External Storage suite.
#[tokio::test(start_paused = true)]
async fn a_group_goes_before_the_contents_of_its_snapshots_whose_volume_snapshots_it_owns() {
    let world = imported([("Delete", GROUP_UID), ("Delete", GROUP_UID)]).await;
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    let deletions = world.served.testbed.driver.calls_of(Method::DeleteVolumeGroupSnapshot);
    assert_eq!((deletions.len(), deletions[0].members.len(), world.left()), (1, 2, (0, 0)));
    assert!(content_of(&world, "one").is_some() && content_of(&world, "two").is_some());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_by_a_content_with_policy_delete_whose_volume_snapshot_it_does_not_own() {
    let world = imported([("Delete", GROUP_UID), ("Delete", "another")]).await;
    let reason = "VolumeSnapshotContent two, which keeps it: the group does not own its VolumeSnapshot shop/two. Delete VolumeSnapshot \
                  shop/two, or set the deletionPolicy of this one to Retain";
    kept::stays_until(world, reason, async |world| {
        // Nothing shows a change of a VolumeSnapshot: the next try reads it.
        let owners = json!([{ "apiVersion": format!("{GROUP}/v1"), "kind": "VolumeGroupSnapshot", "name": "all", "uid": GROUP_UID }]);
        let owned = PatchBody::Merge(json!({ "metadata": { "ownerReferences": owners } }));
        world.served.testbed.api.patch_object(kind("VolumeSnapshot"), "shop", "two", owned, false).unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_by_a_content_with_policy_retain_though_it_owns_its_volume_snapshot() {
    let world = imported([("Delete", GROUP_UID), ("Retain", GROUP_UID)]).await;
    let reason = "VolumeSnapshotContent two, which keeps it: its deletionPolicy is Retain. Delete VolumeSnapshot shop/two, and then that \
                  content, or set its deletionPolicy to Delete if the group owns its VolumeSnapshot";
    kept::stays_until(world, reason, async |world| {
        let goes = PatchBody::Merge(json!({ "spec": { "deletionPolicy": "Delete" } }));
        world.served.testbed.api.patch_object(kind("VolumeSnapshotContent"), "", "two", goes, false).unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_as_long_as_the_owner_of_a_volume_snapshot_cannot_be_read() {
    let world = imported([("Delete", GROUP_UID), ("Delete", GROUP_UID)]).await;
    let on = Matching::any().verb("get").resource("volumesnapshots");
    let forbidden = Rejection::forbidden("snapshot.storage.k8s.io", "volumesnapshots", "one", "no");
    let faults = world.served.testbed.api.faults().clone();
    let refused = faults.add(ApiFault::on(on, ApiAction::Refuse(forbidden)));
    kept::stays_until(world, "cannot see whether the group owns the VolumeSnapshot", async |_| {
        faults.remove(refused);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_group_of_a_snapshot_is_that_of_the_content_which_lists_it() {
    let world = given_world(silent()).await;
    let (group, ids) = cut_behind(&world);
    import(&world, &group, &ids);
    world.until("it is ready", World::is_ready).await;
    create_member(&world, "one", &ids[0], ("Delete", "another"));
    member_ready(&world, "one").await;
    assert_eq!(group_in_status(&world, "one"), Some(group));
    world.delete();
    world.until("it is gone", |world| world.content().is_none()).await;
    assert_eq!(world.left(), (0, 0));
    let reads =
        world.served.testbed.api.audit().matching(|entry| entry.resource == "volumesnapshots" && entry.verb == "get");
    assert!(reads.is_empty(), "its status names the group: the owner of its VolumeSnapshot is not read");
    world.end().await;
}

/// csi-driver-host-path: `GetSnapshot` says nothing of groups, `ListSnapshots` does.
#[tokio::test(start_paused = true)]
async fn the_group_of_a_snapshot_is_read_from_a_list_where_the_answer_about_the_snapshot_names_none() {
    let world = given_world(Profile::default()).await;
    let (group, ids) = cut_behind(&world);
    let silent = Action::Lie(Lie::SnapshotGroup(String::new()));
    world.served.testbed.driver.inject(Fault::on(Method::GetSnapshot, silent));
    create_member(&world, "one", &ids[0], ("Delete", GROUP_UID));
    member_ready(&world, "one").await;
    assert_eq!(group_in_status(&world, "one"), Some(group));
    assert_eq!((world.calls(Method::GetSnapshot), world.calls(Method::ListSnapshots)), (1, 1));
    world.end().await;
}

/// The owner of a member and the group go together: a driver does not delete the snapshot of a group by itself.
#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_group_is_being_deleted_as_well_goes_with_that_and_not_by_itself() {
    let world = imported([("Delete", GROUP_UID), ("Delete", GROUP_UID)]).await;
    world.served.testbed.driver.inject(Fault::on(Method::DeleteVolumeGroupSnapshot, Action::Hold).once());
    world.delete();
    world.until("asked", |world| world.calls(Method::DeleteVolumeGroupSnapshot) == 1).await;
    let protected = [VolumeSnapshotContent::NAMES.finalizer];
    let lost = json!({ "metadata": { "finalizers": protected,
        "annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes" } } });
    let (api, contents) = (&world.served.testbed.api, kind("VolumeSnapshotContent"));
    api.patch_object(contents, "", "one", PatchBody::Merge(lost), false).unwrap();
    api.delete_object(contents, "", "one").unwrap();
    world.until("it is released", |world| content_of(world, "one").is_none()).await;
    world.served.testbed.driver.release();
    world.until("it is gone", |world| world.content().is_none()).await;
    assert_eq!((world.calls(Method::DeleteSnapshot), world.left()), (0, (0, 0)));
    world.end().await;
}
