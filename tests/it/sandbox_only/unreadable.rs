//! Kinds of an optional feature that the API has and cannot show: what needs none of their objects goes on.

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use super::{api, by_daemon, user};
use crate::ground::Daemon;
use crate::objects;
use crate::provision_sources::{SNAPSHOT, is_snapshot_held};
use crate::snapshotting::{BOUND, CLASS, CONTENT, error_in, is_ready};
use crate::supplier::short_times;
use crate::supply::{ZONE, pool, zoned};
use crate::world::World;
use crate::world::wait::asked;

/// What a kube-apiserver answers if the webhook that converts a kind does not answer.
fn conversion_failed() -> Rejection {
    let message = "conversion webhook for snapshot.storage.k8s.io/v1beta1, Kind=VolumeSnapshot failed: Post \
                   \"https://snapshot-conversion.kube-system.svc:443/convert?timeout=30s\": service \"snapshot-conversion\" not found";
    Rejection { code: 500, reason: "", message: message.to_owned(), ..Rejection::unauthorized() }
}

fn refuse(world: &World, on: Matching, rejection: Rejection) {
    api(world).faults().add(Fault::on(on, Action::Refuse(rejection)));
}

/// A daemon with the provisioner alone; `section` is merged into the role's.
async fn provisioner_alone(world: &World, section: Value) -> Daemon {
    let mut provisioner = short_times();
    objects::merge(&mut provisioner, section);
    world.daemon(json!({"roles": {"attacher": null, "reconciler": null, "provisioner": provisioner}})).await
}

/// Waits until the daemon has read an object of a kind that it watches.
async fn looked_up(world: &World, plural: &str) {
    let user = user(world);
    let of = |it: &Entry| it.user == user && it.resource == plural && it.verb == "get";
    asked("the API is asked", async || (!api(world).audit().matching(of).is_empty()).then_some(())).await;
}

async fn is_ready_pod(daemon: &Daemon) -> bool {
    crate::http::get(&daemon.diagnostics_dial().unwrap(), "/readyz").await == "ok"
}

#[tokio::test]
async fn snapshots_that_cannot_be_listed_stop_neither_claims_nor_deletions() {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    let any = |verb: &str| by_daemon(&world).verb(verb).resource("volumesnapshots");
    refuse(&world, any("list"), conversion_failed());
    refuse(&world, any("get"), conversion_failed());
    let daemon = provisioner_alone(&world, json!({})).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let snapshot = world.snapshot("snapshot", &claim).await;
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    world.claim_told(&restored, "ProvisioningFailed", "cannot get volumesnapshots").await;
    world.claim_told(&restored, "ProvisioningFailed", "conversion webhook").await;

    let says_so = |status: &Value| {
        let caches = status["caches"].to_string();
        status["warnings"].to_string().contains("VolumeSnapshot: cannot list") && caches.contains("conversion webhook")
    };
    world.shows(&daemon, "the kind that cannot be read", says_so).await;
    assert!(is_ready_pod(&daemon).await);
    let series = "csi_control_plane_cache_unreadable{kind=\"VolumeSnapshot\"} 1";
    assert!(world.metrics(&daemon).await.contains(series));

    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(volume.metadata.name.as_deref().unwrap()).await;
    // The conversion works again: the claim is woken by the snapshots that are listed now.
    api(&world).faults().clear();
    world.supplied_with(&restored).await;
    world.snapshot_until(&snapshot, "let go of", |it| !is_snapshot_held(it)).await;
    world.shows(&daemon, "no notice", |status| !status["warnings"].to_string().contains("VolumeSnapshot")).await;
}

#[tokio::test]
async fn a_claim_of_a_snapshot_goes_on_where_the_list_alone_fails() {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    refuse(&world, by_daemon(&world).verb("list").resource("volumesnapshots"), conversion_failed());
    let _daemon = provisioner_alone(&world, json!({})).await;
    let (class, claim, _) = world.supplied_claim().await;
    let snapshot = world.snapshot("snapshot", &claim).await;
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    world.supplied_with(&restored).await;
    world.snapshot_until(&snapshot, "let go of", |it| !is_snapshot_held(it)).await;
}

#[tokio::test]
async fn nodes_that_cannot_be_listed_stop_no_claim_of_a_driver_without_topology() {
    let world = World::supplied(|_| {}).await;
    for plural in ["nodes", "csinodes"] {
        let forbidden = Rejection::forbidden("storage.k8s.io", plural, "", "no");
        refuse(&world, by_daemon(&world).verb("list").resource(plural), forbidden);
    }
    let daemon = provisioner_alone(&world, json!({})).await;
    let (_, claim, volume) = world.supplied_claim().await;
    assert!(is_ready_pod(&daemon).await);
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(volume.metadata.name.as_deref().unwrap()).await;
}

