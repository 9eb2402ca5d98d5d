//! Failures around a daemon while claims are created and deleted: the API restarts, loses data, is unreachable or
//! forbids requests; the driver dies; the Lease is lost. After each, [`came_and_went`]: the driver has the volumes that
//! the API has, each claim has one, and no answered request was repeated.

use std::time::Duration;

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::burst::{Burst, came_and_went, coming_and_going};
use crate::cable::{Cable, Line, Outage};
use crate::failures::{stands_by, successor};
use crate::ground::Daemon;
use crate::objects;
use crate::supplier::{rights, supplier};
use crate::world::leases::holder;
use crate::world::{World, until_some};

/// The time for which the driver's process is away.
const DOWN: Duration = Duration::from_millis(300);

/// The configuration of a provisioner that leads on for as long as the API is away here.
fn patient() -> Value {
    let mut config = supplier(json!({}));
    objects::merge(&mut config, json!({ "leaderElection": { "leaseDuration": "60s", "renewDeadline": "50s" } }));
    config
}

/// The configuration of one that ceases to lead soon.
fn hasty() -> Value {
    let mut config = supplier(json!({}));
    objects::merge(&mut config, objects::short_lease());
    config
}

/// A daemon on this host whose line to the API is in our hand.
async fn wired(world: &World, host: &str, config: Value) -> (Daemon, Cable) {
    world.ground().start_wired(&world.name(host), &objects::config_with(config).to_string()).await
}

/// The provisioner's part of a status page.
fn provisioner(status: &Value) -> &Value {
    let mut roles = status["roles"].as_array().unwrap().iter();
    roles.find(|role| role["name"] == "provisioner").unwrap()
}

