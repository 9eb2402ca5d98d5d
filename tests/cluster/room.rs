//! `CSIStorageCapacity` objects when a Deployment moves from csi-provisioner to the daemon and back: both use the same
//! objects, and the objects are deleted with the Deployment.

use std::collections::BTreeMap;

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{GIB, Method, Pool};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::cluster::provisioners::{csi_provisioner_in, zone_key};
use crate::ground::Daemon;
use crate::ground::cluster::NAMESPACE;
use crate::objects::{config_with, merge};
use crate::programs::Program;
use crate::supplier::short_times;
use crate::supply::zoned;
use crate::world::wait::asked;
use crate::world::{PATIENCE, World, settled};

/// The containers of the Deployment's pods, before the move and after it.
const THEIRS: &str = "example.com/csi-provisioner";
const OURS: &str = "example.com/csi-control-plane";

/// A driver with zones and a controller that is a Deployment.
struct Scene {
    world: World,
    class: String,
    deployment: String,
    /// The owner level of the program that writes the objects.
    level: i8,
}

/// One object: the members that show whether it is the same and was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    name: String,
    uid: String,
    version: String,
    room: String,
    labels: BTreeMap<String, String>,
    /// Kind and uid of each owner, and whether it is the controller.
    owners: Vec<(String, String, bool)>,
}

impl Told {
    fn of(object: &CSIStorageCapacity) -> Self {
        let owner = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            (it.kind.clone(), it.uid.clone(), it.controller == Some(true))
        };
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap(),
            version: object.resource_version().unwrap(),
            room: object.capacity.as_ref().unwrap().0.clone(),
            labels: object.labels().clone(),
            owners: object.owner_references().iter().map(owner).collect(),
        }
    }
}

