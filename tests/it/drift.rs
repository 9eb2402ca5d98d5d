//! Attachments that were lost, or created, outside Kubernetes.

use std::collections::BTreeSet;
use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tonic::Code;

use crate::ground::Daemon;
use crate::objects;
use crate::world::World;

/// Waits until this many listings from now have ended, and tells when the last of them did.
async fn listings(world: &World, more: usize) -> Duration {
    let ended = |world: &World| -> Vec<Duration> {
        world.driver().calls_of(Method::ListVolumes).iter().filter_map(|call| call.ended).collect()
    };
    let target = ended(world).len() + more;
    world.driver_until("listings", |_| ended(world).len() >= target).await;
    ended(world)[target - 1]
}

#[tokio::test]
async fn r19_r20_a_volume_that_was_lost_is_attached_again_and_recorded_anew() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let before = world.attached(&attachment).await.status.unwrap().attachment_metadata;
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    world
        .until(&attachment, "recorded anew", |it: &VolumeAttachment| {
            it.status.as_ref().is_some_and(|status| status.attached && status.attachment_metadata != before)
        })
        .await;
    assert!(world.is_published(&volume, &node));
    listings(&world, 4).await;
    assert_eq!(world.publishes(&volume).len(), 2, "once, and not at each listing");
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn a_volume_that_cannot_be_attached_again_is_not_shown_as_attached_any_more() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::fail(Code::NotFound, "no such machine")));
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    let failed = world.failed(&attachment, "no such machine").await;
    assert!(!failed.status.unwrap().attached);
    world.driver().clear_faults();
    world.attached(&attachment).await;
    assert!(world.is_published(&volume, &node));
}

/// The record that a volume is attached may only be withdrawn on the driver's own word: it shows the volume without the node,
/// twice, and refuses for good to attach it again, or the node is gone. Anything less may leave the volume attached to two nodes.
#[tokio::test]
async fn a_volume_that_the_driver_only_leaves_out_stays_recorded_as_attached() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::fail(Code::Internal, "out of sorts")));
    let omitted = BTreeSet::from([world.handle(&volume)]);
    world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::OmitVolumes(omitted))));
    let failed = world.failed(&attachment, "out of sorts").await;
    assert!(world.is_published(&volume, &node));
    assert!(failed.status.unwrap().attached, "what is not listed may well be attached");
}

#[tokio::test]
async fn a_lost_volume_stays_recorded_as_attached_until_the_driver_refuses_it_for_good() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::fail(Code::Unavailable, "starting")));
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    let failed = world.failed(&attachment, "starting").await;
    assert!(failed.status.unwrap().attached, "the attempt may have had its effect");
    world.driver().clear_faults();
    world.driver_until("published again", |_| world.is_published(&volume, &node)).await;
}

#[tokio::test]
async fn a_lost_volume_of_a_node_that_is_gone_is_no_longer_recorded_as_attached() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.all::<CSINode>().delete(&node, &DeleteParams::default()).await.unwrap();
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    world
        .until(&attachment, "recorded as lost", |it: &VolumeAttachment| {
            it.status.as_ref().is_some_and(|it| !it.attached && it.attach_error.is_some())
        })
        .await;
    assert_eq!(world.publishes(&volume).len(), 1);
}

#[tokio::test]
async fn a_lost_volume_of_a_node_without_the_driver_stays_recorded_as_attached() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    world.set_drivers(&node, json!([])).await;
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    let failed = world.failed(&attachment, "driver").await;
    assert!(failed.status.unwrap().attached, "its node plugin may be being replaced, and nobody asked the driver");
}

#[tokio::test]
async fn a_volume_that_comes_back_while_its_attachment_goes_is_detached_again() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    // Another controller's finalizer keeps the attachment.
    let keep = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keep" }]);
    world.json_patch::<VolumeAttachment>(&attachment, keep).await;
    world.detach(&attachment).await;
    world.driver_until("unpublished", |_| !world.is_published(&volume, &node)).await;
    world
        .until(&attachment, "detached", |it: &VolumeAttachment| it.status.as_ref().is_some_and(|it| !it.attached))
        .await;
    world.driver().attach_behind(&world.handle(&volume), &world.node_id(&node));
    world.driver_until("unpublished again", |_| !world.is_published(&volume, &node)).await;
    world.drop_finalizer::<VolumeAttachment>(&attachment, 0).await;
    world.gone::<VolumeAttachment>(&attachment).await;
}

#[tokio::test]
async fn r17_a_lost_attachment_without_a_recorded_node_id_is_found_through_its_node() {
    let world = World::new().await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    // As a daemon of old would have left it, had it never written the node's id down.
    let status = Patch::Merge(json!({ "status": { "attached": true } }));
    let api = world.all::<VolumeAttachment>();
    api.patch_status(&attachment, &PatchParams::default(), &status).await.unwrap();
    let _daemon = world.daemon(json!({})).await;
    world.driver_until("published", |_| world.is_published(&volume, &node)).await;
    let repaired =
        world.until(&attachment, "marked", |it: &VolumeAttachment| it.finalizers().contains(&world.finalizer())).await;
    assert_eq!(repaired.annotations()["csi.alpha.kubernetes.io/node-id"], world.node_id(&node));
}

