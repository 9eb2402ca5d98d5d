//! Failed writes to a PersistentVolume: the daemon reads the volume again before it concludes anything, and reports an
//! outage once instead of each attempt.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume as Object;
use serde_json::{Value, json};
use tonic::Code;

use crate::cluster::names;
use crate::roles::kit::fixtures::Warnings;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::REGISTRATION;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources;
use crate::sandbox::driver::{Action as DriverAction, Fault as DriverFault, Method, Profile};

const VOLUME: &str = "pv-1";
const OTHER: &str = "example.com/other";

/// A world in which only the tested work brings a key back.
async fn world() -> Served {
    Served::new(&REGISTRATION, &json!({ "resync": "0s" }), Profile::default()).await
}

/// Creates a volume of our driver.
fn volume(world: &Served, name: &str, phase: &str, policy: &str, finalizers: &[&str]) {
    let driver = &world.context.driver.name;
    world.testbed.driver.seed([name]);
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name, "finalizers": finalizers,
            "annotations": { names::ANNOTATION_PROVISIONED_BY: driver } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": policy, "csi": { "driver": driver, "volumeHandle": name } } });
    world.testbed.api.create_value(volume).unwrap();
    let phase = PatchBody::Merge(json!({ "status": { "phase": phase } }));
    world.testbed.api.patch_status::<Object>("", name, phase).unwrap();
}

fn on(verb: &str) -> Matching {
    Matching::any().verb(verb).resource("persistentvolumes").name(VOLUME)
}

fn not_found() -> Action {
    Action::Refuse(Rejection::not_found(resources::find("", "v1", "persistentvolumes").unwrap(), VOLUME))
}

/// The finalizers of the volume; none, if there is no volume.
fn finalizers(world: &Served) -> Option<Vec<String>> {
    let volume = world.testbed.api.get::<Object>("", VOLUME).ok()?;
    Some(volume.metadata.finalizers.unwrap_or_default())
}

