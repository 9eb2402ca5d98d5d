//! Beside csi-snapshotter, and with the real snapshot-controller: each takes over from the other while the driver owes an answer, and
//! in the middle of a burst.

use csi_control_plane::roles::snapshotter::names;
use serde_json::json;

use crate::cluster::sidecar;
use crate::programs::Program;
use crate::snapshotting::{BOUND, Cut, has_finalizer, is_begun, is_ready, unanswered};
use crate::world::World;

/// csi-snapshotter goes on with a deletion that came during its call only at a resync (snapshotter spec 4.1, row 7).
const OFTEN: &str = "--resync-period=1s";
/// How many snapshots a burst has.
const BURST: usize = 24;

/// Starts csi-snapshotter beside our daemons, with the Lease timing of the scenarios, and `more` flags.
pub(crate) fn csi_snapshotter(world: &World, more: &[&str]) -> Program {
    let its_own = ["--retry-interval-start=50ms", "--kube-api-qps=100", "--kube-api-burst=100"];
    let its_own = its_own.iter().chain(more).map(|&flag| flag.to_owned());
    let flags: Vec<String> = sidecar::flags(world).into_iter().chain(its_own).collect();
    sidecar::start(world, "csi-snapshotter", &flags)
}

/// Waits until the Lease is held by the daemon, or by csi-snapshotter.
pub(crate) async fn led_by(world: &World, ours: bool) {
    let daemon = world.name("daemon");
    let what = if ours { "held by the daemon" } else { "held by csi-snapshotter" };
    let holds = |holder: &str| holder.starts_with(&daemon) == ours;
    world.lease_held_by(&names::lease(world.driver_name()), what, holds).await;
}

/// The driver got the same request each time.
fn assert_asked_alike(world: &World, cut: &Cut) {
    let calls = world.cuts(cut);
    assert!(calls.len() > 1 && calls.iter().all(|call| call.cut == calls[0].cut), "{calls:#?}");
}

#[tokio::test]
async fn a_snapshot_that_one_has_begun_is_finished_by_the_other_with_the_same_request() {
    let world = World::snapshotting(|_| {}).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({"parameters": {"tier": "fast"}})).await;

    let theirs = csi_snapshotter(&world, &[]);
    led_by(&world, false).await;
    world.driver().inject(unanswered());
    let first = world.cut("first", &source, &class).await;
    world.cut_times(&first, 1).await;
    world.content_until(&first.content, "begun", is_begun).await;
    theirs.stop().await;
    world.driver().clear_faults();
    let daemon = world.snapshotter(json!({})).await;
    led_by(&world, true).await;
    let content = world.ready(&first).await;
    assert!(has_finalizer(&world.look("VolumeSnapshotContent", &first.content).await, BOUND), "{content:#}");
    assert_asked_alike(&world, &first);

    // And back; the snapshot is deleted while no process leads.
    world.driver().inject(unanswered());
    let second = world.cut("second", &source, &class).await;
    world.cut_times(&second, 1).await;
    daemon.stop().await.unwrap();
    world.delete_snapshot_and_see(&second).await;
    world.driver().clear_faults();
    let theirs = csi_snapshotter(&world, &[OFTEN]);
    led_by(&world, false).await;
    world.cut_gone(&second).await;
    assert_asked_alike(&world, &second);
    world.delete_snapshot_and_wait(&first).await;
    theirs.stop().await;
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn a_burst_of_snapshots_passes_from_one_to_the_other_and_back_and_nothing_leaks() {
    let world = World::snapshotting(|_| {}).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let theirs = csi_snapshotter(&world, &[]);
    led_by(&world, false).await;
    let mut cuts = Vec::new();
    for number in 0..BURST {
        cuts.push(world.cut(&format!("cut-{number}"), &source, &class).await);
    }
    world.content_until(&cuts[BURST / 4].content, "ready", is_ready).await;
    theirs.stop().await;
    let daemon = world.snapshotter(json!({})).await;
    led_by(&world, true).await;
    for cut in &cuts {
        world.ready(cut).await;
    }
    world.assert_no_snapshot_leaked().await;

    for cut in &cuts {
        world.delete_snapshot(cut).await;
    }
    world.cut_gone(&cuts[0]).await;
    daemon.stop().await.unwrap();
    let theirs = csi_snapshotter(&world, &[OFTEN]);
    for cut in &cuts {
        world.cut_gone(cut).await;
    }
    theirs.stop().await;
    world.assert_no_snapshot_left().await;
}
