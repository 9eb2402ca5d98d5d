//! Failures around a working daemon: the API restarts, forgets, cannot be reached or forbids; the driver dies; the
//! Lease goes; an attachment is replaced by a new one of its name. After each, [`World::balanced`]: nothing is lost,
//! and nothing is attached that should not be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::app::Plan;
use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::roles;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::balance::RETURN;
use crate::cable::{Line, Outage};
use crate::ground::Daemon;
use crate::load::{Load, came_and_went, coming_and_going};
use crate::objects;
use crate::rights::without;
use crate::world::leases::holder;
use crate::world::{World, brief, until_some};

/// The time for which the driver's process is away.
const DOWN: Duration = Duration::from_millis(300);

#[tokio::test]
async fn what_is_lost_and_what_is_attached_and_should_not_be_is_no_balance() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let there = Load::put(&world, &node, "there", 1).await;
    there.attached(&world).await;
    world.balanced().await;
    daemon.stop().await.unwrap();
    // From here on nothing happens.
    let missed = async || world.imbalance().await.expect("no balance");
    let lost = Load::put(&world, &node, "lost", 1).await;
    assert!(missed().await.contains(&lost.attachments[0]));
    lost.detach(&world).await;
    lost.gone(&world).await;
    world.balanced().await;
    there.detach(&world).await;
    assert!(missed().await.contains(&there.attachments[0]), "a detach that never ends");
    let forced = json!({ "metadata": { "finalizers": null } });
    world.merge_patch::<VolumeAttachment>(&there.attachments[0], forced).await;
    there.gone(&world).await;
    assert!(missed().await.contains("the driver has"), "what nobody wants any more is still on the node");
}

