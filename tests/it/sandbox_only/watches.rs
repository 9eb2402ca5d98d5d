//! Watches that are delayed, cut and compacted during the work.

use std::time::Duration;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, FaultId, WatchEnd};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::{api, by_daemon, writes, written};
use crate::ground::Daemon;
use crate::objects;
use crate::supplier::{says, supplier};
use crate::supply::{handle_of, phase};
use crate::world::World;
use crate::world::wait::asked;

#[tokio::test]
async fn r48_a_success_clears_an_error_that_the_watch_has_not_shown_yet() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let refused = Action::fail(Code::Internal, "not yet");
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, refused).times(2));
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("a first attempt", |_| !world.publishes(&volume).is_empty()).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("volumeattachments"));
    let object = world.attached(&attachment).await;
    assert_eq!(object.status.unwrap().attach_error, None);
    assert_eq!(world.publishes(&volume).len(), 3);
    api(&world).faults().remove(held);
    world.detached(&attachment).await;
}

#[tokio::test]
async fn r24_a_delete_that_only_a_new_list_shows_frees_the_volume() {
    let (world, _daemon, (node, volume, attachment)) = World::with_attachment().await;
    // Another driver's attachment names the volume too, so it is kept.
    let foreign = world.name("foreign");
    let source = json!({ "persistentVolumeName": volume });
    let object = objects::attachment_of(&foreign, "other.csi.example.com", &node, &source);
    world.create::<VolumeAttachment>(object).await;
    world.detached(&attachment).await;
    world.delete_volume(&volume).await;

    let faults = api(&world).faults();
    let held = faults.hold_watches(by_daemon(&world).resource("volumeattachments"));
    world.detached(&foreign).await;
    api(&world).compact();
    faults.drop_watches(by_daemon(&world).resource("volumeattachments"), WatchEnd::Cut);
    faults.remove(held);
    world.gone::<PersistentVolume>(&volume).await;
}

#[tokio::test]
async fn an_attachment_that_begins_in_the_middle_of_a_new_list_is_made_before_the_list_ends() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    // More than a page of another driver's. One goes unseen before the list, and one while it is read.
    let names: Vec<String> = (0..502).map(|number| world.name(&format!("other-{number:03}"))).collect();
    for (number, name) in names.iter().enumerate() {
        let source = json!({ "persistentVolumeName": format!("other-{number}") });
        let object = objects::attachment_of(name, "other.csi.example.com", &node, &source);
        world.create::<VolumeAttachment>(object).await;
    }
    let holds = |count: usize| {
        move |status: &Value| {
            let caches = status["caches"].as_array().unwrap();
            caches.iter().any(|cache| cache["kind"] == "VolumeAttachment" && cache["objects"] == count)
        }
    };
    world.shows(&daemon, "all attachments", holds(502)).await;
    let (faults, watched) = (api(&world).faults(), by_daemon(&world).resource("volumeattachments"));
    let held = faults.add(ApiFault::on(watched.clone().verb("list"), ApiAction::Hold).nth(2));
    let silent = faults.hold_watches(watched.clone());
    world.detached(&names[501]).await;
    api(&world).compact();
    faults.drop_watches(watched, WatchEnd::Cut);
    faults.remove(silent);
    asked("the second page", async || (faults.hits(held) == 1).then_some(())).await;
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    world.detached(&names[500]).await;
    world.shows(&daemon, "what came and what went", holds(502)).await;
    faults.remove(held);
    world.shows(&daemon, "what the server has", holds(501)).await;
}

#[tokio::test]
async fn watches_that_are_cut_or_compacted_in_the_middle_of_a_publish_lose_nothing() {
    for (end, compact) in [(WatchEnd::Cut, false), (WatchEnd::Clean, false), (WatchEnd::Cut, true)] {
        let (world, _daemon) = World::with_daemon(json!({})).await;
        let (node, volume) = (world.node("node").await, world.volume("pv").await);
        world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).once());
        let attachment = world.attach(&volume, &node).await;
        world.driver_until("a publish in flight", |_| !world.publishes(&volume).is_empty()).await;
        api(&world).faults().drop_watches(by_daemon(&world), end);
        // Deleted while the watch is away and the publish in flight.
        world.detach(&attachment).await;
        if compact {
            api(&world).compact();
        }
        world.driver().release();
        world.gone::<VolumeAttachment>(&attachment).await;
        assert!(!world.is_published(&volume, &node));
        assert_eq!(world.unpublishes(&volume).len(), 1, "{end:?}, compacted: {compact}");
        let next = world.volume("next").await;
        world.attached(&world.attach(&next, &node).await).await;
    }
}

#[tokio::test]
async fn connections_that_are_cut_in_the_middle_of_the_work_lose_nothing() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let mut attachments = Vec::new();
    for number in 0..6 {
        let volume = world.volume(&format!("pv-{number}")).await;
        attachments.push((world.attach(&volume, &node).await, volume));
    }
    world.sandbox().testbed.connections.cut_all();
    for (attachment, volume) in &attachments {
        world.attached(attachment).await;
        assert!(world.is_published(volume, &node));
    }
    assert_eq!(world.driver().violations(), []);
}

