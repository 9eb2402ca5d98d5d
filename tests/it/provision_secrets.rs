//! Secrets of the provisioner: read for each attempt, reported if missing, also used for the deletion, and never shown.

use std::io::Write;
use std::sync::{Arc, Mutex};

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Method, Secrets};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tonic::Code;

use crate::logs;
use crate::objects::merge;
use crate::supplier::{create, figure, says, supplier, unanswered};
use crate::supply::handle_of;
use crate::world::World;

const PASSWORD: &str = "correct-horse-battery";

/// A driver that asks for the password, a class that names the secret by this template, and the template's parameters.
async fn guarded(name: &str) -> (World, String) {
    let world = World::supplied(|profile| {
        profile.provision_secrets = Secrets([("password".to_owned(), PASSWORD.to_owned())].into());
    })
    .await;
    let class = world.class("class", secret_at(&name.replace("ID", &world.name("")), "default")).await;
    (world, class)
}

/// The same with a secret that is there, and the secret's name.
async fn secured() -> (World, String, String) {
    let (world, class) = guarded("IDsecret").await;
    let secret = world.name("secret");
    world.password(&secret).await;
    (world, class, secret)
}

fn secret_at(name: &str, namespace: &str) -> Value {
    json!({"parameters": {"csi.storage.k8s.io/provisioner-secret-name": name,
        "csi.storage.k8s.io/provisioner-secret-namespace": namespace}})
}

impl World {
    async fn password(&self, name: &str) {
        self.secret(name, &[("password", PASSWORD.as_bytes())]).await;
    }

