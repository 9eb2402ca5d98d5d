//! The snapshotter's requests to the API, one by one; and the fate of a snapshot when one of them fails or the daemon
//! dies.

use csi_control_plane::process::watch;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver;
use serde_json::{Value, json};
use tonic::Code;

use super::{api, by_daemon, user, writes};
use crate::objects::{merge, short_lease};
use crate::snapshotting::{
    BOUND, CONTENT, THEIRS, cutting, deleting, error_in, handle_in, has_finalizer, is_ready, slow, snapshotter,
};
use crate::world::World;

const CONTENTS: &str = "volumesnapshotcontents";

/// The daemon's writes to contents since the log was cleared.
pub(super) fn written(world: &World) -> Vec<String> {
    let told = |it: &Entry| {
        let slash = if it.subresource.is_empty() { "" } else { "/" };
        format!("{}{slash}{} {}", it.verb, it.subresource, it.code)
    };
    writes(world).iter().filter(|it| it.resource == CONTENTS).map(told).collect()
}

pub(super) fn content_patch(world: &World, subresource: &str) -> Matching {
    by_daemon(world).verb("patch").resource(CONTENTS).subresource(subresource)
}

/// The ways in which a write can fail, and whether it is done nevertheless.
fn failures() -> Vec<(&'static str, Action)> {
    let contents = resources::find("snapshot.storage.k8s.io", "v1", CONTENTS).unwrap();
    let conflict = || Rejection::conflict(contents, "x");
    vec![
        ("conflict", Action::Refuse(conflict())),
        ("too many", Action::Refuse(Rejection::too_many_requests(1))),
        ("unprocessable", Action::Refuse(Rejection::unprocessable_patch())),
        ("internal", Action::Refuse(Rejection::internal("etcd"))),
        ("cut before", Action::CutBefore),
        ("cut after", Action::CutAfter),
        ("done, and told otherwise", Action::RefuseAfter(Rejection::service_unavailable("stopping"))),
    ]
}

#[tokio::test]
async fn a_snapshot_is_three_writes_and_its_deletion_one() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    let asked = written(&world);
    let done: Vec<&String> = asked.iter().filter(|it| it.ends_with(" 200")).collect();
    assert_eq!(done, ["patch 200", "patch/status 200", "patch 200"], "{asked:?}");
    let bodies = writes(&world).into_iter().filter(|it| it.resource == CONTENTS).filter_map(|it| it.body);
    for body in bodies {
        let tests_uid = |it: &Value| it["op"] == "test" && it["path"] == "/metadata/uid";
        assert!(body.as_array().is_some_and(|it| it.iter().any(tests_uid)), "each says whom it is about: {body}");
    }
    api(&world).audit().clear();
    world.delete_snapshot_and_wait(&cut).await;
    assert_eq!(written(&world), ["patch 200"]);
}

#[tokio::test]
async fn a_slow_snapshot_costs_one_write_more_and_its_polls_none() {
    let world = World::snapshotting(|profile| profile.snapshot_ready_polls = 8).await;
    let _daemon = world.snapshotter(json!({})).await;
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    assert!(world.cuts(&cut).len() > 8);
    let done = written(&world).into_iter().filter(|it| it.ends_with(" 200")).count();
    assert!(done <= 5, "{:?}", written(&world));
}

/// The nth patch of a cut or of its deletion fails in every way, once.
async fn each_fails_once(what: &str, subresource: &str, nth: u64, in_deletion: bool) {
    for (how, action) in failures() {
        let world = World::snapshotting(|_| {}).await;
        let mut config = snapshotter(json!({}));
        config["kubernetes"] = json!({"requestTimeout": "2s"});
        let _daemon = world.daemon(config).await;
        let strike =
            || api(&world).faults().add(Fault::on(content_patch(&world, subresource), action.clone()).nth(nth));
        let fault = if in_deletion { None } else { Some(strike()) };
        let cut = world.cut_anew("cut").await;
        let handle = handle_in(&world.ready(&cut).await).unwrap().to_owned();
        assert!(is_ready(&world.look(CONTENT, &cut.content).await), "{what}: {how}");
        let fault = fault.unwrap_or_else(strike);
        world.delete_snapshot_and_wait(&cut).await;
        assert_eq!(api(&world).faults().hits(fault), 1, "{what}: {how} struck nothing");
        assert!(world.deletions().iter().all(|it| *it == handle), "{what}: {how}");
        world.assert_no_snapshot_left().await;
    }
}

#[tokio::test]
async fn s40_a_failure_to_begin_is_got_over() {
    each_fails_once("begin", "", 1, false).await;
}

#[tokio::test]
async fn s19_s53_a_failure_to_record_the_snapshot_is_got_over_and_wipes_nothing() {
    each_fails_once("record", "status", 1, false).await;
}

