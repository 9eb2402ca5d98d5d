//! Leader election: which daemon may work, and when.

use csi_control_plane::roles::csi_attacher;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tonic::Code;

use crate::world::leases::holder;
use crate::world::{World, until_some};

const NAMESPACE: &str = "kube-system";

#[tokio::test]
async fn r31_nothing_is_done_before_leadership_and_work_begins_when_the_lease_is_released() {
    let world = World::new().await;
    let name = csi_attacher::lease(world.driver_name());
    let now = world.ground().clock().wall().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "holderIdentity": "the-go-sidecar", "leaseDurationSeconds": 3600, "acquireTime": now,
            "renewTime": now, "leaseTransitions": 0 },
    }))
    .unwrap();
    world.leases().create(&PostParams::default(), &lease).await.unwrap();
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let daemon = world.daemon(json!({})).await;
    // It has met the driver and stands by.
    world.driver_until("handshake", |it| !it.calls_of(Method::ControllerGetCapabilities).is_empty()).await;
    world.shows(&daemon, "a standby", |status| status["overall"] == "standby").await;
    assert_eq!((world.publishes(&volume).len(), world.driver().calls_of(Method::ListVolumes).len()), (0, 0));

    let release = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
    world.leases().patch(&name, &PatchParams::default(), &release).await.unwrap();
    world.attached(&attachment).await;
}

#[tokio::test]
async fn r37_an_orderly_stop_ends_what_is_in_flight_and_hands_the_lease_over() {
    let world = World::new().await;
    let name = csi_attacher::lease(world.driver_name());
    let first = world.daemon_on("first", json!({})).await;
    let led = world.lease_held(&name).await;
    assert!(holder(&led).unwrap().starts_with(&world.name("first")));
    let second = world.daemon_on("second", json!({})).await;

    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).once());
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a publish in flight", |_| !world.publishes(&volume).is_empty()).await;
    // The driver answers only when the daemon has been told to stop: the first of the two begins first.
    let (stopped, ()) = futures::future::join(first.stop(), async { world.driver().release() }).await;
    stopped.unwrap();
    // The publish was let end, and its result recorded, before the lease went.
    assert_eq!(world.publishes(&volume).len(), 1);
    world.attached(&attachment).await;

    let next = world.volume("next").await;
    world.attached(&world.attach(&next, &node).await).await;
    let led = world.lease_held(&name).await;
    assert!(holder(&led).unwrap().starts_with(&world.name("second")));
    assert_eq!(world.publishes(&volume).len(), 1, "the successor has nothing to repeat");
    second.stop().await.unwrap();
}

#[tokio::test]
async fn r50_a_driver_with_upper_case_letters_has_a_lease_and_is_served() {
    let world = World::with(|profile| profile.name = profile.name.replace("csi.example", "CSI.Example")).await;
    let _daemon = world.daemon(json!({})).await;
    let (_, _, attachment) = world.attached_anew().await;
    world.detached(&attachment).await;
}

#[tokio::test]
async fn r42_leases_carry_the_labels_that_are_asked_for_and_none_otherwise() {
    let world = World::new().await;
    let name = csi_attacher::lease(world.driver_name());
    let labels = json!({ "leaderElection": { "labels": { "team": "storage" } } });
    let daemon = world.daemon_on("labelled", labels).await;
    until_some(world.leases(), &name, "labelled", |it: Option<&Lease>| {
        it.and_then(|it| it.metadata.labels.as_ref()).is_some_and(|labels| labels["team"] == "storage")
    })
    .await;
    daemon.stop().await.unwrap();

    let world = World::new().await;
    let name = csi_attacher::lease(world.driver_name());
    let _daemon = world.daemon(json!({})).await;
    let lease = world.lease_held(&name).await;
    assert_eq!(lease.metadata.labels.unwrap_or_default().len(), 0);
}

#[tokio::test]
async fn without_election_a_daemon_serves_at_once() {
    let (world, _daemon) = World::with_daemon(json!({ "leaderElection": { "enabled": false } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::fail(Code::Aborted, "busy")).once());
    world.attached(&world.attach(&volume, &node).await).await;
    let name = csi_attacher::lease(world.driver_name());
    assert!(world.leases().get_opt(&name).await.unwrap().is_none());
}
