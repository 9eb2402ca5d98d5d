//! Topology of volumes: nodes that are full, gone or in another segment, and answers without an accessible segment.

use std::collections::BTreeMap;

use csi_control_plane::sandbox::driver::{Action, Call, Driver, Lie, Method, Pool};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSINode;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::supplier::{create, figure, slow};
use crate::supply::{SELECTED_NODE, ZONE, pool, zoned};
use crate::world::{World, bounded};

fn preferred(call: &Call) -> &str {
    let asked = call.create.as_ref().unwrap().accessibility_requirements.as_ref().unwrap();
    &asked.preferred[0].segments[ZONE]
}

fn zone_of(volume: &PersistentVolume) -> Value {
    let affinity = serde_json::to_value(volume.spec.as_ref().unwrap().node_affinity.as_ref().unwrap()).unwrap();
    affinity.pointer("/required/nodeSelectorTerms/0/matchExpressions/0/values/0").unwrap().clone()
}

fn has_no_node(claim: &PersistentVolumeClaim) -> bool {
    !claim.annotations().contains_key(SELECTED_NODE)
}

impl World {
    async fn drop_node(&self, node: &str) {
        self.all::<Node>().delete(node, &DeleteParams::default()).await.unwrap();
    }

    async fn drop_csi_node(&self, node: &str) {
        self.all::<CSINode>().delete(node, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn r51_s0_a_second_node_after_a_full_first_one_gets_a_volume_in_its_own_zone() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let (first, second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")).once());
    world.select(&claim, Some(&first)).await;
    world.claim_until(&claim, "given back", has_no_node).await;
    world.select(&claim, Some(&second)).await;
    let volume = world.supplied_with(&claim).await;
    let asked = world.asked(&claim, 2).await;
    assert_eq!(asked.iter().map(|call| preferred(call)).collect::<Vec<_>>(), ["z1", "z2"]);
    assert_eq!(zone_of(&volume), "z2");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_is_given_back_is_told_of_why_and_the_room_is_asked_for_again() {
    let world = World::two_zones().await;
    // No poll comes in time.
    let capacity = json!({ "enabled": true, "pollInterval": "1h", "ownerLevel": -1 });
    let daemon = world.supplier(json!({ "capacity": capacity })).await;
    let first = world.node_in("n1", "z1").await;
    let class = world.waiting_class("class", json!({})).await;
    let asked = |driver: &Driver| driver.calls_of(Method::GetCapacity).len();
    world.driver_until("asked for the room", |driver| asked(driver) > 0).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")).once());
    let before = asked(world.driver());
    world.select(&claim, Some(&first)).await;
    world.claim_until(&claim, "given back", has_no_node).await;
    world.claim_told(&claim, "ProvisioningFailed", "full").await;
    world.driver_until("asked for the room again", |driver| asked(driver) > before).await;
    let failed = "controller_persistentvolumeclaim_provision_failed_total";
    assert_eq!(figure(&world.metrics(&daemon).await, failed, &[&class]), Some(1.0));
    world.select(&claim, Some(&first)).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_lost_its_node_to_a_failure_is_told_of_its_success_however_late_the_next_node_comes() {
    let world = World::two_zones().await;
    let daemon = world.supplier(json!({})).await;
    let (first, second) = (world.node_in("n1", "z1").await, world.node_in("n2", "z2").await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.driver().inject(create(Action::fail(Code::ResourceExhausted, "full")).once());
    world.select(&claim, Some(&first)).await;
    world.claim_told(&claim, "ProvisioningFailed", "full").await;
    let is_idle = |status: &Value| {
        let work = status["work"].as_array().unwrap();
        !work.iter().any(|item| item["key"].as_str().is_some_and(|it| it.ends_with(&claim)))
    };
    world.shows(&daemon, "nothing to be done for a claim without a node", is_idle).await;
    world.select(&claim, Some(&second)).await;
    world.claim_told(&claim, "ProvisioningSucceeded", &world.volume_name(&claim).await).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r51_a_pod_goes_to_another_node_when_the_driver_says_that_the_first_is_full() {
    // Zones of this test alone: a shared cluster also has nodes without this driver.
    let world = World::supplied(zoned([pool("r51-a", 0), pool("r51-b", 100)])).await;
    let _daemon = world.supplier(json!({"strictTopology": true})).await;
    let first = world.node_in("n1", "r51-a").await;
    let allowed = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["r51-a", "r51-b"]}]}]);
    let class = world.waiting_class("class", json!({"allowedTopologies": allowed})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    let pod = world.pod("pod", &[&claim], None).await;
    assert_eq!(preferred(&world.asked(&claim, 1).await[0]), "r51-a");
    // The scheduler has no choice, neither before nor now: it would try the full one again and again.
    world.merge_patch::<Node>(&first, json!({"spec": {"unschedulable": true}})).await;
    let second = world.node_in("n2", "r51-b").await;
    let volume = world.supplied_with(&claim).await;
    assert_eq!(zone_of(&volume), "r51-b");
    assert_eq!(world.claim_now(&claim).await.annotations()[SELECTED_NODE], second);
    assert_eq!(world.scheduled(&pod).await, second);
    world.delete_pod(&pod).await;
    world.all_detached().await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r8_r22_s0_a_claim_for_a_node_that_is_gone_is_given_back_to_the_scheduler() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    let class = world.waiting_class("class", json!({})).await;
    let there = world.node_in("there", "z1").await;
    // All of the node is gone; or its Node alone, which the Go sidecar retries for ever; or its CSINode alone.
    for (short, node_goes, csi_node_goes) in [("whole", true, true), ("node", true, false), ("csinode", false, true)] {
        let node = world.node_in(&format!("n-{short}"), "z2").await;
        if node_goes {
            world.drop_node(&node).await;
        }
        if csi_node_goes {
            world.drop_csi_node(&node).await;
        }
        let claim = world.claim(&format!("c-{short}"), &class, json!({})).await;
        world.select(&claim, Some(&node)).await;
        world.claim_until(&claim, &format!("given back: {short}"), has_no_node).await;
        world.select(&claim, Some(&there)).await;
        let volume = world.supplied_with(&claim).await;
        assert_eq!(zone_of(&volume), "z1");
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r3_a_label_that_a_node_gets_late_is_waited_for_and_seen_at_once() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(slow()).await;
    let node = world.node_in("n1", "z2").await;
    world.merge_patch::<Node>(&node, json!({"metadata": {"labels": {ZONE: null}}})).await;
    let (_, claim) = world.waiting_claim_anew("claim").await;
    world.select(&claim, Some(&node)).await;
    world.claim_told(&claim, "ProvisioningFailed", ZONE).await;
    world.merge_patch::<Node>(&node, json!({"metadata": {"labels": {ZONE: "z2"}}})).await;
    assert_eq!(zone_of(&world.supplied_with(&claim).await), "z2");
    world.assert_nothing_leaked().await;
}

/// A driver that has left a node looks like one that starts there: the node is not taken off the claim.
#[tokio::test]
async fn a_claim_for_a_node_that_the_driver_has_left_waits_until_it_is_back_or_another_node_is_selected() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(slow()).await;
    let (left, there) = (world.node_in("left", "z2").await, world.node_in("there", "z1").await);
    let back = json!([{ "name": world.driver_name(), "nodeID": world.node_id(&left), "topologyKeys": [ZONE] }]);
    world.set_drivers(&left, json!([])).await;
    let class = world.waiting_class("class", json!({})).await;
    let (waits, moves) = (world.claim("waits", &class, json!({})).await, world.claim("moves", &class, json!({})).await);
    for claim in [&waits, &moves] {
        world.select(claim, Some(&left)).await;
        world.claim_told(claim, "ProvisioningFailed", "is not registered there").await;
    }
    world.select(&moves, Some(&there)).await;
    assert_eq!(zone_of(&world.supplied_with(&moves).await), "z1");
    assert_eq!(world.claim_now(&waits).await.annotations()[SELECTED_NODE], left);
    world.set_drivers(&left, back).await;
    assert_eq!(zone_of(&world.supplied_with(&waits).await), "z2");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_node_that_comes_before_the_driver_is_asked_counts_also_after_a_failed_attempt() {
    let world = World::two_zones().await;
    let daemon = world.supplier(json!({})).await;
    let (host, keys) = (world.name("host"), world.name("keys"));
    world.node_in("n1", "z1").await;
    let parameters = json!({"csi.storage.k8s.io/provisioner-secret-name": keys,
        "csi.storage.k8s.io/provisioner-secret-namespace": "default"});
    let class = world.class("class", json!({"parameters": parameters})).await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", &keys).await;
    world.place("n2", &[(&host, "h1")]).await;
    world.page_names(&daemon, &["2 different sets of topology keys"]).await;
    world.secret(&keys, &[("password", b"staple-of-topology".as_slice())]).await;
    let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
    let requisite = asked.accessibility_requirements.unwrap().requisite;
    let with = |key: &str| requisite.iter().filter(|place| place.segments.contains_key(key)).count();
    assert_eq!((with(ZONE), with(&host), requisite.len()), (1, 1, 2), "{requisite:?}");
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_an_answer_of_nothing_but_empty_places_is_deleted_and_asked_again() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    world.node_in("n1", "z1").await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::Lie(Lie::Topologies(vec![BTreeMap::new(), BTreeMap::new()]))).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.driver_until("the unreachable one is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
    let volume = world.supplied_with(&claim).await;
    // On a shared cluster, the nodes of others are places too.
    assert!(["z1", "z2"].iter().any(|zone| zone_of(&volume) == *zone));
    assert_eq!(world.volumes().await.len(), 1);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r53_r40_allowed_topologies_choose_the_place_with_and_without_a_node() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({})).await;
    world.node_in("n1", "z1").await;
    let second = world.node_in("n2", "z2").await;
    let allowed = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]});
    let now = world.class("now", allowed.clone()).await;
    let later = world.waiting_class("later", allowed).await;
    let immediate = world.claim("immediate", &now, json!({})).await;
    assert_eq!(zone_of(&world.supplied_with(&immediate).await), "z2");
    let waiting = world.claim("waiting", &later, json!({})).await;
    world.select(&waiting, Some(&second)).await;
    assert_eq!(zone_of(&world.supplied_with(&waiting).await), "z2");
    for claim in [&immediate, &waiting] {
        let asked = world.asked(claim, 1).await.remove(0).create.clone().unwrap().accessibility_requirements.unwrap();
        assert_eq!(asked.requisite.len(), 1, "{asked:?}");
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn as_many_places_as_an_entry_has_room_for_are_asked_for_and_asked_for_again_by_a_successor() {
    let said = "an entry of the journal has no room for all topology segments: requesting the most preferred";
    let (counted, _guard) = crate::logs::count(said);
    let world = World::two_zones().await;
    // As long as the names of a cloud's nodes.
    let places: Vec<String> = (0..5_000).map(|at| format!("node-{at:035}")).collect();
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")));
    let first = world.supplier(json!({})).await;
    let mut claims = Vec::new();
    for (short, places, expected) in [("all", &places[..1_500], 1_500..=1_500), ("many", &places[..], 2_400..=2_600)] {
        let allowed = json!([{"matchLabelExpressions": [{"key": ZONE, "values": places}]}]);
        let class = world.class(&format!("class-{short}"), json!({"allowedTopologies": allowed})).await;
        let claim = world.claim(short, &class, json!({})).await;
        let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap().accessibility_requirements.unwrap();
        assert!(expected.contains(&asked.requisite.len()), "{short}: {}", asked.requisite.len());
        assert_eq!(asked.preferred.len(), asked.requisite.len());
        claims.push(claim);
    }
    assert_eq!(*counted.borrow(), 1);
    first.stop().await.unwrap();
    let mut before = Vec::new();
    for claim in &claims {
        before.push(world.asked(claim, 1).await);
    }
    let second = world.supplier(json!({})).await;
    for (claim, before) in claims.iter().zip(&before) {
        let again = world.asked(claim, before.len() + 1).await;
        assert!(again.iter().all(|call| call.create == before[0].create));
    }
    second.stop().await.unwrap();
    for claim in &claims {
        world.delete_claim(claim).await;
    }
    world.driver().clear_faults();
    let _third = world.supplier(json!({})).await;
    world.journal_is_empty().await;
    world.assert_all_gone(&claims.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn without_topology_in_the_configuration_nothing_is_asked_and_nothing_said_of_places() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({"topology": false})).await;
    world.node_in("n1", "z1").await;
    let (_, claim, volume) = world.supplied_claim().await;
    assert!(volume.spec.unwrap().node_affinity.is_none());
    assert_eq!(world.asked(&claim, 1).await[0].create.as_ref().unwrap().accessibility_requirements, None);
}

#[tokio::test]
async fn without_immediate_topology_a_claim_is_asked_for_anywhere_unless_a_node_or_its_class_says_where() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({"immediateTopology": false})).await;
    let node = world.node_in("n1", "z1").await;
    let (now, later) = (world.class("now", json!({})).await, world.waiting_class("later", json!({})).await);
    let allowed = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]});
    let somewhere = world.class("somewhere", allowed).await;
    let (free, chosen) = (world.claim("free", &now, json!({})).await, world.claim("chosen", &later, json!({})).await);
    let bounded = world.claim("bounded", &somewhere, json!({})).await;
    world.select(&chosen, Some(&node)).await;
    for (claim, place) in [(free, None), (chosen, Some("z1")), (bounded, Some("z2"))] {
        world.supplied_with(&claim).await;
        let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap().accessibility_requirements;
        assert_eq!(asked.as_ref().map(|asked| asked.preferred[0].segments[ZONE].as_str()), place, "{claim}");
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_claim_that_waits_for_its_first_consumer_costs_nothing_and_is_no_failure() {
    let world = World::two_zones().await;
    let daemon = world.supplier(json!({})).await;
    let node = world.node_in("n1", "z1").await;
    let (class, claim) = world.waiting_claim_anew("claim").await;
    let other = world.class("other", json!({})).await;
    let next = world.claim("next", &other, json!({})).await;
    world.supplied_with(&next).await;
    let metrics = world.metrics(&daemon).await;
    let failed = "controller_persistentvolumeclaim_provision_failed_total";
    assert_eq!(crate::supplier::figure(&metrics, failed, &[&class]), None, "{metrics}");
    let uid = world.claim_uid(&claim).await;
    world.events_are_out("fence").await;
    assert!(!world.events_on(&uid).await.iter().any(|event| event.reason.as_deref() == Some("ProvisioningFailed")));
    let claims = world.namespaced::<PersistentVolumeClaim>();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
    claims.patch(&claim, &PatchParams::default(), &patch).await.unwrap();
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn nodes_that_tell_their_places_in_different_keys_are_told_of_once_and_all_of_them_count() {
    let said = "nodes report different topology keys: claims without a node may get a segment by any of them";
    let (mut counted, _guard) = crate::logs::count(said);
    let world = World::two_zones().await;
    let (host, zone) = (world.name("host"), world.name("zone"));
    let pools = ["h1", "h2"].map(|value| Pool::at([(host.as_str(), value)], 100 << 30));
    world.driver().change_profile(|profile| profile.pools = pools.into());
    for (node, value) in [("n1", "h1"), ("n2", "h2")] {
        world.place(node, &[(&host, value)]).await;
    }
    let daemon = world.supplier(json!({})).await;
    let (class, first) = world.claim_anew("first").await;
    world.supplied_with(&first).await;
    assert_eq!(*counted.borrow(), 0, "they agree");
    let page = world.status(&daemon).await.to_string();
    assert!(!page.contains("sets of topology keys"), "{page}");

    world.place("n3", &[(&zone, "a")]).await;
    bounded("said", counted.wait_for(|count| *count == 1)).await.unwrap();
    let told = format!("nodes of this driver report 2 different sets of topology keys: {host} on 2, {zone} on 1");
    world.page_names(&daemon, &[&told]).await;
    for short in ["second", "third"] {
        let claim = world.claim(short, &class, json!({})).await;
        world.supplied_with(&claim).await;
        let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
        let requisite = asked.accessibility_requirements.unwrap().requisite;
        let with = |key: &str| requisite.iter().filter(|place| place.segments.contains_key(key)).count();
        assert_eq!((with(&host), with(&zone), requisite.len()), (2, 1, 3), "{requisite:?}");
    }
    // Not with each claim, nor with each look: not before there is another kind of keys.
    world.place("n4", &[(&zone, "b"), (&host, "h1")]).await;
    bounded("said again", counted.wait_for(|count| *count >= 2)).await.unwrap();
    assert_eq!(*counted.borrow(), 2);
    world.assert_nothing_leaked().await;
}
