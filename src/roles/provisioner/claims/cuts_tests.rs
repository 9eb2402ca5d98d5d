//! Wherever the work on a claim is cut, the next leader comes to the same end: one volume with its object, or none, and nothing in the
//! journal.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use tonic::Code;

use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::{REGISTRATION, names};
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::pure::resources::find;
use crate::sandbox::driver::{Action, Fault, Lie, Method, Pool, Profile};

#[path = "reschedule_tests.rs"]
mod reschedule;

const SPACE: &str = "default";
const CLAIM: &str = "data";
const SOURCE: &str = "source";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const FULL: &str = "z1";
const ROOMY: &str = "z2";

/// A claim with this patch of a class with a secret. There is a volume with its claim and a snapshot of it, and a node in each zone.
async fn scene(profile: Profile, binding: &str, patch: &Value) -> Served {
    // With a strict topology a driver whose pool at the node is full has no other place.
    let retry = json!({ "initial": "10ms", "max": "1s", "infeasible": "1s" });
    let section = json!({ "resync": "0s", "strictTopology": true, "retry": retry });
    let world = Served::new(&REGISTRATION, &section, profile).await;
    let (driver, api) = (world.context.driver.name.clone(), &world.testbed.api);
    world.testbed.install_snapshots();
    world.testbed.driver.seed([SOURCE]);
    let snapshot = world.testbed.driver.cut_snapshot(SOURCE, SOURCE).unwrap();
    let annotations = json!({ names::ANNOTATION_STORAGE_PROVISIONER: driver });
    let size = json!({ "storage": "1Gi" });
    let claim = |name: &str, patch: &Value| {
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": SPACE, "name": name, "annotations": annotations },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": size } } });
        merged(claim, patch.clone())
    };
    let parameters = json!({ "csi.storage.k8s.io/provisioner-secret-name": "keys",
        "csi.storage.k8s.io/provisioner-secret-namespace": SPACE });
    let mut objects = vec![
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
            "provisioner": driver, "parameters": parameters, "volumeBindingMode": binding, "reclaimPolicy": "Delete" }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": SPACE }, "data": {} }),
        claim(SOURCE, &json!({ "spec": { "volumeName": SOURCE } })),
    ];
    for zone in [FULL, ROOMY] {
        let metadata = json!({ "name": zone, "labels": { "zone": zone } });
        objects.push(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }));
        let drivers = json!([{ "name": driver, "nodeID": zone, "topologyKeys": ["zone"] }]);
        objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": zone },
            "spec": { "drivers": drivers } }));
    }
    for object in objects {
        api.create_value(object).unwrap();
    }
    let bound = || PatchBody::Merge(json!({ "status": { "phase": "Bound" } }));
    let source = api.patch_status::<PersistentVolumeClaim>(SPACE, SOURCE, bound()).unwrap();
    let claim_ref = json!({ "namespace": SPACE, "name": SOURCE, "uid": source.metadata.uid });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": SOURCE },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"], "claimRef": claim_ref,
            "storageClassName": "fast", "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": driver, "volumeHandle": SOURCE } } });
    api.create_value(volume).unwrap();
    api.patch_status::<PersistentVolume>("", SOURCE, bound()).unwrap();
    let of_snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "namespace": SPACE, "name": SOURCE },
        "spec": { "source": { "persistentVolumeClaimName": SOURCE } } });
    let snapshot_ref = json!({ "namespace": SPACE, "name": SOURCE,
        "uid": api.create_value(of_snapshot).unwrap()["metadata"]["uid"] });
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": SOURCE }, "spec": { "driver": driver, "deletionPolicy": "Retain",
            "source": { "volumeHandle": SOURCE }, "volumeSnapshotRef": snapshot_ref } });
    api.create_value(content).unwrap();
    for (resource, namespace, status) in [
        ("volumesnapshots", SPACE, json!({ "boundVolumeSnapshotContentName": SOURCE, "readyToUse": true })),
        ("volumesnapshotcontents", "", json!({ "snapshotHandle": snapshot, "readyToUse": true })),
    ] {
        let resource = find(SNAPSHOTS, "v1", resource).unwrap();
        let status = PatchBody::Merge(json!({ "status": status }));
        api.patch_object(resource, namespace, SOURCE, status, true).unwrap();
    }
    api.create_value(claim(CLAIM, patch)).unwrap();
    world
}