impl Scene {
    async fn set(level: i8) -> Self {
        let world = World::supplied(zoned([])).await;
        let class = world.waiting_class("class", json!({})).await;
        let deployment = world.name("controller");
        let scene = Self { world, class, deployment, level };
        let labels = json!({ "app": scene.deployment });
        // On no node: no kubelet is needed to end them.
        let nowhere = json!({ "kubernetes.io/hostname": scene.world.name("nowhere") });
        let deployment = json!({ "metadata": { "name": scene.deployment }, "spec": {
            "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "nodeSelector": nowhere,
                "containers": [{ "name": "c", "image": THEIRS }] } } } });
        let deployment = serde_json::from_value(deployment).unwrap();
        scene.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        scene
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.world.client(), NAMESPACE)
    }

    fn objects(&self) -> Api<CSIStorageCapacity> {
        Api::namespaced(self.world.client(), NAMESPACE)
    }

    /// Rolls the Deployment out with this image, and returns the pod that comes of it.
    async fn rolled_out(&self, image: &str) -> Pod {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        let patch = Patch::Strategic(json!({ "spec": { "template": template } }));
        self.deployments().patch(&self.deployment, &PatchParams::default(), &patch).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(self.world.client(), NAMESPACE);
        let ours = ListParams::default().labels(&format!("app={}", self.deployment));
        let runs = |pod: &Pod| {
            let spec = pod.spec.as_ref().unwrap();
            pod.metadata.deletion_timestamp.is_none() && spec.containers[0].image.as_deref() == Some(image)
        };
        asked("the pod of a roll-out", async || pods.list(&ours).await.unwrap().items.into_iter().find(runs)).await
    }

    /// Gives each zone this much room, in GiB.
    fn rooms(&self, rooms: &[(&str, i64)]) {
        let key = zone_key(&self.world);
        let pools = rooms.iter().map(|(zone, room)| Pool::at([(key.as_str(), *zone)], room * GIB)).collect();
        self.world.driver().change_profile(|profile| profile.pools = pools);
    }

    /// A node in a zone, with the driver on it.
    async fn node_in(&self, zone: &str) {
        self.world.place(&format!("node-{zone}"), &[(&zone_key(&self.world), zone)]).await;
    }

    /// csi-provisioner as it runs in a pod.
    fn theirs(&self, pod: &Pod) -> Program {
        let level = format!("--capacity-ownerref-level={}", self.level);
        let flags = [
            "--enable-capacity",
            "--capacity-poll-interval=1s",
            "--kube-api-capacity-qps=100",
            "--kube-api-capacity-burst=100",
            &level,
        ];
        csi_provisioner_in(&self.world, &pod.name_any(), &flags)
    }

    /// The daemon as it runs in a pod. Returns once it leads.
    async fn ours(&self, pod: &Pod) -> Daemon {
        let mut provisioner = short_times();
        merge(
            &mut provisioner,
            json!({ "capacity": { "enabled": true, "pollInterval": "1s", "ownerLevel": self.level } }),
        );
        let roles = json!({ "provisioner": provisioner, "attacher": null, "reconciler": null });
        let pod = pod.name_any();
        let daemon = self.world.real().start(&pod, &config_with(json!({ "roles": roles })).to_string()).await;
        let lease = names::lease(self.world.driver_name());
        self.world.lease_held_by(&lease, "held by the daemon", |holder| holder.starts_with(&pod)).await;
        daemon
    }

    /// The published capacities, by zone: several, if there are several objects for a zone.
    async fn told(&self) -> Vec<(String, Told)> {
        let labels = format!("{}={}", names::LABEL_DRIVER_NAME, self.world.driver_name());
        let objects = self.objects().list(&ListParams::default().labels(&labels)).await.unwrap().items;
        let zone = |it: &CSIStorageCapacity| {
            assert_eq!(it.storage_class_name, self.class);
            it.node_topology.as_ref().unwrap().match_labels.as_ref().unwrap()[&zone_key(&self.world)].clone()
        };
        let mut told: Vec<_> = objects.iter().map(|it| (zone(it), Told::of(it))).collect();
        told.sort_by(|a, b| (&a.0, &a.1.name).cmp(&(&b.0, &b.1.name)));
        told
    }

    /// Waits until there is one object for each of these zones, that tells of this room; lets whoever leads look at each of them
    /// twice more, and returns what is told then.
    async fn until_told(&self, expected: &[(&str, &str)]) -> BTreeMap<String, Told> {
        let rooms = async || -> Vec<(String, String)> {
            self.told().await.into_iter().map(|(zone, told)| (zone, told.room)).collect()
        };
        let expected: Vec<(String, String)> =
            expected.iter().map(|(zone, room)| ((*zone).to_owned(), (*room).to_owned())).collect();
        settled(&format!("{expected:?} is told"), PATIENCE, async || {
            let last = rooms().await;
            if last == expected { Ok(()) } else { Err(format!("the last is {last:?}")) }
        })
        .await;
        self.looked_again(expected.len()).await;
        let told = self.told().await;
        assert_eq!(told.len(), expected.len(), "one for each zone: {told:#?}");
        told.into_iter().collect()
    }

    /// Waits until whoever leads has asked for the room of so many objects twice more.
    async fn looked_again(&self, objects: usize) {
        let asked = |driver: &csi_control_plane::sandbox::driver::Driver| driver.calls_of(Method::GetCapacity).len();
        // A pass that is under way has asked for some already.
        let enough = asked(self.world.driver()) + 3 * objects;
        self.world.driver_until("two more looks at the room", |driver| asked(driver) >= enough).await;
    }

    /// A pod's writes to capacity objects.
    fn writes_of(&self, pod: &Pod) -> Vec<String> {
        let mut log = self.world.real().cluster().writes_of(NAMESPACE, &pod.name_any());
        log.retain(|write| write.contains("csistoragecapacities"));
        log
    }
}

/// The uids of objects, by zone.
fn uids(told: &BTreeMap<String, Told>) -> BTreeMap<&str, &str> {
    told.iter().map(|(zone, told)| (zone.as_str(), told.uid.as_str())).collect()
}

