//! Groups that stay, because somebody needs one of their snapshots or may need one.

use super::*;
use crate::cluster::VolumeSnapshotContent;
use crate::proto::controller_service_capability::rpc::Type as Rpc;
use crate::roles::snapshotter::content::record::Content as _;
use crate::roles::snapshotter::names::ANNOTATION_GROUP_HANDLE;

/// A content of an administrator, for one of the group's snapshots.
fn create_theirs(world: &World, id: &str, policy: &str) -> &'static Resource {
    let served = &world.served;
    served
        .testbed
        .api
        .create_value(json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "theirs" }, "spec": { "driver": served.context.driver.name, "deletionPolicy": policy,
            "source": { "snapshotHandle": id }, "volumeSnapshotRef": { "namespace": "shop", "name": "theirs" } } }))
        .unwrap();
    resources::of_kind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent").unwrap()
}

/// The driver's id of a snapshot of the group.
fn a_member(world: &World) -> String {
    world.served.testbed.driver.state().snapshots().keys().next().unwrap().clone()
}

/// The group is to be deleted, and stays with this reason until `release` has been called.
pub(super) async fn stays_until(world: World, reason: &str, release: impl AsyncFnOnce(&World)) {
    world.delete();
    let says_why = |world: &World| {
        let errors = world.served.work().into_iter().filter_map(|item| item.last_error);
        errors.into_iter().any(|error| error.contains(reason))
    };
    world.until("it says why", says_why).await;
    assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (0, (1, 2)));
    release(&world).await;
    world.until("it is gone", |world| world.content().is_none()).await;
    assert_eq!((world.calls(Method::DeleteVolumeGroupSnapshot), world.left()), (1, (0, 0)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_as_long_as_a_content_that_a_late_watch_hides_names_one_of_its_snapshots() {
    let served = served(Profile::default()).await;
    served.testbed.api.install(&format!("{GROUP}/v1"));
    let world = World { served, version: "v1" };
    world.make_class();
    let first = CancellationToken::new();
    world.served.serve(Term::permanent(&first, world.served.context.clock));
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    let id = a_member(&world);
    world.served.testbed.api.faults().hold_watches(Matching::any().resource("volumesnapshotcontents"));
    let theirs = create_theirs(&world, &id, "Retain");
    stays_until(world, "VolumeSnapshotContent theirs", async |world| {
        world.served.testbed.api.faults().clear();
        world.served.testbed.api.delete_object(theirs, "", "theirs").unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn s26_a_group_without_known_members_is_kept_as_long_as_a_content_of_the_group_keeps_its_snapshot() {
    let world = world_without_members().await;
    let theirs = create_theirs(&world, &a_member(&world), "Retain");
    let group = world.content().unwrap()["status"]["volumeGroupSnapshotHandle"].clone();
    let of_group = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: group } } });
    world.served.testbed.api.patch_object(theirs, "", "theirs", PatchBody::Merge(of_group), false).unwrap();
    world.settled().await;
    stays_until(world, "VolumeSnapshotContent theirs", async |world| {
        world.served.testbed.api.delete_object(theirs, "", "theirs").unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_as_long_as_the_cluster_has_no_contents_of_snapshots() {
    let world = world_of_a_ready_group().await;
    world.served.testbed.api.uninstall("snapshot.storage.k8s.io");
    // The daemon looks again before it takes a kind for absent.
    tokio::time::sleep(Duration::from_secs(60)).await;
    stays_until(world, "the cluster shows no VolumeSnapshotContents", async |world| {
        world.served.testbed.api.install("snapshot.storage.k8s.io");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_group_that_waits_for_the_end_of_its_owner_is_not_deleted_by_itself() {
    // Nothing says on the content of which group its snapshot is.
    let profile = Profile::default().without(Rpc::ListSnapshots).without(Rpc::GetSnapshot);
    let world = world(profile).await;
    world.cut();
    world.until("it is ready", World::is_ready).await;
    world.settled().await;
    world.served.testbed.api.delete_object(world.contents(), "", CONTENT).unwrap();
    let theirs = create_theirs(&world, &a_member(&world), "Delete");
    let protected = json!({ "metadata": { "finalizers": [VolumeSnapshotContent::NAMES.finalizer] } });
    world.served.testbed.api.patch_object(theirs, "", "theirs", PatchBody::Merge(protected), false).unwrap();
    world.served.testbed.api.delete_object(theirs, "", "theirs").unwrap();
    let is_gone = |world: &World| world.served.testbed.api.object(theirs, "", "theirs").is_none();
    world.until("theirs is gone", is_gone).await;
    assert!(world.content().is_some(), "its owner lives");
    assert_eq!((world.calls(Method::DeleteSnapshot), world.left()), (0, (1, 2)));
    world.end().await;
}
