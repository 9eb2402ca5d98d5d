//! Snapshots that are cut and not ready yet, and snapshots that were there before.

use csi_control_plane::csi::ControllerRpc as Rpc;
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method, Profile, Secrets};
use kube::api::ListParams;
use serde_json::{Value, json};
use tonic::Code;

use crate::logs;
use crate::snapshotting::{
    CONTENT, INTENT, MEMBER, NOBODY, SNAPSHOT, annotation, cutting, error_in, handle_in, is_begun, is_ready, slow,
};
use crate::world::{World, bounded};

/// A user binds a snapshot to a content that an administrator has made. Returns the names of both.
async fn pre_provisioned(world: &World, short: &str, handle: &str, class: Option<&str>) -> (String, String) {
    let name = world.name(short);
    let spec = json!({"spec": {"volumeSnapshotRef": {"name": name}, "volumeSnapshotClassName": class}});
    let content = world.content_by_hand(&format!("{short}-content"), json!({"snapshotHandle": handle}), spec).await;
    let mut snapshot = json!({"metadata": {"name": name}, "spec": {"source": {"volumeSnapshotContentName": content}}});
    if let Some(class) = class {
        snapshot["spec"]["volumeSnapshotClassName"] = class.into();
    }
    world.installed(SNAPSHOT, snapshot).await;
    (name, content)
}

#[tokio::test]
async fn s8_s47_a_slow_snapshot_is_asked_for_until_it_is_ready_also_after_an_error() {
    let world = World::snapshotting(|profile| profile.snapshots_wait = true).await;
    let _daemon = world.snapshotter(json!({})).await;
    let failed = Action::fail(Code::Internal, "the upload has stopped");
    world.driver().inject(cutting(failed).nth(3));
    let cut = world.cut_anew("cut").await;
    let cut_only = world.content_until(&cut.content, "cut", |it| handle_in(it).is_some()).await;
    assert!(!is_ready(&cut_only));
    let failed = world.content_until(&cut.content, "failed", |it| error_in(it).contains("upload")).await;
    assert_eq!((handle_in(&failed), is_ready(&failed)), (handle_in(&cut_only), false));
    assert!(error_in(&failed).starts_with("Failed to check and update snapshot content: "), "{}", error_in(&failed));
    let cleared = world.content_until(&cut.content, "fine again", |it| error_in(it).is_empty()).await;
    assert!(!is_ready(&cleared) && !is_begun(&cleared), "its handle is known: it can be deleted");
    assert!(annotation(&cleared, INTENT).is_some(), "what it is asked for by");
    world.cut_times(&cut, 7).await;
    world.driver().finish_snapshot(handle_in(&cut_only).unwrap(), true);
    let ready = world.ready(&cut).await;
    for member in ["snapshotHandle", "creationTime", "restoreSize"] {
        assert_eq!(ready["status"][member], cut_only["status"][member], "{member} never changes");
    }
    let calls = world.cuts(&cut);
    assert!(calls.iter().all(|call| call.cut == calls[0].cut), "each time the same is asked");
    world.assert_no_snapshot_leaked().await;
}

#[tokio::test]
async fn s9_a_ready_snapshot_is_never_asked_for_again() {
    let (mut resyncs, _log) = logs::count("resync");
    let (world, _daemon) = World::with_snapshotter(json!({"resync": "1s"})).await;
    let cut = world.cut_anew("cut").await;
    world.ready(&cut).await;
    let (calls, seen) = (world.driver().calls().len(), *resyncs.borrow());
    let version = world.look(CONTENT, &cut.content).await["metadata"]["resourceVersion"].clone();
    bounded("two resyncs", resyncs.wait_for(|count| *count >= seen + 2)).await.unwrap();
    assert_eq!(world.driver().calls().len(), calls);
    assert_eq!(world.look(CONTENT, &cut.content).await["metadata"]["resourceVersion"], version);
}

