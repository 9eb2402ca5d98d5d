//! Snapshots beside attachments and restores: whose turn it is.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles::provisioner::names::ANNOTATION_ALLOW_MODE_CHANGE;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use serde_json::{Value, json};
use tonic::Code;

use crate::snapshotting::{
    BOUND, CONTENT, cutting, deleting, error_in, is_begun, is_going, is_ready, slow, snapshotter,
};
use crate::supplier::supplier;
use crate::supply::phase;
use crate::world::World;

/// The configuration of a daemon with the snapshotter and these roles.
fn beside(roles: &Value) -> Value {
    let mut config = snapshotter(json!({}));
    for (role, section) in roles.as_object().unwrap() {
        config["roles"][role] = section.clone();
    }
    config
}

#[tokio::test]
async fn s44_a_detach_waits_for_at_most_one_of_the_many_snapshots_of_its_volume() {
    const SNAPSHOTS: usize = 50;
    let world = World::snapshotting(|_| {}).await;
    let short = json!({"retry": {"initial": "50ms", "max": "400ms"}, "resync": "0s"});
    let _daemon = world.daemon(beside(&json!({ "attacher": short }))).await;
    let node = world.node("node").await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let attachment = world.attach(&source.volume, &node).await;
    world.attached(&attachment).await;
    world.driver().inject(cutting(Action::Delay(Duration::from_secs(3))));
    let mut cuts = Vec::new();
    for number in 0..SNAPSHOTS {
        cuts.push(world.cut(&format!("cut-{number}"), &source, &class).await);
    }
    world.driver_until("the first is being cut", |driver| !driver.calls_of(Method::CreateSnapshot).is_empty()).await;
    let asked = world.driver().age();
    world.detached(&attachment).await;
    let detach = world.unpublishes(&source.volume).remove(0);
    let between = world
        .driver()
        .calls_of(Method::CreateSnapshot)
        .iter()
        .filter(|it| it.started > asked && it.started < detach.started)
        .count();
    assert_eq!(between, 0, "it waits for the one that is being cut");
    world.driver().clear_faults();
    for cut in &cuts {
        world.ready(cut).await;
    }
    world.assert_no_snapshot_leaked().await;
}

/// Without the snapshotter beside it the provisioner would look again by itself, half a minute later.
#[tokio::test]
async fn r21_a_restore_goes_on_as_soon_as_its_content_lets_it() {
    let world = World::snapshotting(|_| {}).await;
    let roles = supplier(crate::supplier::slow())["roles"].clone();
    let _daemon = world.daemon(beside(&roles)).await;
    let handle = world.cut_behind("before");
    let class = world.class("class", json!({})).await;
    let name = world.name("snapshot");
    let reference = json!({"spec": {"volumeSnapshotRef": {"name": name}, "sourceVolumeMode": "Filesystem"}});
    let content = world.content_by_hand("content", json!({"snapshotHandle": handle}), reference).await;
    let object = json!({"metadata": {"name": name}, "spec": {"source": {"volumeSnapshotContentName": content}}});
    world.installed("VolumeSnapshot", object).await;
    world.look_until("VolumeSnapshot", &name, "ready", is_ready).await;
    let from = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name});
    let raw = world.claim("raw", &class, json!({"spec": {"volumeMode": "Block", "dataSource": from}})).await;
    world.claim_told(&raw, "ProvisioningFailed", "mode").await;
    let let_go = world.driver().age();
    let leave = json!({"metadata": {"annotations": {ANNOTATION_ALLOW_MODE_CHANGE: "true"}}});
    world.edit(CONTENT, &content, leave).await;
    world.supplied_with(&raw).await;
    let waited = world.driver().age().saturating_sub(let_go);
    assert!(waited < Duration::from_secs(20), "{waited:?}");
}

