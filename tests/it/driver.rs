//! The driver comes late, goes away in the middle, comes back, or comes back as less than it was.

use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use tonic::Code;

use crate::objects;
use crate::world::World;

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn r28_r41_a_driver_that_is_slow_to_get_ready_is_waited_for() {
    let world = World::new().await;
    world.driver().inject(Fault::on(Method::Probe, Action::Hold).nth(2));
    world.driver().inject(Fault::on(Method::Probe, Action::Lie(Lie::NotReady)).once());
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let daemon = world.daemon(json!({})).await;
    world.driver_until("a second probe", |it| it.calls_of(Method::Probe).len() == 2).await;
    assert_eq!(world.driver().calls_of(Method::Probe)[1].ended, None);
    assert_eq!(world.driver().calls_of(Method::ControllerGetCapabilities).len(), 0, "it is not taken to be ready yet");
    world.driver().release();
    world.attached(&attachment).await;
    assert_eq!(world.status(&daemon).await["driver"]["name"], world.driver_name());
}

#[tokio::test]
async fn a_driver_that_dies_in_the_middle_of_a_publish_is_asked_again_when_it_is_back() {
    for action in [Action::Crash { down: SHORT }, Action::DoneButCrash { down: SHORT }] {
        let (world, _daemon) = World::with_daemon(json!({})).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        world.driver().inject(Fault::on(Method::ControllerPublishVolume, action.clone()).once());
        let attachment = world.attach(&volume, &node).await;
        let object = world.attached(&attachment).await;
        assert!(world.is_published(&volume, &node));
        assert_eq!(world.publishes(&volume).len(), 2, "{action:?}");
        let state = world.driver().state();
        let context = &state.volumes()[&world.handle(&volume)].published[&world.node_id(&node)].context;
        assert_eq!(object.status.unwrap().attachment_metadata.as_ref(), Some(context), "the answer that counts");
        world.detached(&attachment).await;
    }
}

#[tokio::test]
async fn a_driver_that_dies_in_the_middle_of_an_unpublish_is_asked_again_before_anything_is_released() {
    for action in [Action::Crash { down: SHORT }, Action::DoneButCrash { down: SHORT }] {
        let (world, _daemon) = World::with_daemon(json!({})).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        let attachment = world.attach(&volume, &node).await;
        world.attached(&attachment).await;
        world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, action.clone()).once());
        world.detached(&attachment).await;
        assert!(!world.is_published(&volume, &node));
        assert_eq!(world.unpublishes(&volume).len(), 2, "{action:?}");
    }
}

#[tokio::test]
async fn r29_a_restart_of_the_driver_between_two_attaches_is_survived_by_the_daemon() {
    let (world, daemon, (_, _, attachment)) = World::with_attachment().await;
    world.restart_driver(SHORT).await;
    world.detached(&attachment).await;
    assert!(!daemon.has_ended());
    assert!(world.driver().restarts() >= 1 && world.driver().connections() >= 2);
    daemon.stop().await.unwrap();
}

/// Restarts the driver without the capability to attach, and waits until the daemon knows: it confirms an attachment of the volume
/// `next` without a call.
async fn without_publish(world: &World, node: &str) -> (String, String) {
    world.driver().change_profile(|profile| {
        profile.controller.remove(&(Rpc::PublishUnpublishVolume as i32));
    });
    world.restart_driver(SHORT).await;
    let next = world.volume("next").await;
    let confirmed = world.attach(&next, node).await;
    world.attached(&confirmed).await;
    assert!(!world.is_published(&next, node));
    (next, confirmed)
}

/// The driver's answers to the detaches of a volume.
fn outcomes(world: &World, volume: &str) -> Vec<&'static str> {
    world.unpublishes(volume).into_iter().map(|call| call.outcome.label()).collect()
}

#[tokio::test]
async fn a_driver_that_cannot_attach_any_more_has_its_leftover_finalizers_released() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;

    let (next, confirmed) = without_publish(&world, &node).await;
    // Before the daemon has met the new driver, it may have begun to attach `next` by a call, too.
    for (volume, attachment, at_least) in [(&volume, &attachment, 1), (&next, &confirmed, 0)] {
        world.delete_volume(volume).await;
        world.detached(attachment).await;
        world.gone::<PersistentVolume>(volume).await;
        let outcomes = outcomes(&world, volume);
        assert!(outcomes.len() >= at_least && outcomes.iter().all(|label| *label == "Unimplemented"), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_driver_that_leaves_its_capability_out_once_has_no_volume_released_that_is_still_attached() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;

    without_publish(&world, &node).await;
    world.driver().change_profile(|profile| {
        profile.controller.insert(Rpc::PublishUnpublishVolume as i32);
    });
    let refused = Fault::on(Method::ControllerUnpublishVolume, Action::fail(Code::Internal, "the disk is busy"));
    world.driver().inject(refused.once());
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node), "what the daemon has published is unpublished before it is released");
    assert_eq!(outcomes(&world, &volume), ["Internal", "OK"], "only an answer releases it");
}

#[tokio::test]
async fn a_driver_that_learns_to_attach_is_asked_to_from_then_on() {
    let world = World::with_rpc(Rpc::PublishUnpublishVolume, false).await;
    let _daemon = world.daemon(json!({})).await;
    let (node, first, second) = (world.node("node").await, world.volume("a").await, world.volume("b").await);
    let before = world.attach(&first, &node).await;
    world.attached(&before).await;
    world.driver().change_profile(|profile| {
        profile.controller.insert(Rpc::PublishUnpublishVolume as i32);
    });
    world.restart_driver(SHORT).await;
    // Until the daemon has met the new driver, an attachment may still be confirmed without a call; the listing tells.
    let after = world.attach(&second, &node).await;
    world.driver_until("published", |_| world.is_published(&second, &node)).await;
    world.detached(&after).await;
    world.detached(&before).await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_in_the_middle_leaves_nothing_that_its_successor_does_not_finish() {
    let (world, daemon) = World::with_daemon(objects::short_lease()).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let going = world.volume("going").await;
    let leaving = world.attach(&going, &node).await;
    world.attached(&leaving).await;
    for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
        world.driver().inject(Fault::on(method, Action::DoneButHang));
    }
    let attachment = world.attach(&volume, &node).await;
    world.detach(&leaving).await;
    world
        .driver_until("both done and unanswered", |_| {
            world.is_published(&volume, &node) && !world.is_published(&going, &node)
        })
        .await;
    daemon.kill();
    world.driver().clear_faults();
    let _successor = world.daemon_on("successor", objects::short_lease()).await;
    world.attached(&attachment).await;
    world.gone::<VolumeAttachment>(&leaving).await;
}