/// What a status page says of the watch of a kind, if it fails.
fn watch_error(status: &Value, kind: &str) -> String {
    let mut caches = status["caches"].as_array().unwrap().iter();
    let cache = caches.find(|cache| cache["kind"] == kind).unwrap();
    cache["lastError"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_api_server_that_restarts_while_claims_come_and_go_costs_nothing_but_time() {
    let world = World::supplied_alone().await;
    let daemon = world.daemon(patient()).await;
    let class = world.class("class", json!({})).await;
    let fewer = Burst::there(&world, &class, "fewer", 4).await;
    let load = coming_and_going(&world, &class).await;
    // The driver holds none of these: the end of the server meets each at another step.
    fewer.delete(&world).await;
    let more = Burst::ask(&world, &class, "more", 4).await;
    // The driver answers when no daemon waits for the answer.
    world.ground().restart_api(|| world.driver().release()).await;
    world.serving(&daemon).await;
    more.provisioned(&world).await;
    fewer.gone(&world).await;
    // An answer that cannot be recorded is kept until it can.
    came_and_went(&world, &load, 1, &[]).await;
    assert!(!daemon.has_ended());
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn claims_that_came_and_went_while_the_api_forgot_its_past_are_found_by_listing_again() {
    let world = World::supplied_alone().await;
    let (daemon, cable) = wired(&world, "daemon", patient()).await;
    let class = world.class("class", json!({})).await;
    let fewer = Burst::there(&world, &class, "fewer", 2).await;
    let load = coming_and_going(&world, &class).await;
    let kinds = ["PersistentVolumeClaim", "PersistentVolume"];
    let listed = [world.lists(&daemon, kinds[0]).await, world.lists(&daemon, kinds[1]).await];
    // Dead, so that nothing is heard and nothing fails: who fails for long waits long before it tries again.
    cable.set(Line::Dead);
    world.driver().release();
    world.driver_until("answers that cannot be recorded", |_| world.supplies_in_flight() == 0).await;
    fewer.delete(&world).await;
    let more = Burst::ask(&world, &class, "more", 2).await;
    world.ground().forget().await;
    assert_eq!(more.asked(&world), [0, 0]);
    cable.set(Line::Cut);
    let is_cut = |status: &Value| kinds.iter().all(|kind| !watch_error(status, kind).is_empty());
    world.shows(&daemon, "watches that are cut", is_cut).await;
    cable.set(Line::Up);
    world.serving(&daemon).await;
    more.provisioned(&world).await;
    fewer.gone(&world).await;
    came_and_went(&world, &load, 1, &[]).await;
    for (kind, before) in kinds.into_iter().zip(listed) {
        assert!(world.lists(&daemon, kind).await > before, "the watch of {kind} was not told that its version is gone");
    }
}

/// One daemon, whose line fails in this way while claims come and go, and is up again after the outage.
async fn is_cut_off(line: Line) {
    let world = World::supplied(|_| {}).await;
    let (daemon, cable) = wired(&world, "daemon", hasty()).await;
    let class = world.class("class", json!({})).await;
    let fewer = Burst::there(&world, &class, "fewer", 2).await;
    let load = coming_and_going(&world, &class).await;
    cable.set(line);
    let outage = Outage::begin();
    world.driver().release();
    fewer.delete(&world).await;
    let more = Burst::ask(&world, &class, "more", 2).await;
    let leads = |status: &Value| provisioner(status)["state"] == "serving";
    world.shows(&daemon, "a daemon that has stopped to lead", |status| !leads(status)).await;
    let before = world.supplies();
    outage.end().await;
    assert_eq!(world.supplies().len(), before.len(), "who does not lead has nothing done");
    assert_eq!(more.asked(&world), [0, 0]);
    cable.set(Line::Up);
    world.serving(&daemon).await;
    more.provisioned(&world).await;
    fewer.gone(&world).await;
    // Each answer that was not recorded is asked for once more, by whoever leads then.
    came_and_went(&world, &load, 1, &before).await;
    assert_eq!(more.asked(&world), [1, 1]);
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_daemon_that_is_cut_off_while_claims_come_and_go_does_nothing_meanwhile_and_catches_up() {
    is_cut_off(Line::Cut).await;
}

#[tokio::test]
async fn a_daemon_whose_line_is_dead_while_claims_come_and_go_does_nothing_meanwhile_and_catches_up() {
    is_cut_off(Line::Dead).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_while_claims_come_and_go_is_replaced_and_follows_when_it_is_back() {
    let world = World::supplied(|_| {}).await;
    let (first, cable) = wired(&world, "first", supplier(json!({}))).await;
    world.serving(&first).await;
    let second = world.daemon_on("second", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let load = coming_and_going(&world, &class).await;
    cable.set(Line::Cut);
    world.driver().release();
    world.serving(&second).await;
    let next = Burst::there(&world, &class, "next", 2).await;
    cable.set(Line::Up);
    stands_by(&world, &first, "second", provisioner).await;
    let calls = world.supplies();
    let successor = successor(&calls);
    came_and_went(&world, &load, 1, &calls[..successor]).await;
    let calls = world.supplies();
    assert!(calls[successor..].iter().all(|call| call.connection != calls[0].connection), "both led at once");
    assert_eq!(next.asked(&world), [1, 1]);
    second.stop().await.unwrap();
    Burst::there(&world, &class, "last", 1).await;
    first.stop().await.unwrap();
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_driver_that_is_killed_while_claims_come_and_go_loses_nothing() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.daemon(supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let load = coming_and_going(&world, &class).await;
    world.restart_driver(DOWN).await;
    world.driver().release();
    came_and_went(&world, &load, 3, &[]).await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_driver_that_dies_at_any_point_of_a_call_is_asked_again_when_it_is_back() {
    let world = World::supplied(|_| {}).await;
    let daemon = world.daemon(supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let deaths = [
        ("before", Action::Crash { down: DOWN }),
        ("between", Action::DoneButCrash { down: DOWN }),
        ("after", Action::AnswerThenCrash { down: DOWN }),
    ];
    for (name, death) in deaths {
        let restarts = world.driver().restarts();
        world.driver().inject(Fault::on(Method::CreateVolume, death.clone()).once());
        let goes = Burst::there(&world, &class, &format!("{name}-goes"), 1).await;
        world.driver().inject(Fault::on(Method::DeleteVolume, death).once());
        goes.delete(&world).await;
        let stays = Burst::there(&world, &class, &format!("{name}-stays"), 1).await;
        came_and_went(&world, &(stays, goes), 2, &[]).await;
        world.driver_until("dead twice", |driver| driver.restarts() == restarts + 2).await;
    }
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_lease_that_is_deleted_by_hand_while_claims_come_and_go_is_made_again_and_nothing_is_made_twice() {
    let (world, _first) = World::with_supplier_on("first").await;
    let _second = world.daemon_on("second", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let load = coming_and_going(&world, &class).await;
    let (leases, name) = (world.leases(), names::lease(world.driver_name()));
    let old = leases.get(&name).await.unwrap();
    leases.delete(&name, &DeleteParams::default()).await.unwrap();
    world.driver().release();
    until_some(leases, &name, "made and held again, by whoever led", |lease: Option<&Lease>| {
        lease.is_some_and(|lease| lease.metadata.uid != old.metadata.uid && holder(lease) == holder(&old))
    })
    .await;
    Burst::there(&world, &class, "next", 2).await;
    came_and_went(&world, &load, 1, &[]).await;
}

/// Whether a status page names the missing right.
fn tells(status: &Value, verb: &str, resource: &str) -> bool {
    let page = status.to_string().replace('\\', "");
    verb.split('|').any(|verb| page.contains(&format!("cannot {verb} resource \"{resource}\"")))
}

/// A right is taken away from a running daemon while claims come and go, told where users look, and given back. Without it, each
/// volume is asked for this often.
async fn misses(verb: &str, resource: &str, made: usize) {
    let world = World::supplied(|_| {}).await;
    let host = world.name("daemon");
    let (daemon, config) = (world.daemon(supplier(json!({}))).await, objects::config_with(supplier(json!({}))));
    let class = world.class("class", json!({})).await;
    let before = Burst::there(&world, &class, "before", 2).await;
    world.ground().grant(&host, &rights(&world, &config, Some((verb, resource)))).await;
    let during = Burst::ask(&world, &class, "during", 2).await;
    before.delete(&world).await;
    world.shows(&daemon, "the right that is missing", |status| tells(status, verb, resource)).await;
    world.driver_until("what is possible without the right", |_| during.asked(&world) == [made, made]).await;
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.serving(&daemon).await;
    came_and_went(&world, &(during, before), 1, &[]).await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn without_the_right_to_record_what_is_asked_nothing_is_asked_until_it_is_given_back() {
    misses("create|patch", "configmaps", 0).await;
}

#[tokio::test]
async fn volumes_that_may_not_be_stored_are_made_once_and_stored_when_the_right_is_given_back() {
    misses("create", "persistentvolumes", 1).await;
}

#[tokio::test]
async fn volumes_whose_objects_may_not_be_deleted_are_deleted_once_and_go_when_the_right_is_given_back() {
    misses("delete", "persistentvolumes", 1).await;
}

#[tokio::test]
async fn volumes_whose_finalizer_may_not_be_taken_off_are_deleted_once_and_go_when_the_right_is_given_back() {
    misses("patch", "persistentvolumes", 1).await;
}

#[tokio::test]
async fn a_right_to_watch_claims_that_is_taken_away_is_told_and_got_over_when_it_is_given_back() {
    let world = World::supplied(|_| {}).await;
    let (host, config) = (world.name("daemon"), objects::config_with(supplier(json!({}))));
    let (daemon, cable) = wired(&world, "daemon", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let before = Burst::there(&world, &class, "before", 2).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("watch", "persistentvolumeclaims")))).await;
    // A watch that runs was permitted when it began.
    cable.set(Line::Cut);
    before.delete(&world).await;
    let during = Burst::ask(&world, &class, "during", 2).await;
    let of_claims = |status: &Value| watch_error(status, "PersistentVolumeClaim");
    world.shows(&daemon, "a watch that is cut", |status| !of_claims(status).is_empty()).await;
    cable.set(Line::Up);
    world
        .shows(&daemon, "the right that is missing", |status| {
            of_claims(status).contains("cannot watch resource \"persistentvolumeclaims\"")
        })
        .await;
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.serving(&daemon).await;
    came_and_went(&world, &(during, before), 1, &[]).await;
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn a_leader_that_may_not_renew_its_lease_any_more_does_nothing_until_the_right_is_given_back() {
    let world = World::supplied(|_| {}).await;
    let host = world.name("daemon");
    let (daemon, config) = (world.daemon(hasty()).await, objects::config_with(hasty()));
    let class = world.class("class", json!({})).await;
    let load = coming_and_going(&world, &class).await;
    world.ground().grant(&host, &rights(&world, &config, Some(("update", "leases")))).await;
    world
        .shows(&daemon, "the right that is missing, and nobody who leads", |status| {
            tells(status, "update", "leases") && provisioner(status)["state"] != "serving"
        })
        .await;
    world.driver_until("calls that are given up with the Lease", |_| world.supplies_in_flight() == 0).await;
    let before = world.supplies();
    world.driver().release();
    let more = Burst::ask(&world, &class, "more", 2).await;
    world.ground().grant(&host, &rights(&world, &config, None)).await;
    world.serving(&daemon).await;
    more.provisioned(&world).await;
    came_and_went(&world, &load, 1, &before).await;
    assert_eq!(more.asked(&world), [1, 1]);
    assert!(!daemon.has_ended());
}