/// A volume that the daemon knows, and whose further changes are held back from it until the fault is removed.
async fn known_volume(world: &World, daemon: &Daemon) -> (String, FaultId) {
    let volume = world.volume_with("pv", json!({ "accessModes": ["ReadWriteMany"] })).await;
    let knows = |status: &Value| {
        let caches = status["caches"].as_array().unwrap();
        caches.iter().any(|cache| cache["kind"] == "PersistentVolume" && cache["objects"] == 1)
    };
    world.shows(daemon, "a daemon that knows the volume", knows).await;
    let held = api(world).faults().hold_watches(by_daemon(world).resource("persistentvolumes"));
    (volume, held)
}

fn ours(world: &World, volume: &PersistentVolume) -> usize {
    volume.finalizers().iter().filter(|it| **it == world.finalizer()).count()
}

#[tokio::test]
async fn r43_a_finalizer_that_the_cache_has_not_seen_is_not_put_twice() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let (volume, held) = known_volume(&world, &daemon).await;
    // Our finalizer comes beside another one, and unseen.
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/a", world.finalizer()] } });
    world.merge_patch::<PersistentVolume>(&volume, finalizers).await;
    world.attached(&world.attach(&volume, &node).await).await;
    let object: PersistentVolume = world.until(&volume, "there", |_| true).await;
    assert_eq!(ours(&world, &object), 1, "{:?}", object.finalizers());
    assert!(object.finalizers().contains(&"example.com/a".to_owned()));
    let refused = writes(&world).into_iter().filter(|it| it.resource == "persistentvolumes" && it.code >= 400).count();
    assert!(refused > 0, "it would have put it there: {:?}", written(&world));
    api(&world).faults().remove(held);
}

#[tokio::test]
async fn r59_a_volume_object_that_the_watch_has_not_shown_is_not_made_again() {
    // No controller binds here: only the daemon itself can know that the claim has its volume.
    let world = World::new().await;
    let class = world.class("class", json!({})).await;
    let handed_over = json!({ "metadata": { "annotations": {
        names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name() } } });
    // One worker, so that what was woken first is done first.
    let _daemon = world.daemon(supplier(json!({ "workers": 1, "events": "none" }))).await;
    let early = world.claim("early", &class, handed_over.clone()).await;
    world.made(&early).await;

    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let claim = world.claim("claim", &class, handed_over.clone()).await;
    let volume = world.made(&claim).await;
    for round in 0..3 {
        world
            .patch_claim(&claim, json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } }))
            .await;
        let other = world.claim(&format!("other-{round}"), &class, handed_over.clone()).await;
        world.made(&other).await;
    }
    assert_eq!(world.driver().creates_of(&volume).len(), 1);

    // What the watch then shows first is the volume as it was when it was stored.
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "labels": { "late": "yes" } } })).await;
    api(&world).faults().remove(held);
    world.patch_claim(&claim, json!({ "metadata": { "annotations": { "example.com/round": "last" } } })).await;
    let last = world.claim("last", &class, handed_over).await;
    world.made(&last).await;
    assert_eq!(world.driver().creates_of(&volume).len(), 1);
    assert_eq!(world.driver().state().volumes().len(), 6);
    assert_eq!(world.driver().violations(), []);
}

#[tokio::test]
async fn a_volume_object_that_goes_before_the_watch_has_shown_it_is_made_again() {
    let world = World::new().await;
    let class = world.class("class", json!({})).await;
    let handed_over = json!({ "metadata": { "annotations": {
        names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name() } } });
    let _daemon = world.daemon(supplier(json!({}))).await;
    let early = world.claim("early", &class, handed_over.clone()).await;
    world.made(&early).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let claim = world.claim("claim", &class, handed_over).await;
    let volume = world.made(&claim).await;
    // The daemon knows the API's answer, and nothing has shown it the object.
    world
        .events_until(&world.claim_uid(&claim).await, "told", |events| {
            events.iter().any(|it| says(it, "ProvisioningSucceeded", &volume))
        })
        .await;
    world.delete_volume(&volume).await;
    // The attacher's.
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<PersistentVolume>(&volume).await;
    api(&world).faults().remove(held);
    world.until(&volume, "stored again", |_: &PersistentVolume| true).await;
    assert_eq!(world.driver().creates_of(&volume).len(), 2);
    assert_eq!(world.driver().state().volumes().len(), 2);
}

