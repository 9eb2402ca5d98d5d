//! Snapshots that somebody needs or has kept, where the daemon's own watch does not show it: contents of other nodes, copies, and
//! what was written on a content just before it was removed by force.

use std::time::Duration;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault};
use csi_control_plane::sandbox::driver::{Action, Lie};
use serde_json::json;

use super::{api, by_daemon};
use crate::objects::{config_with, merge};
use crate::snapshotting::{
    BEGUN, BOUND, CONTENT, DELETED, INTENT, NOBODY, cutting, handle_in, is_begun, is_done, is_ready, snapshotter,
};
use crate::supplier::figure;
use crate::world::{PATIENCE, World, settled};

const CONTENTS: &str = "volumesnapshotcontents";
const MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";

#[tokio::test]
async fn a_snapshot_of_a_node_is_kept_for_a_content_of_another_node_and_for_one_that_a_backup_brings_back() {
    for elsewhere in [json!({}), json!({ MANAGED_BY: "elsewhere" })] {
        let world = World::snapshotting(|_| {}).await;
        let host = world.name("daemon");
        let config = config_with(snapshotter(json!({ "nodeDeployment": { "enabled": true } }))).to_string();
        let dial = world.sandbox().testbed.driver_dial(&host);
        let daemon = world.ground().start_on(&host, "here", &config, dial).await;
        world.page_names(&daemon, &["the snapshot-controller assigns groups to no node"]).await;
        let id = world.cut_behind("theirs");
        let source = || json!({ "snapshotHandle": id });
        let here = || json!({ "metadata": { "labels": { MANAGED_BY: "here" }, "finalizers": [BOUND] } });
        let first = world.content_by_hand("first", source(), here()).await;
        world.content_until(&first, "ready", is_ready).await;
        let other = world.content_by_hand("other", source(), json!({ "metadata": { "labels": elsewhere } })).await;
        world.delete_installed(CONTENT, &first).await;
        world.away(CONTENT, &first).await;
        assert!(world.deletions().is_empty() && world.driver().state().snapshots().contains_key(&id));
        world.delete_installed(CONTENT, &other).await;
        world.away(CONTENT, &other).await;
        let last = world.content_by_hand("last", source(), here()).await;
        world.content_until(&last, "ready", is_ready).await;
        world.delete_installed(CONTENT, &last).await;
        world.away(CONTENT, &last).await;
        assert_eq!(world.deletions(), std::slice::from_ref(&id), "nobody else names it any more");
    }
}

#[tokio::test]
async fn j9_a_content_with_the_bare_mark_of_another_program_does_not_get_an_older_snapshot() {
    let world = World::snapshotting(|_| {}).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    // Its user has kept it, and brings the content back from a backup of the time when it was taken.
    let id = world.driver().cut_snapshot(&format!("snapshot-{NOBODY}"), &source.handle).unwrap();
    world.driver().inject(cutting(Action::Lie(Lie::CreationTime(1_000_000_000, 0))));
    let change = json!({ "metadata": { "annotations": { BEGUN: "yes" }, "finalizers": [BOUND] },
        "spec": { "volumeSnapshotClassName": class, "volumeSnapshotRef": { "uid": NOBODY } } });
    let copy =
        |short: &'static str| world.content_by_hand(short, json!({ "volumeHandle": source.handle }), change.clone());
    let first = copy("first").await;
    let daemon = world.daemon_on("one", snapshotter(json!({}))).await;
    world.told_on(CONTENT, &first, "SnapshotContentCopied", "was taken before").await;
    let content = world.look(CONTENT, &first).await;
    assert!(is_begun(&content) && handle_in(&content).is_none(), "{content:#}");
    daemon.stop().await.unwrap();
    // The next leader comes to the same end.
    let _daemon = world.daemon_on("two", snapshotter(json!({}))).await;
    world.edit(CONTENT, &first, json!({ "metadata": { "annotations": { DELETED: "yes" } } })).await;
    world.delete_installed(CONTENT, &first).await;
    world.away(CONTENT, &first).await;
    assert!(world.deletions().is_empty() && world.driver().state().snapshots().contains_key(&id));
    // If its user wants the snapshot for the copy, it gets it.
    let second = copy("second").await;
    world.told_on(CONTENT, &second, "SnapshotContentCopied", &id).await;
    world.edit(CONTENT, &second, json!({ "metadata": { "annotations": { BEGUN: null, INTENT: null } } })).await;
    let content = world.content_until(&second, "ready", is_ready).await;
    assert_eq!(handle_in(&content), Some(id.as_str()));
}

