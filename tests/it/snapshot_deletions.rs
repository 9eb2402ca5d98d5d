//! Snapshots that are deleted: in the middle of their making, later, by hand, and what is kept.

use csi_control_plane::sandbox::driver::{Action, Fault, Method, Secrets};
use serde_json::{Value, json};
use tonic::Code;

use crate::snapshotting::{
    BEGUN, BOUND, CLASS, CONTENT, DELETED, NOBODY, SNAPSHOT, annotation, cutting, deleting, handle_in, has_finalizer,
    is_begun, is_going, is_ready, slow, unanswered,
};
use crate::world::World;

#[tokio::test]
async fn s1_a_snapshot_whose_making_has_no_answer_is_asked_for_until_it_has_one_and_then_deleted() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    world.driver().inject(unanswered());
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    world.delete_snapshot_and_see(&cut).await;
    let before = world.cuts(&cut).len();
    world.cut_times(&cut, before + 2).await;
    let content = world.look(CONTENT, &cut.content).await;
    assert!(has_finalizer(&content, BOUND) && is_begun(&content) && world.deletions().is_empty());
    let (handle, _) = world.driver().snapshot_named(&cut.name).unwrap();
    world.driver().clear_faults();
    world.cut_gone(&cut).await;
    assert_eq!(world.deletions(), [handle]);
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s2_a_snapshot_that_the_driver_refuses_at_last_goes_without_being_deleted_at_the_driver() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    world.driver().inject(cutting(Action::fail(Code::DeadlineExceeded, "slow")));
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    world.delete_snapshot_and_see(&cut).await;
    // At once, so that none of its attempts comes between.
    world.driver().clear_faults();
    world.driver().inject(cutting(Action::fail(Code::Internal, "no such array")));
    world.cut_gone(&cut).await;
    assert_eq!(world.deletions(), Vec::<String>::new());
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s3_l11_a_snapshot_that_is_deleted_while_the_driver_cuts_it_goes_as_soon_as_it_is_cut() {
    for waits in [false, true] {
        let world = World::snapshotting(|profile| profile.snapshots_wait = waits).await;
        // This test does not wait for a back-off of five minutes.
        let _daemon = world.snapshotter(slow()).await;
        world.driver().inject(cutting(Action::Hold).once());
        let cut = world.cut_anew("cut").await;
        world.cut_times(&cut, 1).await;
        world.delete_snapshot_and_see(&cut).await;
        assert!(world.deletions().is_empty());
        world.driver().release();
        world.cut_gone(&cut).await;
        assert_eq!((world.cuts(&cut).len(), world.deletions().len()), (1, 1), "ready at once: {}", !waits);
        world.assert_no_snapshot_left().await;
    }
}

#[tokio::test]
async fn s3_many_snapshots_that_are_deleted_while_they_are_cut_all_go() {
    let (world, _daemon) = World::with_snapshotter(slow()).await;
    let class = world.snapshot_class("class", json!({})).await;
    world.driver().inject(cutting(Action::Hold).times(10));
    let mut cuts = Vec::new();
    for number in 0..10 {
        let source = world.source(&format!("source-{number}")).await;
        cuts.push(world.cut(&format!("cut-{number}"), &source, &class).await);
    }
    for cut in &cuts {
        world.cut_times(cut, 1).await;
        world.delete_snapshot(cut).await;
    }
    world.driver().release();
    for cut in &cuts {
        world.cut_gone(cut).await;
    }
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s4_a_deletion_that_fails_keeps_the_content_and_says_why() {
    for code in [Code::Internal, Code::NotFound, Code::FailedPrecondition, Code::Unavailable] {
        let (world, _daemon) = World::with_snapshotter(json!({})).await;
        let cut = world.cut_anew("cut").await;
        let handle = handle_in(&world.ready(&cut).await).unwrap().to_owned();
        world.driver().inject(deleting(Action::fail(code, "somebody uses it")).times(3));
        world.delete_snapshot_and_see(&cut).await;
        world.deleted_times(2).await;
        let content = world.look(CONTENT, &cut.content).await;
        assert!(has_finalizer(&content, BOUND) && handle_in(&content) == Some(&*handle), "{code:?}");
        world.told_on(CONTENT, &cut.content, "SnapshotDeleteError", "somebody uses it").await;
        world.cut_gone(&cut).await;
        assert_eq!(world.deletions(), vec![handle; 4]);
        world.assert_no_snapshot_left().await;
    }
}

#[tokio::test]
async fn s12_what_is_retained_can_be_deleted_and_stays_at_the_driver() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({"deletionPolicy": "Retain"})).await;
    let cut = world.cut("cut", &source, &class).await;
    world.ready(&cut).await;
    world.delete_snapshot(&cut).await;
    world.away(SNAPSHOT, &cut.snapshot).await;
    let content = world.content_until(&cut.content, "marked", |it| annotation(it, DELETED).is_some()).await;
    assert!(!is_going(&content));
    world.delete_installed(CONTENT, &cut.content).await;
    world.away(CONTENT, &cut.content).await;
    // This one was never bound.
    let handle = world.cut_behind("before");
    let retain = json!({"metadata": {"finalizers": [BOUND]}, "spec": {"deletionPolicy": "Retain"}});
    let unbound = world.content_by_hand("unbound", json!({"snapshotHandle": handle}), retain).await;
    world.delete_installed(CONTENT, &unbound).await;
    world.away(CONTENT, &unbound).await;
    assert_eq!((world.deletions(), world.driver().state().snapshots().len()), (Vec::new(), 2));
}

