//! The finalizer on volumes: added before the first attach, kept as long as an attachment names the volume, removed
//! when the volume is deleted.

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use tonic::Code;

use crate::objects;
use crate::world::World;

#[tokio::test]
async fn a_deleted_volume_waits_for_its_attachment_and_then_goes() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.delete_volume(&volume).await;
    let waiting: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert_eq!(waiting.finalizers(), [world.finalizer()]);
    world.detached(&attachment).await;
    world.gone::<PersistentVolume>(&volume).await;
    assert!(!world.is_published(&volume, &node));
}

#[tokio::test]
async fn a_detached_volume_keeps_its_finalizer_until_it_is_deleted() {
    let (world, _daemon, (_, volume, attachment)) = World::with_attachment().await;
    world.detached(&attachment).await;
    let kept: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert!(kept.finalizers().contains(&world.finalizer()));
    world.delete_volume(&volume).await;
    world.gone::<PersistentVolume>(&volume).await;
}

#[tokio::test]
async fn r8_a_volume_whose_attach_failed_can_be_deleted_after_its_attachment() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let publish = Method::ControllerPublishVolume;
    world.driver().inject(Fault::on(publish, Action::fail(Code::Internal, "cannot")));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "cannot").await;
    world.delete_volume(&volume).await;
    world.failed(&attachment, "marked for deletion").await;
    world.detached(&attachment).await;
    world.gone::<PersistentVolume>(&volume).await;
    assert_eq!(world.unpublishes(&volume).len(), 1, "a failed publish may have done something");
}

#[tokio::test]
async fn r9_a_deleted_in_tree_volume_with_our_finalizer_is_released() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let name = world.name("pv");
    in_tree(&world, &name, &["example.com/keep", &world.finalizer()], Some(world.driver_name())).await;
    world.delete_volume(&name).await;
    let released = world
        .until(&name, "without our finalizer", |it: &PersistentVolume| !it.finalizers().contains(&world.finalizer()))
        .await;
    assert_eq!(released.finalizers(), ["example.com/keep"]);
    world.drop_finalizer::<PersistentVolume>(&name, 0).await;
    world.gone::<PersistentVolume>(&name).await;
}

#[tokio::test]
async fn r10_an_in_tree_volume_whose_migration_was_rolled_back_is_released() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (back, still) = (world.name("back"), world.name("still"));
    in_tree(&world, &still, &[&world.finalizer()], Some(world.driver_name())).await;
    in_tree(&world, &back, &[&world.finalizer()], None).await;
    world
        .until(&back, "without our finalizer", |it: &PersistentVolume| !it.finalizers().contains(&world.finalizer()))
        .await;
    let still: PersistentVolume = world.until(&still, "there", |_| true).await;
    assert!(still.finalizers().contains(&world.finalizer()), "still migrated to us");
}

async fn in_tree(world: &World, name: &str, finalizers: &[&str], migrated_to: Option<&str>) {
    let mut object = objects::volume(name, "", "");
    objects::merge(
        &mut object,
        json!({
            "metadata": { "finalizers": finalizers, "annotations": { "pv.kubernetes.io/migrated-to": migrated_to } },
            "spec": { "csi": null, "awsElasticBlockStore": { "volumeID": "vol-1" } },
        }),
    );
    world.create::<PersistentVolume>(object).await;
}

#[tokio::test]
async fn r36_removing_our_finalizer_leaves_the_others_alone() {
    let (world, _daemon, (_, volume, attachment)) = World::with_attachment().await;
    // The provisioner's finalizer stands before and after ours.
    let finalizers = json!({ "metadata": { "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer",
        world.finalizer(), "example.com/keep"] } });
    world.merge_patch::<PersistentVolume>(&volume, finalizers).await;
    world.detached(&attachment).await;
    world.delete_volume(&volume).await;
    // Both controllers remove their finalizers at the same time.
    world.drop_finalizer::<PersistentVolume>(&volume, 0).await;
    let released =
        world.until(&volume, "released by both", |it: &PersistentVolume| it.finalizers() == ["example.com/keep"]).await;
    assert!(released.metadata.deletion_timestamp.is_some());
    world.drop_finalizer::<PersistentVolume>(&volume, 0).await;
    world.gone::<PersistentVolume>(&volume).await;
}

