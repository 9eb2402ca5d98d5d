//! Work that needs each of the provisioner's rights: claims of every kind, one that another daemon has begun, a
//! released volume, and old, wrong and missing capacity objects. There are no controllers: the test makes their changes
//! itself.

use std::collections::BTreeSet;

use csi_control_plane::roles::provisioner::names;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, VolumeAttributesClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::ground::cluster::{Ground as Cluster, NAMESPACE};
use crate::objects::merge;
use crate::supplier::short_times;
use crate::supplier::unanswered;
use crate::supply::{ZONE, pool, zoned};
use crate::world::World;
use crate::world::wait::asked;

/// Where the source of a claim in `default` is.
const OTHER: &str = "other";

/// A section that needs every right.
pub(crate) fn section() -> Value {
    let mut section = short_times();
    merge(
        &mut section,
        json!({ "crossNamespaceSources": true,
            "capacity": { "enabled": true, "immediateBinding": true, "pollInterval": "1s", "ownerLevel": 2 } }),
    );
    section
}

/// A world where claims may have sources in other namespaces.
pub(crate) async fn world() -> World {
    let set = async |profile| Ground::Cluster(Cluster::across_namespaces(profile).await);
    World::on(set, zoned([pool("z1", 100)])).await
}

/// The result of a daemon with all of its rights.
pub(crate) struct TestBed {
    class: String,
    claims: Vec<String>,
    released: String,
    stale: String,
    wrong: String,
}

impl TestBed {
    pub(crate) async fn set_up(world: &World) -> Self {
        world.node_in("node", "z1").await;
        owners(world).await;
        let secret = world.name("secret");
        let object = json!({ "metadata": { "name": secret }, "stringData": { "password": "hunter2" } });
        create(&world.namespaced::<Secret>(), object).await;
        let class = world
            .class(
                "class",
                json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": secret,
                "csi.storage.k8s.io/provisioner-secret-namespace": "default" } }),
            )
            .await;
        world.class("bare", json!({})).await;
        let (stale, wrong) = (capacity(world, &world.name("gone")).await, capacity(world, &class).await);
        let mut work = Self { class, claims: Vec::new(), released: world.name("released"), stale, wrong };
        work.begin(world).await;
        work.released_volume(world).await;
        source(world, "default", "source", &work.class).await;
        crate::accounts::namespace(&world.client(), OTHER).await;
        source(world, OTHER, "elsewhere", &work.class).await;
        grant(world).await;
        let attributes = json!({ "metadata": { "name": world.name("gold") }, "driverName": world.driver_name(),
            "parameters": { "iops": "3000" } });
        world.create::<VolumeAttributesClass>(attributes).await;
        let snapshot = world.snapshot("snapshot", &world.name("source")).await;
        work.claim(world, "plain", json!({})).await;
        work.claim(world, "attributes", json!({ "spec": { "volumeAttributesClassName": world.name("gold") } })).await;
        let clone = json!({ "kind": "PersistentVolumeClaim", "name": world.name("source") });
        work.claim(world, "clone", json!({ "spec": { "dataSource": clone } })).await;
        let far = json!({ "kind": "PersistentVolumeClaim", "name": world.name("elsewhere"), "namespace": OTHER });
        work.claim(world, "far", json!({ "spec": { "dataSourceRef": far } })).await;
        let of = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
        work.claim(world, "restored", json!({ "spec": { "dataSource": of } })).await;
        // The request is refused, and an Event says so.
        let nowhere = json!({ "kind": "PersistentVolumeClaim", "name": "nowhere" });
        asked_for(world, "refused", &work.class, json!({ "spec": { "dataSource": nowhere } })).await;
        work
    }

    /// A daemon before asks for the volume of a claim, and ends without an answer. The driver answers once all is to be done.
    async fn begin(&mut self, world: &World) {
        world.driver().inject(unanswered());
        self.claim(world, "begun", json!({})).await;
        let roles = json!({ "attacher": null, "reconciler": null, "provisioner": short_times() });
        let predecessor = world.daemon_on("predecessor", json!({ "roles": roles })).await;
        world.asked(&self.claims[0], 1).await;
        predecessor.stop().await.unwrap();
        // The right to create a Lease is needed, too.
        let leases = Api::<Lease>::namespaced(world.client(), NAMESPACE);
        leases.delete(&names::lease(world.driver_name()), &DeleteParams::default()).await.unwrap();
        world.driver().clear_faults();
        // So that its entry stays while the claims after it are recorded.
        world.driver().inject(unanswered().volume(&world.volume_name(&self.claims[0]).await));
    }

    async fn claim(&mut self, world: &World, short: &str, change: Value) {
        self.claims.push(asked_for(world, short, &self.class, change).await);
    }

    async fn released_volume(&self, world: &World) {
        world.driver().seed(["released"]);
        let annotations = json!({ names::ANNOTATION_PROVISIONED_BY: world.driver_name(),
            names::ANNOTATION_DELETION_SECRET_NAME: "", names::ANNOTATION_DELETION_SECRET_NAMESPACE: "" });
        let volume = json!({ "metadata": { "name": self.released, "annotations": annotations,
                "finalizers": [names::FINALIZER_PROVISIONER] },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": self.class,
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": world.driver_name(), "volumeHandle": "released" } } });
        world.create::<PersistentVolume>(volume).await;
        volume_is(world, &self.released, "Released").await;
    }

    /// Waits until all of the work is done.
    pub(crate) async fn done(&self, world: &World) {
        world.driver().clear_faults();
        for claim in &self.claims {
            let claim = world.namespaced::<PersistentVolumeClaim>().get(claim).await.unwrap();
            world.until(&format!("pvc-{}", claim.uid().unwrap()), "there", |_: &PersistentVolume| true).await;
        }
        world.gone::<PersistentVolume>(&self.released).await;
        let api: Api<CSIStorageCapacity> = Api::namespaced(world.client(), NAMESPACE);
        let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_DRIVER_NAME, world.driver_name()));
        let right = async || {
            let found = api.list(&ours).await.unwrap().items;
            let kept: BTreeSet<String> = found.iter().map(kube::ResourceExt::name_any).collect();
            let owned = |it: &CSIStorageCapacity| it.owner_references().iter().any(|owner| owner.kind == "Deployment");
            let is_true = |it: &CSIStorageCapacity| it.capacity.as_ref().is_some_and(|it| it.0 != "1Ki");
            let all_right = found.iter().all(|it| owned(it) && is_true(it));
            (!kept.contains(&self.stale) && kept.contains(&self.wrong) && all_right).then_some(())
        };
        asked("capacity objects that are right", right).await;
        // And one is made for the class that had none.
        let bare = world.name("bare");
        let made = async || {
            let found = api.list(&ours).await.unwrap().items;
            found.iter().any(|it| it.storage_class_name == bare).then_some(())
        };
        asked("a capacity object of the class without", made).await;
    }
}

