//! A driver and an API server that fail the loop.

use tracing::Level;

use super::*;
use crate::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources;
use crate::telemetry::fixtures::logged;

#[tokio::test(start_paused = true)]
async fn s0_a_driver_that_fails_is_asked_ever_more_rarely_and_the_last_answer_stands() {
    let world = World::of_one_zone().await;
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::fail(tonic::Code::Internal, "pool is offline")));
    let asked = world.asked();
    world.pass_polls(10).await;
    let tries = world.asked() - asked;
    assert!((4..=14).contains(&tries), "{tries} calls in ten minutes: 1 s, 2 s, 4 s, …, 300 s");
    assert_eq!(world.told(), [at("fast", "z1", "10Ti")]);
    assert_eq!(world.rows()[0][5], "cannot ask for the capacity: rpc error: code = Internal desc = pool is offline");
    world.testbed.driver.clear_faults();
    world.testbed.driver.change_profile(|profile| profile.capacity = 7 * GIB);
    // The longest back-off.
    world.pass_polls(6).await;
    assert_eq!(world.told(), [at("fast", "z1", "7Gi")]);
    assert_eq!(world.rows()[0][5], "");
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn r32_a_question_that_hangs_is_given_up_and_holds_up_no_other() {
    let world = World::with(zoned(), &[class("fast", &json!({}))]).await;
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::Hang).once());
    let begun = tokio::time::Instant::now();
    world.add_node("n1", Some("z1"));
    world.until("it is asked", |world| world.asked() == 1).await;
    world.add_node("n2", Some("z2"));
    world.until("the other", |world| world.told() == [at("fast", "z2", "10Ti")]).await;
    assert!(begun.elapsed() < CsiOptions::default().timeout, "{:?}", begun.elapsed());
    world.until("both", |world| world.told() == [at("fast", "z1", "10Ti"), at("fast", "z2", "10Ti")]).await;
    assert!(begun.elapsed() < POLL, "no poll was waited for");
    assert_eq!(world.asked(), 3);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_outlasts_the_term_is_told_as_no_error_of_the_driver() {
    let timeout = CsiOptions::default().timeout;
    let section = CapacitySection { enabled: true, ..CapacitySection::default() };
    let objects = [class("fast", &json!({})), pod("me", Some("set"))];
    let world = World::in_term(|_, clock| Term::unattended(clock, timeout / 2), zoned(), section, &objects).await;
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::Hang));
    world.add_node("n1", Some("z1"));
    world.until("it is asked", |world| world.asked() == 1).await;
    tokio::time::sleep(timeout + Duration::from_secs(1)).await;
    assert_eq!((world.rows()[0][5].as_str(), world.asked()), ("", 1));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn as_many_questions_as_there_are_workers_are_asked_at_a_time() {
    let classes: Vec<Value> = (0..20).map(|number| class(&format!("c{number:02}"), &json!({}))).collect();
    let world = World::with(zoned(), &classes).await;
    let workers = CapacitySection::default().workers;
    assert!(workers > 1 && workers < classes.len(), "{workers}");
    let takes = Duration::from_secs(10);
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::Delay(takes)));
    world.add_node("n1", Some("z1"));
    world.until("the first are asked", |world| world.asked() > 0).await;
    tokio::time::sleep(takes / 2).await;
    assert_eq!(world.asked(), workers);
    tokio::time::sleep(takes).await;
    assert_eq!(world.asked(), classes.len().min(2 * workers));
    world.until("all are told", |world| world.told().len() == 20).await;
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn r42_a_conflict_has_the_object_read_again_and_makes_no_twin() {
    let world = World::of_one_zone().await;
    world.pass_polls(1).await;
    let resource = resources::find("storage.k8s.io", "v1", "csistoragecapacities").unwrap();
    let conflict = Rejection::conflict(resource, "any");
    let on = Matching::any().verb("patch").resource("csistoragecapacities");
    let struck = world.testbed.api.faults().add(ApiFault::on(on, ApiAction::Refuse(conflict)).nth(1));
    world.testbed.driver.change_profile(|profile| profile.capacity = 7 * GIB);
    world.capacity.invalidate("fast");
    let begun = tokio::time::Instant::now();
    world.until("it is up to date", |world| world.told() == [at("fast", "z1", "7Gi")]).await;
    assert!(begun.elapsed() < POLL, "no poll was waited for");
    assert_eq!((world.testbed.api.faults().hits(struck), world.writes()), (1, [1, 1, 0]));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_objects_name_that_is_taken_is_replaced_by_another_one_at_once_and_quietly() {
    let world = World::with(zoned(), &[class("fast", &json!({}))]).await;
    world.pass_polls(1).await;
    let resource = resources::find("storage.k8s.io", "v1", "csistoragecapacities").unwrap();
    let taken = Rejection::already_exists(resource, "csisc-12345");
    let on = Matching::any().verb("create").resource("csistoragecapacities");
    let struck = world.testbed.api.faults().add(ApiFault::on(on, ApiAction::Refuse(taken)).nth(1));
    let begun = tokio::time::Instant::now();
    world.add_node("n1", Some("z1"));
    let is_told = |world: &World| {
        assert!(world.rows().iter().all(|row| row[5].is_empty()), "{:?}", world.rows());
        world.told() == [at("fast", "z1", "10Ti")]
    };
    world.until("it is there", is_told).await;
    assert!(begun.elapsed() < BACKOFF, "no back-off: {:?}", begun.elapsed());
    assert_eq!((world.testbed.api.faults().hits(struck), world.writes(), world.asked()), (1, [1, 0, 0], 1));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_an_object_that_another_client_has_changed_is_made_anew_at_once_and_quietly() {
    let world = World::of_one_zone().await;
    world.pass_polls(1).await;
    let faults = world.testbed.api.faults();
    let held = faults.hold_watches(Matching::any().resource("csistoragecapacities"));
    let name = world.objects()[0].metadata.name.clone();
    let lie = crate::sandbox::api::PatchBody::Merge(json!({ "capacity": "1" }));
    world.testbed.api.patch::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(SPACE, &name, lie).unwrap();
    let on = Matching::any().verb("patch").resource("csistoragecapacities");
    let struck = faults.add(ApiFault::on(on, ApiAction::Refuse(Rejection::unprocessable_patch())).nth(1));
    world.testbed.driver.change_profile(|profile| profile.capacity = 7 * GIB);
    let begun = tokio::time::Instant::now();
    world.capacity.invalidate("fast");
    let is_told = |world: &World| {
        assert_eq!(world.rows()[0][5], "");
        world.told() == [at("fast", "z1", "7Gi")]
    };
    world.until("it is up to date", is_told).await;
    assert!(begun.elapsed() < BACKOFF, "no back-off: {:?}", begun.elapsed());
    assert_eq!(faults.hits(struck), 1);
    faults.remove(held);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_is_changed_and_deleted_before_the_watch_shows_it() {
    let (world, held) = World::made_unseen().await;
    world.testbed.driver.change_profile(|profile| profile.capacity = 7 * GIB);
    world.capacity.invalidate("fast");
    world.until("it is up to date", |world| world.told() == [at("fast", "z1", "7Gi")]).await;
    world.pass_polls(2).await;
    assert_eq!(world.writes(), [1, 1, 0]);
    assert_eq!(world.rows()[0][5], "");
    world.testbed.api.delete::<k8s_openapi::api::storage::v1::StorageClass>("", "fast").unwrap();
    world.until("it is gone", |world| world.told().is_empty()).await;
    world.pass_polls(2).await;
    world.testbed.api.faults().remove(held);
    world.pass_polls(2).await;
    assert_eq!((world.writes(), world.board.report().work.len()), ([1, 1, 1], 0));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_driver_costs_few_warnings_however_many_slots_there_are() {
    let (log, _guard) = logged(Level::WARN);
    let classes: Vec<Value> = (0..50).map(|number| class(&format!("c{number:02}"), &json!({}))).collect();
    let world = World::with(zoned(), &classes).await;
    world.testbed.driver.inject(Fault::on(Method::GetCapacity, Action::fail(tonic::Code::Unavailable, "down")));
    world.add_node("n1", Some("z1"));
    world.pass_polls(5).await;
    assert!(world.asked() > 200, "{}", world.asked());
    let log = log.text();
    let warnings = log.lines().filter(|line| line.contains("could not refresh the capacity")).count();
    assert!((1..20).contains(&warnings), "{warnings} warnings");
    world.tear_down().await;
}

/// Nobody probes for a right: csi-provisioner ended at its start without this one up to 6.3.
#[tokio::test(start_paused = true)]
async fn a_missing_right_to_create_is_named_at_each_capacity_and_costs_few_warnings_until_it_is_granted() {
    let (log, _guard) = logged(Level::WARN);
    let classes: Vec<Value> = (0..50).map(|number| class(&format!("c{number:02}"), &json!({}))).collect();
    let world = World::with(zoned(), &classes).await;
    let why = "User \"daemon\" cannot create resource \"csistoragecapacities\"";
    let refused = Rejection::forbidden("storage.k8s.io", "csistoragecapacities", "", why);
    let on = Matching::any().verb("create").resource("csistoragecapacities");
    let withheld = world.testbed.api.faults().add(ApiFault::on(on, ApiAction::Refuse(refused)));
    world.add_node("n1", Some("z1"));
    world.pass_polls(1).await;
    let rows = world.rows();
    assert!(rows.len() == 50 && rows.iter().all(|row| row[5].contains("cannot create resource")), "{rows:?}");
    let log = log.text();
    let warnings = log.lines().filter(|line| line.contains("could not refresh the capacity")).count();
    assert!((1..20).contains(&warnings), "{warnings} warnings");
    world.testbed.api.faults().remove(withheld);
    world.until("each has its object", |world| world.told().len() == 50).await;
    world.tear_down().await;
}
