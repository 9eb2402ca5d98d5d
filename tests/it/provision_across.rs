//! Volumes from data sources in another namespace, which needs a `ReferenceGrant`.

use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles::provisioner::names;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::supplier::{figure, says};
use crate::supply::{handle_of, has_ours, phase};
use crate::world::wait::asked;
use crate::world::{World, until_some};

/// A namespace that every cluster has. The other one of these scenarios is `default`.
const OTHER: &str = "kube-public";
const FAILED: &str = "controller_persistentvolumeclaim_provision_failed_total";
/// The error of a claim without a grant for its source.
const DENIED: &str = "no ReferenceGrant in namespace";

/// A cluster that lets claims name such sources, and a class.
async fn world() -> (World, String) {
    let world = World::on(Ground::with_sources_anywhere, |_| {}).await;
    let class = world.class("class", json!({})).await;
    (world, class)
}

fn elsewhere(world: &World) -> Api<PersistentVolumeClaim> {
    Api::namespaced(world.client(), OTHER)
}

/// A claim in the other namespace.
async fn claim_elsewhere(world: &World, short: &str, class: &str, more: Value) -> String {
    let name = world.name(short);
    let mut claim = json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } } });
    crate::objects::merge(&mut claim, more);
    elsewhere(world).create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    name
}

/// Waits until a claim in the other namespace is bound and carries nothing of ours, and returns its volume.
async fn supplied_elsewhere(world: &World, claim: &str) -> PersistentVolume {
    let is_done = |it: &PersistentVolumeClaim| phase(it) == "Bound" && !has_ours(it);
    let claim =
        until_some(elsewhere(world), claim, "bound, with nothing of ours", |it: Option<&PersistentVolumeClaim>| {
            it.is_some_and(is_done)
        })
        .await;
    let volume = claim.unwrap().spec.unwrap().volume_name.unwrap();
    world.all::<PersistentVolume>().get(&volume).await.unwrap()
}

/// A claim in `default` that is to be made from one in the other namespace.
async fn clone_of(world: &World, short: &str, class: &str, source: &str) -> String {
    let from = json!({ "kind": "PersistentVolumeClaim", "name": source, "namespace": OTHER });
    world.claim(short, class, json!({ "spec": { "dataSourceRef": from } })).await
}

/// Lets claims of namespace `from` use what is at `to`, in the namespace of the grant.
async fn grant(world: &World, short: &str, namespace: &str, from: &str, to: Value) {
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant");
    let claims = json!([{ "group": "", "kind": "PersistentVolumeClaim", "namespace": from }]);
    let object = json!({ "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": { "name": world.name(short) }, "spec": { "from": claims, "to": [to] } });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), namespace, &ApiResource::from_gvk(&kind));
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn assert_untouched(world: &World, claim: &str, source: &str) {
    let waiting = world.claim_now(claim).await;
    assert_eq!((phase(&waiting), world.is_recorded(claim).await), ("Pending", false));
    let name = world.volume_name(claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), 0, "the driver was asked for {claim}");
    let source = elsewhere(world).get(source).await.unwrap();
    assert!(!is_held(&source), "whoever may name a source may not hold it up: {source:#?}");
}

fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|it| it == names::FINALIZER_CLONING)
}

