//! Writes of the attacher that fail because its view was old: the objects are read again before anything is concluded, and the
//! write is made again at once. Nobody hears of it: no warning, no failed try, no error in a status.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use crate::roles::attacher::{REGISTRATION, names};
use crate::roles::kit::fixtures::Warnings;
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, FaultId, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources::{Resource, find};
use crate::sandbox::driver::{Method, Profile};

const VOLUME: &str = "pv-1";
const ATTACHMENT: &str = "csi-1";
const NODE: &str = "node-1";
const OTHER: &str = "example.com/other";
/// How long a write takes that others are faster than.
const DELAY: Duration = Duration::from_secs(5);
/// Less than the first pause of the back-off.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A world of its own, where nothing but the work at hand brings a key back.
async fn world() -> Served {
    let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes([NODE]) };
    let world = Served::new(&REGISTRATION, &json!({ "resync": "0s" }), profile).await;
    let driver = &world.context.driver.name;
    let node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
        "spec": { "drivers": [{ "name": driver, "nodeID": NODE, "topologyKeys": [] }] } });
    world.testbed.api.create_value(node).unwrap();
    world
}

fn ours(world: &Served) -> String {
    names::finalizer(&world.context.driver.name)
}

/// Makes a volume of our driver with these finalizers.
fn volume(world: &Served, finalizers: &[&str]) {
    let driver = &world.context.driver.name;
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": VOLUME, "finalizers": finalizers },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": driver, "volumeHandle": VOLUME } } });
    world.testbed.api.create_value(volume).unwrap();
}

/// A volume that is being deleted, and that our finalizer and perhaps another keep.
async fn deleted_volume(others: &[&str]) -> Served {
    let world = world().await;
    let ours = ours(&world);
    volume(&world, &[others, &[ours.as_str()]].concat());
    world.testbed.api.delete::<PersistentVolume>("", VOLUME).unwrap();
    world
}

fn attach(world: &Served) {
    let driver = &world.context.driver.name;
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": ATTACHMENT },
        "spec": { "attacher": driver, "nodeName": NODE, "source": { "persistentVolumeName": VOLUME } } });
    world.testbed.api.create_value(attachment).unwrap();
}

fn attachment(world: &Served) -> Option<VolumeAttachment> {
    world.testbed.api.get::<VolumeAttachment>("", ATTACHMENT).ok()
}

fn is_attached(world: &Served) -> bool {
    attachment(world).and_then(|it| it.status).is_some_and(|status| status.attached)
}

fn volumes() -> &'static Resource {
    find("", "v1", "persistentvolumes").unwrap()
}

fn attachments() -> &'static Resource {
    find("storage.k8s.io", "v1", "volumeattachments").unwrap()
}

/// The first write to the object, or to this part of it.
fn write_to(resource: &Resource, subresource: &str) -> Matching {
    Matching::any().verb("patch").resource(resource.plural).subresource(subresource)
}

/// The first of these writes is answered so.
fn answer_first(world: &Served, on: Matching, action: Action) -> FaultId {
    world.testbed.api.faults().add(Fault::on(on, action).nth(1))
}

fn not_found(resource: &'static Resource, name: &str) -> Action {
    Action::Refuse(Rejection::not_found(resource, name))
}

/// The volume's finalizers; none, if there is no volume.
fn finalizers(world: &Served) -> Option<Vec<String>> {
    let volume = world.testbed.api.get::<PersistentVolume>("", VOLUME).ok()?;
    Some(volume.metadata.finalizers.unwrap_or_default())
}

fn merge(world: &Served, patch: Value) {
    world.testbed.api.patch::<PersistentVolume>("", VOLUME, PatchBody::Merge(patch)).unwrap();
}

fn reads(world: &Served, resource: &Resource) -> usize {
    world.testbed.api.audit().matching(|entry| entry.verb == "get" && entry.resource == resource.plural).len()
}

/// The role's own writes.
fn writes(world: &Served, resource: &Resource) -> usize {
    world.testbed.api.audit().matching(|entry| entry.verb == "patch" && entry.resource == resource.plural).len()
}

