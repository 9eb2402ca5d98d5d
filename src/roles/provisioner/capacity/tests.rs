//! The loop on the sandbox's API and driver, over a simulated network and in paused time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cluster::{Cache, CsiNode, CsiStorageCapacity, Fields, Node, WatchHandle};
use crate::csi::CsiOptions;
use crate::diagnostics::Board;
use crate::election::Term;
use crate::process::{Clock, Tasks};
use crate::proto::controller_service_capability::rpc::Type as Rpc;
use crate::proto::plugin_capability::service;
use crate::queue::Backoff;
use crate::roles::RoleContext;
use crate::roles::kit::TermScope;
use crate::sandbox::api::faults::{FaultId, Matching};
use crate::sandbox::driver::{Action, Fault, Method, Profile};
use crate::sandbox::testbed::TestBed;
use crate::sandbox::testbed::harness::RoleHarness;
use crate::telemetry::Meter;

mod faults;
mod fresh;
mod questions;
mod races;

const DRIVER: &str = "demo.csi.example.com";
const SPACE: &str = "kube-system";
const POLL: Duration = Duration::from_secs(60);
/// The delay after a first failure.
const BACKOFF: Duration = Duration::from_secs(1);
const GIB: i64 = 1 << 30;

/// A driver that knows zones z1 and z2.
fn zoned() -> Profile {
    let zone = |name: &str| BTreeMap::from([("zone".to_owned(), name.to_owned())]);
    let mut profile = Profile { segments: vec![zone("z1"), zone("z2")], ..Profile::default() };
    profile.services.insert(service::Type::VolumeAccessibilityConstraints as i32);
    profile
}

fn class(name: &str, parameters: &Value) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": DRIVER, "parameters": parameters, "volumeBindingMode": "WaitForFirstConsumer" })
}

fn pod(name: &str, controller: Option<&str>) -> Value {
    pod_of(name, controller.map(|name| controlled_by("apps/v1", "DaemonSet", name, "uid-of-set")).as_ref())
}

fn pod_of(name: &str, owners: Option<&Value>) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SPACE, "ownerReferences": owners },
        "spec": { "containers": [{ "name": "main", "image": "none" }] } })
}

fn controlled_by(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }])
}

/// What makes pods, called `set`, and is itself an operator's.
fn workload(kind: &str) -> Value {
    let labels = json!({ "app": "me" });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "none" }] } });
    json!({ "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": "set", "namespace": SPACE,
            "ownerReferences": controlled_by("example.com/v1", "Storage", "main", "uid-of-main") },
        "spec": { "selector": { "matchLabels": labels }, "template": template } })
}

/// A cluster, a driver, and one term of the loop.
struct World {
    testbed: TestBed,
    board: Board,
    meter: Meter,
    capacity: CapacityInvalidation,
    api: crate::cluster::Api,
    _volumes: WatchHandle,
    nodes: Cache<Node>,
    csi_nodes: Cache<CsiNode>,
    stop: CancellationToken,
    _tasks: Tasks,
}

impl World {
    /// A cluster that holds `objects` and a pod of ours that a `DaemonSet` controls.
    async fn with(profile: Profile, objects: &[Value]) -> Self {
        let section = CapacitySection { enabled: true, poll_interval: POLL, ..CapacitySection::default() };
        let mut objects = objects.to_vec();
        objects.push(pod("me", Some("set")));
        Self::of(profile, section, &objects).await
    }

    /// A node in one zone, whose capacity was told.
    async fn of_one_zone() -> Self {
        let world = Self::with(zoned(), &[class("fast", &json!({}))]).await;
        world.add_node("n1", Some("z1"));
        world.until("it is there", |world| world.told().len() == 1).await;
        world
    }

    /// A capacity was made while the watch shows nothing, until its fault is removed.
    async fn made_unseen() -> (Self, FaultId) {
        let world = Self::with(zoned(), &[class("fast", &json!({}))]).await;
        world.pass_polls(1).await;
        let held = world.testbed.api.faults().hold_watches(Matching::any().resource("csistoragecapacities"));
        world.add_node("n1", Some("z1"));
        world.until("it is made", |world| world.told().len() == 1).await;
        (world, held)
    }

    async fn of(profile: Profile, section: CapacitySection, objects: &[Value]) -> Self {
        Self::in_term(Term::permanent, profile, section, objects).await
    }