#[tokio::test]
async fn s54_a_failure_to_take_the_mark_off_is_got_over() {
    each_fails_once("end", "", 2, false).await;
}

#[tokio::test]
async fn s5_a_failure_to_let_go_is_got_over() {
    each_fails_once("release", "", 1, true).await;
}

#[tokio::test]
async fn s54_a_mark_that_cannot_be_taken_off_takes_no_readiness_back() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let internal = Action::Refuse(Rejection::internal("etcd"));
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let resource = resources::find("snapshot.storage.k8s.io", "v1", CONTENTS).unwrap();
    let (seen, mut flips) = watch::channel(Vec::<bool>::new());
    let plural = resource.plural;
    api(&world).on_commit(move |commit| {
        if commit.resource.plural == plural
            && let Some(ready) = commit.new.and_then(|it| it.pointer("/status/readyToUse")).and_then(Value::as_bool)
        {
            seen.send_modify(|all| all.push(ready));
        }
    });
    // The first patch begins; those after it are to take the mark off.
    for nth in 2..6 {
        api(&world).faults().add(Fault::on(content_patch(&world, ""), internal.clone()).nth(nth));
    }
    let cut = world.cut("cut", &source, &class).await;
    let content = world.ready(&cut).await;
    assert_eq!((error_in(&content), world.cuts(&cut).len()), ("", 1));
    let flips = flips.borrow_and_update().clone();
    assert!(flips.iter().all(|ready| *ready), "{flips:?}");
}

#[tokio::test]
async fn s19_an_error_that_cannot_be_written_is_told_by_an_event() {
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let refused = Action::Refuse(Rejection::internal("etcd"));
    let fault = api(&world).faults().add(Fault::on(content_patch(&world, "status"), refused));
    world.driver().inject(cutting(driver::Action::fail(Code::Internal, "no such array")));
    let cut = world.cut_anew("cut").await;
    world.content_until(&cut.content, "there", |_| true).await;
    world.told_on(CONTENT, &cut.content, "SnapshotCreationFailed", "no such array").await;
    world.driver().clear_faults();
    api(&world).faults().remove(fault);
    world.ready(&cut).await;
}

#[tokio::test]
async fn s28_l11_a_watch_that_lags_behind_our_own_writes_loses_no_retry() {
    for is_deleted in [false, true] {
        let (world, _daemon) = World::with_snapshotter(json!({})).await;
        world.driver().inject(cutting(driver::Action::fail(Code::Internal, "not now")));
        let cut = world.cut_anew("cut").await;
        world.cut_times(&cut, 1).await;
        // Each failure writes the mark and removes it, and the watch shows neither.
        let lag = api(&world).faults().hold_watches(by_daemon(&world).resource(CONTENTS));
        let asked = world.cuts(&cut).len();
        world.cut_times(&cut, asked + 2).await;
        if is_deleted {
            world.delete_snapshot_and_see(&cut).await;
            api(&world).faults().remove(lag);
            world.cut_gone(&cut).await;
            assert!(world.deletions().is_empty());
            world.assert_no_snapshot_left().await;
        } else {
            world.driver().clear_faults();
            world.content_until(&cut.content, "recorded", |it| handle_in(it).is_some()).await;
            api(&world).faults().remove(lag);
            world.ready(&cut).await;
            world.assert_no_snapshot_leaked().await;
        }
    }
}

/// The places where a daemon dies: what is held then.
#[derive(Debug, Clone, Copy)]
enum Place {
    Begun,
    Asked,
    Answered,
    Recorded,
    Ended,
    DeletionAsked,
    DeletionAnswered,
    /// The write of snapshotter P5, which is written only where somebody else holds the content, too.
    Cleared,
    /// The write of snapshotter P4.
    Released,
}

#[tokio::test]
async fn s40_whenever_the_daemon_dies_its_successor_comes_to_the_same_end() {
    use Place::{Answered, Asked, Begun, Cleared, DeletionAnswered, DeletionAsked, Ended, Recorded, Released};
    let places = [Begun, Asked, Answered, Recorded, Ended, DeletionAsked, DeletionAnswered, Cleared, Released];
    let deaths = places.into_iter().flat_map(|place| [dies_at(place, false), dies_at(place, true)]);
    futures::future::join_all(deaths).await;
}