#[tokio::test(start_paused = true)]
async fn a_404_to_the_release_of_a_volume_that_the_api_still_has_is_checked_by_a_read_and_not_believed() {
    let world = deleted_volume(&[]).await;
    let fault = answer_first(&world, write_to(volumes(), ""), not_found(volumes(), VOLUME));
    let warnings = Warnings::begin();
    world.lead();
    world.until_quietly("released", |world| finalizers(world).is_none()).await;
    world.until_quietly("settled", |world| world.work().is_empty()).await;
    assert_eq!(world.testbed.api.faults().hits(fault), 1);
    assert_eq!((reads(&world, volumes()), writes(&world, volumes()), warnings.count()), (1, 2, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_gone_before_the_watch_says_so_costs_one_read_and_no_retry() {
    let world = deleted_volume(&[]).await;
    let slow = answer_first(&world, write_to(volumes(), ""), Action::DelayBefore(DELAY));
    let warnings = Warnings::begin();
    world.lead();
    world.until_quietly("it is about to be written", |world| world.testbed.api.faults().hits(slow) == 1).await;
    world.testbed.api.faults().hold_watches(Matching::any().resource(volumes().plural));
    merge(&world, json!({ "metadata": { "finalizers": null } }));
    assert_eq!(finalizers(&world), None);
    let begun = world.context.clock.now();
    world.until_quietly("settled", |world| world.work().is_empty()).await;
    assert!(world.context.clock.now() - begun < DELAY + AT_ONCE);
    assert_eq!((reads(&world, volumes()), warnings.count()), (1, 0));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_another_writer_was_faster_than_is_made_again_at_once_and_quietly() {
    for conflict in [false, true] {
        let world = deleted_volume(&[OTHER]).await;
        let slow = answer_first(&world, write_to(volumes(), ""), Action::DelayBefore(DELAY));
        if conflict {
            answer_first(&world, write_to(volumes(), ""), Action::Refuse(Rejection::conflict(volumes(), VOLUME)));
        }
        let warnings = Warnings::begin();
        world.lead();
        world.until_quietly("it is about to be written", |world| world.testbed.api.faults().hits(slow) == 1).await;
        let begun = world.context.clock.now();
        // Another role of the process lets go of the volume meanwhile, and no watch tells of it: ours has another place now.
        world.testbed.api.faults().hold_watches(Matching::any().resource(volumes().plural));
        merge(&world, json!({ "metadata": { "finalizers": [ours(&world)] } }));
        world.until_quietly("released", |world| finalizers(world).is_none()).await;
        let took = world.context.clock.now() - begun;
        assert!(took < DELAY + AT_ONCE, "{took:?}");
        assert_eq!((reads(&world, volumes()), warnings.count()), (1, 0), "conflict: {conflict}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_to_any_write_of_an_attach_is_not_the_end_of_objects_that_the_api_still_has() {
    for (resource, subresource, name) in
        [(volumes(), "", VOLUME), (attachments(), "", ATTACHMENT), (attachments(), "status", ATTACHMENT)]
    {
        let world = world().await;
        volume(&world, &[]);
        let fault = answer_first(&world, write_to(resource, subresource), not_found(resource, name));
        let warnings = Warnings::begin();
        world.lead();
        attach(&world);
        world.until_quietly("attached", is_attached).await;
        assert_eq!(world.testbed.api.faults().hits(fault), 1, "{name} {subresource}");
        assert_eq!(warnings.count(), 0);
        assert_eq!(world.testbed.driver.calls_of(Method::ControllerPublishVolume).len(), 1, "{name} {subresource}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_to_the_release_of_an_attachment_that_the_api_still_has_does_not_leave_our_finalizer_on_it() {
    let world = world().await;
    volume(&world, &[]);
    world.lead();
    attach(&world);
    world.until_quietly("attached", is_attached).await;
    let fault = answer_first(&world, write_to(attachments(), ""), not_found(attachments(), ATTACHMENT));
    let warnings = Warnings::begin();
    world.testbed.api.delete::<VolumeAttachment>("", ATTACHMENT).unwrap();
    world.until_quietly("detached", |world| attachment(world).is_none()).await;
    assert_eq!((world.testbed.api.faults().hits(fault), warnings.count()), (1, 0));
    assert_eq!(world.testbed.driver.calls_of(Method::ControllerUnpublishVolume).len(), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_attach_whose_volume_another_writer_has_changed_meanwhile_goes_on_at_once_and_quietly() {
    let world = world().await;
    volume(&world, &[]);
    let slow = answer_first(&world, write_to(volumes(), ""), Action::DelayBefore(DELAY));
    let warnings = Warnings::begin();
    world.lead();
    attach(&world);
    world.until_quietly("it is about to be written", |world| world.testbed.api.faults().hits(slow) == 1).await;
    let begun = world.context.clock.now();
    world.testbed.api.faults().hold_watches(Matching::any().resource(volumes().plural));
    merge(&world, json!({ "metadata": { "finalizers": [OTHER] } }));
    world.until_quietly("attached", is_attached).await;
    let took = world.context.clock.now() - begun;
    assert!(took < DELAY + AT_ONCE, "{took:?}");
    assert_eq!(finalizers(&world), Some(vec![OTHER.to_owned(), ours(&world)]));
    assert_eq!(warnings.count(), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_the_api_has_and_the_watch_does_not_bring_is_asked_for_ever_more_rarely_and_told_once() {
    let world = world().await;
    world.lead();
    world
        .until_quietly("the watches run", |world| world.testbed.api.audit().count("watch", volumes().plural) > 0)
        .await;
    world.testbed.api.faults().hold_watches(Matching::any().resource(volumes().plural));
    volume(&world, &[]);
    let warnings = Warnings::begin();
    attach(&world);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let error = |world: &Served| attachment(world).and_then(|it| it.status?.attach_error?.message);
    assert_eq!((error(&world), warnings.count()), (None, 0), "a watch may be a moment late");
    tokio::time::sleep(Duration::from_secs(56)).await;
    let asked = reads(&world, volumes());
    assert!((10..45).contains(&asked), "{asked}: often while the watch may be a moment late, and rarely from then on");
    let unseen = format!("the watch has not shown PersistentVolume \"{VOLUME}\" yet, which the API has");
    assert_eq!(error(&world), Some(unseen), "it is not called missing");
    assert!((1..10).contains(&warnings.count()), "{} warnings", warnings.count());
    assert_eq!(writes(&world, attachments()), 1, "the error is written once");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_reads_again_a_few_times_and_leaves_the_rest_to_the_back_off() {
    let world = deleted_volume(&[]).await;
    world.testbed.api.faults().add(Fault::on(write_to(volumes(), ""), not_found(volumes(), VOLUME)));
    world.lead();
    world.until("a failed try", |world| world.work().iter().any(|item| item.attempts == 1)).await;
    assert_eq!((writes(&world, volumes()), reads(&world, volumes())), (4, 3));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_says_nothing_of_an_old_view_is_no_reason_to_read_again() {
    let world = deleted_volume(&[OTHER]).await;
    world.testbed.api.faults().add(Fault::on(write_to(volumes(), ""), Action::Refuse(Rejection::internal("down"))));
    world.lead();
    world.until("a failed try", |world| world.work().iter().any(|item| item.attempts == 1)).await;
    assert_eq!((writes(&world, volumes()), reads(&world, volumes())), (1, 0));
    world.testbed.tear_down().await;
}