    async fn drop_secret(&self, name: &str) {
        self.namespaced::<Secret>().delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// Where a volume says that its secret is.
fn noted_at(name: &str, namespace: &str) -> Value {
    json!({"metadata": {"annotations": {names::ANNOTATION_DELETION_SECRET_NAME: name,
        names::ANNOTATION_DELETION_SECRET_NAMESPACE: namespace}}})
}

/// Back-offs that end after the patience of every test.
fn slow(change: Value) -> Value {
    let mut section = crate::supplier::slow();
    merge(&mut section, change);
    section
}

/// All that is logged, as text.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn r44_a_secret_is_used_and_shown_nowhere() {
    let paper = Paper::default();
    let writer = paper.clone();
    let _log = logs::listen(
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish(),
    );
    let (world, class) = guarded("IDsecret").await;
    let secret = world.name("secret");
    world.driver().inject(crate::supplier::unanswered().times(2));
    let daemon = world.supplier(json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", &secret).await;
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 0, "never silently without");
    world.password(&secret).await;
    let volume = world.supplied_with(&claim).await;
    assert!(world.asked(&claim, 3).await.iter().all(|call| call.secrets));
    let status = world.status(&daemon).await.to_string() + &world.metrics(&daemon).await;
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    assert!(world.driver().calls_of(Method::DeleteVolume).iter().all(|call| call.secrets));
    let events = Api::<Event>::all(world.client()).list(&ListParams::default()).await.unwrap();
    let log = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
    let (name, (_, handle)) = (volume.name_any(), handle_of(&volume).unwrap());
    let line = format!("provisioned persistent_volume={name:?} volume={handle:?} storage_class={class:?} seconds=");
    assert!(log.contains(&line), "what was provisioned is told with all its names");
    assert!(log.contains("CreateVolume") && log.contains(&claim), "the log is heard");
    for (what, text) in [
        ("log", log),
        ("status page", status),
        ("volume", serde_json::to_string(&volume).unwrap()),
        ("events", serde_json::to_string(&events.items).unwrap()),
    ] {
        assert!(!text.contains(PASSWORD), "{what}");
    }
    world.drop_secret(&secret).await;
}

#[tokio::test]
async fn what_nobody_watches_is_looked_for_again_after_half_a_minute_at_the_latest() {
    let (world, guarded) = guarded("IDsecret").await;
    world.install_snapshots().await;
    // One that is there, so that there is something to snapshot.
    world.password(&world.name("secret")).await;
    let daemon = world.supplier(slow(json!({}))).await;
    let source = world.claim("source", &guarded, json!({})).await;
    let volume = world.supplied_with(&source).await.name_any();
    let snapshot = world.snapshot("snapshot", &source).await;
    world.installed_kind("VolumeSnapshotContent").delete(&snapshot, &DeleteParams::default()).await.unwrap();
    let away = world.class("away", secret_at(&world.name("nowhere"), "default")).await;
    let attributes = json!({"spec": {"volumeAttributesClassName": world.name("gold")}});
    // A watched object's change comes by its watch.
    let missing = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": world.name("nothing")}}});
    let waiting = [
        (world.claim("secretless", &away, json!({})).await, true),
        (world.claim("attributes", &guarded, attributes).await, true),
        (world.claim_from("restored", &guarded, "VolumeSnapshot", &snapshot).await, true),
        (world.claim("clone", &guarded, missing).await, false),
    ];
    world.drop_secret(&world.name("secret")).await;
    world.delete_claim(&source).await;
    let next = |status: &Value, key: &str| {
        let work = status["work"].as_array().cloned().unwrap_or_default();
        work.iter().find(|item| item["key"].as_str().is_some_and(|it| it.ends_with(key)))?["nextTrySeconds"].as_f64()
    };
    let claims = waiting.iter().map(|(claim, is_soon)| (claim.as_str(), *is_soon));
    for (key, is_soon) in claims.chain([(volume.as_str(), true)]) {
        let status = world.shows(&daemon, &format!("{key} waits"), |status| next(status, key).is_some()).await;
        // With the jitter of a fifth.
        assert_eq!(next(&status, key).is_some_and(|wait| wait <= 36.0), is_soon, "{key}: {status:#}");
    }
}

#[tokio::test]
async fn r28_a_volume_is_deleted_with_its_secret_although_its_class_is_gone() {
    let (world, class, secret) = secured().await;
    let _daemon = world.supplier(json!({})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.annotations()[names::ANNOTATION_DELETION_SECRET_NAME], secret);
    assert_eq!(volume.annotations()[names::ANNOTATION_DELETION_SECRET_NAMESPACE], "default");
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    let deletes = world.driver().calls_of(Method::DeleteVolume);
    assert_eq!((deletes.len(), deletes[0].secrets), (1, true));
    world.assert_all_gone(&[&claim]).await;
    world.drop_secret(&secret).await;
}

#[tokio::test]
async fn r19_an_annotation_of_the_claim_may_choose_the_secret() {
    let (world, class) = guarded("ID${pvc.annotations['team']}").await;
    let secret = world.name("blue");
    world.password(&secret).await;
    let _daemon = world.supplier(slow(json!({}))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "team").await;
    world.patch_claim(&claim, json!({"metadata": {"annotations": {"team": "blue"}}})).await;
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.annotations()[names::ANNOTATION_DELETION_SECRET_NAME], secret);
    world.delete_claim(&claim).await;
    world.assert_all_gone(&[&claim]).await;
    world.drop_secret(&secret).await;
}