#[tokio::test]
async fn s45_a_snapshot_is_not_deleted_while_volumes_are_made_from_it() {
    let world = World::snapshotting(|_| {}).await;
    let roles = supplier(json!({}))["roles"].clone();
    let daemon = world.daemon(beside(&roles)).await;
    let handle = world.cut_behind("before");
    let class = world.class("class", json!({})).await;
    // No finalizer protects the content of an administrator.
    let name = world.name("snapshot");
    let reference = json!({"metadata": {"finalizers": [BOUND]}, "spec": {"volumeSnapshotRef": {"name": name}}});
    let content = world.content_by_hand("content", json!({"snapshotHandle": handle}), reference).await;
    let object = json!({"metadata": {"name": name}, "spec": {"source": {"volumeSnapshotContentName": content}}});
    world.installed("VolumeSnapshot", object).await;
    world.look_until("VolumeSnapshot", &name, "ready", is_ready).await;
    world.driver().inject(Fault::on(Method::CreateVolume, Action::Hold).times(2));
    let mut restored = Vec::new();
    for short in ["first", "second"] {
        restored.push(world.claim_from(short, &class, "VolumeSnapshot", &name).await);
    }
    // Two restores at once.
    world.driver_until("both", |driver| driver.calls_of(Method::CreateVolume).len() == 2).await;
    world.delete_installed(CONTENT, &content).await;
    world.edit(CONTENT, &content, json!({"metadata": {"annotations": {crate::snapshotting::DELETED: "yes"}}})).await;
    // The deletion stands behind both, and not yet at the driver.
    let waits = |status: &Value| {
        let tables = status["tables"].as_array().cloned().unwrap_or_default();
        let turns = tables.iter().filter(|it| it["name"] == "snapshotCalls");
        turns
            .filter_map(|it| it["rows"].as_array())
            .flatten()
            .any(|row| row["snapshot"] == handle.as_str() && row["waiting"] == 1)
    };
    world.shows(&daemon, "a deletion that waits", waits).await;
    world.another_is_ready("barrier").await;
    assert!(is_going(&world.look(CONTENT, &content).await) && world.deletions().is_empty());
    world.driver().release();
    for claim in &restored {
        world.claim_until(claim, "bound", |it| phase(it) == "Bound").await;
    }
    world.away(CONTENT, &content).await;
    assert_eq!(world.deletions(), [handle]);
    let creates = world.driver().calls_of(Method::CreateVolume);
    let deleted = world.driver().calls_of(Method::DeleteSnapshot).remove(0).started;
    assert!(creates.iter().all(|call| call.ended.is_some_and(|ended| ended <= deleted)), "never at once");
    for call in &creates {
        let from = call.create.as_ref().unwrap().volume_content_source.clone().unwrap().r#type;
        assert!(matches!(from, Some(Source::Snapshot(_))));
    }
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn s45_a_volume_and_a_snapshot_of_the_same_id_do_not_wait_for_each_other() {
    let world = World::snapshotting(|_| {}).await;
    let short = json!({"retry": {"initial": "50ms", "max": "400ms"}, "resync": "0s"});
    let _daemon = world.daemon(beside(&json!({ "attacher": short }))).await;
    let node = world.node("node").await;
    let cut = world.cut_anew("cut").await;
    let content = world.ready(&cut).await;
    let handle = crate::snapshotting::handle_in(&content).unwrap();
    world.driver().seed([handle]);
    let volume = world.volume_with("namesake", json!({"csi": {"volumeHandle": handle}})).await;
    world.driver().inject(deleting(Action::Hold).once());
    world.delete_snapshot(&cut).await;
    world.deleted_times(1).await;
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    world.driver().release();
    world.cut_gone(&cut).await;
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn snapshots_of_one_volume_are_deleted_at_once_also_while_it_is_cut() {
    const SNAPSHOTS: usize = 3;
    let (world, _daemon) = World::with_snapshotter(json!({})).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let mut cuts = Vec::new();
    for number in 0..SNAPSHOTS {
        let cut = world.cut(&format!("cut-{number}"), &source, &class).await;
        world.ready(&cut).await;
        cuts.push(cut);
    }
    world.driver().inject(cutting(Action::Hold).once());
    world.driver().inject(deleting(Action::Hold));
    let last = world.cut("last", &source, &class).await;
    world.cut_times(&last, 1).await;
    for cut in &cuts {
        world.delete_snapshot(cut).await;
    }
    world.deleted_times(SNAPSHOTS).await;
    let calls = [Method::DeleteSnapshot, Method::CreateSnapshot].map(|method| world.driver().calls_of(method));
    let running = |calls: &[Arc<Call>]| calls.iter().filter(|call| call.ended.is_none()).count();
    assert_eq!(
        [running(&calls[0]), running(&calls[1])],
        [SNAPSHOTS, 1],
        "each has its own snapshot, and none the volume"
    );
    world.driver().clear_faults();
    world.driver().release();
    for cut in &cuts {
        world.cut_gone(cut).await;
    }
    world.ready(&last).await;
    world.assert_no_snapshot_leaked().await;
}

#[tokio::test]
async fn a_snapshot_that_waits_for_another_attempt_holds_no_attach_up() {
    let world = World::snapshotting(|_| {}).await;
    // Nothing else than its next attempt would let go of the volume, and that never comes.
    let mut config = beside(&json!({ "attacher": {"retry": {"initial": "50ms", "max": "400ms"}, "resync": "0s"} }));
    crate::objects::merge(&mut config["roles"]["snapshotter"], slow());
    let _daemon = world.daemon(config).await;
    let node = world.node("node").await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    world.driver().inject(cutting(Action::fail(Code::Unavailable, "not now")));
    let cut = world.cut("cut", &source, &class).await;
    world.content_until(&cut.content, "told", |it| !error_in(it).is_empty()).await;
    let attachment = world.attach(&source.volume, &node).await;
    world.attached(&attachment).await;
    assert!(is_begun(&world.look(CONTENT, &cut.content).await), "the snapshot is still to be cut");
    assert_eq!(world.cuts(&cut).len(), 1);
}

#[tokio::test]
async fn a_look_at_a_snapshot_waits_neither_for_its_volume_nor_for_a_restore_of_it() {
    let world = World::snapshotting(|_| {}).await;
    let _daemon = world.daemon(beside(&supplier(json!({}))["roles"])).await;
    let source = world.source("source").await;
    let [snapshots, volumes] =
        [world.snapshot_class("class", json!({})).await, world.class("restored", json!({})).await];
    let ready = world.cut("ready", &source, &snapshots).await;
    let content = world.ready(&ready).await;
    // The volume is being cut, and a volume is being made from its snapshot.
    world.driver().inject(cutting(Action::Hold).once());
    world.driver().inject(Fault::on(Method::CreateVolume, Action::Hold).once());
    let next = world.cut("next", &source, &snapshots).await;
    world.cut_times(&next, 1).await;
    let restored = world.claim_from("restored-claim", &volumes, "VolumeSnapshot", &ready.snapshot).await;
    world.driver_until("a restore", |driver| !driver.calls_of(Method::CreateVolume).is_empty()).await;
    let handle = crate::snapshotting::handle_in(&content).unwrap();
    let kept = json!({"spec": {"deletionPolicy": "Retain"}});
    let given = world.content_by_hand("given", json!({ "snapshotHandle": handle }), kept).await;
    world.content_until(&given, "ready", is_ready).await;
    assert!(world.look_ups() > 0);
    let running = [Method::CreateSnapshot, Method::CreateVolume].map(|method| world.driver().calls_of(method));
    assert!(running.iter().all(|calls| calls.last().unwrap().ended.is_none()), "neither has ended");
    world.driver().release();
    world.ready(&next).await;
    world.claim_until(&restored, "bound", |it| phase(it) == "Bound").await;
}