async fn plain(faults: &[(Method, Action, u32)], patch: &Value) -> Served {
    let world = scene(Profile::default(), "Immediate", patch).await;
    for (method, action, times) in faults {
        world.testbed.driver.inject(Fault::on(*method, action.clone()).times(*times));
    }
    world
}

/// How many volumes the driver has beside the source, and how many of them have objects, once nothing is left to do.
fn end(world: &Served) -> Option<(usize, usize)> {
    let journal = world.testbed.api.list::<ConfigMap>("").unwrap();
    let is_empty = journal.iter().all(|segment| segment.data.as_ref().is_none_or(std::collections::BTreeMap::is_empty));
    let objects = world.testbed.api.list::<PersistentVolume>("").unwrap().len();
    (is_empty && world.work().is_empty()).then(|| (world.testbed.driver.state().volumes().len() - 1, objects - 1))
}

/// The end with a volume, which is bound to its claim.
fn provisioned(world: &Served) -> Option<(usize, usize)> {
    let api = &world.testbed.api;
    let claim = api.get::<PersistentVolumeClaim>(SPACE, CLAIM).unwrap();
    if claim.spec.is_some_and(|spec| spec.volume_name.is_none()) {
        let volumes = api.list::<PersistentVolume>("").unwrap().into_iter().filter_map(|volume| volume.metadata.name);
        let name = volumes.into_iter().find(|name| name != SOURCE)?;
        let bound = PatchBody::Merge(json!({ "spec": { "volumeName": name } }));
        api.patch::<PersistentVolumeClaim>(SPACE, CLAIM, bound).unwrap();
    }
    end(world)
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_one_volume() {
    assert_the_same_end(async || plain(&[], &json!({})).await, provisioned).await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_and_a_restored_snapshot_get_one_volume_and_their_source_is_let_go_of() {
    for (kind, group) in [("PersistentVolumeClaim", None), ("VolumeSnapshot", Some(SNAPSHOTS))] {
        let source = json!({ "spec": { "dataSource": { "kind": kind, "name": SOURCE, "apiGroup": group } } });
        let end = |world: &Served| {
            let resource = if group.is_some() { "volumesnapshots" } else { "persistentvolumeclaims" };
            let source = world.testbed.api.object(find(group.unwrap_or(""), "v1", resource).unwrap(), SPACE, SOURCE);
            let left = source.unwrap().pointer("/metadata/finalizers").cloned();
            provisioned(world).filter(|_| left.is_none_or(|left| left == json!([])))
        };
        assert_the_same_end(async || plain(&[], &source).await, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_refused_and_one_whose_volume_could_not_be_used_get_one_volume_in_the_end() {
    for action in [
        Action::fail(Code::OutOfRange, "no"),
        Action::fail(Code::InvalidArgument, "never"),
        Action::Lie(Lie::Size(5)),
        Action::Lie(Lie::NoVolume),
    ] {
        let faults = [(Method::CreateVolume, action, 1)];
        // Its class wakes a claim that is tried again rarely.
        assert_the_same_end(async || plain(&faults, &json!({})).await, provisioned).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_node_is_full_gets_one_volume_on_another() {
    let selected = |node: &str| json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } });
    let pools = || [Pool::at([("zone", FULL)], 0), Pool::at([("zone", ROOMY)], 1 << 40)];
    let scene = async || scene(Profile::default().in_pools(pools()), "WaitForFirstConsumer", &selected(FULL)).await;
    let end = |world: &Served| {
        let api = &world.testbed.api;
        let annotations = api.get::<PersistentVolumeClaim>(SPACE, CLAIM).unwrap().metadata.annotations.unwrap();
        if !annotations.contains_key(names::ANNOTATION_SELECTED_NODE) {
            let patch = PatchBody::Merge(selected(ROOMY));
            api.patch::<PersistentVolumeClaim>(SPACE, CLAIM, patch).unwrap();
        }
        provisioned(world)
    };
    assert_the_same_end(scene, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_during_the_call_leaves_no_volume() {
    // Long enough for the watch to show the deletion before the driver answers.
    let late = || Action::Late(Duration::from_secs(5));
    let end = |world: &Served| {
        if world.testbed.driver.calls_of(Method::CreateVolume).is_empty() {
            return None;
        }
        // Gone from the second look on.
        let _ = world.testbed.api.delete::<PersistentVolumeClaim>(SPACE, CLAIM);
        end(world).filter(|(volumes, _)| *volumes == 0)
    };
    assert_the_same_end(async || plain(&[(Method::CreateVolume, late(), 1)], &json!({})).await, end).await;
}
