//! Claims of every kind in a cluster with its controllers: what a person applies, and what comes of it.

use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Lie, Method};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, VolumeAttachment};
use kube::ResourceExt as _;
use serde_json::json;
use tonic::Code;

use super::provision_nodes_room::capacities;
use crate::objects;
use crate::supply::{ZONE, handle_of, pool, zoned};
use crate::world::World;
use crate::world::wait::asked;

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn an_immediate_claim_is_bound_and_takes_its_volume_with_it() {
    let (world, _daemon) = World::with_provisioner(json!({})).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" }, "mountOptions": ["noatime"] })).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let volume = world.provisioned(&claim).await;
    let spec = volume.spec.as_ref().unwrap();
    assert_eq!(spec.mount_options.as_deref(), Some(&["noatime".to_owned()][..]));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    assert_eq!(world.driver().creates_of(&volume.name_any()).len(), 1);
    world.deleted_with_its_volume(&claim, &volume).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_volume_that_its_class_retains_is_kept_until_somebody_deletes_it_by_hand() {
    let (world, _daemon) = World::with_provisioner(json!({})).await;
    let class = world.class("class", json!({ "reclaimPolicy": "Retain" })).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let name = world.provisioned(&claim).await.name_any();
    world.delete_claim_and_wait(&claim).await;
    world.until(&name, "released", |it: &PersistentVolume| phase(it) == "Released").await;
    world.all::<PersistentVolume>().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    world.gone::<PersistentVolume>(&name).await;
    // Its storage stays: that is what the policy is for.
    assert!(world.driver().calls_of(Method::DeleteVolume).is_empty());
    assert!(world.driver().volume_named(&name).is_some());
}

#[tokio::test]
async fn a_released_volume_whose_policy_is_changed_to_delete_goes() {
    let (world, _daemon) = World::with_provisioner(json!({})).await;
    let class = world.class("class", json!({ "reclaimPolicy": "Retain" })).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let name = world.provisioned(&claim).await.name_any();
    world.delete_claim(&claim).await;
    world.until(&name, "released", |it: &PersistentVolume| phase(it) == "Released").await;
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    world.merge_patch::<PersistentVolume>(&name, delete).await;
    world.gone::<PersistentVolume>(&name).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_clone_is_made_of_its_source_which_is_held_until_then() {
    let (world, _daemon) = World::with_provisioner(json!({})).await;
    let (class, source) = world.claim_anew("source").await;
    let (_, handle) = handle_of(&world.provisioned(&source).await).unwrap();
    let of = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": source } } });
    let clone = world.claim("clone", &class, of).await;
    let volume = world.provisioned(&clone).await;
    let Some(Source::Volume(from)) = world.source_of(&volume) else { panic!("not made of a volume: {volume:#?}") };
    assert_eq!(from.volume_id, handle);
    let held = |it: &PersistentVolumeClaim| it.finalizers().iter().any(|it| it == names::FINALIZER_CLONING);
    world.claim_until(&source, "let go of", |it| !held(it)).await;
    // The source goes before its clone.
    world.delete_claim_and_wait(&source).await;
    world.delete_claim_and_wait(&clone).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_snapshot_is_restored_and_held_until_then() {
    let world = World::supplied(|_| {}).await;
    world.install_snapshots().await;
    let _daemon = world.provisioner(json!({})).await;
    let (class, source) = world.claim_anew("source").await;
    world.provisioned(&source).await;
    let snapshot = world.snapshot("snapshot", &source).await;
    let of = json!({ "spec": { "dataSource": {
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot } } });
    let restored = world.claim("restored", &class, of).await;
    let volume = world.provisioned(&restored).await;
    let Some(Source::Snapshot(from)) = world.source_of(&volume) else { panic!("not restored: {volume:#?}") };
    let content = world.installed_kind("VolumeSnapshotContent").get(&snapshot).await.unwrap();
    assert_eq!(content.data["status"]["snapshotHandle"], from.snapshot_id.as_str());
    let snapshots = world.installed_kind("VolumeSnapshot");
    let free = async || {
        let now = snapshots.get(&snapshot).await.unwrap();
        (!now.finalizers().iter().any(|it| it == names::FINALIZER_SNAPSHOT_SOURCE)).then_some(())
    };
    asked("a snapshot that is let go of", free).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_waiting_claim_gets_its_volume_where_its_pod_goes_and_the_pod_gets_its_volume() {
    let world = World::supplied(zoned([pool("z1", 10), pool("z2", 10)])).await;
    let _daemon = world.provisioner(json!({})).await;
    let (_first, second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
    let pod = world.pod("pod", &[&claim], Some(&second)).await;
    let volume = world.provisioned(&claim).await;
    assert_eq!(world.scheduled(&pod).await, second);
    let affinity = serde_json::to_value(&volume.spec.as_ref().unwrap().node_affinity).unwrap();
    let expected = json!([{ "key": ZONE, "operator": "In", "values": ["z2"] }]);
    assert_eq!(affinity.pointer("/required/nodeSelectorTerms/0/matchExpressions"), Some(&expected));
    let ((_, handle), node_id) = (handle_of(&volume).unwrap(), world.node_id(&second));
    world.driver_until("attached", |driver| driver.published(&handle).contains(&node_id)).await;
    world.delete_pod(&pod).await;
    world.deleted_with_its_volume(&claim, &volume).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_volume_made_by_hand_follows_its_pods_from_node_to_node_and_is_asked_for_on_one_at_a_time() {
    let world = World::supplied(|_| {}).await;
    let _daemon = world.daemon(json!({})).await;
    let (first, second) = (world.place("n1", &[]).await, world.place("n2", &[]).await);
    let volume = world.volume_with("pv", json!({ "storageClassName": "" })).await;
    let claim = world.claim("claim", "", json!({ "spec": { "volumeName": volume } })).await;
    assert_eq!(world.bound(&claim).await.name_any(), volume);
    let attachment = |node: &str| objects::attachment_name(&world.handle(&volume), world.driver_name(), node);
    let here = world.pod("here", &[&claim], Some(&first)).await;
    world.attached(&attachment(&first)).await;
    // The next pod is there before this one goes.
    let there = world.pod("there", &[&claim], Some(&second)).await;
    assert_eq!(world.scheduled(&there).await, second);
    world.delete_pod(&here).await;
    world.gone::<VolumeAttachment>(&attachment(&first)).await;
    world.attached(&attachment(&second)).await;
    world.balanced().await;
    world.delete_pod(&there).await;
    world.gone::<VolumeAttachment>(&attachment(&second)).await;
    world.balanced().await;
    let calls: Vec<_> =
        world.changing_calls().into_iter().map(|call| (call.method, call.node.clone().unwrap())).collect();
    let expected = [&first, &second].map(|node| {
        [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume].map(|method| (method, world.node_id(node)))
    });
    assert_eq!(calls, expected.concat());
}

#[tokio::test]
async fn r17_a_pod_waits_for_room_and_goes_where_it_comes() {
    let world = World::supplied(zoned([pool("none", 0)])).await;
    // Zones that no other world has: others' nodes may be as empty.
    let zones = [world.name("z1"), world.name("z2")];
    let rooms = |second: i64| [pool(&zones[0], 0), pool(&zones[1], second)].into();
    world.driver().change_profile(|profile| profile.pools = rooms(0));
    let (_full, spacious) = (world.node_in("n1", &zones[0]).await, world.node_in("n2", &zones[1]).await);
    let spec = json!({ "attachRequired": true, "storageCapacity": true });
    world.create::<CSIDriver>(json!({ "metadata": { "name": world.driver_name() }, "spec": spec })).await;
    let capacity = json!({ "capacity": { "enabled": true, "pollInterval": "1s", "ownerLevel": -1 } });
    let _daemon = world.provisioner(capacity).await;
    let parameters = json!({ "kind": "fast", "csi.storage.k8s.io/fstype": "ext4" });
    let class = world.waiting_class("class", json!({ "parameters": parameters })).await;
    let of_ours = |told: &[CSIStorageCapacity]| told.iter().filter(|it| it.storage_class_name == class).count();
    let api = kube::Api::<CSIStorageCapacity>::all(world.client());
    let told = async || {
        let told = api.list(&kube::api::ListParams::default()).await.unwrap().items;
        (of_ours(&told) >= zones.len()).then_some(())
    };
    asked("a scheduler that can know", told).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let pod = world.pod("pod", &[&claim], None).await;
    world.driver().change_profile(|profile| profile.pools = rooms(1));
    assert_eq!(world.scheduled(&pod).await, spacious);
    let asked = world.driver().calls_of(Method::CreateVolume);
    assert_eq!(asked.len(), 1, "nobody has tried where there is no room");
    let created = asked[0].create.clone().unwrap();
    let wanted = created.accessibility_requirements.unwrap();
    assert_eq!(wanted.preferred[0].segments[ZONE], zones[1]);
    assert_eq!(created.parameters, [("kind".to_owned(), "fast".to_owned())].into());
    // Which claim will want the room is not known before: whatever its capabilities, in one place, and with no parameter of ours.
    for question in world.driver().calls_of(Method::GetCapacity) {
        let question = question.capacity.clone().unwrap();
        assert_eq!((question.volume_capabilities.len(), &question.parameters), (0, &created.parameters));
        assert!(zones.contains(&question.accessible_topology.unwrap().segments[ZONE]));
    }
    world.provisioned(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn the_room_is_asked_for_again_after_answers_that_cannot_be_used() {
    let world = World::supplied(|_| {}).await;
    world.place("n1", &[]).await;
    // No poll comes in time.
    let capacity = json!({ "enabled": true, "immediateBinding": true, "pollInterval": "1h", "ownerLevel": -1 });
    let _daemon = world.provisioner(json!({ "capacity": capacity })).await;
    let class = world.class("class", json!({})).await;
    let asked = |driver: &Driver| driver.calls_of(Method::GetCapacity).len();
    world.driver_until("asked for the room", |driver| asked(driver) > 0).await;
    let lie = |lie: Lie| Fault::on(Method::CreateVolume, Action::Lie(lie));
    let stuck = Fault::on(Method::DeleteVolume, Action::fail(Code::Internal, "the shelf is stuck"));
    for (short, faults) in [("nameless", vec![lie(Lie::NoVolume)]), ("small", vec![lie(Lie::Size(1)), stuck])] {
        for fault in faults {
            world.driver().inject(fault);
        }
        let claim = world.claim(short, &class, json!({})).await;
        world.asked(&claim, 1).await;
        let before = asked(world.driver());
        // Earlier calls may still cause one, and each failure one more.
        world.driver_until("asked for the room again and again", |driver| asked(driver) >= before + 3).await;
        world.driver().clear_faults();
        world.provisioned(&claim).await;
    }
    world.assert_nothing_leaked().await;
}

/// Waits until the objects of the two zones say so.
async fn rooms_told(world: &World, rooms: [&str; 2]) {
    let look = async || {
        let found = capacities(world).await;
        let room = |zone: &str| Some(found.get(zone)?.capacity.as_ref()?.0.clone());
        (["z1", "z2"].map(room) == rooms.map(|room| Some(room.to_owned()))).then_some(())
    };
    asked(&format!("{rooms:?}"), look).await;
}

#[tokio::test]
async fn the_room_of_a_place_is_asked_for_again_when_a_volume_comes_there_when_it_grows_and_when_it_goes() {
    // With topology off, the volume can be reached from everywhere, and may have taken its room anywhere.
    for topology in [true, false] {
        let world = World::two_zones().await;
        let (first, _second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
        let class = world.waiting_class("class", json!({ "allowVolumeExpansion": true })).await;
        // No poll comes in time.
        let capacity = json!({ "enabled": true, "pollInterval": "1h", "ownerLevel": -1 });
        let section = json!({ "capacity": capacity, "topology": topology });
        let _daemon = world.provisioner_with(json!({ "resizer": {} }), section).await;
        rooms_told(&world, ["100Gi", "100Gi"]).await;
        let claim = world.claim("claim", &class, json!({ "spec": { "volumeMode": "Block" } })).await;
        world.select(&claim, Some(&first)).await;
        world.provisioned(&claim).await;
        rooms_told(&world, ["99Gi", "100Gi"]).await;
        world.ask_for(&claim, "3Gi").await;
        rooms_told(&world, ["97Gi", "100Gi"]).await;
        world.delete_claim(&claim).await;
        rooms_told(&world, ["100Gi", "100Gi"]).await;
        world.assert_nothing_leaked().await;
    }
}

#[tokio::test]
async fn the_room_of_a_place_is_asked_for_again_when_another_program_grows_a_volume_there() {
    let world = World::two_zones().await;
    let (first, _second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let class = world.waiting_class("class", json!({})).await;
    let capacity = json!({ "enabled": true, "pollInterval": "1h", "ownerLevel": -1 });
    // Beside csi-resizer: no role of the daemon reads the sizes of volumes for itself.
    let _daemon = world.provisioner(json!({ "capacity": capacity })).await;
    rooms_told(&world, ["100Gi", "100Gi"]).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.select(&claim, Some(&first)).await;
    let volume = world.provisioned(&claim).await.name_any();
    rooms_told(&world, ["99Gi", "100Gi"]).await;
    world.driver().change_profile(|profile| profile.pools = [pool("z1", 90), pool("z2", 90)].into());
    world.merge_patch::<PersistentVolume>(&volume, json!({ "spec": { "capacity": { "storage": "11Gi" } } })).await;
    rooms_told(&world, ["89Gi", "100Gi"]).await;
    world.assert_nothing_leaked().await;
}
