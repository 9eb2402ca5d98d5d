//! Deletion of volumes: once, after they were detached, and without touching the finalizers of other controllers.

use std::sync::Arc;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tonic::Code;

use crate::objects::{self, merge};
use crate::supplier::{figure, says, slow, supplier};
use crate::supply::{handle_of, phase};
use crate::world::World;

fn is_released(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released")
}

impl World {
    fn deletes(&self, handle: &str) -> Vec<Arc<Call>> {
        let calls = self.driver().calls_of(Method::DeleteVolume);
        calls.into_iter().filter(|call| call.volume.as_deref() == Some(handle)).collect()
    }
}

#[tokio::test]
async fn r48_s0_a_volume_is_deleted_as_soon_as_it_is_detached_and_waiting_is_no_warning() {
    let world = World::two_zones().await;
    let daemon = world.supplier(slow()).await;
    let node = world.node_in("n1", "z1").await;
    let (class, claim) = world.waiting_claim_anew("claim").await;
    let pod = world.pod("pod", &[&claim], Some(&node)).await;
    let volume = world.supplied_with(&claim).await;
    let ((_, handle), uid) = (handle_of(&volume).unwrap(), volume.uid().unwrap());
    let id = world.node_id(&node);
    world.driver_until("attached", |driver| driver.published(&handle).contains(&id)).await;

    world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, Action::Hold).once());
    world.delete_claim(&claim).await;
    world.delete_pod(&pod).await;
    world.until(&volume.name_any(), "released", is_released).await;
    world
        .shows(&daemon, "the volume waits to be detached", |status| {
            let text = status.to_string();
            text.contains("waiting to be detached") && text.contains(&volume.name_any())
        })
        .await;
    let unpublishes =
        |it: &csi_control_plane::sandbox::driver::Driver| it.calls_of(Method::ControllerUnpublishVolume).len();
    world.driver_until("detaching", |driver| unpublishes(driver) >= 1).await;
    assert_eq!(world.deletes(&handle).len(), 0, "it is attached");
    world.driver().release();
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert_eq!(world.deletes(&handle).len(), 1);
    world.events_are_out("fence").await;
    assert_eq!(world.events_on(&uid).await, Vec::<Event>::new());
    let metrics = world.metrics(&daemon).await;
    assert_eq!(figure(&metrics, "controller_persistentvolume_delete_failed_total", &[&class]), None, "{metrics}");
    assert_eq!(figure(&metrics, "controller_persistentvolume_delete_total", &[&class]), Some(1.0), "{metrics}");
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn r15_s0_forty_volumes_are_deleted_by_forty_calls() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let mut claims = Vec::new();
    for number in 0..40 {
        claims.push(world.claim(&format!("claim-{number}"), &class, json!({})).await);
    }
    for claim in &claims {
        world.supplied_with(claim).await;
    }
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 40);
    for claim in &claims {
        world.delete_claim(claim).await;
    }
    world.assert_all_gone(&claims.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 40);
}

#[tokio::test]
async fn a_failed_deletion_is_told_tried_again_and_counted() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let (class, claim, volume) = world.supplied_claim().await;
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Internal, "the shelf is stuck")));
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", "the shelf is stuck"));
    world.events_until(&volume.uid().unwrap(), "the failure", told).await;
    world.driver_until("tried again", |driver| driver.calls_of(Method::DeleteVolume).len() >= 3).await;
    let status = world.status(&daemon).await;
    let item = status["work"].as_array().unwrap().iter().find(|item| item["key"] == volume.name_any()).cloned();
    assert!(item.unwrap_or_else(|| panic!("{status:#}")).to_string().contains("the shelf is stuck"));
    let failed = figure(&world.metrics(&daemon).await, "controller_persistentvolume_delete_failed_total", &[&class]);
    assert!(failed.is_some_and(|count| count >= 2.0), "{failed:?}");
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn r18_s0_finalizers_of_others_stay_on_a_volume_that_goes_and_it_is_deleted_once() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (_, claim, volume) = world.supplied_claim().await;
    let (_, handle) = handle_of(&volume).unwrap();
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/another"}]);
    world.json_patch::<PersistentVolume>(&volume.name_any(), add).await;
    world.delete_claim(&claim).await;
    let left = world
        .until(&volume.name_any(), "without our finalizer, and going", |it: &PersistentVolume| {
            it.metadata.deletion_timestamp.is_some()
                && !it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER)
        })
        .await;
    assert!(left.finalizers().iter().any(|it| it == "example.com/another"), "{left:#?}");
    // An edit of the remaining object causes no second deletion.
    let touch = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
    world.merge_patch::<PersistentVolume>(&volume.name_any(), touch).await;
    world.merge_patch::<PersistentVolume>(&volume.name_any(), json!({"metadata": {"finalizers": null}})).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert_eq!(world.deletes(&handle).len(), 1);
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn r61_r24_a_volume_that_people_made_is_protected_while_bound_and_deleted_when_released() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let policy = json!({"persistentVolumeReclaimPolicy": "Delete", "storageClassName": class});
    // A volume without a claim is not deleted.
    let free = world.volume_with("free", policy.clone()).await;
    let volume = world.volume_with("pv", policy).await;
    let claim = world.claim("claim", &class, json!({"spec": {"volumeName": volume}})).await;
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    world
        .until(&volume, "protected", |it: &PersistentVolume| {
            it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER)
        })
        .await;
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume).await;
    assert_eq!(world.deletes(&world.handle(&volume)).len(), 1);
    assert_eq!(world.deletes(&world.handle(&free)).len(), 0);
    world.drop_volume(&free).await;
}