#[tokio::test]
async fn s13_the_policy_counts_that_a_content_has_when_it_goes() {
    for (from, to) in [("Delete", "Retain"), ("Retain", "Delete")] {
        let (world, _daemon) = World::with_snapshotter(json!({})).await;
        let source = world.source("source").await;
        let class = world.snapshot_class("class", json!({ "deletionPolicy": from })).await;
        let cut = world.cut("cut", &source, &class).await;
        world.ready(&cut).await;
        world.edit(CONTENT, &cut.content, json!({"spec": {"deletionPolicy": to}})).await;
        // The cluster's controller hears of contents in order: one that it has made ready afterwards proves that it knows the policy.
        world.another_is_ready("other").await;
        world.delete_snapshot(&cut).await;
        if to == "Retain" {
            world.away(SNAPSHOT, &cut.snapshot).await;
            world.delete_installed(CONTENT, &cut.content).await;
        }
        world.cut_gone(&cut).await;
        assert_eq!(world.deletions().len(), usize::from(to == "Delete"), "{from} to {to}");
    }
}

#[tokio::test]
async fn s14_s18_a_deletion_needs_no_class_and_has_the_contents_own_secret() {
    let secrets = Secrets([("password".to_owned(), "hunter2".to_owned())].into());
    let world = World::snapshotting(|profile| profile.snapshot_secrets = secrets).await;
    let _daemon = world.snapshotter(json!({})).await;
    let (first, second) = (world.name("first"), world.name("second"));
    world.secret(&first, &[("password", b"hunter2")]).await;
    world.secret(&second, &[("password", b"wrong")]).await;
    let parameters = |secret: &str| {
        json!({"parameters": {"csi.storage.k8s.io/snapshotter-secret-name": secret,
            "csi.storage.k8s.io/snapshotter-secret-namespace": "default"}})
    };
    let source = world.source("source").await;
    let class = world.snapshot_class("class", parameters(&first)).await;
    let (one, two) = (world.cut("one", &source, &class).await, world.cut("two", &source, &class).await);
    world.ready(&one).await;
    world.ready(&two).await;
    world.edit(CLASS, &class, parameters(&second)).await;
    world.delete_snapshot_and_wait(&one).await;
    world.delete_installed(CLASS, &class).await;
    world.delete_snapshot_and_wait(&two).await;
    assert!(world.driver().calls_of(Method::DeleteSnapshot).iter().all(|call| call.secrets));
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn a_deletion_whose_secret_is_gone_waits_for_it_unless_it_may_go_without() {
    for without in [false, true] {
        let (world, _daemon) = World::with_snapshotter(json!({ "deleteWithoutSecret": without })).await;
        let (secret, class) = world.secretive_class().await;
        let source = world.source("source").await;
        let cut = world.cut("cut", &source, &class).await;
        world.ready(&cut).await;
        let secrets = world.namespaced::<k8s_openapi::api::core::v1::Secret>();
        secrets.delete(&secret, &kube::api::DeleteParams::default()).await.unwrap();
        world.delete_snapshot(&cut).await;
        if !without {
            world.told_on(CONTENT, &cut.content, "SnapshotDeleteError", "credentials").await;
            assert!(world.deletions().is_empty());
            world.secret(&secret, &[("password", b"hunter2")]).await;
        }
        world.cut_gone(&cut).await;
        assert_eq!(world.driver().calls_of(Method::DeleteSnapshot)[0].secrets, !without);
        world.assert_no_snapshot_left().await;
    }
}

#[tokio::test]
async fn s27_a_content_that_is_deleted_by_hand_and_whose_snapshot_never_was_is_kept_and_shown() {
    let (world, daemon) = World::with_snapshotter(json!({})).await;
    let handle = world.cut_behind("before");
    let bound = json!({"metadata": {"finalizers": [BOUND]}, "spec": {"volumeSnapshotRef": {"uid": NOBODY}}});
    let content = world.content_by_hand("orphan", json!({"snapshotHandle": handle}), bound).await;
    world.content_until(&content, "ready", is_ready).await;
    world.delete_installed(CONTENT, &content).await;
    let going = world.look(CONTENT, &content).await;
    assert!(is_going(&going) && has_finalizer(&going, BOUND) && handle_in(&going) == Some(&*handle));
    let waits = |status: &Value| {
        let tables = status["tables"].as_array().cloned().unwrap_or_default();
        let rows = tables.iter().filter(|it| it["name"] == "waitingSnapshots").filter_map(|it| it["rows"].as_array());
        let says = |row: &Value| {
            row["content"] == content.as_str() && row.to_string().contains("until its VolumeSnapshot is deleted")
        };
        rows.flatten().any(says)
    };
    world.shows(&daemon, "why it is kept", waits).await;
    world.another_is_ready("barrier").await;
    assert_eq!(world.look(CONTENT, &content).await, going, "nothing of it is touched");
    assert!(world.deletions().is_empty());
}

#[tokio::test]
async fn s30_a_content_that_is_deleted_by_hand_waits_for_its_snapshot_and_then_goes_at_once() {
    let world = World::snapshotting(|_| {}).await;
    // This test does not wait for a back-off of five minutes.
    let _daemon = world.snapshotter(slow()).await;
    let cut = world.cut_anew("cut").await;
    let handle = handle_in(&world.ready(&cut).await).unwrap().to_owned();
    world.delete_installed(CONTENT, &cut.content).await;
    world.another_is_ready("barrier").await;
    let kept = world.look(CONTENT, &cut.content).await;
    assert!(is_going(&kept) && is_ready(&kept) && world.deletions().is_empty());
    world.delete_snapshot_and_wait(&cut).await;
    assert_eq!(world.deletions(), [handle]);
}

#[tokio::test]
async fn s33_l5_a_snapshot_that_was_there_before_and_is_deleted_before_its_first_look_up_does_not_stay() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let handle = world.cut_behind("before");
    for method in [Method::GetSnapshot, Method::ListSnapshots] {
        world.driver().inject(Fault::on(method, Action::Hold));
    }
    let bound = json!({"metadata": {"finalizers": [BOUND]}});
    let unbound = world.content_by_hand("unbound", json!({"snapshotHandle": handle}), bound).await;
    world.delete_installed(CONTENT, &unbound).await;
    world.driver().clear_faults();
    world.driver().release();
    world.away(CONTENT, &unbound).await;
    assert_eq!(world.deletions(), [handle]);
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn s42_a_content_that_was_left_ready_marked_and_deleted_goes_when_a_daemon_starts() {
    let world = World::snapshotting(|_| {}).await;
    let first = world.daemon_on("first", crate::snapshotting::snapshotter(slow())).await;
    let cut = world.cut_anew("cut").await;
    let handle = handle_in(&world.ready(&cut).await).unwrap().to_owned();
    first.stop().await.unwrap();
    world.edit(CONTENT, &cut.content, json!({"metadata": {"annotations": {BEGUN: "yes"}}})).await;
    world.delete_snapshot_and_see(&cut).await;
    let _second = world.daemon_on("second", crate::snapshotting::snapshotter(slow())).await;
    world.cut_gone(&cut).await;
    assert_eq!(world.deletions(), [handle]);
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn a_member_of_a_group_is_let_go_of_without_a_call() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let handle = world.cut_behind("member");
    let member = json!({"metadata": {"finalizers": [BOUND]}, "spec": {"volumeSnapshotRef": {"uid": NOBODY}}});
    let content = world.content_by_hand("member", json!({"volumeHandle": "behind"}), member).await;
    let status = json!({"snapshotHandle": handle, "volumeGroupSnapshotHandle": "group", "readyToUse": true});
    world.installed_status(CONTENT, &content, status).await;
    world.edit(CONTENT, &content, json!({"metadata": {"annotations": {DELETED: "yes"}}})).await;
    world.delete_installed(CONTENT, &content).await;
    world.away(CONTENT, &content).await;
    assert!(world.deletions().is_empty());
}
