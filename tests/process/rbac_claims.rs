//! Work that needs each of the provisioner's rights: claims of every kind, one that another daemon has begun, a
//! released volume, and old, wrong and missing capacity objects. There are no controllers: the test makes their changes
//! itself.

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{Node, Pool, Profile};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::program::eventually;
use super::rbac::{USER, conflict};
use super::theatre::{DRIVER, NODE, Theatre, node_id};

const ZONE: &str = "topology.example.com/zone";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
/// Where the source of a claim in `default` is.
const OTHER: &str = "other";
/// The claims that get a volume.
const CLAIMS: [&str; 6] = ["plain", "attributes", "begun", "clone", "far", "restored"];
/// Of the objects that own each other.
const UID: &str = "11111111-2222-3333-4444-555555555555";

/// A section that needs every right.
pub(crate) fn section() -> Value {
    json!({"retry": {"initial": "100ms", "max": "1s", "infeasible": "2s"}, "crossNamespaceSources": true,
        "capacity": {"enabled": true, "immediateBinding": true, "pollInterval": "1s", "ownerLevel": 2}})
}

/// A stage whose one node has room, with the kinds of snapshots and grants, and with a claim that another daemon has begun.
pub(crate) async fn open() -> Theatre {
    let segments = [(ZONE.to_owned(), "z1".to_owned())];
    let node = Node { segments: segments.into(), ..Node::default() };
    let profile = Profile { nodes: [(node_id(), node)].into(), ..Profile::default() };
    let theatre = Theatre::open_with(profile.in_pools([Pool::at([(ZONE, "z1")], 100 << 30)])).await;
    theatre.testbed.install_snapshots();
    // The one that the theatre begins with knows no topology, and a driver's entry can't be changed.
    theatre.testbed.api.delete::<CSINode>("", NODE).unwrap();
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": node_id(), "topologyKeys": [ZONE]}]}}));
    theatre.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {ZONE: "z1"}}}));
    begun(&theatre).await;
    theatre
}

/// A daemon before asks for the volume of a claim, and ends without an answer.
async fn begun(theatre: &Theatre) {
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"user": "me"}}));
    let secret = json!({"csi.storage.k8s.io/provisioner-secret-name": "keys",
        "csi.storage.k8s.io/provisioner-secret-namespace": "default"});
    class(theatre, "class", &secret);
    claim(theatre, "begun", json!({}), json!({}));
    theatre.begin_provisioning().await;
}

/// All objects that need the work of a daemon with all its rights.
pub(crate) fn begin(theatre: &Theatre) {
    owners(theatre);
    // It has no capacity object yet; of the others, one says what is not so, and one is of a class that is gone.
    class(theatre, "bare", &json!({}));
    capacity(theatre, "wrong", "class");
    capacity(theatre, "stale", "gone");
    released(theatre);
    source(theatre, "default", "source");
    theatre.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}}));
    source(theatre, OTHER, "elsewhere");
    theatre.put(json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "grant", "namespace": OTHER},
        "spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "default"}],
            "to": [{"group": "", "kind": "PersistentVolumeClaim"}]}}));
    theatre
        .put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
        "driverName": DRIVER, "parameters": {"iops": "3000"}}));
    snapshot(theatre);
    // Another writer was there first: the claim is read again.
    conflict(theatre, "", "persistentvolumeclaims");
    claim(theatre, "plain", json!({}), json!({}));
    claim(theatre, "attributes", json!({}), json!({"volumeAttributesClassName": "gold"}));
    let of = |name: &str| json!({"kind": "PersistentVolumeClaim", "name": name});
    claim(theatre, "clone", json!({}), json!({"dataSource": of("source")}));
    let far = json!({"kind": "PersistentVolumeClaim", "name": "elsewhere", "namespace": OTHER});
    claim(theatre, "far", json!({}), json!({"dataSourceRef": far}));
    let from = json!({"apiGroup": SNAPSHOT, "kind": "VolumeSnapshot", "name": "snapshot"});
    claim(theatre, "restored", json!({}), json!({"dataSource": from}));
    // The request is refused, and an Event says so.
    claim(theatre, "refused", json!({}), json!({"dataSource": of("nowhere")}));
}

/// Waits until all of it is done.
pub(crate) async fn done(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    for claim in CLAIMS {
        let uid = api.get::<PersistentVolumeClaim>("default", claim).unwrap().uid().unwrap();
        let volume = format!("pvc-{uid}");
        eventually(&format!("the volume of {claim}"), async || api.get::<PersistentVolume>("", &volume).ok()).await;
    }
    eventually("the released volume goes", async || api.get::<PersistentVolume>("", "released").is_err().then_some(()))
        .await;
    eventually("capacity objects that are right", async || {
        let all = api.list::<CSIStorageCapacity>("kube-system").unwrap();
        let of = |class: &str| all.iter().find(|it| it.storage_class_name == class);
        let owned = |it: &CSIStorageCapacity| it.owner_references().iter().any(|owner| owner.kind == "Deployment");
        let is_true = |it: &CSIStorageCapacity| owned(it) && it.capacity.as_ref().is_some_and(|it| it.0 != "1Ki");
        let right = of("gone").is_none() && of("class").is_some_and(is_true) && of("bare").is_some_and(is_true);
        (right && all.len() == 2).then_some(())
    })
    .await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
}

