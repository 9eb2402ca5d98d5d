//! A volume that another claim or object has while a late watch of PersistentVolumes does not show it: it is never deleted.

use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{api, by_daemon};
use crate::supplier::says;
use crate::supply::{handle_of, phase};
use crate::world::World;

#[tokio::test]
async fn a_volume_that_a_late_watch_does_not_show_in_use_is_not_deleted() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    let handle = world.only_volume();
    // The term has listed PersistentVolumes before it called the driver. Now a user finds the volume, and gives it to another claim.
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let (rescue, other) = world.rescued_for_another(&handle, &class).await;
    world.assert_left_to(&rescue, &claim, &handle).await;
    api(&world).faults().remove(held);
    world.delete_claim(&other).await;
    world.assert_all_gone(&[&claim, &other]).await;
}

#[tokio::test]
async fn a_claim_whose_name_for_the_driver_is_taken_waits_although_a_late_watch_does_not_show_by_whom() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let (digit, [one, other]) = world.claims_of_one_digit(&class).await;
    let prefix = world.name("v");
    let name = format!("{prefix}-{digit}");
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let _daemon = world.supplier(json!({ "volumeNamePrefix": prefix, "volumeNameUuidLength": 1 })).await;
    let stored =
        world.until(&name, "stored", |it: &PersistentVolume| it.spec.as_ref().unwrap().claim_ref.is_some()).await;
    let owner = stored.spec.unwrap().claim_ref.unwrap().name.unwrap();
    let (winner, loser) = if owner == one { (one, other) } else { (other, one) };
    let handle = world.only_volume();
    world.claim_told(&loser, "ProvisioningFailed", &name).await;
    world.claim_until(&winner, "bound", |it| phase(it) == "Bound").await;
    world.daemon_has_seen("later").await;
    world.delete_claim_and_wait(&loser).await;
    world.forgotten(&loser).await;
    world.assert_untouched(&handle);
    api(&world).faults().remove(held);
    world.delete_claim(&winner).await;
    world.assert_all_gone(&[&winner, &loser]).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
}

#[tokio::test]
async fn a_released_volume_is_kept_although_a_late_watch_does_not_show_who_else_names_it() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let faults = api(&world).faults();
    let refused = ApiAction::Refuse(Rejection::internal("etcd"));
    let unprotected = faults.add(ApiFault::on(by_daemon(&world).verb("patch").resource("persistentvolumes"), refused));
    // Before its first request the term lists PersistentVolumes.
    let (class, first, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    world.merge_patch::<PersistentVolume>(&volume.name_any(), retain).await;
    world.delete_claim_and_wait(&first).await;
    world.all::<PersistentVolume>().delete(&volume.name_any(), &DeleteParams::default()).await.unwrap();
    world.merge_patch::<PersistentVolume>(&volume.name_any(), json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    let spec = json!({ "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class });
    let one = world.rescue("one", &handle, spec.clone()).await;
    let claim = world.claim("second", &class, json!({ "spec": { "volumeName": one } })).await;
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    let is_failing = |status: &Value| {
        let mut work = status["work"].as_array().unwrap().iter();
        work.any(|item| item["key"] == one && item["lastError"].is_string())
    };
    world.shows(&daemon, "it cannot be protected", is_failing).await;
    let held = faults.hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let other = world.rescue("other", &handle, json!({ "storageClassName": class })).await;
    world.delete_claim(&claim).await;
    let released = |it: &PersistentVolume| it.status.as_ref().unwrap().phase.as_deref() == Some("Released");
    let uid = world.until(&one, "released", released).await.uid().unwrap();
    // The answer to the write of our finalizer shows the release.
    faults.remove(unprotected);
    let told = |events: &[_]| events.iter().any(|it| says(it, "VolumeFailedDelete", &other));
    world.events_until(&uid, "who else names it", told).await;
    world.assert_untouched(&handle);
    faults.remove(held);
}
