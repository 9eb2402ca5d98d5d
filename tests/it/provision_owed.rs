//! Changes before the driver's final answer: the class is replaced, another volume gets the name, or the naming rule
//! changes.

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::objects::{self, merge};
use crate::supplier::supplier;
use crate::supply::{handle_of, phase};
use crate::world::World;

impl World {
    /// The class goes, and another one of its name comes.
    async fn replace_class(&self, class: &str, kind: &str) {
        self.all::<StorageClass>().delete(class, &DeleteParams::default()).await.unwrap();
        self.gone::<StorageClass>(class).await;
        assert_eq!(self.class("class", of_kind(kind)).await, class);
    }
}

fn of_kind(kind: &str) -> Value {
    json!({ "parameters": { "kind": kind } })
}

#[tokio::test]
async fn two_successors_ask_for_the_same_although_the_class_was_replaced() {
    let (world, first) = World::with_supplier_on("first").await;
    let (class, claim) = world.unanswered_claim(of_kind("fast")).await;
    let recorded = world.recorded(&claim).await;
    first.stop().await.unwrap();
    world.replace_class(&class, "slow").await;
    let before = world.asked(&claim, 1).await.len();
    let second = world.daemon_on("second", supplier(json!({}))).await;
    world.asked(&claim, before + 1).await;
    assert_eq!(world.recorded(&claim).await, recorded);
    second.stop().await.unwrap();
    world.driver().clear_faults();
    let before = world.asked(&claim, 1).await.len();
    let _third = world.daemon_on("third", supplier(json!({}))).await;
    let volume = world.supplied_with(&claim).await;
    let asked: Vec<_> =
        world.asked(&claim, before + 1).await.into_iter().map(|call| call.create.clone().unwrap()).collect();
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:#?}");
    assert_eq!(asked[0].parameters["kind"], "fast");
    let (_, handle) = handle_of(&volume).unwrap();
    assert_eq!(world.driver().state().volumes().keys().collect::<Vec<_>>(), [&handle]);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_whose_volume_has_gone_to_another_under_its_own_name_ends_when_it_is_deleted() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, claim) = world.unanswered_claim(json!({})).await;
    let name = world.volume_name(&claim).await;
    let handle = world.driver().state().volumes().keys().next().unwrap().clone();
    // A user finds it in the storage, and gives it to another claim under the name that it would have had.
    let other = world.claim("other", &class, json!({ "spec": { "volumeName": name } })).await;
    let mut object = objects::volume(&name, world.driver_name(), &handle);
    let owner = json!({ "namespace": "default", "name": other, "uid": world.claim_uid(&other).await });
    let spec = json!({ "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class, "claimRef": owner });
    merge(&mut object, json!({ "spec": spec }));
    world.create::<PersistentVolume>(object).await;
    world.claim_until(&other, "bound", |it| phase(it) == "Bound").await;
    world.claim_told(&claim, "ProvisioningFailed", &name).await;
    world.delete_claim(&claim).await;
    world.daemon_has_seen("later").await;
    world.driver().clear_faults();
    world.claim_gone(&claim).await;
    world.forgotten(&claim).await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    assert!(world.driver().state().volumes().contains_key(&handle), "it is in use");
    world.assert_nothing_leaked().await;
    world.delete_claim(&other).await;
    world.assert_all_gone(&[&other]).await;
}

#[tokio::test]
async fn a_volume_that_is_stored_under_a_name_of_another_configuration_is_not_made_a_second_time() {
    let world = World::supplied(|_| {}).await;
    let (class, claim) = world.claim_anew("claim").await;
    let (uid, name) = (world.claim_uid(&claim).await, world.volume_name(&claim).await);
    world.driver().seed(["already"]);
    // Smaller than the claim requests, so that the PV controller does not bind it.
    let mut object = objects::volume(&name, world.driver_name(), "already");
    let owner = json!({ "namespace": "default", "name": claim, "uid": uid });
    let mut spec = json!({ "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class, "claimRef": owner });
    spec["capacity"] = json!({ "storage": "512Mi" });
    let made_by = json!({ (names::ANNOTATION_PROVISIONED_BY): world.driver_name() });
    merge(&mut object, json!({ "metadata": { "annotations": made_by }, "spec": spec }));
    world.create::<PersistentVolume>(object).await;
    let _daemon = world.supplier(json!({ "volumeNamePrefix": "vol" })).await;
    // The next claim is made by the daemon, so it has seen this one.
    let next = world.claim("next", &class, json!({})).await;
    let made = world.supplied_with(&next).await;
    assert!(made.name_any().starts_with("vol-"), "{}", made.name_any());
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 1, "for the next one");
    assert!(!world.is_recorded(&claim).await);
    // Once it is gone, the claim gets one of its own.
    world.drop_volume(&name).await;
    assert_eq!(world.supplied_with(&claim).await.name_any(), format!("vol-{uid}"));
}