#[tokio::test]
async fn a_content_that_another_program_has_begun_gets_the_snapshot_that_was_taken_for_it() {
    let world = World::snapshotting(|_| {}).await;
    let source = world.source("source").await;
    let class = world.snapshot_class("class", json!({})).await;
    let change = json!({ "metadata": { "annotations": { BEGUN: "yes" }, "finalizers": [BOUND] },
        "spec": { "volumeSnapshotClassName": class, "volumeSnapshotRef": { "uid": NOBODY } } });
    let content = world.content_by_hand("content", json!({ "volumeHandle": source.handle }), change).await;
    let id = world.driver().cut_snapshot(&format!("snapshot-{NOBODY}"), &source.handle).unwrap();
    let _daemon = world.snapshotter(json!({})).await;
    let content = world.content_until(&content, "ready", |it| is_ready(it) && !is_begun(it)).await;
    assert_eq!(handle_in(&content), Some(id.as_str()));
}

#[tokio::test]
async fn l9_a_policy_that_no_watch_has_shown_counts_for_a_content_that_is_removed_by_force() {
    for (policy, is_forgotten, is_left) in [("Retain", false, true), ("Delete", false, false), ("Delete", true, true)] {
        let world = World::snapshotting(|_| {}).await;
        let mut config = snapshotter(json!({}));
        // A list that nobody asks for would come too early or too late.
        merge(&mut config, json!({ "kubernetes": { "requestTimeout": "5s" } }));
        let daemon = world.daemon(config).await;
        world.driver().inject(cutting(Action::Hold).once());
        let cut = world.cut_anew("cut").await;
        world.cut_times(&cut, 1).await;
        world.delete_snapshot_and_see(&cut).await;
        let held = api(&world).faults().hold_watches(by_daemon(&world).resource(CONTENTS));
        world.edit(CONTENT, &cut.content, json!({ "spec": { "deletionPolicy": policy } })).await;
        world.edit(CONTENT, &cut.content, json!({ "metadata": { "finalizers": null } })).await;
        world.away(CONTENT, &cut.content).await;
        if is_forgotten {
            api(&world).compact();
        }
        api(&world).audit().clear();
        world.driver().release();
        let is_list = |it: &Entry| it.verb == "list" && it.resource == CONTENTS;
        settled("a list of the contents", PATIENCE, async || {
            let lists = api(&world).audit().matching(is_list).len();
            if lists > 0 { Ok(()) } else { Err("none".to_owned()) }
        })
        .await;
        api(&world).faults().remove(held);
        let result = if is_left { "left" } else { "deleted" };
        let is_counted = |metrics: &str| {
            figure(metrics, "csi_control_plane_snapshots_orphaned_total", &[result]).is_some_and(|count| count >= 1.0)
        };
        world.metrics_until(&daemon, "what became of it", is_counted).await;
        let left = world.driver().state().snapshots().len();
        assert_eq!((world.deletions().len(), left), if is_left { (0, 1) } else { (1, 0) }, "{policy} {is_forgotten}");
    }
}

#[tokio::test]
async fn a_snapshot_is_kept_although_a_late_watch_does_not_show_which_other_content_names_it() {
    let world = World::snapshotting(|profile| profile.snapshots_wait = true).await;
    let _daemon = world.snapshotter(json!({})).await;
    // Before its first deletion the term lists contents.
    let first = world.cut_anew("first").await;
    world.content_until(&first.content, "cut", |it| handle_in(it).is_some()).await;
    world.delete_snapshot_and_wait(&first).await;
    let cut = world.cut_anew("cut").await;
    let is_cut = world.content_until(&cut.content, "cut", |it| handle_in(it).is_some()).await;
    let id = handle_in(&is_cut).unwrap();
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource(CONTENTS));
    world.content_by_hand("other", json!({ "snapshotHandle": id }), json!({})).await;
    world.delete_snapshot_and_see(&cut).await;
    // The answer to the next write shows that the content is to be deleted.
    world.driver().finish_snapshot(id, true);
    world.cut_gone(&cut).await;
    assert!(!world.deletions().iter().any(|it| it == id), "{:?}", world.deletions());
    assert!(world.driver().state().snapshots().contains_key(id));
    api(&world).faults().remove(held);
}

#[tokio::test]
async fn a_name_that_another_snapshot_has_got_while_a_request_was_recorded_is_not_asked_for() {
    let world = World::snapshotting(|_| {}).await;
    let [one, other] = world.contents_of_one_name().await;
    let writes = |content: &str| by_daemon(&world).verb("patch").resource(CONTENTS).name(content);
    let faults = api(&world).faults();
    // Each begins before the other one has said so.
    faults.add(ApiFault::on(writes(&one), ApiAction::DelayBefore(Duration::from_secs(1))).times(1));
    let held = faults.add(ApiFault::on(writes(&other), ApiAction::Hold));
    let _daemon = world.snapshotter(world.short_names()).await;
    world.content_until(&one, "ready", is_done).await;
    assert_eq!(faults.hits(held), 1);
    faults.remove(held);
    world.told_whose_name(&other, &one).await;
}
