//! Snapshots that could be lost between the driver and the API, and are not: answers that never come, names that are in
//! use, objects that are removed, configurations and classes that change in the middle.

use std::time::Duration;

use csi_control_plane::csi::ControllerRpc as Rpc;
use csi_control_plane::roles::snapshotter::names;
use csi_control_plane::sandbox::driver::{Action, Lie, Method};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use tonic::Code;

use crate::objects::config_with;
use crate::snapshotting::{
    BEGUN, BOUND, CLASS, CONTENT, Cut, DELETED, INTENT, NOBODY, SNAPSHOT, annotation, cutting, error_in, handle_in,
    has_finalizer, is_begun, is_done, slow, snapshotter, unanswered,
};
use crate::supplier::says;
use crate::world::{PATIENCE, World, settled};

#[tokio::test]
async fn s31_l4_a_name_that_is_taken_is_not_let_go_of_after_an_answer_that_never_came() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    world.driver().inject(unanswered().once());
    world.driver().inject(cutting(Action::fail(Code::AlreadyExists, "of another size")));
    let cut = world.cut_anew("cut").await;
    world.content_until(&cut.content, "told", |it| error_in(it).contains("of another size")).await;
    world.delete_snapshot_and_see(&cut).await;
    let asked = world.cuts(&cut).len();
    world.cut_times(&cut, asked + 1).await;
    let content = world.look(CONTENT, &cut.content).await;
    assert!(has_finalizer(&content, BOUND) && is_begun(&content) && world.deletions().is_empty());
    world.driver().clear_faults();
    world.cut_gone(&cut).await;
    world.assert_no_snapshot_left().await;
}

impl World {
    /// Two contents of two owners and volumes, whose snapshots have the same name for the driver by `short_names`.
    pub(crate) async fn contents_of_one_name(&self) -> [String; 2] {
        let class = self.snapshot_class("class", json!({})).await;
        let content = async |short: &'static str, owner: &str| {
            let source = self.source(&format!("{short}-source")).await;
            let change = json!({ "metadata": { "finalizers": [BOUND] },
                "spec": { "volumeSnapshotClassName": class, "volumeSnapshotRef": { "uid": owner } } });
            self.content_by_hand(short, json!({ "volumeHandle": source.handle }), change).await
        };
        [content("one", NOBODY).await, content("other", "00000000-0000-0000-0000-000000000002").await]
    }

    /// A section by which snapshots are named after eight digits of their owners' uids.
    pub(crate) fn short_names(&self) -> Value {
        json!({ "snapshotNamePrefix": self.name("s"), "snapshotNameUuidLength": 8 })
    }

    /// Waits until a content is told whose name it has, with nothing of a request on it, and asserts that the driver was asked for one.
    pub(crate) async fn told_whose_name(&self, content: &str, whose: &str) {
        let told = |it: &Value| error_in(it).contains(whose) && !is_begun(it) && annotation(it, INTENT).is_none();
        self.content_until(content, "told whose name it has", told).await;
        assert_eq!(self.driver().calls_of(Method::CreateSnapshot).len(), 1);
    }
}

#[tokio::test]
async fn of_two_snapshots_of_one_name_the_second_is_asked_for_once_the_first_is_gone() {
    let world = World::snapshotting(|_| {}).await;
    let mut contents = world.contents_of_one_name().await;
    let _daemon = world.snapshotter(world.short_names()).await;
    let first = settled("one is ready", PATIENCE, async || {
        let [one, other] = [world.look(CONTENT, &contents[0]).await, world.look(CONTENT, &contents[1]).await];
        [&one, &other].into_iter().position(is_done).ok_or_else(|| format!("{one:#} {other:#}"))
    })
    .await;
    contents.rotate_left(first);
    let [first, second] = contents;
    world.told_whose_name(&second, &first).await;
    world.edit(CONTENT, &first, json!({ "metadata": { "annotations": { DELETED: "yes" } } })).await;
    world.delete_installed(CONTENT, &first).await;
    world.away(CONTENT, &first).await;
    world.content_until(&second, "ready", is_done).await;
    assert_eq!(world.deletions().len(), 1);
    world.assert_no_snapshot_leaked().await;
}

