//! Tests the assumptions of the scenarios about the cluster around claims, in every environment. The scenario itself
//! provisions.

use csi_control_plane::proto::volume_capability::access_mode::Mode;
use csi_control_plane::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_control_plane::proto::{CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, VolumeCapability};
use csi_control_plane::sandbox::driver::Driver;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::json;

use crate::supply::{SELECTED_NODE, ZONE, handle_of, phase, pool, zoned};
use crate::world::World;

/// Makes a volume in the driver, past its socket. Returns its handle and zone.
fn made(driver: &Driver, name: &str, zone: &str) -> (String, String) {
    let place = Topology { segments: [(ZONE.to_owned(), zone.to_owned())].into() };
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![place.clone()],
            preferred: vec![place],
        }),
        ..CreateVolumeRequest::default()
    };
    let profile = driver.profile();
    let volume = driver.change_state(|state| state.create_volume(&profile, &request)).unwrap().volume.unwrap();
    (volume.volume_id, volume.accessible_topology[0].segments[ZONE].clone())
}

/// Does the provisioner's part for a claim.
async fn provision(world: &World, claim: &str, class: &str, zone: &str) -> String {
    let claim = world.claim_until(claim, "there", |_| true).await;
    let name = format!("pvc-{}", claim.uid().unwrap());
    let (handle, zone) = made(world.driver(), &name, zone);
    let terms = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]);
    let volume = json!({"metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": world.driver_name()},
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"]},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": world.driver_name(), "volumeHandle": handle},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": claim.name_any(), "uid": claim.uid()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    world.create::<PersistentVolume>(volume).await;
    name
}

#[tokio::test]
async fn a_waiting_claim_is_bound_used_and_let_go() {
    let world = World::supplied(zoned([pool("z1", 10), pool("z2", 10)])).await;
    let _daemon = world.daemon(json!({})).await;
    let (_first, second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let (class, claim) = world.waiting_claim_anew("claim").await;
    let pod = world.pod("pod", &[&claim], Some(&second)).await;
    assert_eq!(world.selected(&claim).await, second);
    let key = "volume.kubernetes.io/storage-provisioner";
    let named = world.claim_until(&claim, "a named provisioner", |it| it.annotations().contains_key(key)).await;
    assert_eq!(named.annotations()[key], world.driver_name());
    assert_eq!(phase(&named), "Pending");
    let name = provision(&world, &claim, &class, "z2").await;
    let volume = world.bound(&claim).await;
    assert_eq!(volume.name_any(), name);
    assert_eq!(world.scheduled(&pod).await, second);
    let (_, handle) = handle_of(&volume).unwrap();
    let node_id = world.node_id(&second);
    world.driver_until("attached", |driver| driver.published(&handle).contains(&node_id)).await;
    world.assert_nothing_leaked().await;
    // A claim in use is held.
    world.delete_claim(&claim).await;
    world.claim_until(&claim, "being deleted", |it| it.metadata.deletion_timestamp.is_some()).await;
    world.delete_pod(&pod).await;
    Box::pin(world.all_detached()).await;
    assert!(world.driver().published(&handle).is_empty());
    world.claim_gone(&claim).await;
    let released = |it: &PersistentVolume| it.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Released");
    world.until(&name, "released", released).await;
}

#[tokio::test]
async fn a_claim_that_comes_back_is_scheduled_again() {
    let world = World::supplied(zoned([pool("z1", 10)])).await;
    let node = world.node_in("n1", "z1").await;
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.pod("pod", &[&claim], Some(&node)).await;
    let before = world.claim_until(&claim, "chosen", |it| it.annotations().contains_key(SELECTED_NODE)).await;
    let back = json!([{"op": "remove", "path": "/metadata/annotations/volume.kubernetes.io~1selected-node"}]);
    let patch = kube::api::Patch::Json::<()>(serde_json::from_value(back).unwrap());
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> = world.namespaced();
    let cleared = claims.patch(&claim, &kube::api::PatchParams::default(), &patch).await.unwrap();
    assert_ne!(cleared.resource_version(), before.resource_version());
    assert_eq!(world.selected(&claim).await, node);
}

#[tokio::test]
async fn a_volume_that_nobody_knows_is_a_leak() {
    let world = World::supplied(zoned([pool("z1", 10)])).await;
    world.assert_nothing_leaked().await;
    let (handle, _) = made(world.driver(), "orphan", "z1");
    let missed = world.leak().await.expect("a leak");
    assert!(missed.contains(&handle), "{missed}");
}

#[tokio::test]
async fn a_snapshot_is_ready_and_bound() {
    let world = World::supplied(zoned([pool("z1", 10)])).await;
    world.install_snapshots().await;
    let (class, claim) = world.claim_anew("claim").await;
    provision(&world, &claim, &class, "z1").await;
    let name = world.snapshot("snapshot", &claim).await;
    let snapshot = world.installed_kind("VolumeSnapshot").get(&name).await.unwrap();
    assert_eq!(snapshot.data["status"]["readyToUse"], json!(true));
    let content = world.installed_kind("VolumeSnapshotContent").get(&name).await.unwrap();
    assert_eq!(content.data["spec"]["volumeSnapshotRef"]["uid"], json!(snapshot.uid()));
    assert!(
        world.driver().state().snapshots().contains_key(content.data["status"]["snapshotHandle"].as_str().unwrap())
    );
}
