//! A `StatefulSet` across three zones with the real scheduler, which reads the free capacity from our
//! `CSIStorageCapacity` objects.

use std::collections::{BTreeMap, BTreeSet};

use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{GIB, Method, Pool};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use crate::ground::cluster::NAMESPACE;
use crate::supply::{ZONE, zoned};
use crate::world::{self, PATIENCE, World, settled};

fn places(rooms: [i64; 3]) -> [Pool; 3] {
    let zones = ["z1", "z2", "z3"];
    std::array::from_fn(|i| Pool::at([(ZONE, zones[i])], rooms[i] * GIB))
}

/// What our objects say of each zone, as quantities.
async fn told(world: &World, class: &str) -> BTreeMap<String, String> {
    let labels = format!("{}={}", names::LABEL_DRIVER_NAME, world.driver_name());
    let api: Api<CSIStorageCapacity> = Api::namespaced(world.client(), NAMESPACE);
    let objects = api.list(&ListParams::default().labels(&labels)).await.unwrap().items;
    let ours = objects.into_iter().filter(|it| it.storage_class_name == class);
    ours.map(|it| {
        let zone = it.node_topology.unwrap().match_labels.unwrap()[ZONE].clone();
        (zone, it.capacity.unwrap().0)
    })
    .collect()
}

async fn until_told(world: &World, class: &str, expected: [&str; 3]) {
    let expected: BTreeMap<String, String> =
        ["z1", "z2", "z3"].into_iter().zip(expected).map(|(zone, room)| (zone.to_owned(), room.to_owned())).collect();
    settled(&format!("{expected:?} is told"), PATIENCE, async || {
        let last = told(world, class).await;
        if last == expected { Ok(()) } else { Err(format!("the last is {last:?}")) }
    })
    .await;
}

/// The first preferred segment of each `CreateVolume` call, in order.
fn asked(world: &World) -> Vec<String> {
    let calls = world.driver().calls_of(Method::CreateVolume).into_iter();
    calls
        .map(|call| {
            let wanted = call.create.clone().unwrap().accessibility_requirements.unwrap();
            wanted.preferred[0].segments[ZONE].clone()
        })
        .collect()
}

#[tokio::test]
async fn a_stateful_set_spreads_over_the_zones_that_have_room_and_the_one_without_is_avoided() {
    // Room for one volume in each of two zones, and for none in the third.
    let world = World::supplied(zoned(places([1, 1, 0]))).await;
    let zone_of: BTreeMap<String, &str> = [
        (world.node_in("n1", "z1").await, "z1"),
        (world.node_in("n2", "z2").await, "z2"),
        (world.node_in("n3", "z3").await, "z3"),
    ]
    .into();
    let spec = json!({ "attachRequired": true, "storageCapacity": true });
    world.create::<CSIDriver>(json!({ "metadata": { "name": world.driver_name() }, "spec": spec })).await;
    let class = world.waiting_class("class", json!({})).await;
    let _daemon = world
        .provisioner(json!({ "capacity": {
        "enabled": true, "pollInterval": "1s", "ownerLevel": -1 } }))
        .await;
    until_told(&world, &class, ["1Gi", "1Gi", "0"]).await;

    let (set, labels) = (world.name("set"), json!({ "app": world.name("set") }));
    let room = json!({ "requests": { "storage": "1Gi" } });
    // Others have nodes of the same labels.
    let nodes: Vec<&String> = zone_of.keys().collect();
    let terms =
        json!([{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": nodes }] }]);
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    let here = json!({ "nodeAffinity": required });
    world
        .create_namespaced::<StatefulSet>(json!({ "metadata": { "name": set }, "spec": {
            "serviceName": "none", "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "affinity": here, "containers": [
                { "name": "c", "image": "example.com/none", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": room } }] } }))
        .await;

    // Two of the three find their place; the third gets an Event that says why not.
    let pods: Vec<String> = (0..3).map(|i| format!("{set}-{i}")).collect();
    let nodes = || async {
        let all = world.namespaced::<Pod>().list(&ListParams::default()).await.unwrap().items;
        let ours = all.into_iter().filter(|pod| pods.contains(&pod.name_any()));
        ours.filter_map(|pod| Some((pod.name_any(), pod.spec?.node_name?))).collect::<BTreeMap<_, _>>()
    };
    let placed =
        world::wait::asked("two pods with a node", async || Some(nodes().await).filter(|placed| placed.len() == 2))
            .await;
    let zones = |placed: &BTreeMap<String, String>| placed.values().map(|node| zone_of[node]).collect::<BTreeSet<_>>();
    assert_eq!(zones(&placed), BTreeSet::from(["z1", "z2"]));
    let waits = pods.iter().find(|pod| !placed.contains_key(*pod)).unwrap();
    let pod = world.namespaced::<Pod>().get(waits).await.unwrap();
    let refused = |events: &[Event]| {
        let mut texts = events.iter().filter_map(|event| event.message.as_deref());
        texts.any(|text| text.contains("did not have enough free storage"))
    };
    world.events_until(&pod.uid().unwrap(), "a scheduler that tells of our capacity", refused).await;
    until_told(&world, &class, ["0", "0", "0"]).await;
    assert!(!asked(&world).contains(&"z3".to_owned()), "{:?}", asked(&world));
    assert_eq!(nodes().await, placed);

    // It gets room, and nothing but our object says so.
    world.driver().change_profile(|profile| profile.pools = places([1, 1, 1]).into());
    assert_eq!(zone_of[&world.scheduled(waits).await], "z3");
    assert_eq!(asked(&world).last().map(String::as_str), Some("z3"));
    until_told(&world, &class, ["0", "0", "0"]).await;
    for pod in &pods {
        world.provisioned(&format!("data-{pod}")).await;
    }
    world.assert_nothing_leaked().await;

    // With the set its claims stay, as its policy says; with them, everything goes.
    world.namespaced::<StatefulSet>().delete(&set, &kube::api::DeleteParams::default()).await.unwrap();
    for pod in &pods {
        let claim = format!("data-{pod}");
        // The set's controller needs a kubelet to end what it deletes.
        let _ = world.namespaced::<Pod>().delete(pod, &kube::api::DeleteParams::default().grace_period(0)).await;
        world.delete_claim_and_wait(&claim).await;
    }
    until_told(&world, &class, ["1Gi", "1Gi", "1Gi"]).await;
    world.assert_nothing_leaked().await;
    assert!(world.driver().state().volumes().is_empty());
}
