//! What a term of the health monitor asks, writes and tells, under paused time.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};
use tonic::Code;

use crate::cluster::{Caches, Viewpoint};
use crate::diagnostics::{RoleReport, RoleScope};
use crate::roles::Wiring;
use crate::roles::health_monitor::REGISTRATION;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::sandbox::api::faults::Matching;
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::{self, PatchBody};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};

use super::*;

const LIST: Method = Method::ControllerListVolumeHealth;
const GET: Method = Method::ControllerGetVolumeHealth;
pub(super) const SLOW: (i32, &str, &str) = (1, "Slow", "one path of two");
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Longer than a round, a pass, and what comes of it.
pub(super) const ROUND: Duration = Duration::from_secs(11);

/// A driver of CSI 1.13 without the list.
fn asked() -> Profile {
    Profile::default().with_volume_health().without(crate::csi::ControllerRpc::ListVolumeHealth)
}

/// A driver of CSI 1.13.
fn listing() -> Profile {
    Profile::default().with_volume_health()
}

/// Claims `c0`, `c1` ... with their volumes, bound, and a round or a pass in ten seconds.
pub(super) async fn scene(profile: Profile, section: Value, volumes: usize) -> Served {
    let world = scene_of_old(profile, section, volumes).await;
    world.testbed.api.keep_volume_health();
    world
}

/// The same with an API server that drops the health of claims.
async fn scene_of_old(profile: Profile, section: Value, volumes: usize) -> Served {
    let section = merged(json!({ "interval": "10s", "listInterval": "10s" }), section);
    let world = Served::new(&REGISTRATION, &section, profile).await;
    for number in 0..volumes {
        bind(&world, &format!("c{number}"), &format!("v{number}"));
    }
    world.write_events();
    world
}

/// A claim that is bound to a volume of its own for this handle.
pub(super) fn bind(world: &Served, claim: &str, handle: &str) {
    world.testbed.driver.seed([handle]);
    let driver = &world.context.driver.name;
    bind_to(world, claim, json!({ "csi": { "driver": driver, "volumeHandle": handle } }));
}

/// A claim that is bound to a volume of its own with this source.
fn bind_to(world: &Served, claim: &str, source: Value) {
    let api = &world.testbed.api;
    let size = json!({ "storage": "1Gi" });
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": claim, "namespace": "default" },
        "spec": { "volumeName": format!("pv-{claim}"), "accessModes": ["ReadWriteOnce"], "resources": { "requests": size } } });
    let uid = api.create_value(object).unwrap()["metadata"]["uid"].clone();
    let spec = json!({ "capacity": size, "accessModes": ["ReadWriteOnce"],
        "claimRef": { "namespace": "default", "name": claim, "uid": uid } });
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{claim}") },
        "spec": merged(spec, source) });
    api.create_value(object).unwrap();
    let bound = || PatchBody::Merge(json!({ "status": { "phase": "Bound" } }));
    api.patch_status::<core::PersistentVolume>("", &format!("pv-{claim}"), bound()).unwrap();
    api.patch_status::<core::PersistentVolumeClaim>("default", claim, bound()).unwrap();
}

pub(super) fn status(world: &Served, claim: &str) -> Vec<String> {
    let claim: core::PersistentVolumeClaim = world.testbed.api.get("default", claim).unwrap();
    let conditions =
        claim.status.and_then(|it| it.health_status).and_then(|it| it.health_conditions).unwrap_or_default();
    conditions.into_iter().map(|it| format!("{} {}", it.status, it.reason)).collect()
}

/// Reason and claim of each Event, in the order in which they were written.
pub(super) fn events(world: &Served) -> Vec<String> {
    let mut events: Vec<core::Event> = world.testbed.api.list("default").unwrap();
    events.sort_by_key(|it| it.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok()));
    let shown = |it: &core::Event| {
        format!(
            "{} {}",
            it.reason.as_deref().unwrap_or_default(),
            it.involved_object.name.as_deref().unwrap_or_default()
        )
    };
    events.iter().map(shown).collect()
}

