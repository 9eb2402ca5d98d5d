//! Beside csi-provisioner: what both ask of the topology, on nodes with different sets of keys. The rows are those of
//! `provisioner/topology/plan_keys_tests.rs` in which a volume is asked for.

use std::collections::BTreeMap;

use csi_control_plane::proto::Topology;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use futures::future::join_all;
use serde_json::{Value, json};
use tonic::Code;

use crate::cluster::provisioners::csi_provisioner;
use crate::supply::{SELECTED_NODE, zoned};
use crate::world::World;

/// Nodes, as in that table: the labels of each, and the keys that the driver has registered there.
const ROWS: [&str; 11] = [
    "z=z1 / z; z=z1 k=A / z k; z=z1 k=A / z k",
    "r=e / r; r=w z=z1 / r z; r=w z=z2 / r z",
    "r=e / r; z=z1 / z",
    "r=e z=z1 / r; r=w z=z2 / z",
    "r=e / r; z=z1 / z; r=w z=z2 / -",
    "r=e z=z1 / r; r=e z=z2 / r z",
    "z=z1 / z; z=z2 / -; z=z3 / z",
    "z=z1 / z; z=z2 / x",
    "r=e / r; r=w z=z1 / z; r=c z=z2 / r z",
    "z=z1 / z; z=z1 / z; z=z1 / z",
    "r=e z=z1 / r z; r=e z=z2 / z r",
];

/// Places the nodes of a row, with keys that only this world's driver has. Returns the first one's name.
async fn placed(world: &World, row: &str) -> String {
    let ours = |key: &str| format!("{}/{key}", world.driver_name());
    let mut first = None;
    for (number, node) in row.split(';').enumerate() {
        let (labels, keys) = node.split_once('/').unwrap();
        let labels: Vec<(String, &str)> =
            labels.split_whitespace().map(|it| it.split_once('=').unwrap()).map(|(key, it)| (ours(key), it)).collect();
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let name = world.place(&format!("n{number}"), &labels).await;
        let keys: Vec<String> = keys.split_whitespace().filter(|&key| key != "-").map(ours).collect();
        let drivers = match keys.as_slice() {
            [one] if *one == ours("x") => json!([]),
            keys => json!([{ "name": world.driver_name(), "nodeID": world.node_id(&name), "topologyKeys": keys }]),
        };
        world.set_drivers(&name, drivers).await;
        first.get_or_insert(name);
    }
    first.unwrap()
}

/// The segments that the first request for each claim's volume has, requisite and preferred: for a claim without a node, and for one
/// whose node is this one. The driver refuses every request, so that no volume is left.
async fn requested(world: &World, classes: &[String; 2], node: &str) -> BTreeMap<&'static str, [Vec<Value>; 2]> {
    let on = json!({ "metadata": { "annotations": { SELECTED_NODE: node } } });
    let mut requested = BTreeMap::new();
    for (short, class, change) in [("anywhere", &classes[0], json!({})), ("selected", &classes[1], on)] {
        let claim = world.claim(short, class, change).await;
        let request = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
        let asked = request.accessibility_requirements.unwrap();
        let segments = |terms: &[Topology]| terms.iter().map(|it| json!(it.segments)).collect();
        requested.insert(short, [segments(&asked.requisite), segments(&asked.preferred)]);
        world.delete_claim_and_wait(&claim).await;
    }
    requested
}

/// Both are asked on the nodes of a row, without and with strict topology.
async fn both_ask_for_the_same(row: &str) {
    let world = World::supplied(zoned([])).await;
    let refused = Action::fail(Code::InvalidArgument, "no volume is wanted here");
    world.driver().inject(Fault::on(Method::CreateVolume, refused));
    let node = placed(&world, row).await;
    let classes = [world.class("class", json!({})).await, world.waiting_class("waiting", json!({})).await];
    for strict in [false, true] {
        let theirs = csi_provisioner(&world, if strict { &["--strict-topology"] } else { &[] });
        let by_them = requested(&world, &classes, &node).await;
        theirs.stop().await;
        let section = json!({ "strictTopology": strict });
        let ours = world.provisioner_with(json!({ "attacher": null, "reconciler": null }), section).await;
        let by_us = requested(&world, &classes, &node).await;
        ours.stop().await.unwrap();
        assert_eq!(by_us, by_them, "{row}, strict: {strict}");
        assert!(!by_them["selected"][1].is_empty(), "{row}, strict: {strict}: {by_them:?}");
    }
}

/// At the same time, as each hand-over waits until csi-provisioner's Lease expires.
#[tokio::test]
async fn both_ask_for_the_same_segments_in_the_same_order_whatever_keys_the_nodes_have() {
    join_all(ROWS.map(both_ask_for_the_same)).await;
}