#[tokio::test]
async fn s36_a_driver_that_dies_while_it_cuts_is_asked_again_and_has_one_snapshot() {
    for action in [
        Action::Crash { down: Duration::from_millis(300) },
        Action::DoneButCrash { down: Duration::from_millis(300) },
        Action::AnswerThenCrash { down: Duration::from_millis(300) },
    ] {
        let (world, daemon) = World::with_snapshotter(json!({})).await;
        let lease = names::lease(world.driver_name());
        let term = async || {
            let spec = world.lease_held(&lease).await.spec.unwrap();
            (spec.holder_identity, spec.acquire_time, spec.lease_transitions)
        };
        let before = term().await;
        world.driver().inject(cutting(action.clone()).once());
        let cut = world.cut_anew("cut").await;
        world.ready(&cut).await;
        assert_eq!(world.driver().state().snapshots().len(), 1, "{action:?}");
        assert!(!daemon.has_ended());
        assert_eq!(term().await, before, "the Lease is kept");
        world.assert_no_snapshot_leaked().await;
    }
}

#[tokio::test]
async fn s41_l6_what_was_asked_is_asked_again_whatever_configuration_and_class_say_by_now() {
    let (world, daemon) = World::with_snapshotter(json!({})).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({"parameters": {"kind": "fast"}})).await;
    world.driver().inject(unanswered());
    let cut = world.cut("cut", &source, &class).await;
    world.cut_times(&cut, 1).await;
    let other = snapshotter(json!({"snapshotNamePrefix": "other", "snapshotNameUuidLength": 8}));
    daemon.configure(&config_with(other).to_string());
    world.shows(&daemon, "the new configuration", |status| status["configuration"]["changes"] == 1).await;
    world.delete_installed(CLASS, &class).await;
    let asked = world.cuts(&cut).len();
    world.cut_times(&cut, asked + 1).await;
    world.snapshot_class("class", json!({"parameters": {"kind": "slow"}})).await;
    let asked = world.cuts(&cut).len();
    world.cut_times(&cut, asked + 1).await;
    world.driver().clear_faults();
    world.ready(&cut).await;
    let calls = world.cuts(&cut);
    assert!(calls.iter().all(|call| call.cut == calls[0].cut), "{calls:#?}");
    assert_eq!(world.driver().state().snapshots().len(), 1);
    world.assert_no_snapshot_leaked().await;
    // The next one is cut by what they say now.
    let next = world.cut("next", &source, &class).await;
    world.look_until(SNAPSHOT, &next.snapshot, "ready", crate::snapshotting::is_ready).await;
    let name = format!("other-{}", &next.uid.replace('-', "")[..8]);
    assert_eq!(world.driver().cuts_of(&name)[0].cut.as_ref().unwrap().parameters["kind"], "slow");
}

#[tokio::test]
async fn s41_what_was_asked_is_asked_again_by_a_successor_without_the_class() {
    for is_deleted in [false, true] {
        let world = World::snapshotting(|_| {}).await;
        let first = world.daemon_on("first", snapshotter(json!({}))).await;
        let source = world.source("source").await;
        let class = world.snapshot_class("class", json!({"parameters": {"kind": "fast"}})).await;
        world.driver().inject(unanswered());
        let cut = world.cut("cut", &source, &class).await;
        world.cut_times(&cut, 1).await;
        first.stop().await.unwrap();
        world.delete_installed(CLASS, &class).await;
        if is_deleted {
            world.delete_snapshot_and_see(&cut).await;
        }
        world.driver().clear_faults();
        let before = world.cuts(&cut);
        let other = snapshotter(json!({"snapshotNamePrefix": "other"}));
        let _second = world.daemon_on("second", other).await;
        world.cut_times(&cut, before.len() + 1).await;
        if is_deleted {
            world.cut_gone(&cut).await;
            world.assert_no_snapshot_left().await;
        } else {
            // Without the class, the snapshot-controller writes nothing on the snapshot.
            world.content_until(&cut.content, "ready", crate::snapshotting::is_ready).await;
            world.assert_no_snapshot_leaked().await;
        }
        assert_eq!(world.cuts(&cut)[before.len()].cut, before[0].cut);
    }
}