#[tokio::test]
async fn r43_two_attachments_of_one_volume_in_parallel_put_the_finalizer_once() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (one, two) = (world.node("one").await, world.node("two").await);
    for round in 0..5 {
        let volume = world.volume_with(&format!("pv-{round}"), json!({ "accessModes": ["ReadWriteMany"] })).await;
        let (first, second) = tokio::join!(world.attach(&volume, &one), world.attach(&volume, &two));
        tokio::join!(world.attached(&first), world.attached(&second));
        let object: PersistentVolume = world.until(&volume, "there", |_| true).await;
        let ours = object.finalizers().iter().filter(|it| **it == world.finalizer()).count();
        assert_eq!(ours, 1, "{:?}", object.finalizers());
        assert!(world.is_published(&volume, &one) && world.is_published(&volume, &two));
        // One goes, the volume stays protected for the other.
        world.detached(&first).await;
        world.delete_volume(&volume).await;
        let object: PersistentVolume = world.until(&volume, "there", |_| true).await;
        assert!(object.finalizers().contains(&world.finalizer()));
        world.detached(&second).await;
        world.gone::<PersistentVolume>(&volume).await;
    }
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn r47_an_attachment_refused_for_a_deleted_volume_does_not_block_a_later_one_of_the_same_handle() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, other) = (world.node("node").await, world.node("other").await);
    let volume = world.volume("pv").await;
    let keep = json!([{ "op": "add", "path": "/metadata/finalizers", "value": ["example.com/keep"] }]);
    world.json_patch::<PersistentVolume>(&volume, keep).await;
    world.delete_volume(&volume).await;
    let refused = world.attach(&volume, &node).await;
    world.failed(&refused, "marked for deletion").await;

    // The same storage under a new name, on another node.
    let successor = world.name("successor");
    let object = objects::volume(&successor, world.driver_name(), &world.handle(&volume));
    world.create::<PersistentVolume>(object).await;
    let attachment = objects::attachment(&world.name("va"), world.driver_name(), &successor, &other);
    world.create::<VolumeAttachment>(attachment).await;
    world.attached(&world.name("va")).await;
    assert!(world.is_published(&volume, &other));
    // The refused one was never begun, and goes without a call.
    world.detached(&refused).await;
    assert_eq!(world.unpublishes(&volume).len(), 0);
}

#[tokio::test]
async fn a_volume_removed_by_force_is_detached_by_what_was_recorded() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    // A user removes every finalizer, as desperate people do.
    world.delete_volume(&volume).await;
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<PersistentVolume>(&volume).await;
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    assert_eq!(world.unpublishes(&volume).len(), 1);
}

#[tokio::test]
async fn a_volume_deleted_before_the_attach_is_refused_and_never_protected() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let keep = json!([{ "op": "add", "path": "/metadata/finalizers", "value": ["example.com/keep"] }]);
    world.json_patch::<PersistentVolume>(&volume, keep).await;
    world.delete_volume(&volume).await;
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "marked for deletion").await;
    let object: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert_eq!(object.finalizers(), ["example.com/keep"]);
    assert_eq!(world.publishes(&volume).len(), 0);
    world.detached(&attachment).await;
}

#[tokio::test]
async fn a_volume_replaced_by_force_after_a_publish_of_unknown_outcome_is_unpublished_before_its_successor_is_published()
 {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let (old, new) = (world.handle(&volume), world.name("successor"));
    let lost = Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".to_owned() };
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, lost).volume(&old));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "slow").await;
    world.all::<PersistentVolume>().delete(&volume, &DeleteParams::default()).await.unwrap();
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<PersistentVolume>(&volume).await;
    world.driver().seed([new.as_str()]);
    world.create::<PersistentVolume>(objects::volume(&volume, world.driver_name(), &new)).await;
    world.attached(&attachment).await;
    let id = world.node_id(&node);
    assert!(!world.driver().published(&old).contains(&id) && world.driver().published(&new).contains(&id));
    world.detached(&attachment).await;
    assert!(world.driver().published(&new).is_empty());
    assert_eq!(world.driver().violations(), []);
}