#[tokio::test]
async fn r21_listings_that_say_nothing_of_a_volume_force_nothing() {
    let (world, _daemon, (_, volume, _)) = World::with_attachment().await;
    for lie in [Lie::EntryWithoutStatus, Lie::EntryWithoutVolume] {
        world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(lie)));
        listings(&world, 4).await;
        world.driver().clear_faults();
    }
    assert_eq!(world.publishes(&volume).len(), 1);
}

#[tokio::test]
async fn a_volume_that_the_driver_leaves_out_for_good_is_forced_ever_more_rarely() {
    let (world, _daemon, (_, volume, attachment)) = World::with_attachment().await;
    let omitted = BTreeSet::from([world.handle(&volume)]);
    world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::OmitVolumes(omitted))));
    let tenth = listings(&world, 10).await;
    // After 2, 4 and 8 listings at the earliest.
    let publishes = world.publishes(&volume).iter().filter(|call| call.started <= tenth).count();
    assert!((2..=3).contains(&publishes), "{publishes} publish calls in 10 listings");
    assert!(world.attached(&attachment).await.status.unwrap().attached);
}

#[tokio::test]
async fn r22_a_listing_of_several_pages_is_read_to_its_end() {
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "reconciler": { "pageSize": 2 } } })).await;
    let node = world.node("node").await;
    let mut volumes = Vec::new();
    for number in 0..5 {
        let volume = world.volume(&format!("pv-{number}")).await;
        world.attached(&world.attach(&volume, &node).await).await;
        volumes.push(volume);
    }
    // The last by name is on the last page.
    let lost = volumes.last().unwrap();
    assert!(world.driver().detach_behind(&world.handle(lost), &world.node_id(&node)));
    world.driver_until("published again", |_| world.is_published(lost, &node)).await;
    for volume in &volumes[..4] {
        assert_eq!(world.publishes(volume).len(), 1);
    }
}

#[tokio::test]
async fn r23_foreign_attachments_are_not_repaired() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let name = world.name("foreign");
    let source = json!({ "persistentVolumeName": volume });
    world.create::<VolumeAttachment>(objects::attachment_of(&name, "other.csi.example.com", &node, &source)).await;
    let status = Patch::Merge(json!({ "status": { "attached": true } }));
    let api = world.all::<VolumeAttachment>();
    api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    listings(&world, 5).await;
    assert_eq!(world.publishes(&volume).len(), 0);
    world.detached(&name).await;
}

#[tokio::test]
async fn r53_a_listing_that_never_ends_is_ended_and_does_not_hammer_the_driver() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.attached(&world.attach(&volume, &node).await).await;
    world.driver().inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::TokenLoop)));
    assert!(world.driver().detach_behind(&world.handle(&volume), &world.node_id(&node)));
    let before = world.driver().calls_of(Method::ListVolumes).len();
    listings(&world, 6).await;
    // Each pass gives up at its second page at the latest, and the next one begins an interval later.
    let starts: Vec<Duration> = world.driver().calls_of(Method::ListVolumes).iter().map(|call| call.started).collect();
    for three in starts[before..].windows(3) {
        assert!(three[2].saturating_sub(three[0]) >= Duration::from_millis(150), "{three:?}");
    }
    assert_eq!(world.publishes(&volume).len(), 1, "a listing without an end says nothing");
    let metrics = world.metrics(&daemon).await;
    assert!(metrics.contains("result=\"TokenLoop\""), "{metrics}");
    let told = fact(&world, &daemon, "failed passes since").await;
    assert!(
        told.is_some_and(|it| it.contains("the last one: ") && it.contains("token")),
        "the status page tells of it"
    );
    world.driver().clear_faults();
    world.driver_until("published again", |_| world.is_published(&volume, &node)).await;
    assert_eq!(fact(&world, &daemon, "failed passes since").await, None);
}

/// What the status page says of the reconciler.
async fn fact(world: &World, daemon: &Daemon, name: &str) -> Option<String> {
    let status = world.status(daemon).await;
    let role = status["roles"].as_array().unwrap().iter().find(|it| it["name"] == "reconciler").unwrap();
    let told = role["facts"].as_array().unwrap().iter().find(|it| it["name"] == name)?;
    told["value"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_driver_that_cannot_list_is_not_asked_to() {
    for missing in [Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes] {
        let world = World::with_rpc(missing, false).await;
        let daemon = world.daemon(json!({})).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        world.attached(&attachment).await;
        world.detached(&attachment).await;
        assert_eq!(world.driver().calls_of(Method::ListVolumes).len(), 0);
        let idle = fact(&world, &daemon, "idle").await;
        assert_eq!(idle.as_deref(), Some("the driver does not list where its volumes are published"));
    }
}