#[tokio::test]
async fn an_api_server_that_restarts_in_the_middle_of_the_work_costs_nothing_but_time() {
    let world = World::alone().await;
    let daemon = world.daemon(json!({})).await;
    let node = world.node("node").await;
    let load = coming_and_going(&world, &node).await;
    // The driver answers when no daemon waits for the answer.
    world.ground().restart_api(|| world.driver().release()).await;
    // As long as it was away, each retry asked the driver again: what cannot be recorded is not taken for done.
    let before = world.changing_calls();
    world.serving(&daemon).await;
    came_and_went(&world, &load, 1, &before).await;
    assert!(!daemon.has_ended());
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn what_happened_while_the_api_forgot_its_past_is_found_by_listing_again() {
    let world = World::alone().await;
    let (daemon, cable) = world.ground().start_wired(&world.name("daemon"), &objects::config().to_string()).await;
    let node = world.node("node").await;
    let (stays, goes) = (Load::put(&world, &node, "stays", 1).await, Load::put(&world, &node, "goes", 2).await);
    stays.attached(&world).await;
    goes.attached(&world).await;
    let listed = world.lists(&daemon, "VolumeAttachment").await;
    cable.set(Line::Cut);
    goes.detach(&world).await;
    let comes = Load::put(&world, &node, "comes", 2).await;
    world.ground().forget().await;
    cable.set(Line::Up);
    world.serving(&daemon).await;
    came_and_went(&world, &(comes, goes), 1, &[]).await;
    world.called_at_most(1, &stays.volumes, &[]);
    assert!(world.lists(&daemon, "VolumeAttachment").await > listed, "its watch was not told that its version is gone");
}

/// One daemon, whose line fails in this way in the middle of the work, and is up again after the outage.
async fn is_cut_off(line: Line) {
    let world = World::new().await;
    let config = objects::config_with(objects::short_lease()).to_string();
    let (daemon, cable) = world.ground().start_wired(&world.name("daemon"), &config).await;
    let node = world.node("node").await;
    let load = coming_and_going(&world, &node).await;
    cable.set(line);
    world.driver().release();
    let unseen = Load::put(&world, &node, "unseen", 2).await;
    let leads = |status: &Value| status["roles"][0]["state"] == "serving";
    let outage = Outage::begin();
    world.shows(&daemon, "a daemon that has stopped to lead", |status| !leads(status)).await;
    let before = world.changing_calls();
    outage.end().await;
    assert_eq!(world.changing_calls().len(), before.len(), "who does not lead has nothing done");
    assert!(unseen.volumes.iter().all(|volume| world.publishes(volume).is_empty()));
    cable.set(Line::Up);
    world.serving(&daemon).await;
    unseen.attached(&world).await;
    came_and_went(&world, &load, 1, &before).await;
    world.called_at_most(1, &unseen.volumes, &[]);
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_daemon_that_is_cut_off_for_long_does_nothing_meanwhile_and_catches_up() {
    is_cut_off(Line::Cut).await;
}

#[tokio::test]
async fn a_daemon_whose_line_is_dead_for_long_does_nothing_meanwhile_and_catches_up() {
    is_cut_off(Line::Dead).await;
}

/// Waits until a daemon stands by and sees who leads now. `role`: the role's part of its status page.
pub(crate) async fn stands_by(world: &World, daemon: &Daemon, leader: &str, role: fn(&Value) -> &Value) {
    let leader = world.name(leader);
    world
        .shows(daemon, "a standby that sees the new leader", |status| {
            let role = role(status);
            role["state"] == "standby" && role["leader"].as_str().is_some_and(|it| it.starts_with(&leader))
        })
        .await;
}

/// Where the calls of the next leader begin: the first one asked again and again as long as it led, and its successor has a connection of
/// its own.
pub(crate) fn successor(calls: &[Arc<Call>]) -> usize {
    calls.iter().position(|call| call.connection != calls[0].connection).expect("the successor has something done")
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_replaced_and_follows_when_it_is_back() {
    let world = World::new().await;
    let (first, cable) = world.ground().start_wired(&world.name("first"), &objects::config().to_string()).await;
    world.serving(&first).await;
    let second = world.daemon_on("second", json!({})).await;
    let node = world.node("node").await;
    let load = coming_and_going(&world, &node).await;
    cable.set(Line::Cut);
    world.driver().release();
    world.serving(&second).await;
    let next = Load::put(&world, &node, "next", 2).await;
    next.attached(&world).await;
    cable.set(Line::Up);
    stands_by(&world, &first, "second", |status| &status["roles"][0]).await;
    let calls = world.changing_calls();
    let successor = successor(&calls);
    came_and_went(&world, &load, 1, &calls[..successor]).await;
    assert!(calls[successor..].iter().all(|call| call.connection != calls[0].connection), "both led at once");
    world.called_at_most(1, &next.volumes, &[]);
    second.stop().await.unwrap();
    let last = Load::put(&world, &node, "last", 1).await;
    last.attached(&world).await;
    first.stop().await.unwrap();
    world.balanced().await;
}

#[tokio::test]
async fn a_driver_that_is_killed_in_the_middle_of_much_work_loses_nothing() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let load = coming_and_going(&world, &node).await;
    world.restart_driver(DOWN).await;
    world.driver().release();
    came_and_went(&world, &load, 3, &[]).await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_lease_that_is_deleted_by_hand_is_made_again_and_nothing_is_done_twice() {
    let world = World::new().await;
    let _first = world.daemon_on("first", json!({})).await;
    let _second = world.daemon_on("second", json!({})).await;
    let node = world.node("node").await;
    let load = coming_and_going(&world, &node).await;
    let (leases, name) = (world.leases(), csi_attacher::lease(world.driver_name()));
    let old = leases.get(&name).await.unwrap();
    leases.delete(&name, &DeleteParams::default()).await.unwrap();
    world.driver().release();
    until_some(leases, &name, "made and held again, by whoever led", |lease: Option<&Lease>| {
        lease.is_some_and(|lease| lease.metadata.uid != old.metadata.uid && holder(lease) == holder(&old))
    })
    .await;
    let next = Load::put(&world, &node, "next", 2).await;
    next.attached(&world).await;
    came_and_went(&world, &load, 1, &[]).await;
    world.called_at_most(1, &next.volumes, &[]);
    let callers: BTreeSet<u64> = world.changing_calls().iter().map(|call| call.connection).collect();
    assert_eq!(callers.len(), 1, "both led: {:#?}", brief(&world.changing_calls()));
}

/// What `check` prints for the daemons of the scenarios.
pub(crate) fn plan(world: &World) -> Plan {
    let file = File { name: "rights.yaml".to_owned(), text: objects::config().to_string() };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap();
    Plan::of(&loaded, world.driver_name(), None).unwrap()
}

#[tokio::test]
async fn a_right_that_is_taken_away_from_a_running_daemon_is_told_and_got_over_when_it_is_given_back() {
    for (verb, resource) in [
        ("patch", "persistentvolumes"),
        ("patch", "volumeattachments"),
        ("patch", "volumeattachments/status"),
        ("update", "leases"),
    ] {
        let world = World::new().await;
        let host = world.name("daemon");
        let daemon = world.daemon(json!({})).await;
        let node = world.node("node").await;
        let before = Load::put(&world, &node, "before", 1).await;
        before.attached(&world).await;
        world.ground().grant(&host, &without(&plan(&world), Some((verb, resource)))).await;
        let during = Load::put(&world, &node, "during", 2).await;
        before.detach(&world).await;
        let told = format!("cannot {verb} resource \"{resource}\"");
        let shown = |status: &Value| status.to_string().replace('\\', "").contains(&told);
        world.shows(&daemon, "the right that is missing", shown).await;
        world.ground().grant(&host, &without(&plan(&world), None)).await;
        let given_back = async {
            world.serving(&daemon).await;
            during.attached(&world).await;
            before.gone(&world).await;
        };
        tokio::time::timeout(RETURN, given_back).await.unwrap_or_else(|_| panic!("{verb} {resource} is back in vain"));
        world.balanced().await;
    }
}

/// A daemon that has all rights when it begins loses one to read attachments, and then what it reads by.
async fn misses(world: &World, verb: &str, forgets: bool) {
    let host = world.name("daemon");
    let (daemon, cable) = world.ground().start_wired(&host, &objects::config().to_string()).await;
    let node = world.node("node").await;
    let before = Load::put(world, &node, "before", 1).await;
    before.attached(world).await;
    world.ground().grant(&host, &without(&plan(world), Some((verb, "volumeattachments")))).await;
    // A watch that runs was permitted when it began.
    cable.set(Line::Cut);
    let during = Load::put(world, &node, "during", 2).await;
    before.detach(world).await;
    if forgets {
        world.ground().forget().await;
    }
    let of_attachments = |status: &Value| -> String {
        let caches = status["caches"].as_array().unwrap();
        let cache = caches.iter().find(|cache| cache["kind"] == "VolumeAttachment").unwrap();
        cache["lastError"].as_str().unwrap_or_default().to_owned()
    };
    world.shows(&daemon, "a watch that is cut", |status| !of_attachments(status).is_empty()).await;
    cable.set(Line::Up);
    world
        .shows(&daemon, "the right that is missing", |status| {
            let text = of_attachments(status);
            text.contains("forbidden") && text.contains(&format!("cannot {verb} resource \"volumeattachments\""))
        })
        .await;
    world.ground().grant(&host, &without(&plan(world), None)).await;
    world.serving(&daemon).await;
    during.attached(world).await;
    before.gone(world).await;
    world.balanced().await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_right_to_watch_that_is_taken_away_from_a_running_daemon_is_told_and_got_over_when_it_is_given_back() {
    misses(&World::new().await, "watch", false).await;
}

#[tokio::test]
async fn a_right_to_list_that_is_taken_away_from_a_running_daemon_is_told_and_got_over_when_it_is_given_back() {
    // It lists again only what the server has forgotten.
    misses(&World::alone().await, "list", true).await;
}

/// Deletes an attachment together with its finalizers, as a user in a hurry does.
async fn force_away(world: &World, attachment: &str) {
    world.detach(attachment).await;
    world.merge_patch::<VolumeAttachment>(attachment, json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<VolumeAttachment>(attachment).await;
}

#[tokio::test]
async fn a_namesake_that_took_an_attachments_place_unseen_is_attached_and_recorded_itself() {
    let world = World::new().await;
    let (daemon, cable) = world.ground().start_wired(&world.name("daemon"), &objects::config().to_string()).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;
    let first = world.attached(&attachment).await;
    cable.set(Line::Cut);
    force_away(&world, &attachment).await;
    assert_eq!(world.attach(&volume, &node).await, attachment);
    cable.set(Line::Up);
    world.serving(&daemon).await;
    // If the first record's answer was cut off too, the driver was asked again at each retry, until the daemon was heard again.
    let before = world.changing_calls();
    let second = world.attached(&attachment).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    world.balanced().await;
    world.called_at_most(2, [&volume], &before);
    world.detached(&attachment).await;
    world.balanced().await;
}

#[tokio::test]
async fn a_namesake_that_takes_an_attachments_place_during_its_publish_gets_a_result_of_its_own() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, other) = (world.node("node").await, world.node("other").await);
    let volume = world.volume("pv").await;
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).once());
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a publish in flight", |_| !world.publishes(&volume).is_empty()).await;
    force_away(&world, &attachment).await;
    assert_eq!(world.attach(&volume, &node).await, attachment);
    world.driver().release();
    world.attached(&attachment).await;
    world.balanced().await;
    world.called_at_most(2, [&volume], &[]);
    world.detached(&attachment).await;
    // Nothing of it is left anywhere: it can go to another node.
    world.attached(&world.attach(&volume, &other).await).await;
    world.balanced().await;
}
