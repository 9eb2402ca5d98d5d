//! Nodes with different sets of topology keys: the tables of csi-provisioner 6.4's own tests.

use std::collections::BTreeMap;

use super::plan_tests::{Asked, World};
use super::*;

/// Nodes `n0`, `n1`, … of a table: for each its labels and the driver's keys there, by the first letters: `r=e z=z1 / r z`. Keys `-`: the
/// driver is there without keys; `x`: it is not. Labels `?`: there is no Node.
fn world_of(nodes: &str) -> World {
    let mut world = World::default();
    for (number, node) in nodes.split(';').map(str::trim).enumerate() {
        let (name, (labels, keys)) = (format!("n{number}"), node.split_once('/').unwrap());
        let keys: Vec<&str> = keys.split_whitespace().filter(|key| *key != "-").collect();
        let labels = labels.trim();
        let pairs: Vec<(&str, &str)> = labels.split_whitespace().filter_map(|label| label.split_once('=')).collect();
        world = if keys == ["x"] { world.plain(&name, &pairs) } else { world.node(&name, &keys, &pairs) };
        if labels == "?" {
            world.labels.remove(&name);
        }
    }
    world
}

/// The requisite segments, or the beginning of what is told.
fn segments(asked: &Asked<'_>) -> String {
    match asked.plan() {
        Ok(requirement) => {
            let shown: Vec<String> = requirement.unwrap().requisite.iter().map(ToString::to_string).collect();
            shown.join("; ")
        }
        Err(error) => error.to_string().split(':').next().unwrap().to_owned(),
    }
}

/// What csi-provisioner 6.4 asks for: for a claim without a node, and for one whose node is the first one.
#[test]
fn each_set_of_keys_counts_over_the_nodes_that_have_registered_it_and_have_its_labels() {
    const NO_TOPOLOGY: &str = "no available topology found";
    for (nodes, immediate, selected) in [
        ("z=z1 / z; z=z1 k=A / z k; z=z1 k=A / z k", "z=z1; k=A,z=z1", "z=z1"),
        ("r=e / r; r=w z=z1 / r z; r=w z=z2 / r z", "r=e; r=w; r=w,z=z1; r=w,z=z2", "r=e; r=w"),
        ("r=e / r; z=z1 / z", "r=e; z=z1", "r=e"),
        ("r=e z=z1 / r; r=w z=z2 / z", "r=e; z=z2", "r=e"),
        ("r=e / r; z=z1 / z; r=w z=z2 / -", "r=e; z=z1", "r=e"),
        ("r=e z=z1 / r; r=e z=z2 / r z", "r=e; r=e,z=z2", "r=e"),
        ("z=z1 / z; z=z2 / -; z=z3 / z", "z=z1; z=z3", "z=z1; z=z3"),
        ("z=z1 / z; z=z2 / x", "z=z1", "z=z1"),
        ("r=e / r; r=w z=z1 / z; r=c z=z2 / r z", "r=c; r=e; z=z1; z=z2; r=c,z=z2", "r=c; r=e"),
        ("z=z1 / -; z=z2 / -; z=z3 / z", "z=z3", "no topology key found for node \"n0\""),
        ("o=z1 / -; o=z2 / -; z=z3 / z", "z=z3", "no topology key found for node \"n0\""),
        ("? / z; ? / z", "topologyKeys [[z]] were not found on any nodes", "selected node \"n0\" not found"),
        (
            "f=bar / z; ? / z; ? / z",
            "topologyKeys [[z]] were not found on any nodes",
            "selected node \"n0\" lacks the topology labels z, which CSINode names",
        ),
        ("z=z1 / -; z=z2 / -; z=z2 / -", NO_TOPOLOGY, "no topology key found for node \"n0\""),
        ("z=z1 / x; z=z2 / x", NO_TOPOLOGY, "no topology key found for node \"n0\""),
        ("z=z1 / z; z=z1 / z; z=z1 / z", "z=z1", "z=z1"),
        ("r=e z=z1 / r z; r=e z=z2 / z r", "r=e,z=z1; r=e,z=z2", "r=e,z=z1; r=e,z=z2"),
        ("r=e / r z; r=w / r", "r=e; r=w", "selected node \"n0\" lacks the topology labels z, which CSINode names"),
        ("z= / z", "z=", "z="),
    ] {
        let world = world_of(nodes);
        assert_eq!(segments(&Asked::of(&world)), immediate, "{nodes}");
        assert_eq!(segments(&Asked::on(&world, "n0")), selected, "{nodes}: on n0");
        let off = Asked { immediate: false, ..Asked::of(&world) };
        assert_eq!(off.plan(), Ok(None), "{nodes}");
    }
    let gone = World { drivers: BTreeMap::new(), ..world_of("z=z1 / z; z=z2 / z") };
    assert_eq!(segments(&Asked::of(&gone)), NO_TOPOLOGY);
    assert_eq!(Asked::on(&gone, "n0").finality().0, TopologyFinality::Reschedule);
}

/// The Go sidecar's own places, so that either may answer a claim that the other has begun.
#[test]
fn the_preferred_segments_of_several_sets_of_keys_begin_by_the_claims_name() {
    let world = world_of("r=e / r; r=w z=z1 / r z; r=w z=z2 / r z");
    for (claim, first) in
        [("testpvc", "r=w,z=z1"), ("data-testset-0", "r=w,z=z2"), ("data-testset-1", "r=e"), ("data-testset-2", "r=w")]
    {
        let plan = Asked { claim, ..Asked::of(&world) }.plan().unwrap().unwrap();
        assert_eq!(plan.preferred[0].to_string(), first, "{claim}");
    }
    let selected = world_of("r=e / r; r=w z=z1 / z; r=c z=z2 / r z");
    let plan = Asked::on(&selected, "n0").plan().unwrap().unwrap();
    assert_eq!(plan.preferred.iter().map(ToString::to_string).collect::<Vec<_>>(), ["r=e", "r=c"]);
}
