//! Publish secrets: read for each attempt, reported if missing, never shown.

use std::collections::BTreeMap;

use csi_control_plane::sandbox::driver::Secrets;
use k8s_openapi::api::core::v1::{PersistentVolume, Secret};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::World;

const PASSWORD: &str = "hunter2-the-password";

/// A volume that is published with the secret of this name.
async fn volume_with_secret(world: &World, secret: &str) -> String {
    let reference = json!({ "csi": { "controllerPublishSecretRef": { "name": secret, "namespace": "default" } } });
    world.volume_with("pv", reference).await
}

/// Asks for a new volume to be attached to a new node, with a new secret that holds this. Returns the names of node, secret, volume
/// and attachment.
async fn attach_with_secret(world: &World, data: &[(&str, &[u8])]) -> [String; 4] {
    let (node, secret) = (world.node("node").await, world.name("secret"));
    world.secret(&secret, data).await;
    let volume = volume_with_secret(world, &secret).await;
    let attachment = world.attach(&volume, &node).await;
    [node, secret, volume, attachment]
}

/// A driver that asks for the password.
async fn guarded() -> World {
    World::with(|profile| {
        profile.required_secrets = Secrets(BTreeMap::from([("password".to_owned(), PASSWORD.to_owned())]));
    })
    .await
}

#[tokio::test]
async fn r25_a_missing_secret_is_told_and_one_that_appears_is_used() {
    let world = guarded().await;
    let _daemon = world.daemon(json!({})).await;
    let (node, secret) = (world.node("node").await, world.name("secret"));
    let volume = volume_with_secret(&world, &secret).await;
    let attachment = world.attach(&volume, &node).await;
    let failed = world.failed(&attachment, "controllerPublishSecretRef").await;
    assert_eq!(failed.finalizers(), Vec::<String>::new(), "nothing was begun: it stays deletable");
    assert_eq!(world.publishes(&volume).len(), 0, "never silently without secrets");

    world.secret(&secret, &[("password", PASSWORD.as_bytes())]).await;
    let attached = world.attached(&attachment).await;
    assert!(world.publishes(&volume)[0].secrets);
    assert!(!serde_json::to_string(&attached).unwrap().contains(PASSWORD));

    // A detach needs it too.
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
    world.detach(&attachment).await;
    let failed = world.detach_failed(&attachment, "controllerPublishSecretRef").await;
    assert!(failed.finalizers().contains(&world.finalizer()));
    assert_eq!(world.unpublishes(&volume).len(), 0);
    world.secret(&secret, &[("password", PASSWORD.as_bytes())]).await;
    world.gone::<k8s_openapi::api::storage::v1::VolumeAttachment>(&attachment).await;
    assert!(world.unpublishes(&volume)[0].secrets);
    assert!(!world.is_published(&volume, &node));
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_secret_that_changes_is_read_anew_by_the_next_attempt() {
    let world = guarded().await;
    let daemon = world.daemon(json!({})).await;
    let [_, secret, _, attachment] = attach_with_secret(&world, &[("password", b"wrong")]).await;
    let failed = world.failed(&attachment, "Unauthenticated").await;
    assert!(!serde_json::to_string(&failed).unwrap().contains("wrong\"}"));
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
    world.secret(&secret, &[("password", PASSWORD.as_bytes())]).await;
    world.attached(&attachment).await;
    let shown = world.status(&daemon).await.to_string() + &world.metrics(&daemon).await;
    assert!(!shown.contains(PASSWORD));
    world.detached(&attachment).await;
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_secret_that_is_not_text_is_told_by_its_key() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let [_, secret, volume, attachment] = attach_with_secret(&world, &[("blob", &[0xff, 0xfe, 0x00])]).await;
    let failed = world.failed(&attachment, "not UTF-8").await;
    let message = failed.status.unwrap().attach_error.unwrap().message.unwrap();
    assert!(message.contains("blob") && message.contains(&secret), "{message}");
    assert_eq!(world.publishes(&volume).len(), 0);
    world.detached(&attachment).await;
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn r25_an_empty_secret_is_no_error() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let [_, secret, volume, attachment] = attach_with_secret(&world, &[]).await;
    world.attached(&attachment).await;
    assert!(!world.publishes(&volume)[0].secrets);
    world.detached(&attachment).await;
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_volume_removed_by_force_is_detached_with_the_secret_that_was_recorded() {
    let world = guarded().await;
    let _daemon = world.daemon(json!({})).await;
    let [node, secret, volume, attachment] = attach_with_secret(&world, &[("password", PASSWORD.as_bytes())]).await;
    world.attached(&attachment).await;
    world.delete_volume(&volume).await;
    world.merge_patch::<PersistentVolume>(&volume, json!({ "metadata": { "finalizers": null } })).await;
    world.gone::<PersistentVolume>(&volume).await;
    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    world.namespaced::<Secret>().delete(&secret, &DeleteParams::default()).await.unwrap();
}
