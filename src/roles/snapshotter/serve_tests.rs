//! What a term does with contents: the requests that it makes, and what is left at the driver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use tonic::Code;

use super::super::names::{
    ANNOTATION_SNAPSHOT_BEING_CREATED, ANNOTATION_SNAPSHOT_BEING_DELETED, ANNOTATION_SNAPSHOT_SECRET_NAME,
    ANNOTATION_SNAPSHOT_SECRET_NAMESPACE, ANNOTATION_SNAPSHOTTING, FINALIZER_BOUND_CONTENT, LABEL_MANAGED_BY,
};
use crate::roles::kit::served::Served;
use crate::roles::snapshotter::REGISTRATION;
use crate::roles::snapshotter::content::record::intent::Intent;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources::{self, Resource};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Profile};

#[path = "cuts_tests.rs"]
mod cuts;

#[path = "kept_tests.rs"]
mod kept;

#[path = "pace_tests.rs"]
mod pace;

const GROUP: &str = "snapshot.storage.k8s.io";
const CONTENT: &str = "content-1";
const VOLUME: &str = "vol-1";
const SNAPSHOT_UID: &str = "123e4567-e89b-12d3-a456-426614174000";

fn contents() -> &'static Resource {
    resources::of_kind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent").unwrap()
}

/// A served term in a cluster whose driver has a volume, and which has a class.
async fn world(profile: Profile) -> Served {
    let world = unserved(profile).await;
    world.lead();
    world
}

/// The driver was asked for a snapshot, and answers when it is released.
async fn world_amid_a_call() -> Served {
    let world = world(Profile::default()).await;
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    cut(&world);
    world.until("asked", |world| calls(world, Method::CreateSnapshot) == 1).await;
    world
}

async fn world_of_a_ready_snapshot() -> Served {
    let world = world(Profile::default()).await;
    cut(&world);
    world.until("it is ready", is_ready).await;
    world
}

/// The same before the term.
async fn unserved(profile: Profile) -> Served {
    unserved_with(profile, &json!({ "readyCheck": { "initial": "1s", "max": "2s" } })).await
}

/// The same with this configuration.
async fn unserved_with(profile: Profile, section: &Value) -> Served {
    prepared(Served::new(&REGISTRATION, section, profile).await)
}

/// The driver has a volume, and the cluster a class.
fn prepared(world: Served) -> Served {
    world.testbed.driver.seed([VOLUME]);
    world.testbed.api.install(GROUP);
    let class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": "fast" }, "driver": world.context.driver.name, "deletionPolicy": "Delete",
        "parameters": { "tier": "1" } });
    world.testbed.api.create_value(class).unwrap();
    world
}

fn create(world: &Served, source: &Value) {
    create_with(world, source, &json!({}));
}

fn create_with(world: &Served, source: &Value, metadata: &Value) {
    let mut metadata = metadata.clone();
    metadata["name"] = CONTENT.into();
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": metadata,
        "spec": { "driver": world.context.driver.name, "deletionPolicy": "Delete", "volumeSnapshotClassName": "fast",
            "source": source,
            "volumeSnapshotRef": { "namespace": "shop", "name": "snap", "uid": SNAPSHOT_UID } } });
    world.testbed.api.create_value(content).unwrap();
}

fn cut(world: &Served) {
    create(world, &json!({ "volumeHandle": VOLUME }));
}

fn content(world: &Served) -> Option<Arc<Value>> {
    world.testbed.api.object(contents(), "", CONTENT)
}

fn patch(world: &Served, patch: Value) {
    world.testbed.api.patch_object(contents(), "", CONTENT, PatchBody::Merge(patch), false).unwrap();
}

/// As the snapshot-controller does.
fn delete(world: &Served) {
    patch(world, json!({ "metadata": { "annotations": { ANNOTATION_SNAPSHOT_BEING_DELETED: "yes" } } }));
    world.testbed.api.delete_object(contents(), "", CONTENT).unwrap();
}

fn is_ready(world: &Served) -> bool {
    content(world).is_some_and(|content| content["status"]["readyToUse"] == true)
}

fn annotation(world: &Served, key: &str) -> Option<String> {
    content(world)?["metadata"]["annotations"][key].as_str().map(str::to_owned)
}

fn calls(world: &Served, method: Method) -> usize {
    world.testbed.driver.calls_of(method).len()
}

fn snapshots(world: &Served) -> usize {
    world.testbed.driver.state().snapshots().len()
}