#[tokio::test]
async fn where_nodes_cannot_be_listed_the_claims_wait_that_need_one_and_say_why() {
    let world = World::supplied(zoned([pool("z1", 10), pool("z2", 10)])).await;
    let forbidden = Rejection::forbidden("storage.k8s.io", "csinodes", "", "no");
    let refused = Fault::on(by_daemon(&world).verb("list").resource("csinodes"), Action::Refuse(forbidden));
    let refused = api(&world).faults().add(refused);
    let daemon = provisioner_alone(&world, json!({})).await;
    world.node_in("node", "z1").await;
    let allowed = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]);
    let (anywhere, fixed) =
        (world.class("anywhere", json!({})).await, world.class("fixed", json!({"allowedTopologies": allowed})).await);
    let (waits, goes_on) =
        (world.claim("waits", &anywhere, json!({})).await, world.claim("goes-on", &fixed, json!({})).await);
    world.claim_told(&waits, "ProvisioningFailed", "CSINodes cannot be read: cannot list: ").await;
    world.supplied_with(&goes_on).await;
    assert!(is_ready_pod(&daemon).await);
    api(&world).faults().remove(refused);
    world.supplied_with(&waits).await;
}

#[tokio::test]
async fn classes_of_snapshots_that_cannot_be_listed_stop_only_what_names_one() {
    let world = World::snapshotting(|_| {}).await;
    let listed = by_daemon(&world).verb("list").resource("volumesnapshotclasses");
    refuse(&world, listed, conversion_failed());
    let daemon = world.snapshotter(json!({})).await;
    let handle = world.cut_behind("before");
    let bound = json!({"metadata": {"finalizers": [BOUND]}});
    let content = world.content_by_hand("content", json!({"snapshotHandle": handle}), bound).await;
    world.content_until(&content, "ready", is_ready).await;
    let cut = world.cut_anew("cut").await;
    let says_why = |it: &Value| error_in(it).contains("VolumeSnapshotClasses cannot be read: cannot list: conversion");
    world.content_until(&cut.content, "waiting for its class", says_why).await;
    assert!(is_ready_pod(&daemon).await);
    world.delete_installed(CONTENT, &content).await;
    world.away(CONTENT, &content).await;
    api(&world).faults().clear();
    world.ready(&cut).await;
}

/// The watches of classes bring nothing: what the API has is not missing.
#[tokio::test]
async fn a_class_that_the_watch_has_not_shown_is_not_called_missing() {
    let world = World::supplied(|_| {}).await;
    let _daemon = provisioner_alone(&world, json!({})).await;
    world.supplied_claim().await;
    api(&world).faults().hold_watches(by_daemon(&world).resource("storageclasses"));
    let late = world.class("late", json!({})).await;
    let claim = world.claim("claim-of-late", &late, json!({})).await;
    world.supplied_with(&claim).await;
    // As the PersistentVolume controller leaves a claim whose class goes afterwards.
    let ours = json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": world.driver_name()}}});
    let none = world.claim("claim-of-none", &world.name("none"), ours).await;
    world.claim_told(&none, "ProvisioningFailed", "not found: create it").await;
}

#[tokio::test]
async fn a_class_of_snapshots_that_the_watch_has_not_shown_is_not_called_missing() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    world.ready(&world.cut_anew("first").await).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("volumesnapshotclasses"));
    let cut = world.cut_anew("cut").await;
    looked_up(&world, "volumesnapshotclasses").await;
    let content = world.look(CONTENT, &cut.content).await;
    assert_eq!(error_in(&content), "", "{content:#}");
    api(&world).faults().remove(held);
    world.ready(&cut).await;
    let class = world.look(CLASS, &world.name("cut-class")).await;
    assert_eq!(class["kind"], CLASS);
}

#[tokio::test]
async fn a_node_that_the_watch_has_not_shown_is_not_called_missing() {
    let (world, _daemon, (_, _, attachment)) = World::with_attachment().await;
    world.detached(&attachment).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("csinodes"));
    let (node, volume) = (world.node("late").await, world.volume("late").await);
    let attachment = world.attach(&volume, &node).await;
    looked_up(&world, "csinodes").await;
    let now: VolumeAttachment = world.until(&attachment, "there", |_| true).await;
    assert!(now.status.is_none_or(|status| status.attach_error.is_none()), "nothing is reported");
    api(&world).faults().remove(held);
    world.attached(&attachment).await;
}
