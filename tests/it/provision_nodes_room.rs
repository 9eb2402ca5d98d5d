//! The capacity that each node's daemon publishes (provisioner spec 5): its own objects, with its own label, which are
//! deleted with their owner. Also the capacity for a claim: for which segments a daemon checks it, and which node takes
//! the claim if another node has none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Driver, Method};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::provision_nodes::{Local, remembered};
use crate::supplier::figure;
use crate::supply::{SELECTED_NODE, ZONE, pool};
use crate::world::World;
use crate::world::wait::asked;

/// Where the daemons' pods are, and their capacity objects.
const NAMESPACE: &str = "kube-system";
/// The pods' owner, which is never looked up.
const OWNER_UID: &str = "11111111-2222-3333-4444-555555555555";

/// The capacity objects of this world, by node or zone.
pub(crate) async fn capacities(world: &World) -> BTreeMap<String, CSIStorageCapacity> {
    let api: Api<CSIStorageCapacity> = Api::namespaced(world.client(), NAMESPACE);
    let labels = format!("{}={}", names::LABEL_DRIVER_NAME, world.driver_name());
    let found = api.list(&ListParams::default().labels(&labels)).await.unwrap().items;
    let count = found.len();
    let by_node: BTreeMap<_, _> = found
        .into_iter()
        .map(|it| (it.node_topology.as_ref().unwrap().match_labels.as_ref().unwrap()[ZONE].clone(), it))
        .collect();
    assert_eq!(by_node.len(), count, "one object for each");
    by_node
}

