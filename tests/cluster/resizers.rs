//! Beside csi-resizer: each takes over from the other in the middle of an expansion and of a modification.

use std::sync::Arc;

use csi_control_plane::roles::resizer::names;
use csi_control_plane::sandbox::driver::{Action, Call};
use serde_json::json;
use tonic::Code;

use crate::cluster::sidecar;
use crate::programs::Program;
use crate::resizing::{ALLOCATED, STATE, at, expanding, modifying};
use crate::world::World;

/// Starts csi-resizer beside our daemons, with the Lease timing of the scenarios, and `more` flags.
pub(crate) fn csi_resizer(world: &World, more: &[&str]) -> Program {
    let its_own = ["--retry-interval-start=50ms", "--kube-api-qps=100", "--kube-api-burst=100"];
    let its_own = its_own.iter().chain(more).map(|&flag| flag.to_owned());
    let flags: Vec<String> = sidecar::flags(world).into_iter().chain(its_own).collect();
    sidecar::start(world, "csi-resizer", &flags)
}

/// Waits until the Lease is held by the daemon, or by csi-resizer.
async fn led_by(world: &World, ours: bool) {
    let daemon = world.name("daemon");
    let what = if ours { "held by the daemon" } else { "held by csi-resizer" };
    let holds = |holder: &str| holder.starts_with(&daemon) == ours;
    world.lease_held_by(&names::lease(world.driver_name()), what, holds).await;
}

fn connections(calls: &[Arc<Call>]) -> Vec<u64> {
    let mut connections: Vec<u64> = calls.iter().map(|call| call.connection).collect();
    connections.dedup();
    connections
}

#[tokio::test]
async fn the_daemon_takes_over_from_csi_resizer_in_the_middle_of_both_jobs_and_hands_back() {
    let world = World::supplied(|_| {}).await;
    let (claim, volume) = world.sizable_device("claim").await;
    let (first, second) = (world.attributes("first", "1").await, world.attributes("second", "2").await);
    let aborted = || Action::fail(Code::Aborted, "busy");

    // It begins both, and comes to no end.
    let theirs = csi_resizer(&world, &[]);
    led_by(&world, false).await;
    world.driver().inject(expanding(aborted()));
    world.driver().inject(modifying(aborted()));
    world.ask_for(&claim, "2Gi").await;
    world.ask_for_class(&claim, &first).await;
    world.expanded_times(1).await;
    world.modified_times(1).await;
    theirs.stop().await;
    let before = (world.expansions().len(), world.modifications().len());
    // The wishes change while nobody leads: what may still be running comes first.
    world.ask_for(&claim, "3Gi").await;
    world.ask_for_class(&claim, &second).await;
    let daemon = world.resizer(json!({})).await;
    led_by(&world, true).await;
    world.expanded_times(before.0 + 1).await;
    world.modified_times(before.1 + 1).await;
    assert!(world.sizes_asked().iter().all(|size| (*size - 2.0).abs() < 0.01), "{:?}", world.sizes_asked());
    assert!(world.modifications().iter().all(|asked| asked["iops"] == "1"), "{:?}", world.modifications());
    world.driver().clear_faults();
    world.sized(&claim, "3Gi").await;
    world.classed(&claim, &second).await;
    assert_eq!(world.recorded_size(&volume).await, "3Gi");
    assert_eq!(connections(&world.expansions()).len(), 2);

    // And back, also in the middle.
    world.driver().inject(expanding(aborted()));
    world.driver().inject(modifying(aborted()));
    world.ask_for(&claim, "4Gi").await;
    world.ask_for_class(&claim, &first).await;
    let begun = world.in_state(&claim, "ControllerResizeInProgress").await;
    assert_eq!(at(&begun, ALLOCATED), "4Gi");
    world.modify_state(&claim, "InProgress").await;
    daemon.stop().await.unwrap();
    world.driver().clear_faults();
    let theirs = csi_resizer(&world, &[]);
    led_by(&world, false).await;
    world.sized(&claim, "4Gi").await;
    world.classed(&claim, &first).await;
    theirs.stop().await;
    let done = world.claim_now(&claim).await;
    assert_eq!(at(&done, STATE), json!(null));
}

#[tokio::test]
async fn what_a_node_still_owes_is_left_to_it_by_whoever_leads() {
    let world = World::supplied(|_| {}).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    let theirs = csi_resizer(&world, &[]);
    led_by(&world, false).await;
    world.ask_for(&claim, "2Gi").await;
    world.in_state(&claim, "NodeResizePending").await;
    theirs.stop().await;
    let daemon = world.resizer(json!({})).await;
    led_by(&world, true).await;
    // Another claim shows that the daemon has looked.
    let (other, _) = world.sizable_device("other").await;
    world.ask_for(&other, "2Gi").await;
    world.sized(&other, "2Gi").await;
    assert_eq!(world.expansions().len(), 2, "one for each claim");
    world.kubelet_expands(&claim, &volume).await;
    world.sized(&claim, "2Gi").await;
    daemon.stop().await.unwrap();
}
