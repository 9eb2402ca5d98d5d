//! What the daemon asks of the API, request by request.

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use tonic::Code;

use super::{api, writes, written};
use crate::logs;
use crate::world::{World, bounded};

#[tokio::test]
async fn r7_an_attach_is_three_writes_a_second_one_two_and_a_detach_one_all_of_them_patches() {
    let world = World::new().await;
    let _daemon = world.daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    let mut first = written(&world);
    // The first two are independent and go side by side.
    first[..2].sort();
    let expected = ["patch persistentvolumes 200", "patch volumeattachments 200", "patch volumeattachments/status 200"];
    assert_eq!(first, expected);

    api(&world).audit().clear();
    world.detached(&attachment).await;
    // The object is gone with our finalizer: there is no status left to write.
    assert_eq!(written(&world), ["patch volumeattachments 200"]);

    api(&world).audit().clear();
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    assert_eq!(written(&world), ["patch volumeattachments 200", "patch volumeattachments/status 200"]);
}

#[tokio::test]
async fn a_settled_world_is_not_written_to_by_resyncs_and_listings() {
    let (mut resyncs, _log) = logs::count("resync");
    let world = World::new().await;
    let _daemon = world.daemon(json!({ "roles": { "attacher": { "resync": "1s" } } })).await;
    let node = world.node("node").await;
    for number in 0..3 {
        let volume = world.volume(&format!("pv-{number}")).await;
        world.attached(&world.attach(&volume, &node).await).await;
    }
    api(&world).audit().clear();
    let seen = *resyncs.borrow();
    bounded("two resyncs", resyncs.wait_for(|count| *count >= seen + 2)).await.unwrap();
    // One more attachment goes through: whatever the resyncs had started came before it.
    let volume = world.volume("last").await;
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    let others: Vec<_> = writes(&world).into_iter().filter(|it| it.name != attachment && it.name != volume).collect();
    assert_eq!(others, []);
}

#[tokio::test]
async fn an_error_that_stays_the_same_is_written_once() {
    let world = World::new().await;
    let _daemon = world.daemon(json!({ "roles": { "attacher": { "events": false } } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let refused = Action::fail(Code::Internal, "always the same");
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, refused));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "always the same").await;
    world.driver_until("five attempts", |_| world.publishes(&volume).len() >= 5).await;
    let statuses = written(&world).into_iter().filter(|it| it.contains("/status")).count();
    assert_eq!(statuses, 1);
}

#[tokio::test]
async fn a_detach_error_that_stays_the_same_is_written_once() {
    let world = World::new().await;
    let _daemon = world.daemon(json!({ "roles": { "attacher": { "events": false } } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    api(&world).audit().clear();
    let refused = Action::fail(Code::Internal, "always the same");
    world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, refused));
    world.detach(&attachment).await;
    world.detach_failed(&attachment, "always the same").await;
    world.driver_until("five attempts", |_| world.unpublishes(&volume).len() >= 5).await;
    let statuses = written(&world).into_iter().filter(|it| it.contains("/status")).count();
    assert_eq!(statuses, 1);
    world.driver().clear_faults();
    world.gone::<VolumeAttachment>(&attachment).await;
}