#[tokio::test]
async fn capacity_objects_stay_the_same_ones_when_the_daemon_takes_over_and_hands_back() {
    let scene = Scene::set(2).await;
    let owner = scene.deployments().get(&scene.deployment).await.unwrap().uid().unwrap();
    for zone in ["z1", "z2", "z3"] {
        scene.node_in(zone).await;
    }
    scene.rooms(&[("z1", 10), ("z2", 20), ("z3", 0)]);

    // csi-provisioner makes them.
    let theirs = scene.theirs(&scene.rolled_out(THEIRS).await);
    let made = scene.until_told(&[("z1", "10Gi"), ("z2", "20Gi"), ("z3", "0")]).await;
    theirs.stop().await;
    let of_driver = [
        (names::LABEL_DRIVER_NAME.to_owned(), scene.world.driver_name().to_owned()),
        (names::LABEL_MANAGED_BY.to_owned(), "external-provisioner".to_owned()),
    ];
    for told in made.values() {
        assert_eq!(told.labels, of_driver.clone().into());
        assert_eq!(told.owners, [("Deployment".to_owned(), owner.clone(), true)]);
    }

    // The daemon comes in a pod of another ReplicaSet of the same Deployment; meanwhile one zone's capacity has changed.
    scene.rooms(&[("z1", 10), ("z2", 25), ("z3", 0)]);
    let pod = scene.rolled_out(OURS).await;
    let daemon = scene.ours(&pod).await;
    let taken_over = scene.until_told(&[("z1", "10Gi"), ("z2", "25Gi"), ("z3", "0")]).await;
    let updated = Told { room: "25Gi".into(), version: taken_over["z2"].version.clone(), ..made["z2"].clone() };
    let mut expected = made.clone();
    expected.insert("z2".into(), updated);
    assert_eq!(taken_over, expected, "the same objects, of which one was written");
    let log = asked("the daemon's write", async || Some(scene.writes_of(&pod)).filter(|log| !log.is_empty())).await;
    assert_eq!(log, [format!("patch csistoragecapacities {} 200", made["z2"].name)]);
    // One of its own.
    scene.rooms(&[("z1", 10), ("z2", 25), ("z3", 0), ("z4", 40)]);
    scene.node_in("z4").await;
    let by_us = scene.until_told(&[("z1", "10Gi"), ("z2", "25Gi"), ("z3", "0"), ("z4", "40Gi")]).await;
    daemon.stop().await.unwrap();

    // And back, to the ReplicaSet of the beginning.
    scene.rooms(&[("z1", 15), ("z2", 25), ("z3", 0), ("z4", 45)]);
    let theirs = scene.theirs(&scene.rolled_out(THEIRS).await);
    let back = scene.until_told(&[("z1", "15Gi"), ("z2", "25Gi"), ("z3", "0"), ("z4", "45Gi")]).await;
    theirs.stop().await;
    assert_eq!(uids(&back), uids(&by_us), "no second set");
    for (zone, told) in &back {
        let before = &by_us[zone];
        let changed = ["z1", "z4"].contains(&zone.as_str());
        assert_eq!(told.version != before.version, changed, "{zone}: {told:#?}, before {before:#?}");
        assert_eq!((&told.labels, &told.owners), (&before.labels, &before.owners), "{zone}");
        assert_eq!((&told.labels, &told.owners), (&made["z1"].labels, &made["z1"].owners), "{zone}");
    }

    // Their owner's deletion deletes them.
    scene.deployments().delete(&scene.deployment, &DeleteParams::background()).await.unwrap();
    asked("no objects", async || scene.told().await.is_empty().then_some(())).await;
    scene.world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn an_owner_that_is_another_after_each_roll_out_is_replaced_by_the_daemon_and_stops_csi_provisioner() {
    // A ReplicaSet.
    let scene = Scene::set(1).await;
    scene.node_in("z1").await;
    scene.rooms(&[("z1", 10)]);
    let pod = scene.rolled_out(THEIRS).await;
    let theirs = scene.theirs(&pod);
    let made = scene.until_told(&[("z1", "10Gi")]).await;
    theirs.stop().await;
    let owner = |pod: &Pod| vec![("ReplicaSet".to_owned(), pod.owner_references()[0].uid.clone(), true)];
    assert_eq!(made["z1"].owners, owner(&pod));

    scene.rooms(&[("z1", 20)]);
    let pod = scene.rolled_out(OURS).await;
    let daemon = scene.ours(&pod).await;
    let by_us = scene.until_told(&[("z1", "20Gi")]).await;
    daemon.stop().await.unwrap();
    assert_eq!(uids(&by_us), uids(&made));
    assert_eq!(by_us["z1"].owners, owner(&pod));

    // It would have two controllers, which the API refuses each time.
    scene.rooms(&[("z1", 30)]);
    let back = scene.rolled_out(THEIRS).await;
    let theirs = scene.theirs(&back);
    let log = scene.world.real().folder().join("csi-provisioner.log");
    let refused = "Only one reference can have Controller set to true";
    let is_told = || std::fs::read_to_string(&log).unwrap_or_default().contains(refused);
    asked("csi-provisioner's word on two controllers", async || is_told().then_some(())).await;
    scene.looked_again(1).await;
    let left = scene.until_told(&[("z1", "20Gi")]).await;
    assert_eq!(left, by_us, "it says what the daemon said");

    // What the pages say: without them it makes new ones.
    scene.objects().delete(&left["z1"].name, &DeleteParams::default()).await.unwrap();
    let anew = scene.until_told(&[("z1", "30Gi")]).await;
    assert_eq!(anew["z1"].owners, owner(&back));
    theirs.stop().await;
    scene.deployments().delete(&scene.deployment, &DeleteParams::background()).await.unwrap();
    asked("no objects", async || scene.told().await.is_empty().then_some(())).await;
    scene.world.assert_nothing_leaked().await;
}
