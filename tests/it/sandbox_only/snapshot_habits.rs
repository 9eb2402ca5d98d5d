//! The habits of the snapshot-controller that the snapshotter must survive.

use std::time::Duration;

use csi_control_plane::process::watch;
use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::faults::{Action, Fault};
use csi_control_plane::sandbox::driver::{self, Profile};
use serde_json::{Value, json};
use tonic::Code;

use super::snapshots::{content_patch, written};
use super::{api, by_daemon};
use crate::ground::Ground;
use crate::snapshotting::{
    BEGUN, BOUND, CONTENT, Cut, DELETED, INTENT, NOBODY, SNAPSHOT, THEIRS, annotation, cutting, handle_in,
    has_finalizer, is_begun, is_going, is_ready, unanswered,
};
use crate::world::World;
use crate::world::wait::asked;

/// A world whose snapshot-controller has these habits, which may be changed.
async fn with_habits(habits: SnapshotHabits) -> (World, watch::Sender<SnapshotHabits>) {
    let world = World::on(Ground::set, |_: &mut Profile| {}).await;
    world.install_snapshots().await;
    let habits = world.sandbox().testbed.start_actors_with_snapshots(habits);
    (world, habits)
}

#[tokio::test]
async fn s29_l1_a_content_has_its_finalizer_before_the_driver_is_asked() {
    let late = SnapshotHabits { finalizer_after: Duration::from_secs(3600), ..SnapshotHabits::default() };
    let (world, _habits) = with_habits(late).await;
    let _daemon = world.snapshotter(json!({})).await;
    world.driver().inject(cutting(driver::Action::Hold).once());
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    let content = world.look(CONTENT, &cut.content).await;
    assert!(has_finalizer(&content, BOUND) && is_begun(&content));
    assert!(annotation(&content, INTENT).is_some_and(|it| it.contains(&cut.name)));
    world.delete_snapshot_and_see(&cut).await;
    world.driver().release();
    world.cut_gone(&cut).await;
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s39_l2_a_mark_that_the_snapshot_controller_wipes_during_the_call_is_put_back_and_nothing_leaks() {
    for code in [None, Some(Code::DeadlineExceeded)] {
        let (world, habits) = with_habits(SnapshotHabits::default()).await;
        let _daemon = world.snapshotter(json!({})).await;
        let fault = if code.is_some() { unanswered() } else { cutting(driver::Action::Hold).once() };
        world.driver().inject(fault);
        let cut = world.cut_anew("cut").await;
        world.cut_times(&cut, 1).await;
        habits.send_modify(|it| (it.is_stale, it.deletes) = (true, false));
        world.delete_snapshot(&cut).await;
        let is_back =
            |it: &Value| annotation(it, DELETED).is_some() && is_begun(it) && annotation(it, INTENT).is_some();
        world.content_until(&cut.content, "marked again", is_back).await;
        habits.send_modify(|it| it.deletes = true);
        world.content_until(&cut.content, "to go", is_going).await;
        assert!(world.deletions().is_empty());
        world.driver().clear_faults();
        world.driver().release();
        world.cut_gone(&cut).await;
        assert_eq!(world.deletions().len(), 1, "{code:?}");
        world.assert_no_snapshot_left().await;
    }
}

#[tokio::test]
async fn s30_l3_a_deletion_that_is_asked_for_while_the_driver_fails_survives_our_writes() {
    let (world, habits) = with_habits(SnapshotHabits { deletes: false, ..SnapshotHabits::default() }).await;
    let _daemon = world.snapshotter(json!({})).await;
    world.driver().inject(cutting(driver::Action::fail(Code::Internal, "not now")));
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 2).await;
    // A write of all annotations as the daemon knows them would take this one off: no watch tells of it.
    let lag = api(&world).faults().hold_watches(by_daemon(&world).resource("volumesnapshotcontents"));
    world.delete_snapshot(&cut).await;
    world.content_until(&cut.content, "marked", |it| annotation(it, DELETED).is_some()).await;
    let asked = world.cuts(&cut).len();
    // Each failure puts the mark on and takes it off.
    world.cut_times(&cut, asked + 3).await;
    assert!(annotation(&world.look(CONTENT, &cut.content).await, DELETED).is_some());
    api(&world).faults().remove(lag);
    habits.send_modify(|it| it.deletes = true);
    world.cut_gone(&cut).await;
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s20_what_the_snapshot_controller_writes_at_the_same_time_is_no_failure() {
    for is_stale in [false, true] {
        let habits =
            SnapshotHabits { is_stale, finalizer_after: Duration::from_millis(5), ..SnapshotHabits::default() };
        let (world, _habits) = with_habits(habits).await;
        let _daemon = world.snapshotter(json!({})).await;
        let class = world.snapshot_class("class", json!({})).await;
        let mut cuts: Vec<Cut> = Vec::new();
        for number in 0..12 {
            let source = world.source(&format!("source-{number}")).await;
            cuts.push(world.cut(&format!("cut-{number}"), &source, &class).await);
        }
        for cut in &cuts {
            let content = world.ready(cut).await;
            assert!(has_finalizer(&content, BOUND));
            assert_eq!(world.told_reasons(CONTENT, &cut.content).await, Vec::<String>::new());
            assert_eq!(world.cuts(cut).len(), 1);
        }
        world.assert_no_snapshot_leaked().await;
    }
}

#[tokio::test]
async fn s38_a_finalizer_of_others_survives_ours() {
    let (world, habits) = with_habits(SnapshotHabits { works: true, ..SnapshotHabits::default() }).await;
    let _daemon = world.snapshotter(json!({})).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    habits.send_modify(|it| it.finalizer_after = Duration::from_secs(3600));
    // Their finalizer comes between what we have seen and what we write.
    let before = api(&world).faults().add(Fault::on(content_patch(&world, ""), Action::Hold));
    let cut = world.cut("cut", &source, &class).await;
    let held = async || (api(&world).faults().hits(before) > 0).then_some(());
    asked("our first patch", held).await;
    world
        .edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": [THEIRS], "annotations": {THEIRS: "x"}}}))
        .await;
    api(&world).faults().remove(before);
    let content = world.ready(&cut).await;
    assert!(has_finalizer(&content, THEIRS) && has_finalizer(&content, BOUND));
    assert_eq!(annotation(&content, THEIRS), Some("x"));
    assert!(
        written(&world).iter().any(|it| it == "patch 422"),
        "a failed test is one more look: {:?}",
        written(&world)
    );
    assert_eq!(world.told_reasons(CONTENT, &cut.content).await, Vec::<String>::new());
}

#[tokio::test]
async fn s52_the_answer_of_a_call_is_not_written_to_a_namesake_of_another_volume() {
    let (world, habits) = with_habits(SnapshotHabits::default()).await;
    let _daemon = world.snapshotter(json!({})).await;
    let (source, other) = (world.source("source").await, world.source("other").await);
    let class = world.snapshot_class("class", json!({})).await;
    world.driver().inject(cutting(driver::Action::Hold).once());
    let cut = world.cut("cut", &source, &class).await;
    world.cut_times(&cut, 1).await;
    habits.send_modify(|it| it.works = false);
    world.delete_installed(CONTENT, &cut.content).await;
    world.edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
    world.away(CONTENT, &cut.content).await;
    let namesake = json!({"metadata": {"name": cut.content}, "spec": {"driver": world.driver_name(),
        "deletionPolicy": "Delete", "source": {"volumeHandle": other.handle}, "volumeSnapshotClassName": class,
        "volumeSnapshotRef": {"namespace": "default", "name": "another", "uid": NOBODY}}});
    world.installed(CONTENT, namesake).await;
    world.driver().release();
    let namesake = world.content_until(&cut.content, "cut for itself", |it| is_ready(it) && !is_begun(it)).await;
    let made = world.driver().state().snapshots()[handle_in(&namesake).unwrap()].clone();
    assert_eq!(made.source, other.handle);
    world.driver_until("the other is deleted", |driver| driver.state().snapshots().len() == 1).await;
    assert_eq!(world.look(SNAPSHOT, &cut.snapshot).await["status"]["readyToUse"], false);
    assert!(annotation(&namesake, BEGUN).is_none());
}