/// What the role asked of the API about the content, in order.
fn requests(world: &Served) -> Vec<String> {
    let audit = world.testbed.api.audit();
    let asked = audit.matching(|entry| entry.resource == "volumesnapshotcontents" && entry.name == CONTENT);
    asked.iter().map(|entry| format!("{} {}", entry.verb, entry.subresource).trim().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn s9_a_snapshot_costs_three_writes_and_its_deletion_one() {
    let world = world(Profile::default()).await;
    cut(&world);
    world.until_quietly("it is ready", is_ready).await;
    world.rest().await;
    assert_eq!(requests(&world), ["patch", "patch status", "patch"]);
    assert_eq!((calls(&world, Method::CreateSnapshot), snapshots(&world)), (1, 1));
    let stored = content(&world).unwrap();
    assert_eq!(stored["metadata"]["finalizers"], json!([FINALIZER_BOUND_CONTENT]));
    assert!(annotation(&world, ANNOTATION_SNAPSHOT_BEING_CREATED).is_none());
    assert!(annotation(&world, ANNOTATION_SNAPSHOTTING).is_none());
    world.testbed.api.audit().clear();
    delete(&world);
    world.until_quietly("it is gone", |world| content(world).is_none()).await;
    assert_eq!(requests(&world), ["get", "patch"]);
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s8_a_snapshot_that_is_not_ready_is_polled_without_a_request_to_the_api() {
    let world = world(Profile { snapshot_ready_polls: 12, ..Profile::default() }).await;
    cut(&world);
    world.until("it is ready", is_ready).await;
    world.rest().await;
    // The handle, the mark off; then readiness, and the request off.
    assert_eq!(requests(&world), ["patch", "patch status", "patch", "patch status", "patch"]);
    assert_eq!(calls(&world, Method::CreateSnapshot), 13, "each look is one call, and no request");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s3_a_deletion_during_the_call_goes_on_with_its_answer() {
    let world = world_amid_a_call().await;
    delete(&world);
    assert!(annotation(&world, ANNOTATION_SNAPSHOT_BEING_CREATED).is_some());
    world.testbed.driver.release();
    world.until_quietly("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s1_a_call_without_an_answer_is_repeated_before_the_deletion() {
    let world = world(Profile::default()).await;
    // Longer than the call's deadline.
    let late = Action::Late(Duration::from_secs(100));
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, late).once());
    cut(&world);
    world.until("asked", |world| calls(world, Method::CreateSnapshot) == 1).await;
    delete(&world);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert!(calls(&world, Method::CreateSnapshot) > 1);
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn i2_a_look_without_an_answer_is_repeated_before_the_deletion() {
    let world = world(Profile { snapshot_ready_polls: 20, ..Profile::default() }).await;
    cut(&world);
    world.until("it is cut", |world| snapshots(world) == 1 && calls(world, Method::CreateSnapshot) == 1).await;
    // Longer than the call's deadline: the driver would take the snapshot anew once it is deleted.
    let late = Action::Late(Duration::from_secs(100));
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, late).once());
    world.until("looked", |world| calls(world, Method::CreateSnapshot) == 2).await;
    delete(&world);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert!(calls(&world, Method::CreateSnapshot) > 2);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s39_a_mark_that_is_wiped_during_the_call_comes_back_at_once() {
    let world = world_amid_a_call().await;
    // As the snapshot-controller replaces all annotations from its cache.
    let wiped = json!({ ANNOTATION_SNAPSHOT_BEING_CREATED: null, ANNOTATION_SNAPSHOTTING: null,
        ANNOTATION_SNAPSHOT_BEING_DELETED: "yes" });
    patch(&world, json!({ "metadata": { "annotations": wiped } }));
    let is_back = |world: &Served| annotation(world, ANNOTATION_SNAPSHOT_BEING_CREATED).is_some();
    world.until("the mark is back while the call hangs", is_back).await;
    assert!(annotation(&world, ANNOTATION_SNAPSHOT_BEING_DELETED).is_some(), "S55");
    world.testbed.api.delete_object(contents(), "", CONTENT).unwrap();
    world.testbed.driver.release();
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::CreateSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s39_a_mark_that_cannot_be_put_back_at_once_comes_back_while_the_call_hangs() {
    let world = world_amid_a_call().await;
    let begun = world.context.clock.now();
    let writes = Matching::any().verb("patch").resource("volumesnapshotcontents");
    let refused = ApiFault::on(writes, ApiAction::Refuse(Rejection::internal("scripted"))).times(2);
    let refused = world.testbed.api.faults().add(refused);
    let wiped = json!({ ANNOTATION_SNAPSHOT_BEING_CREATED: null, ANNOTATION_SNAPSHOTTING: null });
    patch(&world, json!({ "metadata": { "annotations": wiped } }));
    let is_back = |world: &Served| annotation(world, ANNOTATION_SNAPSHOT_BEING_CREATED).is_some();
    world.until("the mark is back", is_back).await;
    let took = world.context.clock.now().saturating_duration_since(begun);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!((world.testbed.api.faults().hits(refused), calls(&world, Method::CreateSnapshot)), (2, 1));
    world.testbed.driver.release();
    world.until("it is ready", is_ready).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn l9_a_snapshot_whose_content_was_removed_by_force_is_deleted() {
    let world = world_amid_a_call().await;
    remove_by_force(&world);
    assert!(content(&world).is_none());
    world.testbed.driver.release();
    world.until("it is deleted", |world| calls(world, Method::DeleteSnapshot) == 1).await;
    world.rest().await;
    assert_eq!(snapshots(&world), 0);
    world.testbed.tear_down().await;
}

/// A content as the one of the same name before it was removed by force, whose request was recorded under other settings.
#[tokio::test(start_paused = true)]
async fn l6_l9_a_namesake_that_asks_by_another_name_is_no_heir() {
    let world = unserved(Profile::default()).await;
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    let before = format!("before-{SNAPSHOT_UID}");
    create_begun(&world, &before);
    world.lead();
    world.until("asked", |world| calls(world, Method::CreateSnapshot) == 1).await;
    remove_by_force(&world);
    cut(&world);
    world.testbed.driver.release();
    world.until("the namesake is ready", is_ready).await;
    world.rest().await;
    assert!(world.testbed.driver.snapshot_named(&before).is_none(), "nobody has it, and nobody asks for it");
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 1));
    world.testbed.tear_down().await;
}

/// A content that an earlier leader has begun: finalizer, mark and request are on it.
fn create_begun(world: &Served, name: &str) {
    create_with(world, &json!({ "volumeHandle": VOLUME }), &json!({ "finalizers": [FINALIZER_BOUND_CONTENT] }));
    let created = content(world).unwrap();
    let uid = created["metadata"]["uid"].as_str().unwrap();
    patch(world, json!({ "metadata": { "annotations": begun_as(world, uid, name) } }));
}

/// The marks of a content of this uid.
fn begun_as(world: &Served, uid: &str, name: &str) -> Value {
    let (driver, volumes) = (&world.context.driver.name, [VOLUME.to_owned()]);
    let recorded = Intent::new(uid, driver, name, &volumes, &BTreeMap::new(), None).to_text();
    json!({ ANNOTATION_SNAPSHOT_BEING_CREATED: "yes", ANNOTATION_SNAPSHOTTING: recorded })
}

/// What Events say.
fn notes(world: &Served) -> Vec<String> {
    let events = world.testbed.api.list::<Event>("shop").unwrap();
    events.into_iter().filter_map(|event| event.message).collect()
}

fn remove_by_force(world: &Served) {
    patch(world, json!({ "metadata": { "finalizers": null } }));
    world.testbed.api.delete_object(contents(), "", CONTENT).unwrap();
}

#[tokio::test(start_paused = true)]
async fn l9_a_content_that_is_removed_by_force_before_the_call_of_an_earlier_leader_is_repeated_leaves_no_snapshot() {
    let world = unserved(Profile::default()).await;
    let before = format!("before-{SNAPSHOT_UID}");
    create_begun(&world, &before);
    // The earlier leader's call has taken it.
    world.testbed.driver.cut_snapshot(&before, VOLUME).unwrap();
    // The API does not confirm the content, so that the driver is not asked.
    let reads = Matching::any().verb("get").resource("volumesnapshotcontents");
    let refused =
        world.testbed.api.faults().add(ApiFault::on(reads, ApiAction::Refuse(Rejection::internal("scripted"))));
    world.lead();
    world.until("a try has failed", |world| world.work().iter().any(|item| item.attempts > 0)).await;
    assert_eq!(calls(&world, Method::CreateSnapshot), 0);
    remove_by_force(&world);
    world.testbed.api.faults().remove(refused);
    world.until("it is deleted", |world| world.testbed.driver.snapshot_named(&before).is_none()).await;
    world.rest().await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

/// The content is a copy from the time when the snapshot was taken. Meanwhile its user has kept the snapshot, and deleted the first
/// content.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_older_than_the_content_that_asks_for_it_is_kept_when_that_is_removed_by_force() {
    let world = unserved(Profile::default()).await;
    world.write_events();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    world.testbed.api.create_value(namespace).unwrap();
    let name = format!("before-{SNAPSHOT_UID}");
    let id = world.testbed.driver.cut_snapshot(&name, VOLUME).unwrap();
    let old = Action::Lie(Lie::CreationTime(1_000_000_000, 0));
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, old));
    create_begun(&world, &name);
    // The cache has the content when the term begins.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reads = Matching::any().verb("get").resource("volumesnapshotcontents");
    let refused =
        world.testbed.api.faults().add(ApiFault::on(reads, ApiAction::Refuse(Rejection::internal("scripted"))));
    world.lead();
    world.until("the call is remembered", |world| world.work().iter().any(|item| item.attempts > 0)).await;
    remove_by_force(&world);
    world.testbed.api.faults().remove(refused);
    world.until("it is asked for", |world| calls(world, Method::CreateSnapshot) == 1).await;
    world.rest().await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (0, 1));
    world.until("an Event names it", |world| notes(world).iter().any(|note| note.contains(&id))).await;
    world.testbed.tear_down().await;
}

