//! Volumes that are not healthy, on a server that does not store the health of claims: what Events tell of them.

use csi_control_plane::csi::ControllerRpc;
use csi_control_plane::roles::health_monitor::names::{self, ABNORMAL, NORMAL};
use csi_control_plane::sandbox::driver::{Method, Profile};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::json;

use crate::monitoring::{DEGRADED, TORN, count, monitor};
use crate::supplier::{figure, says};
use crate::world::World;

/// A driver of CSI 1.13 that is asked for each volume: it has no list of those that are not healthy.
fn asked(profile: &mut Profile) {
    *profile = profile.clone().with_volume_health().without(ControllerRpc::ListVolumeHealth);
}

#[tokio::test]
async fn h1_h7_h8_what_is_wrong_is_told_at_once_and_that_all_is_well_only_after_it() {
    let world = World::with_rpc(ControllerRpc::ListVolumes, false).await;
    let ((ill, volume), (well, other)) = (world.monitored("ill").await, world.monitored("well").await);
    world.ails(&volume, &[DEGRADED]);
    let daemon = world.daemon(monitor(json!({}))).await;
    let told = world.told_of(&ill, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    assert!(says(&told[0], ABNORMAL, "one path of two"), "the driver's words: {told:#?}");
    let component = told[0].source.as_ref().and_then(|it| it.component.clone());
    assert_eq!(component, Some(names::event_source(world.driver_name())));
    let status = world.status(&daemon).await;
    let role = status["roles"].as_array().unwrap().iter().find(|role| role["name"] == "healthMonitor").unwrap();
    assert_eq!(role["lease"], format!("kube-system/{}", names::lease(world.driver_name())));
    assert_eq!(role["facts"][0], json!({ "name": "source", "value": "ControllerGetVolume" }));
    world.ails(&volume, &[]);
    let told = world.told_of(&ill, "all is well again", |events| count(events, NORMAL) == 1).await;
    assert!(told.iter().any(|it| says(it, NORMAL, "The Volume returns to the healthy state")), "{told:#?}");
    world.asked_again(Method::ControllerGetVolume, &volume, 3).await;
    world.asked_again(Method::ControllerGetVolume, &other, 3).await;
    daemon.stop().await.unwrap();
    assert_eq!(world.told_of(&ill, "no more", |_| true).await.len(), 2);
    // The only Event in the cluster could be of another world.
    let events = world.namespaced::<Event>().list(&ListParams::default()).await.unwrap();
    let of_well = events.items.iter().filter(|it| it.involved_object.name.as_deref() == Some(&well)).count();
    assert_eq!(of_well, 0, "nothing was wrong with it");
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn h12_a_claim_that_is_bound_later_is_asked_for_at_once() {
    let world = World::with(asked).await;
    let (_, first) = world.monitored("first").await;
    let volume = world.name("late-pv");
    let claim = world.claim("late", "", json!({ "spec": { "volumeName": volume } })).await;
    world.volume_of(&claim, "late-pv", json!({})).await;
    world.ails(&volume, &[DEGRADED]);
    // Nobody waits for the second turn.
    let _daemon = world.daemon(monitor(json!({ "interval": "1h" }))).await;
    world.asked_again(Method::ControllerGetVolumeHealth, &first, 1).await;
    assert!(world.calls(Method::ControllerGetVolumeHealth, &volume).is_empty(), "it is not bound yet");
    world.bind(&claim, &volume).await;
    let told = world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    assert!(says(&told[0], ABNORMAL, "Degraded (PathLost): one path of two"), "{told:#?}");
}

#[tokio::test]
async fn h16_a_server_that_drops_the_field_is_tried_once_and_events_tell_what_is_wrong() {
    let world = World::with(asked).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED, TORN]);
    let daemon = world.daemon(monitor(json!({}))).await;
    let told = world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    let text = "DataLoss (Torn): block 7; Degraded (PathLost): one path of two";
    assert!(says(&told[0], ABNORMAL, text), "{told:#?}");
    world.asked_again(Method::ControllerGetVolumeHealth, &volume, 5).await;
    let dropped = "csi_volume_health_status_writes_dropped_total";
    assert_eq!(figure(&world.metrics(&daemon).await, dropped, &[]), Some(1.0), "and not again within an hour");
    let labels = [&*format!("persistentvolumeclaim=\"{claim}\""), "status=\"DataLoss\""];
    world.measures(&daemon, "csi_controller_volume_health_status", &labels, 1.0).await;
    world.ails(&volume, &[]);
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
    world.measures(&daemon, "csi_controller_volume_health_status", &labels, 0.0).await;
}

#[tokio::test]
async fn h24_the_claims_of_two_volumes_with_one_handle_are_told_by_one_answer() {
    let world = World::with(asked).await;
    let (one, volume) = world.monitored("one").await;
    let twin = world.name("twin-pv");
    let other = world.claim("other", "", json!({ "spec": { "volumeName": twin } })).await;
    let handle = world.handle(&volume);
    world.volume_of(&other, "twin-pv", json!({ "csi": { "volumeHandle": handle } })).await;
    world.bind(&other, &twin).await;
    world.ails(&volume, &[DEGRADED]);
    let _daemon = world.daemon(monitor(json!({ "interval": "1h" }))).await;
    for claim in [&one, &other] {
        world.told_of(claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    }
    assert_eq!(world.calls(Method::ControllerGetVolumeHealth, &volume).len(), 1);
}

#[tokio::test]
async fn h2_h25_the_next_leader_repeats_nothing_and_tells_the_end_of_what_the_last_one_told() {
    let world = World::with_rpc(ControllerRpc::ListVolumes, false).await;
    let (claim, volume) = world.monitored("claim").await;
    world.ails(&volume, &[DEGRADED]);
    let first = world.daemon_on("first", monitor(json!({}))).await;
    world.told_of(&claim, "something is wrong", |events| count(events, ABNORMAL) == 1).await;
    let second = world.daemon_on("second", monitor(json!({}))).await;
    first.stop().await.unwrap();
    let lease = names::lease(world.driver_name());
    world.lease_held_by(&lease, "the second leads", |it| it.starts_with(&world.name("second"))).await;
    world.asked_again(Method::ControllerGetVolume, &volume, 3).await;
    let told = world.told_of(&claim, "as before", |_| true).await;
    assert_eq!(told.iter().map(|it| it.count.unwrap_or(1)).sum::<i32>(), 1, "told once: {told:#?}");
    second.stop().await.unwrap();
    // It is repaired while nobody looks.
    world.ails(&volume, &[]);
    let _third = world.daemon_on("third", monitor(json!({}))).await;
    world.told_of(&claim, "all is well again", |events| count(events, NORMAL) == 1).await;
}