/// The daemon dies at this place; the snapshot is deleted before its successor comes, or not.
async fn dies_at(place: Place, is_deleted: bool) {
    let world = World::snapshotting(|_| {}).await;
    let mut config = snapshotter(json!({}));
    merge(&mut config, short_lease());
    let first = world.daemon_on("daemon", config.clone()).await;
    let stop_at = |on: Matching, nth: u64| api(&world).faults().add(Fault::on(on, Action::Hold).nth(nth));
    let stopped = match place {
        Place::Begun => Some(stop_at(content_patch(&world, ""), 1)),
        Place::Answered => Some(stop_at(content_patch(&world, "status"), 1)),
        Place::Recorded => Some(stop_at(content_patch(&world, ""), 2)),
        _ => None,
    };
    if matches!(place, Place::Asked) {
        world.driver().inject(cutting(driver::Action::Hold).once());
    }
    let cut = world.cut_anew("cut").await;
    match stopped {
        Some(fault) => {
            let reached = async || (api(&world).faults().hits(fault) > 0).then_some(());
            crate::world::wait::asked("the place", reached).await;
        }
        None if matches!(place, Place::Asked) => drop(world.cut_times(&cut, 1).await),
        None => drop(world.ready(&cut).await),
    }
    let in_deletion = matches!(place, Place::DeletionAsked | Place::DeletionAnswered);
    let mut stopped = stopped;
    let after_deletion = matches!(place, Place::Cleared | Place::Released);
    if after_deletion {
        if matches!(place, Place::Cleared) {
            let add = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": THEIRS}]);
            world.edit_exactly(&cut.content, add).await;
        }
        let fault = stop_at(content_patch(&world, if matches!(place, Place::Cleared) { "status" } else { "" }), 1);
        world.delete_snapshot(&cut).await;
        let reached = async || (api(&world).faults().hits(fault) > 0).then_some(());
        crate::world::wait::asked("the place", reached).await;
        stopped = Some(fault);
    }
    if in_deletion {
        let is_done = matches!(place, Place::DeletionAnswered);
        world
            .driver()
            .inject(deleting(if is_done { driver::Action::DoneButHang } else { driver::Action::Hang }).once());
        world.delete_snapshot(&cut).await;
        world.deleted_times(1).await;
    }
    first.kill();
    if let Some(fault) = stopped {
        api(&world).faults().remove(fault);
    }
    if is_deleted && !in_deletion && !after_deletion {
        world.delete_snapshot(&cut).await;
    }
    world.driver().release();
    let _second = world.daemon_on("successor", config).await;
    if matches!(place, Place::Cleared) {
        let is_ours_done = |it: &Value| !has_finalizer(it, BOUND) && handle_in(it).is_none();
        world.content_until(&cut.content, "released", is_ours_done).await;
        world.edit(CONTENT, &cut.content, json!({"metadata": {"finalizers": null}})).await;
    }
    if is_deleted || in_deletion || after_deletion {
        world.cut_gone(&cut).await;
        world.assert_no_snapshot_left().await;
    } else {
        world.ready(&cut).await;
        assert_eq!(world.driver().state().snapshots().len(), 1, "{place:?}");
        world.assert_no_snapshot_leaked().await;
    }
}

#[tokio::test]
async fn l10_a_leader_that_was_cut_off_past_its_lease_writes_nothing_when_it_is_back() {
    // Two leaders must not meet at the driver: that this one lets them shows that the first has no word any more.
    let world = World::snapshotting(|profile| profile.abort_while_pending = false).await;
    let mut config = snapshotter(slow());
    merge(&mut config, short_lease());
    let _frozen = world.daemon(config.clone()).await;
    world.driver().inject(cutting(driver::Action::Hold).once());
    let cut = world.cut_anew("cut").await;
    world.cut_times(&cut, 1).await;
    // It cannot renew its Lease any more, nor hear of it.
    let mute = api(&world).faults().add(Fault::on(by_daemon(&world), Action::CutBefore));
    let _successor = world.daemon_on("successor", config).await;
    world.cut_times(&cut, 2).await;
    world.ready(&cut).await;
    api(&world).faults().remove(mute);
    api(&world).audit().clear();
    world.driver().release();
    world.driver_until("all calls have ended", |driver| driver.calls().iter().all(|call| call.ended.is_some())).await;
    world.delete_snapshot_and_wait(&cut).await;
    assert_eq!(written(&world), Vec::<String>::new(), "by the one that was frozen: {}", user(&world));
    world.assert_no_snapshot_left().await;
}

#[tokio::test]
async fn without_the_right_to_read_classes_contents_that_name_none_are_served() {
    let world = World::snapshotting(|_| {}).await;
    let classes = by_daemon(&world).verb("list").resource("volumesnapshotclasses");
    let forbidden = Rejection::forbidden("snapshot.storage.k8s.io", "volumesnapshotclasses", "", "no");
    api(&world).faults().add(Fault::on(classes, Action::Refuse(forbidden)));
    let _daemon = world.snapshotter(json!({})).await;
    let handle = world.cut_behind("before");
    let bound = json!({"metadata": {"finalizers": [BOUND]}});
    let content = world.content_by_hand("content", json!({"snapshotHandle": handle}), bound).await;
    world.content_until(&content, "ready", is_ready).await;
    world.delete_installed(CONTENT, &content).await;
    world.away(CONTENT, &content).await;
    assert_eq!(world.deletions(), [handle]);
}