/// The namesake cannot ask by itself, because its class is gone.
#[tokio::test(start_paused = true)]
async fn l9_a_namesake_takes_over_the_call_and_deletes_the_snapshot_though_it_never_asked_by_itself() {
    let world = world_amid_a_call().await;
    remove_by_force(&world);
    let classes = resources::of_kind("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass").unwrap();
    world.testbed.api.delete_object(classes, "", "fast").unwrap();
    create_with(&world, &json!({ "volumeHandle": VOLUME }), &json!({ "finalizers": [FINALIZER_BOUND_CONTENT] }));
    world.testbed.driver.release();
    world.until("it has the snapshot", is_ready).await;
    delete(&world);
    world.until("it is gone", |world| content(world).is_none()).await;
    assert_eq!((calls(&world, Method::DeleteSnapshot), snapshots(&world)), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s2_s19_s47_a_refusal_is_in_the_status_until_the_driver_says_otherwise() {
    let world = world(Profile::default()).await;
    let refusal = Action::fail(Code::Internal, "no room");
    world.testbed.driver.inject(Fault::on(Method::CreateSnapshot, refusal).once());
    cut(&world);
    let says = |world: &Served| content(world)?["status"]["error"]["message"].as_str().map(str::to_owned);
    world.until("it says why", |world| says(world).is_some()).await;
    assert_eq!(
        says(&world).unwrap(),
        "Failed to create snapshot: failed to take snapshot of the volume vol-1: \"rpc error: code = Internal desc = no room\""
    );
    assert!(annotation(&world, ANNOTATION_SNAPSHOT_BEING_CREATED).is_none(), "the answer was final");
    world.until("it is ready", is_ready).await;
    world.rest().await;
    assert_eq!(says(&world), None);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s11_s33_a_given_snapshot_is_looked_up_and_deleted_by_its_id() {
    let world = world(Profile::default()).await;
    let id = world.testbed.driver.cut_snapshot("theirs", VOLUME).unwrap();
    create(&world, &json!({ "snapshotHandle": id }));
    patch(&world, json!({ "metadata": { "finalizers": [FINALIZER_BOUND_CONTENT] } }));
    world.until_quietly("it is ready", is_ready).await;
    assert_eq!(content(&world).unwrap()["status"]["snapshotHandle"], json!(id));
    assert_eq!(calls(&world, Method::CreateSnapshot), 0);
    delete(&world);
    world.until_quietly("it is gone", |world| content(world).is_none()).await;
    assert_eq!(snapshots(&world), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s34_kinds_that_come_later_are_looked_for_once_a_minute_and_served_within_one() {
    let world = Served::new(&REGISTRATION, &json!({}), Profile::default()).await;
    world.testbed.driver.seed([VOLUME]);
    world.lead();
    let minutes = 10;
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    for resource in ["volumesnapshotcontents", "volumesnapshotclasses"] {
        let asked = world.testbed.api.audit().matching(|entry| entry.resource == resource).len() as u64;
        assert!(asked <= minutes + 2, "{resource} was asked for {asked} times in {minutes} minutes");
    }
    let world = prepared(world);
    cut(&world);
    let installed = world.context.clock.now();
    world.until("it is ready", is_ready).await;
    let waited = world.context.clock.now().saturating_duration_since(installed);
    assert!(waited <= Duration::from_secs(61), "{waited:?}");
    world.testbed.tear_down().await;
}
