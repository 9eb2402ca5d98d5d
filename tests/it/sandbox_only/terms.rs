//! A daemon with an old cache: its watch delivers nothing, after it has become leader or between two attempts.

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::Matching;
use csi_control_plane::sandbox::driver::{Action as DriverAction, Fault as DriverFault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tonic::Code;

use super::{api, by_daemon};
use crate::objects;
use crate::supplier::{supplier, unanswered};
use crate::world::World;

/// The requests for claims of the daemon on a host.
fn claims_of(world: &World, host: &str) -> Matching {
    Matching::any().user(world.name(host)).resource("persistentvolumeclaims")
}

fn claims_held(status: &Value) -> Option<u64> {
    let caches = status["caches"].as_array()?;
    caches.iter().find(|cache| cache["kind"] == "PersistentVolumeClaim")?["objects"].as_u64()
}

#[tokio::test]
async fn a_new_leader_finishes_what_its_watch_has_not_shown_as_begun_or_as_deleted() {
    let (world, first) = World::with_supplier_on("first").await;
    world.serving(&first).await;
    let second = world.daemon_on("second", supplier(json!({}))).await;
    let late = world.name("late");
    let ours = json!({"metadata": {"annotations": {names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name()}}});
    let claim = world.claim("claim", &late, ours).await;
    world.claim_told(&claim, "ProvisioningFailed", &late).await;
    world.shows(&second, "the standby knows the claim", |status| claims_held(status) == Some(1)).await;
    let held = api(&world).faults().hold_watches(claims_of(&world, "second"));
    world.driver().inject(unanswered());
    world.class("late", json!({})).await;
    let before = world.asked(&claim, 1).await.len();
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    // The deletion did not come to the new leader.
    world.asked(&claim, before + 1).await;
    assert!(world.is_recorded(&claim).await);
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
    world.forgotten(&claim).await;
    api(&world).faults().remove(held);
    drop(second);
}

#[tokio::test]
async fn a_new_leader_that_has_not_heard_of_a_restore_leaves_its_snapshot_protected() {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let (class, source) = world.claim_anew("source").await;
    world.supplied_with(&source).await;
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.shows(&second, "the standby knows the claims", |status| claims_held(status) == Some(1)).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let held = api(&world).faults().hold_watches(claims_of(&world, "second"));
    world.driver().inject(unanswered());
    let restored = world.claim_from("restored", &class, "VolumeSnapshot", &snapshot).await;
    let before = world.asked(&restored, 1).await.len();
    first.stop().await.unwrap();
    world.asked(&restored, before + 1).await;
    let now: DynamicObject = world.installed_kind("VolumeSnapshot").get(&snapshot).await.unwrap();
    assert!(now.finalizers().iter().any(|it| it == names::FINALIZER_SNAPSHOT_SOURCE), "{now:?}");
    world.driver().clear_faults();
    api(&world).faults().remove(held);
    world.supplied_with(&restored).await;
    world.assert_nothing_leaked().await;
    drop(second);
}

#[tokio::test]
async fn a_volume_that_somebody_keeps_meanwhile_is_not_deleted_by_another_attempt() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (_, claim, volume) = world.supplied_claim().await;
    let volume = volume.name_any();
    let stuck = DriverAction::fail(Code::Internal, "the shelf is stuck");
    world.driver().inject(DriverFault::on(Method::DeleteVolume, stuck));
    world.delete_claim(&claim).await;
    world.driver_until("a first attempt", |it| !it.calls_of(Method::DeleteVolume).is_empty()).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    world.merge_patch::<PersistentVolume>(&volume, keep).await;
    let is_ours = |it: &PersistentVolume| it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    world.until(&volume, "let go of", |it: &PersistentVolume| !is_ours(it)).await;
    world.driver().clear_faults();
    api(&world).faults().remove(held);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_volume_that_a_new_leader_has_not_seen_let_go_is_protected_again_before_it_is_published() {
    let world = World::new().await;
    let no_reconciler = json!({"roles": {"reconciler": null}});
    let first = world.daemon_on("first", no_reconciler.clone()).await;
    world.serving(&first).await;
    let (node, volume) = (world.node("node").await, world.volume("volume").await);
    world.detached(&attached(&world, &volume, &node).await).await;
    let second = world.daemon_on("second", no_reconciler).await;
    let knows = |status: &Value| {
        let mut caches = status["caches"].as_array().into_iter().flatten();
        caches.any(|cache| cache["kind"] == "PersistentVolume" && cache["objects"] == 1)
    };
    world.shows(&second, "the standby knows the volume", knows).await;
    let matching = Matching::any().user(world.name("second")).resource("persistentvolumes");
    let held = api(&world).faults().hold_watches(matching);
    let ours = |volume: &PersistentVolume| volume.finalizers().iter().position(|it| *it == world.finalizer());
    let volumes = world.all::<PersistentVolume>();
    let at = ours(&volumes.get(&volume).await.unwrap()).unwrap();
    world.drop_finalizer::<PersistentVolume>(&volume, at).await;
    first.stop().await.unwrap();
    world.serving(&second).await;
    attached(&world, &volume, &node).await;
    assert!(ours(&volumes.get(&volume).await.unwrap()).is_some());
    let by_second = |it: &Entry| it.user == world.name("second") && it.name == volume;
    let asked: Vec<_> = api(&world).audit().matching(by_second).iter().map(|it| (it.verb, it.code)).collect();
    assert_eq!(asked, [("get", 200), ("patch", 200)]);
    api(&world).faults().remove(held);
}

#[tokio::test]
async fn a_volume_that_another_attachment_of_a_late_watch_needs_is_not_detached_by_a_new_leader() {
    let world = World::new().await;
    let section = json!({"roles": {"reconciler": null, "attacher": {"retry": {"initial": "300s", "max": "300s"}}}});
    let first = world.daemon_on("first", section.clone()).await;
    world.serving(&first).await;
    let (before, volume, old) = world.attached_anew().await;
    let second = world.daemon_on("second", section).await;
    let busy = DriverAction::fail(Code::Internal, "the node is busy");
    world.driver().inject(DriverFault::on(Method::ControllerUnpublishVolume, busy).once());
    world.detach(&old).await;
    world.driver_until("the detach fails", |_| world.unpublishes(&volume).len() == 1).await;
    // The standby knows what is older than this one, and nothing that is younger.
    let foreign = objects::attachment_of(
        &world.name("foreign"),
        "other.csi.example.com",
        &before,
        &json!({ "persistentVolumeName": volume }),
    );
    world.create::<VolumeAttachment>(foreign).await;
    let knows = |status: &Value| {
        let mut caches = status["caches"].as_array().into_iter().flatten();
        caches.any(|cache| cache["kind"] == "VolumeAttachment" && cache["objects"] == 2)
    };
    world.shows(&second, "the standby knows both attachments", knows).await;
    let matching = Matching::any().user(world.name("second")).resource("volumeattachments");
    let held = api(&world).faults().hold_watches(matching);
    // The same machine under another name.
    let after = world.name("renamed");
    world.register(&after, &world.node_id(&before)).await;
    let new = attached(&world, &volume, &after).await;
    first.stop().await.unwrap();
    world.gone::<VolumeAttachment>(&old).await;
    assert_eq!(world.unpublishes(&volume).len(), 1);
    assert!(world.is_published(&volume, &before), "it is the same machine");
    api(&world).faults().remove(held);
    world.detached(&new).await;
    assert!(!world.is_published(&volume, &before));
    drop(second);
}

/// Attaches a volume to a node, and returns the attachment.
async fn attached(world: &World, volume: &str, node: &str) -> String {
    let attachment = world.attach(volume, node).await;
    world.attached(&attachment).await;
    attachment
}