#[tokio::test]
async fn r61_a_volume_that_people_made_of_a_class_that_provisions_nothing_is_deleted_when_released() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let none = json!({"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    // A word that no class has, to match claims by; and a class for volumes that are there already.
    for (short, class) in [("pv-1", world.name("manual")), ("pv-2", world.class("none", none).await)] {
        let policy = json!({"persistentVolumeReclaimPolicy": "Delete", "storageClassName": class});
        let volume = world.volume_with(short, policy).await;
        let claim = world.claim("claim", &class, json!({"spec": {"volumeName": volume}})).await;
        world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
        world.delete_claim(&claim).await;
        world.gone::<PersistentVolume>(&volume).await;
        assert_eq!(world.deletes(&world.handle(&volume)).len(), 1, "{class}");
        world.claim_gone(&claim).await;
    }
}

#[tokio::test]
async fn r37_r39_r43_a_migrated_in_tree_volume_is_not_deleted_and_told_who_could() {
    // No controllers: theirs would have a driver of its own in mind for it.
    let world = World::new().await;
    let daemon = world.supplier(json!({})).await;
    let name = world.name("pv");
    let mut volume = objects::volume(&name, "", "");
    merge(
        &mut volume,
        json!({"metadata": {"finalizers": [names::FINALIZER_PROVISIONER],
                "labels": {"topology.kubernetes.io/zone": "z1"},
                "annotations": {names::ANNOTATION_PROVISIONED_BY: "kubernetes.io/aws-ebs",
                    names::ANNOTATION_MIGRATED_TO: world.driver_name()}},
            "spec": {"csi": null, "awsElasticBlockStore": {"volumeID": "vol-1"},
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": world.name("class")}}),
    );
    let uid = world.create::<PersistentVolume>(volume).await.uid().unwrap();
    let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
    world.all::<PersistentVolume>().patch_status(&name, &PatchParams::default(), &released).await.unwrap();
    let why = "in-tree source awsElasticBlockStore, which ebs.csi.aws.com serves";
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", why));
    world.events_until(&uid, "whose it is", told).await;
    let failed = "controller_persistentvolume_delete_failed_total";
    world.metrics_until(&daemon, "tried again", |text| figure(text, failed, &[]).is_some_and(|it| it >= 2.0)).await;
    let kept = world.all::<PersistentVolume>().get(&name).await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none(), "{kept:#?}");
    assert!(kept.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER), "{kept:#?}");
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
}

#[tokio::test]
async fn a_volume_whose_handle_is_its_name_is_deleted_like_any_other() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let name = world.name("pv");
    world.driver().seed([name.as_str()]);
    let mut volume = objects::volume(&name, world.driver_name(), &name);
    merge(&mut volume, json!({"spec": {"persistentVolumeReclaimPolicy": "Delete", "storageClassName": class}}));
    world.create::<PersistentVolume>(volume).await;
    let claim = world.claim("claim", &class, json!({"spec": {"volumeName": name}})).await;
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&name).await;
    assert_eq!(world.deletes(&name).len(), 1);
}

#[tokio::test]
async fn a_policy_that_becomes_retain_takes_the_finalizer_off_and_keeps_the_volume() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (_, claim, volume) = world.supplied_claim().await;
    let name = volume.name_any();
    let ours = |it: &PersistentVolume| it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    world.merge_patch::<PersistentVolume>(&name, policy("Retain")).await;
    world.until(&name, "let go of", |it: &PersistentVolume| !ours(it)).await;
    world.merge_patch::<PersistentVolume>(&name, policy("Delete")).await;
    world.until(&name, "protected again", ours).await;
    world.merge_patch::<PersistentVolume>(&name, policy("Retain")).await;
    world.until(&name, "let go of again", |it: &PersistentVolume| !ours(it)).await;
    world.delete_claim(&claim).await;
    world.until(&name, "released", is_released).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_successor_deletes_what_the_daemon_before_it_was_deleting() {
    let world = World::supplied(|_| {}).await;
    let mut config = supplier(json!({}));
    merge(&mut config, objects::short_lease());
    let first = world.daemon_on("first", config.clone()).await;
    let (_, claim, _) = world.supplied_claim().await;
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::DoneButHang).once());
    world.delete_claim(&claim).await;
    world.driver_until("asked", |driver| !driver.calls_of(Method::DeleteVolume).is_empty()).await;
    first.kill();
    let _second = world.daemon_on("second", config).await;
    world.assert_all_gone(&[&claim]).await;
}