#[tokio::test]
async fn s10_a_resync_looks_again_at_a_content_that_nothing_else_wakes() {
    let (mut resyncs, _log) = logs::count("resync");
    let (world, daemon) = World::with_snapshotter(json!({"resync": "1s"})).await;
    let foreign = json!({"driver": "other.csi.example.com"});
    let class = world.snapshot_class("class", foreign).await;
    let spec = json!({"spec": {"volumeSnapshotClassName": class}});
    world.content_by_hand("content", json!({"volumeHandle": "v"}), spec).await;
    let looks = async || {
        let metrics = world.metrics(&daemon).await;
        let count =
            metrics.lines().find_map(|it| it.strip_prefix("workqueue_adds_total{name=\"csi-snapshotter-content\"} "));
        count.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let looked_again = async {
        while looks().await < 3 {
            resyncs.changed().await.unwrap();
        }
    };
    bounded("three looks", looked_again).await;
    assert!(world.driver().calls_of(Method::CreateSnapshot).is_empty());
}

#[tokio::test]
async fn s11_without_look_ups_a_snapshot_that_was_there_before_counts_as_ready_at_once() {
    let without = |profile: &mut Profile| {
        *profile = profile.clone().without(Rpc::ListSnapshots).without(Rpc::GetSnapshot);
    };
    let world = World::snapshotting(without).await;
    let _daemon = world.snapshotter(slow()).await;
    let handle = world.cut_behind("before");
    // Neither its class nor the class's secret is looked at.
    let missing = world.name("no-such-class");
    let (_, content) = pre_provisioned(&world, "bound", &handle, Some(&missing)).await;
    let content = world.content_until(&content, "ready", is_ready).await;
    assert_eq!((handle_in(&content), content["status"].get("restoreSize")), (Some(handle.as_str()), None));
    assert!(content["status"]["creationTime"].as_i64().unwrap() > 946_684_800_000_000_000, "{content:#}");
    assert_eq!((world.look_ups(), world.driver().calls_of(Method::CreateSnapshot).len()), (0, 0));
}

#[tokio::test]
async fn s16_a_snapshot_that_was_there_before_is_looked_up_with_the_classs_list_secret() {
    for list in [true, false] {
        let secrets = Secrets([("password".to_owned(), "hunter2".to_owned())].into());
        let world = World::snapshotting(|profile| {
            profile.snapshot_list_secrets = secrets;
            if list {
                *profile = profile.clone().without(Rpc::GetSnapshot);
            }
        })
        .await;
        let _daemon = world.snapshotter(json!({})).await;
        let handle = world.cut_behind("before");
        let secret = world.name("secret");
        world.secret(&secret, &[("password", b"hunter2")]).await;
        let parameters = json!({"csi.storage.k8s.io/snapshotter-list-secret-name": secret,
            "csi.storage.k8s.io/snapshotter-list-secret-namespace": "default"});
        let class = world.snapshot_class("class", json!({ "parameters": parameters })).await;
        let (_, content) = pre_provisioned(&world, "bound", &handle, Some(&class)).await;
        let content = world.content_until(&content, "ready", is_ready).await;
        assert_eq!((handle_in(&content), is_begun(&content)), (Some(handle.as_str()), false));
        assert!(world.look_ups() >= 1 && world.driver().calls_of(Method::CreateSnapshot).is_empty());
    }
}

#[tokio::test]
async fn s43_the_entry_of_the_snapshot_is_found_wherever_it_is_in_the_list() {
    let lies = [
        Lie::EntryWithoutSnapshot,
        Lie::AnotherSnapshotFirst("another".to_owned()),
        Lie::NoCreationTime,
        Lie::Size(-1),
    ];
    for lie in lies {
        let world = World::snapshotting(|profile| *profile = profile.clone().without(Rpc::GetSnapshot)).await;
        let daemon = world.snapshotter(json!({})).await;
        let handle = world.cut_behind("before");
        world.driver().inject(Fault::on(Method::ListSnapshots, Action::Lie(lie.clone())));
        let (_, content) = pre_provisioned(&world, "bound", &handle, None).await;
        let content = world.content_until(&content, "ready", is_ready).await;
        assert_eq!(handle_in(&content), Some(handle.as_str()), "{lie:?}");
        assert!(content["status"]["creationTime"].as_i64().unwrap() > 946_684_800_000_000_000, "{lie:?}: {content:#}");
        assert!(!daemon.has_ended());
    }
    // A list that never ends has no such entry.
    let world = World::snapshotting(|profile| *profile = profile.clone().without(Rpc::GetSnapshot)).await;
    let _daemon = world.snapshotter(slow()).await;
    world.driver().inject(Fault::on(Method::ListSnapshots, Action::Lie(Lie::TokenLoop)));
    let (_, content) = pre_provisioned(&world, "lost", "no-such-snapshot", None).await;
    let expected = "can not find snapshot for snapshotID no-such-snapshot";
    world.content_until(&content, "told why", |it| error_in(it).contains(expected)).await;
    // Each look ends at the second page. The snapshot-controller binds the content, which brings another look.
    assert!(world.look_ups() <= 6, "{}", world.look_ups());
}

#[tokio::test]
async fn a_snapshot_that_is_asked_for_by_its_id_is_found_however_the_driver_spells_the_id() {
    let only = || Lie::SnapshotId("SPELLED".to_owned());
    let several = || Lie::OtherSnapshots(vec!["first".to_owned(), "second".to_owned()]);
    for (lacks, method, lie) in [
        (Rpc::ListSnapshots, Method::GetSnapshot, only()),
        (Rpc::GetSnapshot, Method::ListSnapshots, only()),
        (Rpc::GetSnapshot, Method::ListSnapshots, several()),
    ] {
        let world = World::snapshotting(|profile| *profile = profile.clone().without(lacks)).await;
        let _daemon = world.snapshotter(json!({})).await;
        let handle = world.cut_behind("before");
        world.driver().inject(Fault::on(method, Action::Lie(lie.clone())));
        let (_, name) = pre_provisioned(&world, "bound", &handle, None).await;
        let content = world.content_until(&name, "ready", is_ready).await;
        assert_eq!(handle_in(&content), Some(handle.as_str()), "{lie:?}: the id stays the one that was asked for");
        let told = world.told_reasons(CONTENT, &name).await;
        if lie == several() {
            world.told_on(CONTENT, &name, "SnapshotIdNotListed", "first is taken for it").await;
        } else {
            assert_eq!(told, Vec::<String>::new(), "{lie:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_snapshot_that_was_there_before_is_looked_up_until_it_is_ready() {
    let world = World::snapshotting(|profile| profile.snapshots_wait = true).await;
    let _daemon = world.snapshotter(json!({})).await;
    let handle = world.cut_behind("before");
    let (snapshot, content) = pre_provisioned(&world, "bound", &handle, None).await;
    world.content_until(&content, "looked up", |it| handle_in(it).is_some() && !is_ready(it)).await;
    world.driver_until("looked up again", |driver| driver.calls_of(Method::GetSnapshot).len() >= 4).await;
    world.driver().finish_snapshot(&handle, true);
    world.content_until(&content, "ready", is_ready).await;
    world.look_until(SNAPSHOT, &snapshot, "ready", is_ready).await;
}

#[tokio::test]
async fn s49_another_id_for_the_same_name_is_told_and_the_first_one_kept() {
    let world = World::snapshotting(|profile| profile.snapshots_wait = true).await;
    let _daemon = world.snapshotter(json!({})).await;
    let cut = world.cut_anew("cut").await;
    let first = world.content_until(&cut.content, "cut", |it| handle_in(it).is_some()).await;
    world.driver().inject(cutting(Action::Lie(Lie::SnapshotId("another".to_owned()))));
    world.content_until(&cut.content, "told", |it| error_in(it).contains("another")).await;
    world.told_on(CONTENT, &cut.content, "SnapshotContentCheckandUpdateFailed", handle_in(&first).unwrap()).await;
    world.driver().clear_faults();
    world.driver().finish_snapshot(handle_in(&first).unwrap(), true);
    assert_eq!(handle_in(&world.ready(&cut).await), handle_in(&first));
    assert_eq!(world.deletions(), Vec::<String>::new());
}

#[tokio::test]
async fn s50_a_member_is_looked_up_as_soon_as_it_has_its_handles() {
    let world = World::snapshotting(|_| {}).await;
    // This test does not wait for a back-off of five minutes.
    let _daemon = world.snapshotter(slow()).await;
    let handle = world.cut_behind("member");
    let source = json!({"volumeHandle": "behind"});
    let member = json!({"metadata": {"annotations": {MEMBER: "group"}},
        "spec": {"volumeSnapshotRef": {"uid": NOBODY}}});
    let content = world.content_by_hand("member", source, member).await;
    world.another_is_ready("barrier").await;
    assert_eq!(world.look_ups(), 0);
    let status = json!({"snapshotHandle": handle, "volumeGroupSnapshotHandle": "group"});
    world.installed_status(CONTENT, &content, status).await;
    let ready = world.content_until(&content, "ready", is_ready).await;
    assert_eq!((handle_in(&ready), &ready["status"]["volumeGroupSnapshotHandle"]), (Some(&*handle), &json!("group")));
    assert_eq!(world.look_ups(), 1, "it is looked up, and not believed");
    let cuts = world.driver().calls_of(Method::CreateSnapshot);
    assert!(cuts.iter().all(|call| call.volume.as_deref() != Some("behind")), "members are cut with their group");
}

#[tokio::test]
async fn s34_without_the_kinds_the_daemon_waits_for_them_and_serves_them_when_they_come() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.snapshotter(json!({})).await;
    let lease = world.driver_name().to_lowercase().replace('.', "-");
    world.lease_held(&format!("external-snapshotter-leader-{lease}")).await;
    assert!(!daemon.has_ended());
    // A real control plane may have the kinds already, from another scenario.
    if world.installed_kind(CONTENT).list(&ListParams::default()).await.is_err() {
        world.page_names(&daemon, &["idle: the cluster has no VolumeSnapshotContents"]).await;
    }
    world.install_snapshots().await;
    let handle = world.cut_behind("before");
    let content = world.content_by_hand("content", json!({"snapshotHandle": handle}), json!({})).await;
    // It looks for the kinds each minute.
    let ready = async || -> Result<(), Value> {
        let now = world.look(CONTENT, &content).await;
        if is_ready(&now) { Ok(()) } else { Err(now) }
    };
    crate::world::settled("served", 2 * crate::world::PATIENCE, ready).await;
}
