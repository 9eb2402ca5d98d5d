//! Snapshots that the daemon has not seen, or that only seem to be in use: their finalizer is removed like any other.
//! Also a snapshot whose content is missing for a while.

use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use serde_json::json;

use super::provision_sources::{SNAPSHOT, begun_restore, is_snapshot_held, with_source, with_supplied_source};
use crate::objects::config_with;
use crate::supplier::{rights, supplier, unanswered};
use crate::world::World;

/// Restores the snapshot, and sees that it has its finalizer until the driver has answered.
async fn is_held_until_restored(world: &World, class: &str, snapshot: &str) {
    world.driver().inject(unanswered());
    let restored = world.claim_from("restored", class, SNAPSHOT, snapshot).await;
    world.asked(&restored, 1).await;
    world.snapshot_until(snapshot, "held", is_snapshot_held).await;
    world.driver().clear_faults();
    world.supplied_with(&restored).await;
    world.snapshot_until(snapshot, "let go of", |it| !is_snapshot_held(it)).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_snapshot_that_the_daemon_does_not_know_yet_is_let_go_of_by_its_restore() {
    let world = World::supplied(|_| {}).await;
    // No sweep looks for finalizers that were left behind.
    let _daemon = world.supplier(json!({"snapshotSweepInterval": "0s"})).await;
    let (class, source, _) = world.supplied_claim().await;
    // The kind itself comes late, and is looked for now and then only.
    world.install_snapshots().await;
    let snapshot = world.snapshot("snapshot", &source).await;
    is_held_until_restored(&world, &class, &snapshot).await;
}

#[tokio::test]
async fn a_snapshot_that_the_daemon_may_not_watch_is_protected_and_let_go_of() {
    let (world, class, source) = with_source().await;
    let (host, section) = (world.name("daemon"), json!({"snapshotSweepInterval": "0s"}));
    let rights = rights(&world, &config_with(supplier(section.clone())), Some(("list", "volumesnapshots")));
    world.ground().grant(&host, &rights).await;
    let _daemon = world.supplier(section).await;
    world.supplied_with(&source).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    is_held_until_restored(&world, &class, &snapshot).await;
}

#[tokio::test]
async fn a_claim_that_names_another_groups_snapshot_holds_none_of_ours() {
    let (world, _daemon, class, source) = with_supplied_source(json!({})).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let from = json!({"apiGroup": "example.com", "kind": SNAPSHOT, "name": snapshot});
    let foreign = world.claim("foreign", &class, json!({"spec": {"dataSourceRef": from}})).await;
    world.claim_told(&foreign, "Provisioning", "populator").await;
    is_held_until_restored(&world, &class, &snapshot).await;
}

#[tokio::test]
async fn what_was_restored_for_nobody_is_kept_as_its_class_said_although_class_and_snapshot_cannot_be_read_any_more() {
    let (world, _, source) = with_source().await;
    let class = world.class("kept", json!({"reclaimPolicy": "Retain"})).await;
    let (snapshot, restored) = begun_restore(&world, &class, &source).await;
    world.driver().clear_faults();
    world.delete_claim_and_wait(&restored).await;
    world.installed_kind("VolumeSnapshotContent").delete(&snapshot, &DeleteParams::default()).await.unwrap();
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.class("kept", json!({"reclaimPolicy": "Delete", "parameters": {"csi.storage.k8s.io/odd": "x"}})).await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    world.forgotten(&restored).await;
    let volume = world.all::<PersistentVolume>().get_opt(&world.volume_name(&restored).await).await.unwrap();
    let policy = volume.and_then(|it| it.spec?.persistent_volume_reclaim_policy);
    assert_eq!(policy.as_deref(), Some("Retain"));
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    world.assert_nothing_leaked().await;
}