    async fn in_term(
        term: impl FnOnce(&CancellationToken, Clock) -> Term,
        profile: Profile,
        section: CapacitySection,
        objects: &[Value],
    ) -> Self {
        let harness = RoleHarness::with(profile).await;
        for object in objects {
            harness.testbed.api.create_value(object.clone()).unwrap();
        }
        let (role, caches, stop) = (&harness.context, &harness.caches, CancellationToken::new());
        let term = term(&stop, role.clock);
        let (nodes, csi_nodes) = (caches.want(), caches.want());
        let (volumes, watched) = caches.watch_with(Fields::RESIZE | Fields::MIGRATION);
        let backoff = Backoff { initial: BACKOFF, max: Duration::from_secs(300) };
        let cx = CapacityContext {
            scope: Arc::new(TermScope::new(role, &term)),
            queue: queue(role, &section, backoff),
            section,
            backoff,
            stores: CapacityStores { classes: caches.want(), capacities: caches.want_in(scope(false)), volumes },
            nodes: NodeSegments::Cluster { nodes: Cache::clone(&nodes), csi_nodes: Cache::clone(&csi_nodes) },
            instance: role.instance.clone(),
            board: role.board.clone(),
        };
        harness.watch();
        let (capacity, receiver) = CapacityInvalidation::new();
        harness.tasks.spawn_fallible("capacity", run(cx, receiver));
        let RoleHarness { testbed, context: RoleContext { api, board, meter, .. }, tasks, .. } = harness;
        Self { testbed, board, meter, capacity, api, _volumes: watched, nodes, csi_nodes, stop, _tasks: tasks }
    }

    /// Adds a node at a zone, with the driver on it.
    fn add_node(&self, name: &str, zone: Option<&str>) {
        for object in node(name, zone) {
            self.testbed.api.create_value(object).unwrap();
        }
    }

    fn objects(&self) -> Vec<CsiStorageCapacity> {
        let all = self.testbed.api.list::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(SPACE).unwrap();
        all.iter().map(|object| serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()).collect()
    }

    /// Class, zone and capacity of each object.
    fn told(&self) -> Vec<(String, String, String)> {
        let tell = |object: CsiStorageCapacity| {
            let zone = object.node_topology.unwrap_or_default().remove("zone").unwrap_or_default();
            (object.storage_class_name, zone, object.capacity.unwrap_or_default().to_string())
        };
        let mut told: Vec<_> = self.objects().into_iter().map(tell).collect();
        told.sort();
        told
    }

    fn asked(&self) -> usize {
        self.testbed.driver.calls_of(Method::GetCapacity).len()
    }

    /// How many objects were made, changed and deleted.
    fn writes(&self) -> [u64; 3] {
        ["create", "patch", "delete"].map(|verb| {
            self.testbed
                .api
                .audit()
                .matching(|entry| {
                    entry.verb == verb && entry.resource == "csistoragecapacities" && entry.code / 100 == 2
                })
                .len() as u64
        })
    }

    /// The rows of the table, each cell as the page's texts have it; sizes are in bytes.
    fn rows(&self) -> Vec<[String; 6]> {
        let names = ["class", "segment", "capacityBytes", "largestVolumeBytes", "askedSeconds", "lastError"];
        let rows = self.board.report().tables.into_iter().flat_map(|table| table.rows);
        rows.map(|row| names.map(|name| row[name].to_string())).collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; told {:?}, rows {:?}", self.told(), self.rows());
    }

    /// Lets everything that can happen in so many polls happen.
    async fn pass_polls(&self, polls: u32) {
        tokio::time::sleep(POLL * polls * 11 / 10 + Duration::from_secs(1)).await;
    }

    async fn tear_down(self) {
        self.stop.cancel();
        self.testbed.tear_down().await;
    }
}

fn node(name: &str, zone: Option<&str>) -> [Value; 2] {
    let labels = zone.map_or_else(|| json!({}), |zone| json!({ "zone": zone }));
    let keys = if zone.is_some() { json!(["zone"]) } else { json!([]) };
    [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
            "spec": { "drivers": [{ "name": DRIVER, "nodeID": name, "topologyKeys": keys }] } }),
    ]
}

fn at(class: &str, zone: &str, capacity: &str) -> (String, String, String) {
    (class.to_owned(), zone.to_owned(), capacity.to_owned())
}

