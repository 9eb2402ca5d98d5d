//! Which daemon manages which volumes, with one daemon and one driver per node.

use csi_control_plane::cluster::names;
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use kube::ResourceExt as _;
use serde_json::json;

use super::provision_nodes::Local;
use crate::supplier::{figure, says};
use crate::supply::handle_of;

#[tokio::test]
async fn what_is_wrong_with_a_volumes_secret_is_told_by_the_daemon_of_its_node_alone() {
    let (world, [home, other]) = Local::each(["home", "other"]).await;
    let strict = json!({ "deletionSecretNamespaces": ["elsewhere"] });
    let (daemon, bystander) = (home.daemon(&world, strict.clone()).await, other.daemon(&world, strict).await);
    let (class, claim) = world.waiting_claim_anew("claim").await;
    world.select(&claim, Some(&home.node)).await;
    let volume = world.on_node(&claim, &home).await;
    let secret = |name: &str, namespace: &str| {
        json!({ "metadata": { "annotations": { names::ANNOTATION_DELETION_SECRET_NAME: name,
            names::ANNOTATION_DELETION_SECRET_NAMESPACE: namespace } } })
    };
    world.merge_patch::<PersistentVolume>(&volume.name_any(), secret("secret", "default")).await;
    world.delete_claim(&claim).await;
    let failed = "controller_persistentvolume_delete_failed_total";
    let has_failed = |metrics: &str| figure(metrics, failed, &[&class]).is_some_and(|count| count >= 1.0);
    world.metrics_until(&daemon, "it is refused", has_failed).await;
    // The other daemon has seen it as well when it has made a volume for a claim that came later.
    let later = world.claim("later", &class, json!({})).await;
    world.select(&later, Some(&other.node)).await;
    world.on_node(&later, &other).await;
    assert_eq!(figure(&world.metrics(&bystander).await, failed, &[]), None);
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", "deletionSecretNamespaces"));
    assert_eq!(world.events_until(&volume.uid().unwrap(), "why it stays", told).await.len(), 1);
    world.merge_patch::<PersistentVolume>(&volume.name_any(), secret("", "")).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
}

#[tokio::test]
async fn a_volume_that_is_kept_is_let_go_of_even_if_its_node_never_comes_back() {
    let (world, [home, other]) = Local::each(["home", "other"]).await;
    let (daemon, _other) = (home.daemon(&world, json!({})).await, other.daemon(&world, json!({})).await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.select(&claim, Some(&home.node)).await;
    let volume = world.on_node(&claim, &home).await.name_any();
    let ours = |it: &PersistentVolume| it.finalizers().iter().any(|it| it == names::FINALIZER_PROVISIONER);
    world.until(&volume, "protected", ours).await;
    daemon.stop().await.unwrap();
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    world.merge_patch::<PersistentVolume>(&volume, retain).await;
    world.until(&volume, "let go of", |it: &PersistentVolume| !ours(it)).await;
    assert_eq!((home.driver.state().volumes().len(), other.changes().len()), (1, 0), "its volume is untouched");
}

#[tokio::test]
async fn a_volume_is_kept_for_whoever_names_it_by_a_key_that_no_driver_has_told() {
    let (world, [home]) = Local::each(["home"]).await;
    let _daemon = home.daemon(&world, json!({})).await;
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.select(&claim, Some(&home.node)).await;
    let volume = world.on_node(&claim, &home).await;
    let (_, handle) = handle_of(&volume).unwrap();
    let places =
        json!([{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [home.node] }] }]);
    let spec = json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": places } } });
    let rescue = world.rescue("manual", &handle, spec).await;
    world.delete_claim(&claim).await;
    let told = |events: &[Event]| events.iter().any(|it| says(it, "VolumeFailedDelete", &rescue));
    world.events_until(&volume.uid().unwrap(), "who else names it", told).await;
    assert!(home.driver.state().volumes().contains_key(&handle), "it was deleted under its user");
    world.drop_volume(&rescue).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
}