/// The pod that a node's daemon runs in, of a `DaemonSet`.
async fn pod_of(world: &World, local: &Local) {
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": world.name("set"), "uid": OWNER_UID,
        "controller": true }]);
    let pod = json!({ "metadata": { "name": local.host(), "ownerReferences": owner },
        "spec": { "containers": [{ "name": "c", "image": "example.com/none" }] } });
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_node_asks_for_the_room_of_a_claim_with_all_that_the_claim_wants() {
    let world = World::supplied(|_| {}).await;
    let local = Local::set(&world, "n1", 10).await;
    let _daemon = local.daemon(&world, json!({})).await;
    let parameters = json!({ "kind": "fast", "csi.storage.k8s.io/fstype": "xfs" });
    let class = world.class("class", json!({ "parameters": parameters, "mountOptions": ["noatime"] })).await;
    let modes = json!({ "spec": { "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] } });
    let claim = world.claim("claim", &class, modes).await;
    world.supplied_with(&claim).await;
    let question = local.driver.calls_of(Method::GetCapacity).remove(0).capacity.clone().unwrap();
    let asked = local.driver.calls_of(Method::CreateVolume).remove(0).create.clone().unwrap();
    assert_eq!((question.volume_capabilities.len(), &question.volume_capabilities), (2, &asked.volume_capabilities));
    assert_eq!(question.parameters, [("kind".to_owned(), "fast".to_owned())].into());
    let place = question.accessible_topology.unwrap();
    assert_eq!(place.segments, [(ZONE.to_owned(), local.node.clone())].into());
}

#[tokio::test]
async fn the_room_of_a_claim_is_looked_for_where_its_volume_would_be() {
    for (section, allows) in [(json!({ "strictTopology": true }), true), (json!({ "immediateTopology": false }), false)]
    {
        let (world, [local]) = Local::each(["n1"]).await;
        let _daemon = local.daemon(&world, section.clone()).await;
        let values = [world.name("n0"), local.node.clone()];
        let allowed = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": values }] }]);
        let change = if allows { json!({ "allowedTopologies": allowed }) } else { json!({}) };
        let class = world.class("class", change).await;
        let claim = world.claim("claim", &class, json!({})).await;
        world.on_node(&claim, &local).await;
        let mut places = Vec::new();
        for call in local.driver.calls_of(Method::GetCapacity) {
            places.push(call.capacity.clone().unwrap().accessible_topology.map(|place| place.segments));
        }
        let here: HashMap<String, String> = [(ZONE.to_owned(), local.node.clone())].into();
        assert_eq!(places, [Some(here)], "{section}");
    }
}

#[tokio::test]
async fn r38_a_claim_that_a_full_node_gives_back_is_taken_by_another_at_once() {
    let world = World::of_nodes().await;
    let (full, other) = (Local::set(&world, "full", 0).await, Local::set(&world, "other", 10).await);
    // Its look at whether the other node is still there never comes.
    let patient = json!({ "nodeDeployment": { "baseDelay": "300ms", "maxDelay": "1000h" } });
    let bystander = other.daemon(&world, patient.clone()).await;
    let class = world.class("class", json!({})).await;
    let of_full = json!({ "metadata": { "annotations": { SELECTED_NODE: full.node } } });
    let claim = world.claim("claim", &class, of_full).await;
    let there = BTreeMap::from([(claim.clone(), full.node.clone())]);
    let sees = |status: &Value| remembered(status).as_ref() == Some(&there);
    world.shows(&bystander, "it has seen the claim", sees).await;
    let _full = full.daemon(&world, patient).await;
    world.on_node(&claim, &other).await;
    assert_eq!(full.driver.calls_of(Method::CreateVolume).len(), 1);
}

#[tokio::test]
async fn each_node_tells_of_its_own_room_under_its_own_label_and_touches_no_others() {
    // No controllers: the owner of the pods is only named.
    let world = World::new().await;
    let (first, second) = (Local::set(&world, "n1", 10).await, Local::set(&world, "n2", 20).await);
    world.waiting_class("class", json!({})).await;
    let mut daemons = Vec::new();
    for local in [&first, &second] {
        pod_of(&world, local).await;
        let section = json!({ "capacity": { "enabled": true, "ownerLevel": 1 } });
        daemons.push(local.daemon(&world, section).await);
    }
    let there = async || Some(capacities(&world).await).filter(|found| found.len() == 2);
    let before = asked("an object for each node", there).await;
    for (local, room) in [(&first, "10Gi"), (&second, "20Gi")] {
        let object = &before[&local.node];
        assert_eq!(object.capacity.as_ref().unwrap().0, room);
        // Longer names would be hashed: that is a table test of its own.
        assert_eq!(object.labels()[names::LABEL_MANAGED_BY], format!("external-provisioner-{}", local.node));
        let owner = &object.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("DaemonSet", OWNER_UID, Some(true)));
    }
    let versions = |all: &BTreeMap<String, CSIStorageCapacity>| -> Vec<Option<String>> {
        all.values().map(kube::ResourceExt::resource_version).collect()
    };
    for local in [&first, &second] {
        let asked = local.driver.calls_of(Method::GetCapacity).len();
        let again = move |it: &Driver| it.calls_of(Method::GetCapacity).len() > asked + 1;
        local.driver_until("another look at the room", again).await;
    }
    assert_eq!(versions(&before), versions(&capacities(&world).await), "nothing is written that is there already");

    first.driver.change_profile(|profile| profile.pools = vec![pool(&first.node, 5)]);
    let shrunk =
        |found: &BTreeMap<String, CSIStorageCapacity>| found[&first.node].capacity.as_ref().unwrap().0 == "5Gi";
    let after = asked("the first node's change", async || Some(capacities(&world).await).filter(shrunk)).await;
    assert_eq!(after[&second.node].resource_version(), before[&second.node].resource_version());
    // A daemon that ends takes nothing with it: its pod's owner does.
    daemons.remove(0).stop().await.unwrap();
    assert_eq!(capacities(&world).await.len(), 2);
    let claims: Vec<PersistentVolumeClaim> = world.claims().await;
    assert!(claims.is_empty());
}

#[tokio::test]
async fn a_nodes_capacity_objects_go_with_its_pod_where_that_owns_them() {
    // No controllers: what is owned by what is gone is deleted by Kubernetes, which is not played here.
    let world = World::new().await;
    let local = Local::set(&world, "n1", 10).await;
    world.waiting_class("class", json!({})).await;
    let section = json!({ "capacity": { "enabled": true, "ownerLevel": 0 } });
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let mut uids = BTreeSet::new();
    // A pod and its successor, which finds the object of the one before.
    for _ in 0..2 {
        pod_of(&world, &local).await;
        let uid = pods.get(&local.host()).await.unwrap().uid().unwrap();
        let daemon = local.daemon(&world, section.clone()).await;
        let owned = async || {
            let found = capacities(&world).await;
            let owners = found.get(&local.node)?.owner_references().to_vec();
            let of_pod = owners.len() == 1 && owners[0].kind == "Pod" && owners[0].uid == uid;
            of_pod.then_some(())
        };
        asked("an object that is the pod's alone", owned).await;
        uids.insert(uid.clone());
        daemon.stop().await.unwrap();
        pods.delete(&local.host(), &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    assert_eq!(uids.len(), 2);
}

#[tokio::test]
async fn a_driver_that_comes_back_at_another_place_is_asked_where_that_is() {
    let (returns, _guard) = crate::logs::count("the driver reports a new topology for this node: restarting the role");
    let (world, [local]) = Local::each(["n1"]).await;
    let section = json!({ "capacity": { "enabled": true, "ownerLevel": -1, "immediateBinding": true } });
    let daemon = local.daemon(&world, section).await;
    let class = world.class("class", json!({})).await;
    let at = |place: String, room: &'static str| {
        move |found: &BTreeMap<String, CSIStorageCapacity>| {
            found.len() == 1 && found.get(&place).is_some_and(|it| it.capacity.as_ref().unwrap().0 == room)
        }
    };
    let here = at(local.node.clone(), "10Gi");
    asked("an object for the first place", async || Some(capacities(&world).await).filter(&here)).await;
    local.restart_driver().await;
    let early = world.claim("early", &class, json!({})).await;
    world.on_node(&early, &local).await;

    // The machine has moved, and its driver reports so.
    let (moved, id) = (world.name("moved"), world.node_id(&local.node));
    local.driver.change_profile(|profile| {
        profile.nodes.get_mut(&id).unwrap().segments = [(ZONE.to_owned(), moved.clone())].into();
        profile.pools.push(pool(&moved, 20));
    });
    local.restart_driver().await;
    let there = at(moved.clone(), "20Gi");
    asked("an object for the new place alone", async || Some(capacities(&world).await).filter(&there)).await;
    let late = world.claim("late", &class, json!({})).await;
    let volume = world.supplied_with(&late).await;
    let affinity = serde_json::to_value(volume.spec.unwrap().node_affinity).unwrap();
    let values = affinity.pointer("/required/nodeSelectorTerms/0/matchExpressions/0/values");
    assert_eq!(values, Some(&json!([moved])));
    let asked = local.driver.creates_of(&world.volume_name(&late).await).remove(0).create.clone().unwrap();
    let place = &asked.accessibility_requirements.unwrap().requisite[0];
    assert_eq!(place.segments, [(ZONE.to_owned(), moved)].into());
    // The daemon is the same, and was served throughout: no failure has ended anything, and no return to the same place.
    let metrics = world.metrics(&daemon).await;
    let restarts = figure(&metrics, "csi_control_plane_role_restarts_total", &[]);
    assert!(restarts.is_none_or(|count| count < 1.0), "the role was restarted: {restarts:?}");
    assert_eq!(*returns.borrow(), 1, "the driver came back twice, and at another place once");
}