#[tokio::test]
async fn a_volume_is_not_deleted_without_its_secret_unless_the_configuration_says_so() {
    let (world, class, secret) = secured().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    world.drop_secret(&secret).await;
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| events.iter().any(|it| it.reason.as_deref() == Some("VolumeFailedDelete"));
    world.events_until(&volume.uid().unwrap(), "why it stays", told).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    let failed = |metrics: &str| {
        figure(metrics, "controller_persistentvolume_delete_failed_total", &[&class]).is_some_and(|count| count >= 2.0)
    };
    world.metrics_until(&first, "tried again", failed).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    first.stop().await.unwrap();
    // This driver does not need it to delete.
    world.driver().change_profile(|profile| profile.provision_secrets = Secrets::default());
    let _second = world.daemon_on("second", supplier(json!({"deleteWithoutSecret": true}))).await;
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_that_nobody_waits_for_is_deleted_with_the_secret_that_it_was_made_with_although_that_is_gone() {
    let (world, class, secret) = secured().await;
    let _daemon = world.supplier(json!({})).await;
    world.driver().inject(create(Action::Hold));
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    // As when its namespace goes.
    world.delete_claim(&claim).await;
    world.drop_secret(&secret).await;
    world.driver().inject(Fault::on(Method::DeleteVolume, Action::fail(Code::Unavailable, "not now")).once());
    world.daemon_has_seen("later").await;
    world.driver().release();
    world.assert_all_gone(&[&claim]).await;
    let deletes = world.driver().calls_of(Method::DeleteVolume);
    assert_eq!(deletes.iter().map(|call| call.secrets).collect::<Vec<_>>(), [true, true]);
}

#[tokio::test]
async fn a_secret_that_goes_while_the_driver_owes_an_answer_is_used_to_the_end() {
    let (world, class, secret) = secured().await;
    let _daemon = world.supplier(json!({})).await;
    world.driver().inject(unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    let before = world.asked(&claim, 1).await.len();
    // As when its namespace goes.
    world.delete_claim(&claim).await;
    world.drop_secret(&secret).await;
    world.daemon_has_seen("later").await;
    world.asked(&claim, before + 2).await;
    world.driver().clear_faults();
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_refusal_of_another_secret_does_not_end_a_call_without_an_answer() {
    for is_taken_over in [false, true] {
        let (world, class, secret) = secured().await;
        let first = world.daemon_on("first", supplier(json!({}))).await;
        world.driver().inject(unanswered());
        let claim = world.claim("claim", &class, json!({})).await;
        world.asked(&claim, 1).await;
        let _daemon = if is_taken_over {
            first.stop().await.unwrap();
            world.daemon_on("second", supplier(json!({}))).await
        } else {
            first
        };
        world.drop_secret(&secret).await;
        world.secret(&secret, &[("password", b"of somebody else")]).await;
        world.claim_told(&claim, "ProvisioningFailed", "is missing or wrong").await;
        world.driver().clear_faults();
        world.delete_claim(&claim).await;
        let asked = world.driver().calls_of(Method::CreateVolume).len();
        world.asked(&claim, asked + 1).await;
        world.daemon_has_seen("later").await;
        assert!(world.is_recorded(&claim).await, "taken over: {is_taken_over}");
        world.drop_secret(&secret).await;
        world.password(&secret).await;
        world.assert_all_gone(&[&claim]).await;
        world.drop_secret(&secret).await;
    }
}

#[tokio::test]
async fn what_was_begun_with_a_secret_that_is_gone_is_ended_without_it_if_the_configuration_says_so() {
    let (world, class, secret) = secured().await;
    let first = world.daemon_on("first", supplier(json!({}))).await;
    world.driver().inject(unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    first.stop().await.unwrap();
    world.delete_claim(&claim).await;
    world.drop_secret(&secret).await;
    world.driver().clear_faults();
    // The driver's refusal is not final for the volume that it created with the secret.
    let _second = world.daemon_on("second", supplier(json!({"deleteWithoutSecret": true}))).await;
    let asked = world.driver().calls_of(Method::CreateVolume).len();
    world.asked(&claim, asked + 1).await;
    world.daemon_has_seen("later").await;
    assert!(world.is_recorded(&claim).await);
    // This driver does not need it.
    world.driver().change_profile(|profile| profile.provision_secrets = Secrets::default());
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_secret_in_a_namespace_that_is_not_allowed_is_not_read_for_a_deletion() {
    let (world, class, secret) = secured().await;
    let first = world.daemon_on("first", supplier(json!({"deletionSecretNamespaces": ["elsewhere"]}))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| {
        events.iter().any(|it| it.message.as_deref().unwrap_or_default().contains("deletionSecretNamespaces"))
    };
    world.events_until(&volume.uid().unwrap(), "why it stays", told).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    first.stop().await.unwrap();
    let _second = world.daemon_on("second", supplier(json!({"deletionSecretNamespaces": ["default"]}))).await;
    world.assert_all_gone(&[&claim]).await;
    world.drop_secret(&secret).await;
}

#[tokio::test]
async fn what_is_wrong_with_the_secret_of_a_volume_is_no_failure_as_long_as_that_is_attached() {
    let world = World::two_zones().await;
    let daemon = world.supplier(json!({"deletionSecretNamespaces": ["elsewhere"]})).await;
    let node = world.node_in("n1", "z1").await;
    let (class, claim) = world.waiting_claim_anew("claim").await;
    let pod = world.pod("pod", &[&claim], Some(&node)).await;
    let volume = world.supplied_with(&claim).await;
    let ((_, handle), name, uid) = (handle_of(&volume).unwrap(), volume.name_any(), volume.uid().unwrap());
    let id = world.node_id(&node);
    world.driver_until("attached", |driver| driver.published(&handle).contains(&id)).await;
    world.merge_patch::<PersistentVolume>(&name, noted_at("secret", "default")).await;
    world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, Action::Hold).once());
    world.delete_claim(&claim).await;
    world.delete_pod(&pod).await;
    let waits = |status: &Value| {
        let text = status.to_string();
        text.contains("waiting to be detached") && text.contains(&name)
    };
    world.shows(&daemon, "the volume waits to be detached", waits).await;
    world.events_are_out("fence").await;
    assert_eq!(world.events_on(&uid).await, Vec::<Event>::new());
    let failed = "controller_persistentvolume_delete_failed_total";
    assert_eq!(figure(&world.metrics(&daemon).await, failed, &[&class]), None);
    let is_held = |driver: &Driver| !driver.calls_of(Method::ControllerUnpublishVolume).is_empty();
    world.driver_until("asked to unpublish", is_held).await;
    world.driver().release();
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", "deletionSecretNamespaces"));
    world.events_until(&uid, "why it stays", told).await;
    world.merge_patch::<PersistentVolume>(&name, noted_at("", "")).await;
    world.assert_all_gone(&[&claim]).await;
}

#[tokio::test]
async fn a_volume_whose_annotations_are_corrected_is_deleted_at_once() {
    let (world, class, secret) = secured().await;
    let _daemon = world.supplier(slow(json!({"deletionSecretNamespaces": ["default"]}))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    world.merge_patch::<PersistentVolume>(&volume.name_any(), noted_at(&secret, "elsewhere")).await;
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", "deletionSecretNamespaces"));
    world.events_until(&volume.uid().unwrap(), "why it stays", told).await;
    world.merge_patch::<PersistentVolume>(&volume.name_any(), noted_at(&secret, "default")).await;
    world.assert_all_gone(&[&claim]).await;
    assert!(world.driver().calls_of(Method::DeleteVolume).iter().all(|call| call.secrets));
    world.drop_secret(&secret).await;
}

#[tokio::test]
async fn a_volume_whose_class_comes_back_is_deleted_at_once() {
    let (world, class, secret) = secured().await;
    let _daemon = world.supplier(slow(json!({}))).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.supplied_with(&claim).await;
    // As a provisioner of old has left it.
    let bare = json!({"metadata": {"annotations": {names::ANNOTATION_DELETION_SECRET_NAME: null,
        names::ANNOTATION_DELETION_SECRET_NAMESPACE: null}}});
    world.merge_patch::<PersistentVolume>(&volume.name_any(), bare).await;
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", "its storage class is gone"));
    world.events_until(&volume.uid().unwrap(), "why it stays", told).await;
    world.class("class", secret_at(&secret, "default")).await;
    world.assert_all_gone(&[&claim]).await;
    assert!(world.driver().calls_of(Method::DeleteVolume).iter().all(|call| call.secrets));
    world.drop_secret(&secret).await;
}