fn merge(world: &Served, patch: Value) {
    world.testbed.api.patch::<Object>("", VOLUME, PatchBody::Merge(patch)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_404_to_a_write_is_not_the_end_of_a_volume_that_the_api_still_has() {
    let ours = names::FINALIZER_PROVISIONER;
    for (phase, policy, held, verb, end) in [
        ("Bound", "Delete", vec![], "patch", Some(vec![ours.to_owned()])),
        ("Released", "Retain", vec![ours], "patch", Some(vec![])),
        ("Released", "Delete", vec![ours], "patch", None),
        ("Released", "Delete", vec![ours], "delete", None),
    ] {
        let world = world().await;
        volume(&world, VOLUME, phase, policy, &held);
        let fault = world.testbed.api.faults().add(Fault::on(on(verb), not_found()).nth(1));
        world.lead();
        world.until_quietly(verb, |world| finalizers(world) == end).await;
        assert_eq!(world.testbed.api.faults().hits(fault), 1);
        let deletions = world.testbed.driver.calls_of(Method::DeleteVolume).len();
        assert_eq!(deletions, usize::from(end.is_none()), "{phase}, {policy}, {verb}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_gone_before_the_watch_says_so_costs_one_read_and_no_retry() {
    let world = world().await;
    volume(&world, VOLUME, "Released", "Retain", &[names::FINALIZER_PROVISIONER]);
    let faults = world.testbed.api.faults();
    let slow = faults.add(Fault::on(on("patch"), Action::DelayBefore(Duration::from_secs(5))).nth(1));
    world.lead();
    world.until_quietly("it is about to be written", |_| faults.hits(slow) == 1).await;
    faults.hold_watches(Matching::any().resource("persistentvolumes"));
    world.testbed.api.delete::<Object>("", VOLUME).unwrap();
    merge(&world, json!({ "metadata": { "finalizers": null } }));
    assert_eq!(finalizers(&world), None);
    world.until_quietly("settled", |world| world.work().is_empty()).await;
    let asked =
        world.testbed.api.audit().matching(|entry| entry.verb == "get" && entry.resource == "persistentvolumes");
    assert_eq!(asked.len(), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_writer_was_faster_than_is_made_again_at_once() {
    let world = world().await;
    volume(&world, VOLUME, "Released", "Retain", &[OTHER, names::FINALIZER_PROVISIONER]);
    let faults = world.testbed.api.faults();
    let delay = Duration::from_secs(5);
    let slow = faults.add(Fault::on(on("patch"), Action::DelayBefore(delay)).nth(1));
    world.lead();
    world.until_quietly("it is about to be written", |_| faults.hits(slow) == 1).await;
    let begun = world.context.clock.now();
    // As another role of this process does when it releases the volume at the same time: our finalizer has another
    // place in the list now.
    faults.hold_watches(Matching::any().resource("persistentvolumes"));
    merge(&world, json!({ "metadata": { "finalizers": [names::FINALIZER_PROVISIONER] } }));
    world.until_quietly("released", |world| finalizers(world) == Some(vec![])).await;
    let took = world.context.clock.now().saturating_duration_since(begun);
    assert!(took < delay + Duration::from_millis(500), "{took:?}");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_becomes_delete_at_the_last_moment_counts_though_no_watch_has_shown_it() {
    let world = world().await;
    volume(&world, VOLUME, "Released", "Retain", &[names::FINALIZER_PROVISIONER]);
    world.testbed.api.delete::<Object>("", VOLUME).unwrap();
    let faults = world.testbed.api.faults();
    let slow = faults.add(Fault::on(on("patch"), Action::DelayBefore(Duration::from_secs(5))).nth(1));
    world.lead();
    world.until_quietly("it is about to be written", |_| faults.hits(slow) == 1).await;
    let held = faults.hold_watches(Matching::any().resource("persistentvolumes"));
    merge(&world, json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } }));
    tokio::time::sleep(Duration::from_secs(6)).await;
    faults.remove(held);
    world.until("it is gone", |world| finalizers(world).is_none()).await;
    assert_eq!(world.testbed.driver.calls_of(Method::DeleteVolume).len(), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_becomes_retain_while_the_first_deletion_of_a_term_waits_for_lists_counts_though_no_watch_has_shown_it()
 {
    let world = world().await;
    volume(&world, VOLUME, "Bound", "Delete", &[]);
    world.lead();
    world.until_quietly("it serves", |world| finalizers(world).is_some_and(|it| !it.is_empty())).await;
    let faults = world.testbed.api.faults();
    let lists = Matching::any().verb("list").resource("volumeattachments");
    let slow = faults.add(Fault::on(lists, Action::DelayBefore(Duration::from_secs(5))));
    let released = PatchBody::Merge(json!({ "status": { "phase": "Released" } }));
    world.testbed.api.patch_status::<Object>("", VOLUME, released).unwrap();
    world.until_quietly("attachments are listed", |_| faults.hits(slow) == 1).await;
    // The list of volumes is complete before.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = faults.hold_watches(Matching::any().resource("persistentvolumes"));
    merge(&world, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    world.until_quietly("let go of", |world| finalizers(world) == Some(vec![])).await;
    assert!(world.testbed.driver.calls_of(Method::DeleteVolume).is_empty());
    faults.remove(held);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_driver_costs_a_warning_for_each_step_of_the_back_off_and_not_for_each_volume() {
    const VOLUMES: usize = 50;
    let world = world().await;
    world.testbed.driver.inject(DriverFault::on(Method::DeleteVolume, DriverAction::fail(Code::Unavailable, "down")));
    for number in 0..VOLUMES {
        volume(&world, &format!("pv-{number}"), "Released", "Delete", &[names::FINALIZER_PROVISIONER]);
    }
    let warnings = Warnings::begin();
    world.lead();
    let calls = |world: &Served| world.testbed.driver.calls_of(Method::DeleteVolume).len();
    world.until("each has failed again and again", |world| calls(world) >= 4 * VOLUMES).await;
    assert!((1..10).contains(&warnings.count()), "{} warnings", warnings.count());
    world.testbed.tear_down().await;
}
