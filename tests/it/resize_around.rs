//! Claims that grow while nodes, pods, drivers, daemons and other claims do as they like.

use std::time::Duration;

use csi_control_plane::csi::ControllerRpc as Rpc;
use csi_control_plane::sandbox::driver::{Action, Method};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use tonic::Code;

use crate::resizing::{ALLOCATED, CAPACITY, STATE, at, expanding, resizer};
use crate::supplier::{figure, slow};
use crate::world::World;

#[tokio::test]
async fn z10_z17_a_node_only_driver_is_asked_nothing_and_a_smaller_wish_is_taken_after_its_node_has_failed() {
    let node_only = |profile: &mut csi_control_plane::sandbox::driver::Profile| {
        *profile = profile.clone().without(Rpc::ExpandVolume);
        profile.node_only_expansion = true;
    };
    let world = World::supplied(node_only).await;
    let _daemon = world.resizer(json!({})).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    world.ask_for(&claim, "4Gi").await;
    let pending = world.in_state(&claim, "NodeResizePending").await;
    assert_eq!((at(&pending, ALLOCATED), world.recorded_size(&volume).await), (json!("4Gi"), json!("4Gi")));
    world.ask_for(&claim, "2Gi").await;
    world.write_status(&claim, json!({"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}})).await;
    let lowered = |it: &PersistentVolumeClaim| at(it, STATE) == "NodeResizePending" && at(it, ALLOCATED) == "2Gi";
    world.claim_until(&claim, "told to try less", lowered).await;
    assert_eq!(world.recorded_size(&volume).await, "2Gi", "it is no more than a record");
    world.kubelet_expands(&claim, &volume).await;
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.expansions().len(), 0);
}

#[tokio::test]
async fn z17_a_real_driver_verifies_the_size_that_its_node_could_not_reach() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    world.ask_for(&claim, "4Gi").await;
    world.in_state(&claim, "NodeResizePending").await;
    world.ask_for(&claim, "2Gi").await;
    world.write_status(&claim, json!({"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}})).await;
    world.expanded_times(2).await;
    world.in_state(&claim, "NodeResizePending").await;
    assert_eq!(world.sizes_asked(), [4.0, 4.0], "what it has done cannot be undone");
    assert_eq!(world.recorded_size(&volume).await, "4Gi");
    world.kubelet_expands(&claim, &volume).await;
    world.sized(&claim, "4Gi").await;
}

#[tokio::test]
async fn z33_z34_a_driver_that_can_do_nothing_of_it_is_told_once_and_ends_nothing() {
    let neither = |profile: &mut csi_control_plane::sandbox::driver::Profile| {
        *profile = profile.clone().without(Rpc::ExpandVolume).without(Rpc::ModifyVolume);
        profile.node_service = false;
    };
    let world = World::supplied(neither).await;
    let daemon = world.resizer(json!({"resync": "1s"})).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    world.ask_for(&claim, "2Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "does not support volume expansion").await;
    let class = world.attributes("gold", "100").await;
    world.ask_for_class(&claim, &class).await;
    world.claim_told(&claim, "VolumeModifyFailed", "does not support volume modification").await;
    assert_eq!(world.reasons(&claim).await, ["VolumeModifyFailed", "VolumeResizeFailed"]);
    let status = world.status(&daemon).await;
    let facts = status["roles"].as_array().unwrap().iter().find(|it| it["name"] == "resizer").unwrap().to_string();
    assert!(facts.contains("not supported by the driver"), "{facts}");
    assert!(!daemon.has_ended());
}

#[tokio::test]
async fn z30_z31_a_volume_that_is_bound_anew_before_its_node_has_acted_is_finished_for_the_new_claim() {
    const NOTE: &str = "/metadata/annotations/volume.alpha.kubernetes.io~1pre-resize-capacity";
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    world.ask_for(&claim, "2Gi").await;
    world.in_state(&claim, "NodeResizePending").await;
    let noted = world.all::<PersistentVolume>().get(&volume).await.unwrap();
    assert_eq!(at(&noted, NOTE), "1Gi");
    world.delete_claim_and_wait(&claim).await;
    world.merge_patch::<PersistentVolume>(&volume, json!({"spec": {"claimRef": null}})).await;
    let class = noted.spec.unwrap().storage_class_name.unwrap();
    let heir = json!({"spec": {"volumeName": volume, "resources": {"requests": {"storage": "2Gi"}}}});
    let heir = world.claim("heir", &class, heir).await;
    let pending = world.in_state(&heir, "NodeResizePending").await;
    assert_eq!(at(&pending, CAPACITY), "1Gi");
    world.kubelet_expands(&heir, &volume).await;
    world.sized(&heir, "2Gi").await;
    world.until(&volume, "without the note", |it: &PersistentVolume| at(it, NOTE).is_null()).await;
}

#[tokio::test]
async fn z32_a_driver_that_dies_while_it_expands_is_asked_again() {
    let (world, daemon) = World::with_resizer(json!({})).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::DoneButCrash { down: Duration::from_millis(200) }).once());
    world.ask_for(&claim, "2Gi").await;
    world.sized(&claim, "2Gi").await;
    assert!(!daemon.has_ended());
    assert!(world.sizes_asked().iter().all(|size| (*size - 2.0).abs() < 0.01));
}

#[tokio::test]
async fn z29_whenever_the_daemon_dies_its_successor_comes_to_the_same_end() {
    let world = World::supplied(|_| {}).await;
    let dying = world.daemon(resizer(slow())).await;
    let (claim, volume) = world.sizable("claim", json!({})).await;
    world.driver().inject(expanding(Action::DoneButHang).once());
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    dying.kill();
    let mut config = resizer(slow());
    crate::objects::merge(&mut config, crate::objects::short_lease());
    let _successor = world.daemon_on("successor", config).await;
    world.in_state(&claim, "NodeResizePending").await;
    assert_eq!(world.recorded_size(&volume).await, "2Gi");
    assert_eq!(world.sizes_asked(), [2.0, 2.0], "the same again");
}

#[tokio::test]
async fn z51_two_volumes_with_one_handle_are_never_changed_at_once() {
    let (world, _daemon) = World::with_resizer(json!({})).await;
    let (first, volume) = world.sizable_device("first").await;
    let shared = json!({"volumeMode": "Block", "csi": {"volumeHandle": world.handle(&volume)}});
    let (second, _) = world.sizable("second", shared).await;
    let class = world.attributes("gold", "100").await;
    world.driver().inject(expanding(Action::Delay(Duration::from_millis(100))));
    for claim in [&first, &second] {
        world.ask_for(claim, "2Gi").await;
        world.ask_for_class(claim, &class).await;
    }
    for claim in [&first, &second] {
        world.sized(claim, "2Gi").await;
        world.classed(claim, &class).await;
    }
    world.assert_no_overlap();
}

#[tokio::test]
async fn z53_a_namesake_inherits_no_error_no_pause_and_no_back_off() {
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::fail(Code::Internal, "broken")).once());
    world.ask_for(&claim, "9Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "broken").await;
    world.delete_claim_and_wait(&claim).await;
    let class = world.class("another", json!({"allowVolumeExpansion": true})).await;
    let volume = world.volume_with("another-pv", json!({"storageClassName": class, "volumeMode": "Block"})).await;
    let namesake = world.claim("claim", &class, json!({"spec": {"volumeName": volume, "volumeMode": "Block"}})).await;
    assert_eq!(namesake, claim);
    world.bound(&namesake).await;
    world.ask_for(&namesake, "9Gi").await;
    world.sized(&namesake, "9Gi").await;
}

#[tokio::test]
async fn z21_z24_a_volume_in_use_waits_for_its_pods_and_is_expanded_when_the_last_one_ends() {
    use k8s_openapi::api::core::v1::Pod;
    let world = World::supplied(|_| {}).await;
    // So often a claim is looked at without need that this proves nothing: every ten seconds.
    let daemon = world.resizer(json!({"retry": {"max": "300s"}})).await;
    let (claim, _) = world.sizable_device("web-data").await;
    let first = world.pod("first", &[&claim], None).await;
    // Kubernetes makes the claim of an ephemeral volume under the name of pod and volume.
    let web = world.name("web");
    let pod = json!({"metadata": {"name": web}, "spec": {"containers": [{"name": "c", "image": "example.com/none"}],
        "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]}});
    world.create_namespaced::<Pod>(pod).await;
    world.driver().inject(expanding(Action::fail(Code::FailedPrecondition, "published")).once());
    world.ask_for(&claim, "2Gi").await;
    world.claim_told(&claim, "VolumeResizeFailed", "volume is currently in-use").await;
    let waits = |metrics: &str| figure(metrics, "csi_control_plane_claims_waiting", &["inUse"]) == Some(1.0);
    world.metrics_until(&daemon, "it waits for its pods", waits).await;
    world.delete_pod(&first).await;
    // The other one still uses it.
    world.metrics_until(&daemon, "it still waits", waits).await;
    assert_eq!(world.sizes_asked(), [2.0]);
    let ended = json!({"status": {"phase": "Succeeded"}});
    let pods = world.namespaced::<Pod>();
    let patch = kube::api::Patch::Merge(ended);
    let before = world.driver().age();
    pods.patch_status(&web, &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.sized(&claim, "2Gi").await;
    assert_eq!(world.sizes_asked(), [2.0, 2.0]);
    let waited = world.expansions()[1].started.saturating_sub(before);
    assert!(waited < Duration::from_secs(5), "the end of the last pod wakes it: {waited:?}");
}

#[tokio::test]
async fn z51_a_claim_that_is_expanded_and_attached_at_once_is_changed_by_one_call_at_a_time() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.daemon(json!({"roles": {"resizer": {"resync": "0s"}}})).await;
    let node = world.place("node", &[]).await;
    let (claim, volume) = world.sizable_device("claim").await;
    world.driver().inject(expanding(Action::Delay(Duration::from_millis(300))));
    world.ask_for(&claim, "2Gi").await;
    world.expanded_times(1).await;
    let pod = world.pod("pod", &[&claim], Some(&node)).await;
    let (handle, node_id) = (world.handle(&volume), world.node_id(&node));
    world.driver_until("attached", |driver| driver.published(&handle).contains(&node_id)).await;
    world.sized(&claim, "2Gi").await;
    let published = world.driver().calls_of(Method::ControllerPublishVolume).remove(0);
    let expanded = world.expansions().remove(0);
    assert!(published.started >= expanded.ended.unwrap(), "one after the other");
    world.delete_pod(&pod).await;
    world.all_detached().await;
    world.assert_no_overlap();
}

#[tokio::test]
async fn z33_a_driver_without_expansion_still_modifies() {
    let world = World::supplied(|profile| {
        *profile = profile.clone().without(Rpc::ExpandVolume);
        profile.node_service = false;
    })
    .await;
    let daemon = world.resizer(json!({})).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let class = world.attributes("gold", "100").await;
    world.ask_for_class(&claim, &class).await;
    world.classed(&claim, &class).await;
    assert!(!daemon.has_ended());
}
