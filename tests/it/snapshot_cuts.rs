//! Snapshots that are cut: the calls to the driver, the writes, and what is repeated.

use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, GIB, Lie, Method};
use serde_json::{Value, json};
use tonic::Code;

use crate::snapshotting::{
    BEGUN, BOUND, CONTENT, DELETED, INTENT, NOBODY, SNAPSHOT, THEIRS, annotation, cutting, error_in, handle_in,
    has_finalizer, is_begun, is_ready, slow,
};
use crate::world::World;

#[tokio::test]
async fn s7_s21_s35_a_snapshot_is_cut_once_and_what_the_driver_made_is_recorded() {
    let (world, _daemon) = World::with_snapshotter(slow()).await;
    let lease = world.driver_name().to_lowercase().replace('.', "-");
    world.lease_held(&format!("external-snapshotter-leader-{lease}")).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({"parameters": {"kind": "fast"}})).await;
    let cut = world.cut("cut", &source, &class).await;
    let content = world.ready(&cut).await;
    let calls = world.cuts(&cut);
    let asked = calls[0].cut.clone().unwrap();
    assert_eq!((calls.len(), asked.source_volume_id.as_str(), asked.name.as_str()), (1, &*source.handle, &*cut.name));
    assert_eq!(asked.parameters, [("kind".to_owned(), "fast".to_owned())].into());
    let (handle, made) = world.driver().snapshot_named(&cut.name).unwrap();
    assert_eq!((handle_in(&content), &content["status"]["restoreSize"]), (Some(handle.as_str()), &json!(GIB)));
    assert_eq!(content["status"]["creationTime"].as_i64().map(i128::from), Some(made.created.as_nanosecond()));
    assert!(has_finalizer(&content, BOUND));
    assert_eq!(world.told_reasons(CONTENT, &cut.content).await, Vec::<String>::new(), "the snapshot-controller tells");
    world.another_is_ready("barrier").await;
    assert_eq!(world.cuts(&cut).len(), 1, "nothing of our own wakes it");
    world.assert_no_snapshot_leaked().await;
}