#[tokio::test]
async fn l7_a_secret_that_goes_while_an_answer_is_owed_is_waited_for() {
    let (world, _daemon) = World::with_snapshotter(json!({"deleteWithoutSecret": true})).await;
    let (secret, class) = world.secretive_class().await;
    let source = world.source("source").await;
    world.driver().inject(unanswered());
    let cut = world.cut("cut", &source, &class).await;
    world.cut_times(&cut, 1).await;
    let secrets = world.namespaced::<k8s_openapi::api::core::v1::Secret>();
    secrets.delete(&secret, &kube::api::DeleteParams::default()).await.unwrap();
    world.delete_snapshot_and_see(&cut).await;
    world.told_on(CONTENT, &cut.content, "SnapshotCreationFailed", "credentials").await;
    assert!(is_begun(&world.look(CONTENT, &cut.content).await) && world.deletions().is_empty());
    world.driver().clear_faults();
    world.secret(&secret, &[("password", b"hunter2")]).await;
    world.cut_gone(&cut).await;
    assert!(world.cuts(&cut).iter().all(|call| call.secrets), "it is asked as it was asked");
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn a_request_that_would_be_another_by_now_is_not_ended_by_a_refusal_of_the_old_one() {
    let world = World::snapshotting(|_| {}).await;
    let first = world.daemon_on("first", snapshotter(slow())).await;
    let source = world.source("source").await;
    // Too long to be recorded on the content.
    let long = json!({"parameters": {"kind": "x".repeat(70_000)}});
    let class = world.snapshot_class("class", long.clone()).await;
    world.driver().inject(unanswered());
    let cut = world.cut("cut", &source, &class).await;
    world.content_until(&cut.content, "told", |it| !error_in(it).is_empty()).await;
    // The process's memory goes with it.
    first.stop().await.unwrap();
    world.delete_installed(CLASS, &class).await;
    world.driver().clear_faults();
    world.driver().inject(cutting(Action::fail(Code::InvalidArgument, "no such kind")));
    world.snapshot_class("class", json!({"parameters": {"kind": "slow"}})).await;
    let _second = world.daemon_on("second", snapshotter(json!({}))).await;
    world.delete_snapshot_and_see(&cut).await;
    world.content_until(&cut.content, "refused", |it| error_in(it).contains("no such kind")).await;
    assert!(is_begun(&world.look(CONTENT, &cut.content).await), "the refusal says nothing of what was asked first");
    world.delete_installed(CLASS, &class).await;
    world.driver().clear_faults();
    world.snapshot_class("class", long).await;
    world.cut_gone(&cut).await;
    assert_eq!(world.deletions().len(), 1);
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn l8_s49_another_id_for_a_name_that_has_none_yet_is_recorded_and_the_one_after_it_told() {
    let world = World::snapshotting(|profile| profile.snapshots_wait = true).await;
    let _daemon = world.snapshotter(json!({})).await;
    world.driver().inject(cutting(Action::Lie(Lie::SnapshotId("first".to_owned()))).once());
    let cut = world.cut_anew("cut").await;
    let content = world.content_until(&cut.content, "told", |it| !error_in(it).is_empty()).await;
    assert_eq!(handle_in(&content), Some("first"));
    let (second, _) = world.driver().snapshot_named(&cut.name).unwrap();
    assert!(error_in(&content).contains(&second), "{}", error_in(&content));
    assert_eq!(world.deletions(), Vec::<String>::new());
}

#[tokio::test]
async fn s52_l9_a_content_that_is_taken_away_during_the_call_and_made_again_is_cut_and_not_lost() {
    let (world, daemon) = World::with_snapshotter(json!({})).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    world.driver().inject(cutting(Action::Hold).once());
    let cut = world.cut("cut", &source, &class).await;
    world.cut_times(&cut, 1).await;
    // A user removes the finalizer, and the snapshot-controller creates another content: the snapshot is still wanted.
    world.delete_installed(CONTENT, &cut.content).await;
    let first = world.look(CONTENT, &cut.content).await["metadata"]["uid"].clone();
    world.edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
    world.content_until(&cut.content, "another", |it| it["metadata"]["uid"] != first).await;
    world.driver().release();
    let namesake = world.ready(&cut).await;
    let (handle, made) = world.driver().snapshot_named(&cut.name).unwrap();
    assert_eq!((handle_in(&namesake), made.source), (Some(handle.as_str()), source.handle));
    world.assert_no_snapshot_leaked().await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn l9_a_content_that_is_taken_away_for_good_has_its_snapshot_deleted_if_that_was_its_policy() {
    for policy in ["Delete", "Retain"] {
        let (world, daemon) = World::with_snapshotter(json!({})).await;
        world.driver().inject(cutting(Action::Hold).once());
        let source = world.source("source").await;
        let class = world.snapshot_class("class", json!({ "deletionPolicy": policy })).await;
        let cut = world.cut("cut", &source, &class).await;
        world.cut_times(&cut, 1).await;
        world.delete_snapshot(&cut).await;
        if policy == "Retain" {
            world.away(SNAPSHOT, &cut.snapshot).await;
            world.delete_installed(CONTENT, &cut.content).await;
        }
        world.content_until(&cut.content, "to go", crate::snapshotting::is_going).await;
        world.edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
        world.away(CONTENT, &cut.content).await;
        world.driver().release();
        let orphaned = "csi_control_plane_snapshots_orphaned_total";
        let counted = |metrics: &str| crate::supplier::figure(metrics, orphaned, &[]).is_some_and(|it| it >= 1.0);
        world.metrics_until(&daemon, "counted", counted).await;
        let left = usize::from(policy == "Retain");
        world.driver_until("deleted or left", |driver| driver.state().snapshots().len() == left).await;
        assert_eq!(world.deletions().len(), 1 - left, "{policy}");
    }
}

/// A snapshot whose first call has no answer, and whose second one is refused; and the uid of its content.
async fn refused_after_all(world: &World) -> (Cut, String) {
    world.driver().inject(unanswered().once());
    world.driver().inject(cutting(Action::fail(Code::Internal, "exists already")));
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 2).await;
    let uid = world.look(CONTENT, &cut.content).await["metadata"]["uid"].as_str().unwrap().to_owned();
    (cut, uid)
}

/// Waits until the content of this uid tells that this may be left, and asserts that it is.
async fn is_told_and_left(world: &World, uid: &str, left: &str) {
    let told = |events: &[Event]| events.iter().any(|event| says(event, "SnapshotMaybeLeaked", left));
    world.events_until(uid, "what may be left", told).await;
    assert_eq!((world.deletions(), world.driver().state().snapshots().len()), (Vec::new(), 1));
}

#[tokio::test]
async fn l12_what_may_be_left_at_the_driver_after_a_refusal_is_named_and_not_deleted() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let (cut, uid) = refused_after_all(&world).await;
    let (left, _) = world.driver().snapshot_named(&cut.name).unwrap();
    world.delete_snapshot_and_wait(&cut).await;
    is_told_and_left(&world, &uid, &left).await;
}

#[tokio::test]
async fn l12_of_a_driver_that_lists_nothing_the_name_of_what_may_be_left_is_told() {
    let world = World::snapshotting(|profile| *profile = profile.clone().without(Rpc::ListSnapshots)).await;
    let _daemon = world.snapshotter(json!({})).await;
    let (cut, uid) = refused_after_all(&world).await;
    world.delete_snapshot_and_wait(&cut).await;
    is_told_and_left(&world, &uid, &cut.name).await;
}

#[tokio::test]
async fn s43_a_snapshot_of_which_no_answer_has_the_id_keeps_no_content_and_what_may_be_left_is_named() {
    for lie in [Lie::NoSnapshot, Lie::EmptySnapshotId] {
        let (world, _daemon) = World::with_snapshotter(json!({})).await;
        world.driver().inject(cutting(Action::Lie(lie)));
        let cut = world.cut_anew("cut").await;
        world.content_until(&cut.content, "told why", |it| error_in(it).contains("the driver's answer has no ")).await;
        let uid = world.look(CONTENT, &cut.content).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let (left, _) = world.driver().snapshot_named(&cut.name).unwrap();
        world.delete_snapshot_and_wait(&cut).await;
        is_told_and_left(&world, &uid, &left).await;
    }
}

#[tokio::test]
async fn a_mark_that_a_person_takes_off_ends_the_story() {
    let world = World::snapshotting(|_| {}).await;
    let first = world.daemon_on("first", snapshotter(slow())).await;
    world.driver().inject(cutting(Action::fail(Code::DeadlineExceeded, "slow")));
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    world.content_until(&cut.content, "told", |it| !error_in(it).is_empty()).await;
    first.stop().await.unwrap();
    world.edit(CONTENT, &cut.content, json!({"metadata": {"annotations": {BEGUN: null, INTENT: null}}})).await;
    world.delete_snapshot_and_see(&cut).await;
    let _second = world.daemon_on("second", snapshotter(slow())).await;
    world.cut_gone(&cut).await;
    assert!(world.deletions().is_empty());
}

#[tokio::test]
async fn a_mark_of_the_go_sidecar_is_honoured() {
    let world = World::snapshotting(|_| {}).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let cut = world.cut("cut", &source, &class).await;
    world.content_until(&cut.content, "there", |_| true).await;
    world.edit(CONTENT, &cut.content, json!({"metadata": {"annotations": {BEGUN: "yes"}}})).await;
    world.driver().cut_snapshot(&cut.name, &source.handle).unwrap();
    world.delete_snapshot_and_see(&cut).await;
    let _daemon = world.snapshotter(json!({})).await;
    world.cut_gone(&cut).await;
    assert_eq!((world.cuts(&cut).len(), world.deletions().len()), (1, 1));
    world.assert_no_snapshot_left().await;
}