#[tokio::test]
async fn a_claim_of_another_namespace_is_cloned_once_that_has_agreed_and_not_before() {
    let (world, class) = world().await;
    let daemon = world.supplier(json!({ "crossNamespaceSources": true })).await;
    let source = claim_elsewhere(&world, "source", &class, json!({})).await;
    let (_, handle) = handle_of(&supplied_elsewhere(&world, &source).await).unwrap();
    let clone = clone_of(&world, "clone", &class, &source).await;
    world.claim_told(&clone, "ProvisioningFailed", DENIED).await;
    assert_untouched(&world, &clone, &source).await;

    // Grants for others, of other things, and in the wrong place.
    let claims = || json!({ "group": "", "kind": "PersistentVolumeClaim" });
    let another = json!({ "group": "", "kind": "PersistentVolumeClaim", "name": world.name("another") });
    let snapshots = json!({ "group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot" });
    grant(&world, "others", OTHER, "kube-system", claims()).await;
    grant(&world, "another", OTHER, "default", another).await;
    grant(&world, "snapshots", OTHER, "default", snapshots).await;
    grant(&world, "place", "default", "default", claims()).await;
    let failures = |metrics: &str| figure(metrics, FAILED, &[&class]).unwrap_or_default();
    let before = failures(&world.metrics(&daemon).await);
    // The first of these may have begun before the last grant was there.
    world.metrics_until(&daemon, "two more attempts", |metrics| failures(metrics) >= before + 2.0).await;
    assert_untouched(&world, &clone, &source).await;

    let named = json!({ "group": "", "kind": "PersistentVolumeClaim", "name": source });
    grant(&world, "grant", OTHER, "default", named).await;
    let volume = world.supplied_with(&clone).await;
    let Some(Source::Volume(from)) = world.source_of(&volume) else { panic!("not a clone: {volume:#?}") };
    assert_eq!(from.volume_id, handle);
    let is_free = |it: Option<&PersistentVolumeClaim>| it.is_some_and(|it| !is_held(it));
    until_some(elsewhere(&world), &source, "let go of", is_free).await;
    elsewhere(&world).delete(&source, &DeleteParams::default()).await.unwrap();
    until_some(elsewhere(&world), &source, "gone", |it: Option<&PersistentVolumeClaim>| it.is_none()).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_snapshot_of_another_namespace_is_restored_once_that_has_agreed() {
    let (world, class) = world().await;
    let daemon = world.supplier(json!({ "crossNamespaceSources": true })).await;
    let source = world.claim("source", &class, json!({})).await;
    world.supplied_with(&source).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let from = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot,
        "namespace": "default" });
    let restored = claim_elsewhere(&world, "restored", &class, json!({ "spec": { "dataSourceRef": from } })).await;
    let denied = |metrics: &str| figure(metrics, FAILED, &[&class, "VolumeSnapshot"]).is_some_and(|it| it >= 1.0);
    world.metrics_until(&daemon, "an attempt that was denied", denied).await;
    let uid = elsewhere(&world).get(&restored).await.unwrap().uid().unwrap();
    assert_eq!(world.driver().creates_of(&format!("pvc-{uid}")).len(), 0);
    let to = json!({ "group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot" });
    grant(&world, "grant", "default", OTHER, to).await;
    let volume = supplied_elsewhere(&world, &restored).await;
    let Some(Source::Snapshot(from)) = world.source_of(&volume) else { panic!("not restored: {volume:#?}") };
    let content = world.installed_kind("VolumeSnapshotContent").get(&snapshot).await.unwrap();
    assert_eq!(content.data["status"]["snapshotHandle"], from.snapshot_id.as_str());
    let free = async || {
        let now = world.installed_kind("VolumeSnapshot").get(&snapshot).await.unwrap();
        (!now.finalizers().iter().any(|it| it == names::FINALIZER_SNAPSHOT_SOURCE)).then_some(())
    };
    asked("a snapshot that is let go of", free).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_source_of_another_namespace_is_not_followed_while_that_is_off_and_the_claim_is_told() {
    let (world, class) = world().await;
    let first = world.daemon_on("first", crate::supplier::supplier(json!({}))).await;
    let source = claim_elsewhere(&world, "source", &class, json!({})).await;
    supplied_elsewhere(&world, &source).await;
    // By name: other scenarios have claims there, too, which are not granted.
    let named = json!({ "group": "", "kind": "PersistentVolumeClaim", "name": source });
    grant(&world, "grant", OTHER, "default", named).await;
    let clone = clone_of(&world, "clone", &class, &source).await;
    world.claim_told(&clone, "ProvisioningFailed", "data sources of other namespaces are disabled").await;
    assert_untouched(&world, &clone, &source).await;
    first.stop().await.unwrap();
    let on = crate::supplier::supplier(json!({ "crossNamespaceSources": true }));
    let _second = world.daemon_on("second", on).await;
    world.supplied_with(&clone).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn what_only_a_populator_knows_in_another_namespace_is_left_to_it_once_that_has_agreed() {
    let (world, class) = world().await;
    let first = world.daemon_on("first", crate::supplier::supplier(json!({}))).await;
    let from = json!({ "apiGroup": "example.com", "kind": "Dump", "name": "monday", "namespace": OTHER });
    let claim = world.claim("claim", &class, json!({ "spec": { "dataSourceRef": from } })).await;
    let assert_refused = |events: &[Event]| {
        assert!(!events.iter().any(|event| says(event, "Provisioning", "")), "left to a populator: {events:#?}");
    };
    assert_refused(
        &world.claim_told(&claim, "ProvisioningFailed", "data sources of other namespaces are disabled").await,
    );
    let failures = |metrics: &str| figure(metrics, FAILED, &[&class, "populator"]).unwrap_or_default();
    world.metrics_until(&first, "a failure", |metrics| failures(metrics) >= 1.0).await;
    first.stop().await.unwrap();

    let on = crate::supplier::supplier(json!({ "crossNamespaceSources": true }));
    let second = world.daemon_on("second", on).await;
    assert_refused(&world.claim_told(&claim, "ProvisioningFailed", DENIED).await);
    // Grants of what the driver itself would take, and of the same kind of another group. By name: other scenarios have claims
    // there that nobody must have.
    for (short, group, kind) in [("claims", "", "PersistentVolumeClaim"), ("dumps", "example.org", "Dump")] {
        grant(&world, short, OTHER, "default", json!({ "group": group, "kind": kind, "name": "monday" })).await;
    }
    let before = failures(&world.metrics(&second).await);
    // The first of these may have begun before the last grant was there.
    world.metrics_until(&second, "two more attempts", |metrics| failures(metrics) >= before + 2.0).await;
    assert_refused(&world.claim_told(&claim, "ProvisioningFailed", DENIED).await);

    grant(&world, "grant", OTHER, "default", json!({ "group": "example.com", "kind": "Dump" })).await;
    world.claim_told(&claim, "Provisioning", "populator").await;
    let waiting = world.claim_now(&claim).await;
    assert_eq!((phase(&waiting), world.is_recorded(&claim).await), ("Pending", false));
    let name = world.volume_name(&claim).await;
    assert_eq!(world.driver().creates_of(&name).len(), 0, "whoever fills it makes it, too");
    world.delete_claim_and_wait(&claim).await;
    world.assert_nothing_leaked().await;
}