#[tokio::test]
async fn the_request_brings_names_secret_and_parameters_without_those_that_are_ours() {
    let (world, daemon) = World::with_snapshotter(json!({"extraCreateMetadata": true})).await;
    let secret = world.name("secret");
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let parameters = json!({"kind": "fast", "csiOld": "x",
        "csi.storage.k8s.io/snapshotter-secret-name": secret,
        "csi.storage.k8s.io/snapshotter-secret-namespace": "default"});
    let class = world.snapshot_class("class", json!({ "parameters": parameters })).await;
    let source = world.source("source").await;
    let cut = world.cut("cut", &source, &class).await;
    world.ready(&cut).await;
    let call = world.cuts(&cut).remove(0);
    let expected = [
        ("kind", "fast"),
        ("csiOld", "x"),
        ("csi.storage.k8s.io/volumesnapshot/name", &*cut.snapshot),
        ("csi.storage.k8s.io/volumesnapshot/namespace", "default"),
        ("csi.storage.k8s.io/volumesnapshotcontent/name", &*cut.content),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!((call.cut.clone().unwrap().parameters, call.secrets), (expected.into(), true));
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn s6_the_gaps_between_failures_grow_whatever_the_code() {
    for code in [Code::Internal, Code::DeadlineExceeded] {
        let world = World::snapshotting(|_| {}).await;
        let times = json!({"retry": {"initial": "100ms", "max": "60s", "infeasible": "60s"}});
        let _daemon = world.snapshotter(times).await;
        world.driver().inject(cutting(Action::fail(code, "not now")).times(4));
        let cut = world.cut_anew("cut").await;
        world.ready(&cut).await;
        let calls = world.cuts(&cut);
        assert_eq!(calls.len(), 5);
        for (number, pair) in calls.windows(2).enumerate() {
            let gap = pair[1].started.saturating_sub(pair[0].ended.unwrap());
            let least = Duration::from_millis(100) * 2_u32.pow(u32::try_from(number).unwrap());
            assert!(gap >= least, "{code:?}: gap {number} is {gap:?}");
        }
        assert_eq!(world.told_reasons(CONTENT, &cut.content).await, ["SnapshotCreationFailed"], "each failure once");
        world.assert_no_snapshot_leaked().await;
    }
}

#[tokio::test]
async fn s19_s32_a_failure_is_told_in_the_status_and_by_an_event_after_the_first_attempt() {
    for code in [Code::Internal, Code::ResourceExhausted, Code::DeadlineExceeded] {
        let (world, _daemon) = World::with_snapshotter(slow()).await;
        let source = world.source("source").await;
        let class = world.snapshot_class("class", json!({})).await;
        world.driver().inject(cutting(Action::fail(code, "the shelf is full")).once());
        let cut = world.cut("cut", &source, &class).await;
        let content = world.content_until(&cut.content, "told why", |it| !error_in(it).is_empty()).await;
        let name = csi_control_plane::sandbox::driver::code_name(code);
        let error = format!(
            "Failed to create snapshot: failed to take snapshot of the volume {}: \"rpc error: code = {name} desc = the \
             shelf is full\"",
            source.handle
        );
        assert_eq!(error_in(&content), error);
        assert_eq!((&content["status"]["readyToUse"], handle_in(&content)), (&json!(false), None));
        assert_eq!(is_begun(&content), code != Code::Internal, "only a last word takes the mark off");
        world.told_on(CONTENT, &cut.content, "SnapshotCreationFailed", &error).await;
        world.told_on(SNAPSHOT, &cut.snapshot, "SnapshotCreationFailed", "the shelf is full").await;
        world.look_until(SNAPSHOT, &cut.snapshot, "the user sees it", |it| error_in(it) == error).await;
        world.another_is_ready("barrier").await;
        assert_eq!(world.cuts(&cut).len(), 1, "the failure's own writes wake nothing");
    }
}

#[tokio::test]
async fn s15_a_size_that_is_none_is_not_recorded() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    for (short, size) in [("none", 0), ("negative", -5)] {
        world.driver().inject(cutting(Action::Lie(Lie::Size(size))).once());
        let cut = world.cut_anew(short).await;
        let content = world.ready(&cut).await;
        assert_eq!(content["status"].get("restoreSize"), None, "{size}");
    }
}

#[tokio::test]
async fn s37_what_is_wrong_before_the_driver_is_asked_leaves_nothing_behind() {
    let (world, _daemon) = World::with_snapshotter(slow()).await;
    let source = world.source("source").await;
    let unknown = json!({"parameters": {"csi.storage.k8s.io/no-such-key": "x"}});
    let unknown = world.snapshot_class("unknown", unknown).await;
    let secret = json!({"parameters": {"csi.storage.k8s.io/snapshotter-secret-name": world.name("no-such-secret"),
        "csi.storage.k8s.io/snapshotter-secret-namespace": "default"}});
    let secret = world.snapshot_class("secret", secret).await;
    for (class, what) in [(&unknown, "no-such-key"), (&secret, "credentials")] {
        let cut = world.cut(what, &source, class).await;
        let content = world.content_until(&cut.content, "told why", |it| error_in(it).contains(what)).await;
        assert!(!is_begun(&content) && annotation(&content, INTENT).is_none(), "{what}");
        world.delete_snapshot_and_wait(&cut).await;
    }
    let classless = json!({"spec": {"volumeSnapshotClassName": world.name("no-such-class"),
        "volumeSnapshotRef": {"uid": NOBODY}}});
    let name = world.content_by_hand("classless", json!({"volumeHandle": source.handle}), classless).await;
    let content = world.content_until(&name, "told why", |it| error_in(it).contains("not found")).await;
    assert!(!is_begun(&content) && annotation(&content, INTENT).is_none());
    world.edit(CONTENT, &name, json!({"metadata": {"annotations": {DELETED: "yes"}}})).await;
    world.delete_installed(CONTENT, &name).await;
    world.away(CONTENT, &name).await;
    assert!(world.driver().calls_of(Method::CreateSnapshot).is_empty() && world.deletions().is_empty());
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s48_a_class_or_a_secret_that_comes_later_is_enough() {
    let world = World::snapshotting(|_| {}).await;
    // This test does not wait for a back-off of five minutes.
    let _daemon = world.snapshotter(slow()).await;
    let source = world.source("source").await;
    let (class, secret) = (world.name("late"), world.name("secret"));
    let name = world
        .content_by_hand(
            "waiting",
            json!({"volumeHandle": source.handle}),
            json!({
        "metadata": {"annotations": {"snapshot.storage.kubernetes.io/deletion-secret-name": secret,
            "snapshot.storage.kubernetes.io/deletion-secret-namespace": "default"}, "finalizers": [BOUND]},
        "spec": {"volumeSnapshotClassName": class,
            "volumeSnapshotRef": {"uid": NOBODY}}}),
        )
        .await;
    world.content_until(&name, "without its class", |it| error_in(it).contains(&class)).await;
    world.snapshot_class("late", json!({})).await;
    world.content_until(&name, "without its secret", |it| error_in(it).contains("credentials")).await;
    world.secret(&secret, &[("password", b"hunter2")]).await;
    world.content_until(&name, "ready", |it| is_ready(it) && !is_begun(it)).await;
}

#[tokio::test]
async fn s43_an_answer_that_cannot_be_used_is_an_error_of_the_driver_and_is_not_recorded() {
    for lie in [Lie::NoSnapshot, Lie::EmptySnapshotId] {
        let (world, daemon) = World::with_snapshotter(json!({})).await;
        world.driver().inject(cutting(Action::Lie(lie.clone())).times(2));
        let cut = world.cut_anew("cut").await;
        let content = world.content_until(&cut.content, "told why", |it| !error_in(it).is_empty()).await;
        assert!(handle_in(&content).is_none() && is_begun(&content), "{lie:?}: it may exist");
        world.ready(&cut).await;
        assert!(!daemon.has_ended());
        world.assert_no_snapshot_leaked().await;
    }
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    for (short, lie) in [("undated", Lie::NoCreationTime), ("odd", Lie::CreationTime(i64::MAX, -1))] {
        world.driver().inject(cutting(Action::Lie(lie)).once());
        let cut = world.cut_anew(short).await;
        let content = world.ready(&cut).await;
        // The time of the answer: this century.
        assert!(content["status"]["creationTime"].as_i64().unwrap() > 946_684_800_000_000_000, "{content:#}");
    }
}

#[tokio::test]
async fn s46_texts_that_are_never_the_same_make_no_tight_loop_and_no_flood_of_events() {
    let (world, _daemon) = World::with_snapshotter(json!({"retry": {"initial": "20ms", "max": "100ms"}})).await;
    for number in 0..20 {
        let text = format!("request 7d9c0b1e-0000-4000-8000-{number:012} failed");
        world.driver().inject(cutting(Action::fail(Code::Internal, &text)).once());
    }
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    let calls = world.cuts(&cut);
    assert_eq!(calls.len(), 21);
    for pair in calls.windows(2) {
        let gap = pair[1].started.saturating_sub(pair[0].ended.unwrap());
        assert!(gap >= Duration::from_millis(20), "{gap:?}");
    }
    let told = world.told_reasons(CONTENT, &cut.content).await;
    assert_eq!(told, ["SnapshotCreationFailed"], "a new id is no news");
    assert_eq!(world.told_reasons(SNAPSHOT, &cut.snapshot).await, told);
}

#[tokio::test]
async fn s38_what_others_have_put_on_a_content_survives_the_whole_of_its_life() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let theirs = |number: u32| {
        json!({"metadata": {"annotations": {format!("{THEIRS}-{number}"): "x"},
        "labels": {format!("{THEIRS}-{number}"): "x"}}})
    };
    world.driver().inject(cutting(Action::Hold).once());
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    world.edit(CONTENT, &cut.content, theirs(1)).await;
    let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": THEIRS}]);
    world.edit_exactly(&cut.content, add).await;
    world.driver().release();
    let handle = handle_in(&world.ready(&cut).await).unwrap().to_owned();
    world.edit(CONTENT, &cut.content, theirs(2)).await;
    world.delete_snapshot(&cut).await;
    let is_let_go = |it: &Value| !has_finalizer(it, BOUND);
    let content = world.content_until(&cut.content, "let go of", is_let_go).await;
    assert!(has_finalizer(&content, THEIRS) && handle_in(&content).is_none(), "nobody restores from it any more");
    for number in [1, 2] {
        assert_eq!(annotation(&content, &format!("{THEIRS}-{number}")), Some("x"));
        assert_eq!(content["metadata"]["labels"][format!("{THEIRS}-{number}")], "x");
    }
    assert_eq!((annotation(&content, BEGUN), annotation(&content, DELETED)), (None, Some("yes")));
    assert_eq!(world.deletions(), [handle]);
    world.edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
    world.cut_gone(&cut).await;
    world.assert_no_snapshot_left().await;
}