/// Stores an object, and its status behind it.
fn put_with_status(theatre: &Theatre, object: Value, status: &Value) {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = resources::of_kind(&text("/apiVersion"), &text("/kind")).unwrap();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    theatre.put(object);
    let patch = PatchBody::Merge(json!({ "status": status }));
    theatre.testbed.api.patch_object(resource, &namespace, &name, patch, true).unwrap();
}

/// The pod that the daemon runs in, and whose it is.
fn owners(theatre: &Theatre) {
    let by = |version: &str, kind: &str, uid: &str| json!([{"apiVersion": version, "kind": kind, "name": USER, "uid": uid, "controller": true}]);
    let containers = json!([{"name": "c", "image": "example.com/none"}]);
    let labels = json!({"app": USER});
    let metadata =
        |owner: Value| json!({"name": USER, "namespace": "kube-system", "labels": labels, "ownerReferences": owner});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata(by("apps/v1", "Deployment", UID)),
        "spec": {"replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}});
    let set = theatre.testbed.api.create_value(set).unwrap();
    let uid = set.pointer("/metadata/uid").and_then(Value::as_str).unwrap();
    theatre.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(by("apps/v1", "ReplicaSet", uid)),
        "spec": {"containers": containers}}));
}

fn class(theatre: &Theatre, name: &str, parameters: &Value) {
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "parameters": parameters, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}));
}

/// An object of ours for a class.
fn capacity(theatre: &Theatre, name: &str, class: &str) {
    let labels = json!({names::LABEL_DRIVER_NAME: DRIVER, names::LABEL_MANAGED_BY: names::MANAGED_BY_PROVISIONER});
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels}, "storageClassName": class,
        "nodeTopology": {"matchLabels": {ZONE: "z1"}}, "capacity": "1Ki"}));
}

/// A volume without a claim.
fn released(theatre: &Theatre) {
    theatre.driver().seed(["released"]);
    let annotations = json!({names::ANNOTATION_PROVISIONED_BY: DRIVER, names::ANNOTATION_DELETION_SECRET_NAME: "",
        names::ANNOTATION_DELETION_SECRET_NAMESPACE: ""});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "released", "annotations": annotations, "finalizers": [names::FINALIZER_PROVISIONER]},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": "released"}}});
    put_with_status(theatre, volume, &json!({"phase": "Released"}));
}

/// A claim with a volume of the driver.
fn source(theatre: &Theatre, namespace: &str, name: &str) {
    theatre.driver().seed([name]);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "class", "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}}}});
    let bound = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    put_with_status(theatre, claim, &bound);
    let uid = theatre.testbed.api.get::<PersistentVolumeClaim>(namespace, name).unwrap().uid();
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid}}});
    put_with_status(theatre, volume, &json!({"phase": "Bound"}));
}

/// A ready snapshot of the source.
fn snapshot(theatre: &Theatre) {
    let handle = theatre.driver().cut_snapshot("snapshot", "source").unwrap();
    let size = theatre.driver().state().volumes()["source"].capacity;
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "snapshot", "namespace": "default"},
        "spec": {"source": {"persistentVolumeClaimName": "source"}}});
    let ready =
        json!({"readyToUse": true, "restoreSize": size.to_string(), "boundVolumeSnapshotContentName": "snapshot"});
    put_with_status(theatre, snapshot, &ready);
    let resource = resources::find(SNAPSHOT, "v1", "volumesnapshots").unwrap();
    let made = theatre.testbed.api.object(resource, "default", "snapshot").unwrap();
    let content = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": "snapshot"},
        "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "sourceVolumeMode": "Filesystem",
            "source": {"volumeHandle": "source"},
            "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": "default", "name": "snapshot", "uid": made["metadata"]["uid"]}}});
    put_with_status(theatre, content, &json!({"readyToUse": true, "restoreSize": size, "snapshotHandle": handle}));
}

/// A claim that the volume controller has handed over to the driver.
fn claim(theatre: &Theatre, name: &str, mut metadata: Value, mut spec: Value) {
    metadata["name"] = name.into();
    metadata["namespace"] = "default".into();
    metadata["annotations"][names::ANNOTATION_STORAGE_PROVISIONER] = DRIVER.into();
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    spec["storageClassName"] = "class".into();
    spec["resources"] = json!({"requests": {"storage": "1Gi"}});
    theatre.put(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}));
}