pub(super) fn calls(world: &Served, method: Method) -> usize {
    world.testbed.driver.calls_of(method).len()
}

pub(super) fn writes(world: &Served) -> u64 {
    world.testbed.api.audit().count("patch", "persistentvolumeclaims")
}

fn figure(world: &Served, series: &str) -> Option<String> {
    let figures = world.context.meter.render();
    figures.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
}

#[test]
fn h5_neither_pods_nor_nodes_are_watched_unless_that_is_asked_for() {
    let watched = |section: Value| -> Vec<String> {
        let caches = Caches::new();
        let mut wiring = Wiring::new(&caches);
        let load = REGISTRATION.cluster().unwrap().load;
        let _role = load(&section, &mut wiring).unwrap();
        let _wired = wiring.into_wired();
        caches.rules(&Viewpoint::of("demo")).into_iter().map(|rule| rule.resource).collect()
    };
    assert_eq!(watched(json!({})), ["persistentvolumes", "persistentvolumeclaims"]);
    assert_eq!(watched(json!({ "nodeWatch": true })), ["persistentvolumes", "persistentvolumeclaims", "nodes", "pods"]);
}

#[tokio::test(start_paused = true)]
async fn h8_h13_each_volume_is_asked_for_once_in_an_interval_the_first_at_once() {
    let world = scene(asked(), json!({}), 1000).await;
    world.lead();
    world.until("the first question", |world| calls(world, GET) > 0).await;
    let first = world.testbed.driver.calls_of(GET)[0].started;
    tokio::time::sleep(10 * SECOND).await;
    let asked = world.testbed.driver.calls_of(GET);
    let volumes: std::collections::BTreeSet<_> = asked.iter().filter_map(|call| call.volume.clone()).collect();
    assert_eq!(volumes.len(), 1000);
    let until = |limit: Duration| asked.iter().filter(|call| call.started.saturating_sub(first) < limit).count();
    let half = until(5 * SECOND);
    assert!((490..=510).contains(&half), "{half} of 1000 in half of the interval");
    assert!(asked.iter().all(|call| !call.secrets));
    assert_eq!((writes(&world), events(&world).len()), (0, 0), "nothing is wrong");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_turns_unhealthy_is_written_once_and_cleared_by_the_drivers_word_alone() {
    let world = scene(asked(), json!({}), 2).await;
    world.testbed.driver.set_health("v0", [SLOW, (3, "Torn", "block 7")]);
    world.lead();
    world.until("it is written", |world| !status(world, "c0").is_empty()).await;
    assert_eq!(status(&world, "c0"), ["DataLoss Torn", "Degraded Slow"]);
    let series =
        "csi_controller_volume_health_status{namespace=\"default\",persistentvolumeclaim=\"c0\",status=\"DataLoss\"}";
    assert_eq!(figure(&world, series).as_deref(), Some("1"));
    world.testbed.driver.inject(Fault::on(GET, Action::fail(Code::Internal, "no answer")).volume("v0").times(1));
    world.testbed.driver.set_health("v0", []);
    let failed = |world: &Served| {
        figure(world, "csi_volume_health_probe_total{method=\"ControllerGetVolumeHealth\",result=\"Internal\"}")
    };
    world.until("a question fails", |world| failed(world).is_some()).await;
    assert_eq!(status(&world, "c0").len(), 2, "an error clears nothing");
    world.until("it is cleared", |world| status(world, "c0").is_empty()).await;
    world.until("the metric says so", |world| figure(world, series).as_deref() == Some("0")).await;
    assert_eq!((writes(&world), events(&world), status(&world, "c1")), (2, vec![], vec![]));
    tokio::time::sleep(10 * ROUND).await;
    assert_eq!(writes(&world), 2, "steady state");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h14_h15_what_leaves_the_list_is_asked_for_and_a_pass_that_fails_means_nothing() {
    let world = scene(Profile { page_limit: 1, ..listing() }, json!({}), 3).await;
    let driver = &world.testbed.driver;
    for volume in ["v0", "v1", "foreign"] {
        driver.seed([volume]);
        driver.set_health(volume, [SLOW]);
    }
    world.lead();
    world.until("both are written", |world| !status(world, "c0").is_empty() && !status(world, "c1").is_empty()).await;
    assert_eq!((calls(&world, LIST), calls(&world, GET)), (3, 0), "a page for each, and no question");
    driver.inject(Fault::on(LIST, Action::fail(Code::Aborted, "another token")).times(2));
    tokio::time::sleep(2 * ROUND).await;
    assert_eq!((calls(&world, GET), writes(&world)), (0, 2));
    // The list leaves both out, and one of them is still not healthy.
    driver.inject(Fault::on(LIST, Action::Lie(Lie::OmitVolumes(["v0".to_owned()].into()))).times(3));
    driver.set_health("v1", []);
    world.until("it is cleared", |world| status(world, "c1").is_empty()).await;
    tokio::time::sleep(ROUND).await;
    assert_eq!(status(&world, "c0"), ["Degraded Slow"], "the question says that it is not healthy");
    world.testbed.driver.clear_faults();
    driver.inject(Fault::on(GET, Action::fail(Code::Unavailable, "down")));
    driver.set_health("v0", []);
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!(status(&world, "c0"), ["Degraded Slow"], "an absence without an answer clears nothing");
    driver.clear_faults();
    world.until("it is cleared", |world| status(world, "c0").is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h10_an_endless_chain_of_tokens_ends_the_pass_and_the_next_one_lists_all() {
    let world = scene(listing(), json!({}), 1).await;
    let driver = &world.testbed.driver;
    driver.set_health("v0", [SLOW]);
    driver.inject(Fault::on(LIST, Action::Lie(Lie::TokenLoop)).times(2));
    world.lead();
    tokio::time::sleep(SECOND).await;
    assert_eq!((calls(&world, LIST), status(&world, "c0")), (2, vec![]));
    world.until("it is written", |world| !status(world, "c0").is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_driver_does_not_implement_are_made_once_and_the_next_source_is_taken() {
    let world = scene(listing(), json!({}), 2).await;
    let driver = &world.testbed.driver;
    driver.set_health("v0", [SLOW]);
    driver.inject(Fault::on(LIST, Action::fail(Code::Unimplemented, "not here")));
    world.lead();
    world.until("it is written", |world| !status(world, "c0").is_empty()).await;
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!(calls(&world, LIST), 1);
    driver.inject(Fault::on(GET, Action::fail(Code::Unimplemented, "nor this")));
    tokio::time::sleep(ROUND).await;
    let asked = calls(&world, GET);
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!((calls(&world, GET), status(&world, "c0").len()), (asked, 1), "idle, and nothing is cleared");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h16_h25_a_server_that_drops_the_field_gets_events_and_one_try_an_hour() {
    let world = scene_of_old(asked(), json!({}), 1).await;
    world.testbed.driver.set_health("v0", [SLOW]);
    world.lead();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
    tokio::time::sleep(10 * ROUND).await;
    let dropped = figure(&world, "csi_volume_health_status_writes_dropped_total");
    assert_eq!((writes(&world), dropped.as_deref()), (1, Some("1")));
    // Another leader tells it no second time, and tells its end.
    world.die().await;
    world.lead();
    tokio::time::sleep(2 * ROUND).await;
    assert_eq!((writes(&world), events(&world).len()), (2, 1), "each term tries once");
    world.testbed.driver.set_health("v0", []);
    world.until("its end is told", |world| events(world).len() == 2).await;
    assert_eq!(events(&world)[1], "VolumeConditionNormal c0");
    world.die().await;
    world.lead();
    tokio::time::sleep(2 * ROUND).await;
    assert_eq!(events(&world).len(), 2, "nor is the end told twice");
    world.testbed.driver.set_health("v0", [SLOW]);
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(writes(&world), 3);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(writes(&world), 4, "one try an hour");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h25_events_that_a_new_leader_cannot_read_at_first_are_read_again_and_it_reports_the_end() {
    let world = scene_of_old(asked(), json!({}), 2).await;
    world.testbed.driver.set_health("v0", [SLOW]);
    world.lead();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
    world.die().await;
    // Another program says so of the other claim, and the volume is repaired while no leader looks.
    let claim: core::PersistentVolumeClaim = world.testbed.api.get("default", "c1").unwrap();
    let theirs = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "theirs", "namespace": "default" },
        "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c1", "uid": claim.metadata.uid },
        "reason": "VolumeConditionAbnormal", "message": "slow", "source": { "component": "another" } });
    world.testbed.api.create_value(theirs).unwrap();
    world.testbed.driver.set_health("v0", []);
    let lists = Matching::any().verb("list").resource("events");
    let refused = api::faults::Action::Refuse(Rejection::too_many_requests(1));
    world.testbed.api.faults().add(api::faults::Fault::on(lists, refused).times(2));
    world.lead();
    tokio::time::sleep(2 * ROUND).await;
    assert_eq!(events(&world).len(), 2, "it does not know what was reported");
    world.until("its end is told", |world| events(world).len() == 3).await;
    assert_eq!(events(&world)[2], "VolumeConditionNormal c0");
    tokio::time::sleep(4 * ROUND).await;
    assert_eq!(events(&world).len(), 3, "nothing is said of what another program has reported");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_1_12_is_asked_for_conditions_which_events_tell() {
    let profile = Profile::default().without(crate::csi::ControllerRpc::ListVolumes);
    let world = scene(profile, json!({}), 1).await;
    world.testbed.driver.set_health("v0", [SLOW]);
    world.lead();
    world.until("an Event tells it", |world| events(world) == ["VolumeConditionAbnormal c0"]).await;
    assert!(calls(&world, Method::ControllerGetVolume) > 0 && calls(&world, GET) == 0);
    world.testbed.driver.set_health("v0", []);
    world.until("its end is told", |world| events(world).len() == 2).await;
    assert_eq!(writes(&world), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h12_h24_a_volume_that_is_bound_later_is_asked_for_at_once_and_one_answer_is_for_all_its_claims() {
    let world = scene(asked(), json!({ "interval": "10m" }), 1).await;
    world.lead();
    world.until("the first question", |world| calls(world, GET) == 1).await;
    bind(&world, "late", "v9");
    world.until("it is asked for", |world| calls(world, GET) >= 2).await;
    assert!(world.testbed.driver.age() < 60 * SECOND);
    world.testbed.driver.set_health("v9", [SLOW]);
    bind(&world, "twin", "v9");
    world
        .until("both are written", |world| !status(world, "late").is_empty() && !status(world, "twin").is_empty())
        .await;
    let questions =
        world.testbed.driver.calls_of(GET).iter().filter(|call| call.volume.as_deref() == Some("v9")).count();
    assert!(questions <= 3, "{questions}: the binding of each claim, and none for the claims");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h3_h6_h18_what_is_gone_meanwhile_is_not_written_and_not_asked_for_again() {
    let world = scene(asked(), json!({}), 2).await;
    let driver = &world.testbed.driver;
    driver.set_health("v0", [SLOW]);
    driver.inject(Fault::on(GET, Action::Hold).volume("v0").once());
    driver.inject(Fault::on(GET, Action::fail(Code::Internal, "no")).volume("v1"));
    world.lead();
    world.until("both were asked for", |world| calls(world, GET) >= 2).await;
    let api = &world.testbed.api;
    for claim in ["c0", "c1"] {
        api.delete::<core::PersistentVolumeClaim>("default", claim).unwrap();
    }
    api.delete::<core::PersistentVolume>("", "pv-c1").unwrap();
    let again = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c0", "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    api.create_value(again).unwrap();
    tokio::time::sleep(SECOND).await;
    driver.release();
    tokio::time::sleep(ROUND).await;
    let asked = calls(&world, GET);
    tokio::time::sleep(10 * ROUND).await;
    assert_eq!((writes(&world), status(&world, "c0"), calls(&world, GET)), (0, vec![], asked));
    assert!(world.work().is_empty(), "{:?}", world.work());
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn lies_and_a_volume_that_the_driver_does_not_know_change_nothing() {
    let world = scene(asked(), json!({}), 2).await;
    let driver = &world.testbed.driver;
    driver.set_health("v0", [SLOW]);
    world.lead();
    world.until("it is written", |world| !status(world, "c0").is_empty()).await;
    driver.set_health("v0", []);
    driver.inject(Fault::on(GET, Action::Lie(Lie::HealthOf("v1".to_owned()))).volume("v0").times(1));
    driver.inject(Fault::on(GET, Action::Lie(Lie::NoVolume)).volume("v0").times(1));
    driver.inject(Fault::on(GET, Action::fail(Code::NotFound, "no such volume")).volume("v0").times(3));
    world.until("the driver does not know it", |world| events(world) == ["VolumeNotFound c0"]).await;
    tokio::time::sleep(2 * ROUND).await;
    assert_eq!((status(&world, "c0").len(), events(&world).len(), writes(&world)), (1, 1, 1));
    world.until("it is cleared", |world| status(world, "c0").is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h7_a_driver_that_is_silent_for_five_intervals_fails_the_role_and_an_unhealthy_volume_does_not() {
    let world = scene(asked(), json!({}), 1).await;
    world.testbed.driver.set_health("v0", [SLOW]);
    let _shown = world.context.board.role(|| RoleReport::serving(NAME, RoleScope::Cluster));
    world.lead();
    tokio::time::sleep(10 * ROUND).await;
    let shown = |world: &Served| world.context.board.report().roles.remove(0);
    let RoleReport { failure, facts, .. } = shown(&world);
    assert_eq!(failure, None);
    let facts: Vec<_> = facts.iter().map(|fact| (fact.name.as_str(), fact.value.as_str())).collect();
    assert_eq!(facts[..2], [("source", "ControllerGetVolumeHealth"), ("not healthy", "1 volumes")]);
    world.testbed.driver.inject(Fault::on(GET, Action::fail(Code::Unavailable, "down")));
    tokio::time::sleep(4 * ROUND).await;
    assert_eq!(shown(&world).failure, None);
    tokio::time::sleep(4 * ROUND).await;
    let failure = shown(&world).failure.unwrap();
    assert!(failure.contains("the driver has not answered how its volumes are for 1m"), "{failure}");
    assert!(failure.ends_with("code = Unavailable desc = down"), "{failure}");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn h4_raw_devices_and_in_tree_volumes_that_the_driver_has_taken_over_are_asked_for() {
    let name = "ebs.csi.aws.com".to_owned();
    let world = scene(Profile { name, ..listing() }, json!({}), 0).await;
    let driver = &world.testbed.driver;
    driver.seed(["vol-1", "vol-2"]);
    let driver_name = &world.context.driver.name;
    bind_to(&world, "raw", json!({ "volumeMode": "Block", "csi": { "driver": driver_name, "volumeHandle": "vol-1" } }));
    bind_to(&world, "old", json!({ "awsElasticBlockStore": { "volumeID": "aws://us-east-1a/vol-2" } }));
    bind_to(&world, "foreign", json!({ "csi": { "driver": "other.example.com", "volumeHandle": "vol-1" } }));
    driver.set_health("vol-1", [SLOW]);
    driver.set_health("vol-2", [SLOW]);
    world.lead();
    world.until("both are written", |world| !status(world, "raw").is_empty() && !status(world, "old").is_empty()).await;
    driver.set_health("vol-2", []);
    world.until("it is cleared", |world| status(world, "old").is_empty()).await;
    assert_eq!((status(&world, "foreign"), calls(&world, GET)), (vec![], 1));
    world.testbed.tear_down().await;
}