/// Creates an object.
async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

fn in_space<K>(world: &World, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(world.client(), namespace)
}

/// The pod that the daemon runs in, and whose it is.
async fn owners(world: &World) {
    let name = world.name("daemon");
    let controlled_by = |version: &str, kind: &str, name: &str, uid: &str| json!([{ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let deployment = controlled_by("apps/v1", "Deployment", &name, "11111111-2222-3333-4444-555555555555");
    let labels = json!({ "app": name });
    let containers = json!([{ "name": "c", "image": "example.com/none" }]);
    let set = json!({ "metadata": { "name": name, "ownerReferences": deployment }, "spec": { "replicas": 0,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } } } });
    let set = create(&in_space::<ReplicaSet>(world, NAMESPACE), set).await;
    let by = controlled_by("apps/v1", "ReplicaSet", &name, &set.uid().unwrap());
    let pod = json!({ "metadata": { "name": name, "labels": labels, "ownerReferences": by },
        "spec": { "containers": containers } });
    create(&in_space::<Pod>(world, NAMESPACE), pod).await;
}

/// An object of ours for a class, which says what is not so.
async fn capacity(world: &World, class: &str) -> String {
    let labels = json!({ names::LABEL_DRIVER_NAME: world.driver_name(), names::LABEL_MANAGED_BY: names::MANAGED_BY_PROVISIONER });
    let object = json!({ "metadata": { "generateName": "csisc-", "labels": labels }, "storageClassName": class,
        "nodeTopology": { "matchLabels": { ZONE: "z1" } }, "capacity": "1Ki" });
    create(&in_space::<CSIStorageCapacity>(world, NAMESPACE), object).await.name_any()
}

/// A claim that the volume controller has handed over to the driver.
async fn asked_for(world: &World, short: &str, class: &str, change: Value) -> String {
    let mut object =
        json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name() } } });
    merge(&mut object, change);
    world.claim(short, class, object).await
}

/// A claim with a volume of the driver.
async fn source(world: &World, namespace: &str, short: &str, class: &str) {
    let (name, claims) = (world.name(short), in_space::<PersistentVolumeClaim>(world, namespace));
    world.driver().seed([name.as_str()]);
    let claim = json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "storageClassName": class, "volumeName": name, "resources": { "requests": { "storage": "1Gi" } } } });
    let claim = create(&claims, claim).await;
    let volume = json!({ "metadata": { "name": name }, "spec": { "capacity": { "storage": "1Gi" },
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain",
        "csi": { "driver": world.driver_name(), "volumeHandle": name },
        "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
            "uid": claim.uid() } } });
    world.create::<PersistentVolume>(volume).await;
    volume_is(world, &name, "Bound").await;
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" } } }));
    claims.patch_status(&name, &PatchParams::default(), &bound).await.unwrap();
}

async fn volume_is(world: &World, name: &str, phase: &str) {
    let status = Patch::Merge(json!({ "status": { "phase": phase } }));
    world.all::<PersistentVolume>().patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Claims in `default` may use those in the other namespace.
async fn grant(world: &World) {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant"));
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), OTHER, &resource);
    let claims = json!([{ "group": "", "kind": "PersistentVolumeClaim", "namespace": "default" }]);
    let object = json!({ "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": { "name": world.name("grant") },
        "spec": { "from": claims, "to": [{ "group": "", "kind": "PersistentVolumeClaim" }] } });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}
