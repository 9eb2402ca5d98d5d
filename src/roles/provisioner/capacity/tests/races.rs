//! Two watches that bring their news at the same moment, in real time and on two threads: nodes in one, what they say of drivers
//! in the other. (The Go sidecar's two syncs of its topology made two segments of one place.)

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CapacitySection, DRIVER, World, class, pod, zoned};
use crate::cluster::{CsiNode, Node};

/// A race that is lost in one round of a hundred shows.
const ROUNDS: u32 = 1000;
/// Longer than the test may take.
const NEVER: Duration = Duration::from_secs(3600);
const NODES: [&str; 2] = ["n1", "n2"];

/// The node as both its objects tell of it in a round: another zone each time, and a rack in every other.
fn told(name: &str, uids: &[Value; 2], round: u32) -> (Node, CsiNode) {
    let meta = |uid: &Value| {
        json!({ "name": name, "uid": uid, "resourceVersion": (1_000_000 + round).to_string(),
            "labels": { "zone": zone(round), "rack": "r1" } })
    };
    let keys = if round.is_multiple_of(2) { json!(["zone"]) } else { json!(["zone", "rack"]) };
    let drivers = json!([{ "name": DRIVER, "nodeID": name, "topologyKeys": keys }]);
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": meta(&uids[0]) });
    let csi_node = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta(&uids[1]),
        "spec": { "drivers": drivers } });
    (serde_json::from_value(node).unwrap(), serde_json::from_value(csi_node).unwrap())
}

/// One that the driver knows in the last round, so that what is told then comes to rest.
fn zone(round: u32) -> String {
    if round == ROUNDS { "z1".to_owned() } else { format!("zone-{round}") }
}

fn place(round: u32) -> String {
    let rack = if round.is_multiple_of(2) { "" } else { "rack=r1," };
    format!("{rack}zone={}", zone(round))
}

impl World {
    /// The segments of the class, as the status page has them: each once.
    fn segments(&self) -> Vec<String> {
        self.rows().into_iter().filter(|row| row.len() == 6).map(|row| row[1].clone()).collect()
    }

    /// Nothing is left to do, and the API has the one object of the place where the nodes came to rest.
    fn is_at_rest(&self) -> bool {
        let is_told = || self.told().iter().map(|(_, zone, _)| zone.as_str()).eq(["z1"]);
        self.board.report().work.is_empty() && is_told()
    }

    fn uids(&self, name: &str) -> Option<[Value; 2]> {
        let name = crate::cluster::ObjectName::cluster(name);
        Some([json!(self.nodes.get(&name)?.metadata.uid), json!(self.csi_nodes.get(&name)?.metadata.uid)])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_a_node_and_its_csi_node_that_change_at_once_make_one_segment_of_the_place_that_both_tell() {
    // No poll: it would put right what nobody was told of.
    let section = CapacitySection { enabled: true, poll_interval: NEVER, ..CapacitySection::default() };
    let world = World::of(zoned(), section, &[class("fast", &json!({})), pod("me", Some("set"))]).await;
    for name in NODES {
        world.add_node(name, Some("z1"));
    }
    // One of the nodes makes the first segment: the other may be on its way yet.
    let has_both = |world: &World| NODES.iter().all(|name| world.uids(name).is_some());
    world.until("both nodes", |world| has_both(world) && world.segments() == ["zone=z1"]).await;
    let uids = NODES.map(|name| world.uids(name).unwrap());
    for round in 1..=ROUNDS {
        let start = Barrier::new(2 * NODES.len());
        std::thread::scope(|threads| {
            for (name, uids) in NODES.iter().zip(&uids) {
                let (node, csi_node) = told(name, uids, round);
                let (world, start) = (&world, &start);
                threads.spawn(move || {
                    start.wait();
                    world.api.give(&world.nodes, node);
                });
                threads.spawn(move || {
                    start.wait();
                    world.api.give(&world.csi_nodes, csi_node);
                });
            }
        });
        assert_eq!(world.segments(), [place(round)], "round {round}");
    }
    // However many came and went meanwhile, one object is left, and it stays. An object of the first segment may be on its way out
    // yet, or one of a former round on its way in: nothing is concluded before the loop is at rest.
    world.until("one object", World::is_at_rest).await;
    let name = world.objects()[0].metadata.name.clone();
    let asked = world.asked();
    world.capacity.invalidate("fast");
    world.until("another look", |world| world.asked() > asked && world.is_at_rest()).await;
    assert_eq!(world.objects().iter().map(|it| it.metadata.name.clone()).collect::<Vec<_>>(), [name]);
    world.tear_down().await;
}
