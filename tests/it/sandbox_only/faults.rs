//! Every request of an attach and of a detach fails once in every way: nothing is lost, and nothing stays behind
//! (attacher I12).

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::json;

use super::{api, by_daemon, writes};
use crate::world::World;
use crate::world::wait::asked;

/// How long the daemons here wait for an answer: one that a busy machine delays is not taken for a lost one.
pub(super) const WAITS: &str = "8s";
/// The delay of an answer for which no caller waits any more.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The ways in which a request for an object of this kind can fail.
pub(super) fn failures(version: &str, kind: &str) -> Vec<(&'static str, Action)> {
    let kind = resources::of_kind(version, kind).unwrap();
    let refuse = Action::Refuse;
    vec![
        ("409", refuse(Rejection::conflict(kind, "any"))),
        ("422", refuse(Rejection::unprocessable_patch())),
        ("429", refuse(Rejection { retry_after: Some(1), ..Rejection::too_many_requests(1) })),
        ("500", refuse(Rejection::internal("struck"))),
        ("503", refuse(Rejection::service_unavailable("struck"))),
        ("500, but done", Action::RefuseAfter(Rejection::internal("struck"))),
        ("no answer in time", Action::DelayBefore(TOO_LONG)),
        ("no answer in time, but done", Action::DelayAfter(TOO_LONG)),
        ("cut", Action::CutBefore),
        ("cut, but done", Action::CutAfter),
    ]
}

/// Which request is struck: of those that match, the nth. Told the daemon's, the volume, the attachment, the secret.
type On = fn(Matching, &str, &str, &str) -> (Matching, u64);

/// Whole lives of volumes, one for each failure, in each of which one request of this sort fails once.
fn live(what: &'static str, on: On) -> LocalBoxFuture<'static, ()> {
    Box::pin(play(what, on))
}

async fn play(what: &str, on: On) {
    let (world, _daemon) = World::with_daemon(json!({ "kubernetes": { "requestTimeout": WAITS } })).await;
    let node = world.node("node").await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let lives =
        failures("storage.k8s.io/v1", "VolumeAttachment").into_iter().enumerate().map(|(number, (how, action))| {
            let (world, node, secret) = (&world, &node, &secret);
            async move {
                let spec =
                    json!({ "csi": { "controllerPublishSecretRef": { "name": secret, "namespace": "default" } } });
                let volume = world.volume_with(&format!("pv-{number}"), spec).await;
                let attachment = crate::objects::attachment_name(&world.handle(&volume), world.driver_name(), node);
                let (matching, nth) = on(by_daemon(world), &volume, &attachment, secret);
                let fault = api(world).faults().add(Fault::on(matching, action).nth(nth));
                assert_eq!(world.attach(&volume, node).await, attachment);
                world.attached(&attachment).await;
                assert!(world.is_published(&volume, node), "{what}: {how}");
                world.detached(&attachment).await;
                assert!(!world.is_published(&volume, node), "{what}: {how}");
                world.delete_volume(&volume).await;
                world.gone::<PersistentVolume>(&volume).await;
                assert_eq!(api(world).faults().hits(fault), 1, "{what}: {how} struck nothing");
                let calls = (world.publishes(&volume).len(), world.unpublishes(&volume).len());
                assert!(calls.0 <= 2 && calls.1 <= 2, "{what}: {how}: {calls:?} calls");
            }
        });
    if what == "secret" {
        // They share the secret: one after the other.
        for life in lives {
            life.await;
        }
    } else {
        futures::future::join_all(lives).await;
    }
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn a_failure_to_protect_the_volume_is_got_over() {
    live("protect", |on, volume, _, _| {
        (on.verb("patch").resource("persistentvolumes").subresource("").name(volume), 1)
    })
    .await;
}

#[tokio::test]
async fn a_failure_to_save_the_intent_is_got_over() {
    live("intent", |on, _, attachment, _| {
        (on.verb("patch").resource("volumeattachments").subresource("").name(attachment), 1)
    })
    .await;
}

#[tokio::test]
async fn a_failure_to_record_the_attachment_is_got_over() {
    live("record", |on, _, attachment, _| {
        (on.verb("patch").resource("volumeattachments").subresource("status").name(attachment), 1)
    })
    .await;
}

#[tokio::test]
async fn a_failure_to_release_the_attachment_is_got_over() {
    live("release", |on, _, attachment, _| {
        (on.verb("patch").resource("volumeattachments").subresource("").name(attachment), 2)
    })
    .await;
}

#[tokio::test]
async fn a_failure_to_release_the_volume_is_got_over() {
    live("release volume", |on, volume, _, _| {
        (on.verb("patch").resource("persistentvolumes").subresource("").name(volume), 2)
    })
    .await;
}

#[tokio::test]
async fn a_failure_to_read_the_secret_is_got_over() {
    live("secret", |on, _, _, secret| (on.verb("get").resource("secrets").name(secret), 1)).await;
}

#[tokio::test]
async fn r5_an_attachment_that_is_gone_when_its_status_is_written_is_no_failure() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    let keep = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keep" }]);
    world.json_patch::<VolumeAttachment>(&attachment, keep).await;
    // The status is written only after the other finalizer went, and the object with it.
    let status = by_daemon(&world).verb("patch").resource("volumeattachments").subresource("status");
    let held = api(&world).faults().add(Fault::on(status, Action::Hold));
    world.detach(&attachment).await;
    world.until(&attachment, "released", |it: &VolumeAttachment| it.finalizers() == ["example.com/keep"]).await;
    let begun = async || (api(&world).faults().hits(held) > 0).then_some(());
    asked("the status is about to be written", begun).await;
    world.drop_finalizer::<VolumeAttachment>(&attachment, 0).await;
    world.gone::<VolumeAttachment>(&attachment).await;
    assert_eq!(api(&world).faults().hits(held), 1);
    api(&world).faults().remove(held);
    let not_found = || writes(&world).into_iter().filter(|it| it.subresource == "status" && it.code == 404).count();
    asked("the status finds no object", async || (not_found() > 0).then_some(())).await;
    world.attached(&world.attach(&volume, &node).await).await;
    assert_eq!(world.unpublishes(&volume).len(), 1);
    assert_eq!(not_found(), 1, "it is not written again");
}