#[tokio::test]
async fn a_volume_that_is_kept_is_not_asked_for_again_for_a_claim_that_a_late_watch_shows_unbound() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (_, claim) = world.asked_claim(Fault::on(Method::CreateVolume, Action::Hold).once()).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumeclaims"));
    world.driver().release();
    world.claim_until(&claim, "bound", |it| phase(it) == "Bound").await;
    let volume = world.volume_name(&claim).await;
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    world.merge_patch::<PersistentVolume>(&volume, retain).await;
    world.delete_claim_and_wait(&claim).await;
    world.drop_volume(&volume).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.driver().creates_of(&volume).len(), 1);
    assert_eq!(world.driver().state().volumes().len(), 1, "its user has kept it");
    api(&world).faults().remove(held);
}

#[tokio::test]
async fn a_deletion_that_has_waited_for_a_worker_believes_no_cache() {
    let (world, daemon) = World::with_supplier(json!({ "deleteWorkers": 1 })).await;
    let class = world.class("class", json!({})).await;
    let (first, second) =
        (world.claim("first", &class, json!({})).await, world.claim("second", &class, json!({})).await);
    let (busy, kept) = (world.supplied_with(&first).await, world.supplied_with(&second).await);
    let (_, handle) = handle_of(&kept).unwrap();
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::Hold).once());
    world.delete_claim(&first).await;
    world.driver_until("deleting the first", |driver| driver.calls_of(Method::DeleteVolume).len() == 1).await;
    world.delete_claim(&second).await;
    let queued = |seconds: f64| {
        let key = kept.name_any();
        move |status: &Value| {
            let mut work = status["work"].as_array().unwrap().iter();
            work.any(|item| item["key"] == key && item["ageSeconds"].as_f64() >= Some(seconds))
        }
    };
    world.shows(&daemon, "the second waits for the worker", queued(0.0)).await;
    let held = api(&world).faults().hold_watches(by_daemon(&world).resource("persistentvolumes"));
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    world.merge_patch::<PersistentVolume>(&kept.name_any(), retain).await;
    world.shows(&daemon, "it has waited for a while", queued(1.5)).await;
    world.driver().release();
    let let_go = |it: &PersistentVolume| !it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    world.until(&kept.name_any(), "let go of", let_go).await;
    let deleted: Vec<_> =
        world.driver().calls_of(Method::DeleteVolume).into_iter().map(|call| call.volume.clone()).collect();
    assert_eq!(deleted, [Some(handle_of(&busy).unwrap().1)]);
    assert!(world.driver().state().volumes().contains_key(&handle));
    api(&world).faults().remove(held);
    world.gone::<PersistentVolume>(&busy.name_any()).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_volume_that_is_kept_before_a_late_watch_shows_it_released_is_not_deleted() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    // Before the first deletion of its term the daemon lists all volumes.
    let first = world.claim("first", &class, json!({})).await;
    let before = world.supplied_with(&first).await;
    world.delete_claim(&first).await;
    world.gone::<PersistentVolume>(&before.name_any()).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    let (name, (_, handle)) = (volume.name_any(), handle_of(&volume).unwrap());
    let is_protected = |it: &PersistentVolume| it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    world.until(&name, "protected", is_protected).await;
    let late = Duration::from_secs(4);
    let delayed = api(&world).faults().delay_watches(by_daemon(&world).resource("persistentvolumes"), late);
    world.delete_claim(&claim).await;
    let is_released = |it: &PersistentVolume| it.status.as_ref().unwrap().phase.as_deref() == Some("Released");
    world.until(&name, "released", is_released).await;
    // The watch shows the release alone first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    world.merge_patch::<PersistentVolume>(&name, retain).await;
    world.until(&name, "without our finalizer", |it| !is_protected(it)).await;
    let deleted: Vec<_> =
        world.driver().calls_of(Method::DeleteVolume).into_iter().map(|call| call.volume.clone()).collect();
    assert_eq!(deleted, [Some(handle_of(&before).unwrap().1)]);
    assert!(world.driver().state().volumes().contains_key(&handle));
    api(&world).faults().remove(delayed);
}

#[tokio::test]
async fn an_api_that_has_gone_back_to_an_older_version_has_no_volume_deleted() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let (_, claim) = world.claim_anew("claim").await;
    let volume = world.supplied_with(&claim).await;
    // After a failure the volume's object is read again.
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Internal, "busy")).once());
    let older = ApiAction::Show(json!({ "metadata": { "resourceVersion": "1" } }));
    let restored =
        api(&world).faults().add(ApiFault::on(by_daemon(&world).verb("get").resource("persistentvolumes"), older));
    world.delete_claim(&claim).await;
    let is_told = |status: &Value| {
        let mut work = status["work"].as_array().unwrap().iter();
        work.any(|item| item["lastError"].as_str().is_some_and(|it| it.contains("was restored from a backup")))
    };
    world.shows(&daemon, "why the volume is not deleted", is_told).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1);
    api(&world).faults().remove(restored);
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 2);
    world.assert_nothing_leaked().await;
}

impl World {
    /// Waits until a claim's volume object is stored, and returns its name.
    async fn made(&self, claim: &str) -> String {
        let name = self.volume_name(claim).await;
        self.until(&name, "stored", |_: &PersistentVolume| true).await;
        name
    }
}