#[tokio::test(start_paused = true)]
async fn each_class_and_segment_has_its_object_and_polls_write_nothing() {
    let [fast, slow] = ["fast", "slow"].map(|name| class(name, &json!({})));
    let world = World::with(zoned(), &[fast, slow]).await;
    for (name, zone) in [("n1", "z1"), ("n2", "z1"), ("n3", "z2")] {
        world.add_node(name, Some(zone));
    }
    let all = [at("fast", "z1", "10Ti"), at("fast", "z2", "10Ti"), at("slow", "z1", "10Ti"), at("slow", "z2", "10Ti")];
    world.until("four objects", |world| world.told() == all).await;
    let object = &world.objects()[0];
    assert!(object.metadata.name.starts_with("csisc-"));
    let labels = object.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["csi.storage.k8s.io/drivername"], DRIVER);
    assert_eq!(labels["csi.storage.k8s.io/managed-by"], "external-provisioner");
    let owner = &object.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("DaemonSet", "uid-of-set", Some(true)));
    let asked = world.asked();
    world.pass_polls(3).await;
    assert!(world.asked() >= asked + 8, "the polls asked: {asked}, {}", world.asked());
    assert_eq!(world.writes(), [4, 0, 0], "and wrote nothing");
    assert_eq!(world.rows().len(), 4);
    assert_eq!(world.rows()[0][..4], ["fast", "zone=z1", "10995116277760", "1099511627776"]);
    let exposed = world.meter.render();
    for line in ["desired_goal 4", "desired_current 4", "obsolete 0"] {
        assert!(exposed.contains(&format!("csistoragecapacities_{line}")), "{line}");
    }
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_topology_has_one_object_for_ever() {
    let world = World::with(Profile::default(), &[class("fast", &json!({}))]).await;
    world.add_node("n1", None);
    world.add_node("n2", None);
    world.until("one object", |world| world.told() == [at("fast", "", "10Ti")]).await;
    assert_eq!(world.objects()[0].node_topology, Some(BTreeMap::new()), "everywhere, not nowhere");
    world.pass_polls(4).await;
    assert_eq!(world.writes(), [1, 0, 0], "it is not deleted and made again");
    assert_eq!(world.rows()[0][5], "");
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn r36_nodes_labels_and_classes_are_followed_at_once() {
    let world = World::with(zoned(), &[class("fast", &json!({}))]).await;
    world.add_node("n1", Some("z1"));
    world.until("z1", |world| world.told() == [at("fast", "z1", "10Ti")]).await;
    let begun = tokio::time::Instant::now();
    let moved = crate::sandbox::api::PatchBody::Merge(json!({ "metadata": { "labels": { "zone": "z2" } } }));
    world.testbed.api.patch::<k8s_openapi::api::core::v1::Node>("", "n1", moved).unwrap();
    world.until("z2", |world| world.told() == [at("fast", "z2", "10Ti")]).await;
    world.testbed.api.delete::<k8s_openapi::api::storage::v1::StorageClass>("", "fast").unwrap();
    world.until("nothing", |world| world.told().is_empty()).await;
    world.testbed.api.create_value(class("fast", &json!({}))).unwrap();
    world.until("again", |world| world.told() == [at("fast", "z2", "10Ti")]).await;
    world.testbed.api.delete::<k8s_openapi::api::storage::v1::CSINode>("", "n1").unwrap();
    world.until("the driver is nowhere", |world| world.told().is_empty()).await;
    assert!(begun.elapsed() < POLL, "no poll was waited for");
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn s0_one_event_of_a_class_asks_once_per_segment() {
    let world = World::with(zoned(), &[]).await;
    for name in 0..31 {
        world.add_node(&format!("n{name}"), Some("z1"));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.testbed.api.create_value(class("fast", &json!({}))).unwrap();
    world.until("its object", |world| world.told().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((world.asked(), world.writes()), (1, [1, 0, 0]));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn r41_objects_of_the_one_before_are_adopted_and_those_that_nobody_wants_go() {
    let labels = json!({ "csi.storage.k8s.io/drivername": DRIVER,
        "csi.storage.k8s.io/managed-by": "external-provisioner" });
    let object = |name: &str, class: &str, zone: &str| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": { "name": name, "namespace": SPACE, "labels": labels },
            "storageClassName": class, "nodeTopology": { "matchLabels": { "zone": zone } }, "capacity": "1Gi" })
    };
    let mut foreign = object("csisc-foreign", "fast", "z1");
    foreign["metadata"]["labels"]["csi.storage.k8s.io/drivername"] = json!("other");
    let mut objects = vec![
        class("fast", &json!({})),
        foreign,
        object("csisc-a", "fast", "z1"),
        object("csisc-b", "fast", "z1"),
        object("csisc-c", "fast", "z9"),
        object("csisc-d", "gone", "z1"),
    ];
    objects.extend(node("n1", Some("z1")));
    let world = World::with(zoned(), &objects).await;
    world.until("one of ours and the foreign one", |world| world.objects().len() == 2).await;
    world.until("it is up to date", |world| world.told().contains(&at("fast", "z1", "10Ti"))).await;
    let names: Vec<_> = world.objects().into_iter().map(|object| object.metadata.name).collect();
    assert_eq!(names, ["csisc-a".into(), "csisc-foreign".into()] as [std::sync::Arc<str>; 2]);
    assert_eq!(world.writes(), [0, 1, 3]);
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn r42_an_object_that_somebody_deletes_or_changes_is_put_right() {
    let world = World::of_one_zone().await;
    let name = world.objects()[0].metadata.name.clone();
    world.testbed.api.delete::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(SPACE, &name).unwrap();
    world.until("made again", |world| world.writes()[0] == 2 && world.told().len() == 1).await;
    let name = world.objects()[0].metadata.name.clone();
    let lie = crate::sandbox::api::PatchBody::Merge(json!({ "capacity": "1" }));
    world.testbed.api.patch::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(SPACE, &name, lie).unwrap();
    world.until("true again", |world| world.told() == [at("fast", "z1", "10Ti")]).await;
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_is_known_before_the_watch_shows_it() {
    let (world, held) = World::made_unseen().await;
    world.pass_polls(3).await;
    assert_eq!(world.writes(), [1, 0, 0], "no second one is made");
    let name = world.objects()[0].metadata.name.clone();
    world.testbed.api.delete::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(SPACE, &name).unwrap();
    world.until("a poll finds that it is gone", |world| world.writes()[0] == 2).await;
    world.testbed.api.faults().remove(held);
    world.pass_polls(2).await;
    assert_eq!((world.writes(), world.told().len()), ([2, 0, 0], 1));
    world.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_looked_for_until_it_is_there() {
    let objects = |owner_level: i8| {
        let section = CapacitySection { enabled: true, owner_level, ..CapacitySection::default() };
        (section, [class("fast", &json!({}))])
    };
    for (level, controller, reason) in [
        (0, None, None),
        (-1, None, None),
        (1, None, Some("Pod kube-system/me has no controller")),
        (2, Some("set"), Some("daemonsets.apps \"set\" not found")),
    ] {
        let (section, classes) = objects(level);
        let world = World::of(zoned(), section, &classes).await;
        world.add_node("n1", Some("z1"));
        if level >= 0 {
            world
                .until("no pod", |world| world.rows().iter().any(|row| row[5].contains("pods \"kube-system/me\"")))
                .await;
        }
        assert!(level < 0 || world.objects().is_empty());
        world.testbed.api.create_value(pod("me", controller)).unwrap();
        if let Some(reason) = reason {
            world.until(reason, |world| world.rows().iter().any(|row| row[5].contains(reason))).await;
            assert_eq!(world.objects().len(), 0);
        } else {
            world.until("told", |world| world.told().len() == 1).await;
            let owners = world.objects()[0].metadata.owner_references.clone().unwrap_or_default();
            let kinds: Vec<_> = owners.iter().map(|owner| owner.kind.as_str()).collect();
            assert_eq!(kinds, if level < 0 { &[][..] } else { &["Pod"] });
        }
        world.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_level_two_is_the_controller_of_whatever_workload_the_pod_is_of() {
    let level_two = async || {
        let section = CapacitySection { enabled: true, owner_level: 2, ..CapacitySection::default() };
        let world = World::of(zoned(), section, &[class("fast", &json!({}))]).await;
        world.add_node("n1", Some("z1"));
        world
    };
    for kind in ["ReplicaSet", "StatefulSet", "DaemonSet"] {
        let world = level_two().await;
        let set = world.testbed.api.create_value(workload(kind)).unwrap();
        let uid = set.pointer("/metadata/uid").and_then(Value::as_str).unwrap();
        let owner = controlled_by("apps/v1", kind, "set", uid);
        world.testbed.api.create_value(pod_of("me", Some(&owner))).unwrap();
        world.until(kind, |world| world.told().len() == 1).await;
        let owners = world.objects()[0].metadata.owner_references.clone().unwrap();
        let owners: Vec<_> = owners.iter().map(|owner| (owner.kind.as_str(), owner.uid.as_str())).collect();
        assert_eq!(owners, [("Storage", "uid-of-main")], "{kind}");
        world.tear_down().await;
    }
    for (version, kind, reason) in [
        ("apps/v1", "DaemonSet", "is not the one that controls our pod"),
        // Of these there is no right to read any.
        ("example.com/v1", "StatefulSet", "controlled by StatefulSet kube-system/set, whose own controller cannot be"),
        ("apps/v1", "Storage", "controlled by Storage kube-system/set, whose own controller cannot be looked up"),
    ] {
        let world = level_two().await;
        world.testbed.api.create_value(workload("DaemonSet")).unwrap();
        let owner = controlled_by(version, kind, "set", "uid-of-another");
        world.testbed.api.create_value(pod_of("me", Some(&owner))).unwrap();
        world.until(reason, |world| world.rows().iter().any(|row| row[5].contains(reason))).await;
        assert_eq!(world.objects().len(), 0);
        world.tear_down().await;
    }
}
