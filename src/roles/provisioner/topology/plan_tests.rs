//! The examples of the Go sidecar's own tests, its regressions by number, and properties of every cluster.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::cluster::{TopologyExpression, TopologySelectorTerm};

const DRIVER: &str = "demo.csi.example.com";

/// Nodes by name: their labels if the Node exists, and the driver's keys if its CSINode lists the driver.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) labels: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) drivers: BTreeMap<String, Option<Vec<String>>>,
}

impl World {
    pub(super) fn node(mut self, name: &str, keys: &[&str], labels: &[(&str, &str)]) -> Self {
        let owned = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.labels.insert(name.to_owned(), owned);
        self.drivers.insert(name.to_owned(), Some(keys.iter().map(ToString::to_string).collect()));
        self
    }

    /// A node without the driver, with labels only.
    pub(super) fn plain(mut self, name: &str, labels: &[(&str, &str)]) -> Self {
        self = self.node(name, &[], labels);
        self.drivers.insert(name.to_owned(), None);
        self
    }
}

impl Cluster for World {
    fn driver_on(&self, node: &str) -> DriverOnNode {
        match self.drivers.get(node) {
            None => DriverOnNode::NoCsiNode,
            Some(None) => DriverOnNode::NotRegistered,
            Some(Some(keys)) => DriverOnNode::Keys(keys.clone()),
        }
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        self.labels.get(node).cloned()
    }

    fn each_registered(&self, see: &mut dyn FnMut(&Registered<'_>)) {
        for (node, keys) in &self.drivers {
            if let Some(keys) = keys {
                see(&Registered { node, keys, labels: self.labels.get(node) });
            }
        }
    }
}

const ZONE_RACK: &[&str] = &["zone", "rack"];

fn at<'a>(zone: &'a str, rack: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("zone", zone), ("rack", rack)]
}

fn selector(expressions: &[(&str, &[&str])]) -> TopologySelectorTerm {
    let expression = |(key, values): &(&str, &[&str])| TopologyExpression {
        key: (*key).to_owned(),
        values: values.iter().map(ToString::to_string).collect(),
    };
    TopologySelectorTerm { match_label_expressions: expressions.iter().map(expression).collect() }
}

fn zones(values: &[&str]) -> Vec<TopologySelectorTerm> {
    vec![selector(&[("zone", values)])]
}

/// An input, with defaults.
pub(super) struct Asked<'a> {
    pub(super) world: &'a dyn Cluster,
    pub(super) node: Option<&'a str>,
    pub(super) allowed: Vec<TopologySelectorTerm>,
    pub(super) strict: bool,
    pub(super) immediate: bool,
    pub(super) claim: &'a str,
}

impl<'a> Asked<'a> {
    pub(super) fn of(world: &'a dyn Cluster) -> Self {
        Self { world, node: None, allowed: Vec::new(), strict: false, immediate: true, claim: "testpvc" }
    }

    pub(super) fn on(world: &'a dyn Cluster, node: &'a str) -> Self {
        Self { node: Some(node), ..Self::of(world) }
    }

    pub(super) fn plan(&self) -> Result<Option<Requirement>, TopologyError> {
        plan_requirement(&TopologyInput {
            driver: DRIVER,
            selected_node: self.node,
            allowed: &self.allowed,
            strict: self.strict,
            immediate: self.immediate,
            claim_name: self.claim,
            cluster: self.world,
        })
    }

    /// Requisite and preferred segments as `value/value`, in the order of keys.
    fn shown(&self) -> (Vec<String>, Vec<String>) {
        let requirement = self.plan().unwrap().unwrap();
        let show = |segments: &[Segment]| {
            segments
                .iter()
                .map(|segment| segment.pairs().map(|(_, value)| value).collect::<Vec<_>>().join("/"))
                .collect()
        };
        (show(&requirement.requisite), show(&requirement.preferred))
    }

    pub(super) fn finality(&self) -> (TopologyFinality, String) {
        let error = self.plan().unwrap_err();
        (error.finality(), error.to_string())
    }
}

fn both(requisite: &[&str], preferred: &[&str]) -> (Vec<String>, Vec<String>) {
    let own = |places: &[&str]| places.iter().map(ToString::to_string).collect();
    (own(requisite), own(preferred))
}

/// Nodes n1 at (z2, A), n2 at (z1, A), n3 at (z1, B).
fn three() -> World {
    World::default().node("n1", ZONE_RACK, &at("z2", "A")).node("n2", ZONE_RACK, &at("z1", "A")).node(
        "n3",
        ZONE_RACK,
        &at("z1", "B"),
    )
}

#[test]
fn the_worked_examples_of_the_specification() {
    let (world, square) = (three(), vec![selector(&[("zone", &["z1", "z2"]), ("rack", &["A", "B"])])]);
    let all = ["A/z1", "A/z2", "B/z1", "B/z2"];

    let asked = Asked { allowed: square.clone(), ..Asked::on(&world, "n1") };
    assert_eq!(asked.shown(), both(&all, &["A/z2", "B/z1", "B/z2", "A/z1"]));
    let asked = Asked { allowed: square, strict: true, ..Asked::on(&world, "n1") };
    assert_eq!(asked.shown(), both(&["A/z2"], &["A/z2"]), "the same, strict");

    let asked = Asked::on(&world, "n1");
    assert_eq!(asked.shown(), both(&["A/z1", "A/z2", "B/z1"], &["A/z2", "B/z1", "A/z1"]), "no allowedTopologies");
    let asked = Asked { strict: true, ..Asked::on(&world, "n1") };
    assert_eq!(asked.shown(), both(&["A/z2"], &["A/z2"]));

    let disks =
        World::default().node("n1", &["disk", "rack", "zone"], &[("zone", "z1"), ("rack", "rack1"), ("disk", "ssd")]);
    let allowed = vec![selector(&[("disk", &["ssd"]), ("zone", &["z1"])])];
    let asked = Asked { allowed: allowed.clone(), ..Asked::on(&disks, "n1") };
    assert_eq!(asked.shown(), both(&["ssd/z1"], &["ssd/z1"]), "the rack is lost");
    let asked = Asked { allowed, strict: true, ..Asked::on(&disks, "n1") };
    assert_eq!(asked.shown(), both(&["ssd/rack1/z1"], &["ssd/rack1/z1"]));

    let uneven = World::default().node("n1", &["zone"], &[("zone", "z1")]).node("n2", ZONE_RACK, &at("z1", "A")).node(
        "n3",
        ZONE_RACK,
        &at("z1", "B"),
    );
    assert_eq!(Asked::on(&uneven, "n1").shown(), both(&["z1"], &["z1"]), "the selected node's keys");

    let diagonal = World::default().node("n1", ZONE_RACK, &at("z1", "A")).node("n2", ZONE_RACK, &at("z2", "B")).node(
        "n3",
        ZONE_RACK,
        &at("z3", "C"),
    );
    let expected = both(&["A/z1", "B/z2", "C/z3"], &["C/z3", "A/z1", "B/z2"]);
    assert_eq!(Asked::of(&diagonal).shown(), expected);

    let allowed =
        vec![selector(&[("zone", &["z2"]), ("rack", &["B"])]), selector(&[("zone", &["z1"]), ("rack", &["A"])])];
    let empty = World::default();
    let asked = Asked { allowed, claim: "testpvcB-testset-2", ..Asked::of(&empty) };
    assert_eq!(asked.shown(), both(&["A/z1", "B/z2"], &["B/z2", "A/z1"]));
}

#[test]
fn a_node_outside_the_allowed_topologies_is_an_error_that_waits() {
    for (zone, strict) in [("z2", false), ("z2", true), ("z10", false), ("z10", true)] {
        let world = World::default().node("n1", &["zone"], &[("zone", zone)]);
        let asked = Asked { allowed: zones(&["z1"]), strict, ..Asked::on(&world, "n1") };
        let (state, text) = asked.finality();
        assert_eq!(state, TopologyFinality::NoChange, "{zone} {strict}");
        assert_eq!(
            text,
            format!("selected node \"n1\" is at zone={zone}, which is not in the class's allowedTopologies")
        );
    }
}

#[test]
fn r53_allowed_topologies_that_say_less_than_the_node_are_accepted() {
    let world = three();
    for strict in [false, true] {
        let asked = Asked { allowed: zones(&["z1", "z2"]), strict, ..Asked::on(&world, "n1") };
        let expected = if strict { both(&["A/z2"], &["A/z2"]) } else { both(&["z1", "z2"], &["z2", "z1"]) };
        assert_eq!(asked.shown(), expected);
    }
}

#[test]
fn r8_r22_a_selected_node_that_is_gone_is_rescheduled() {
    let world = three();
    let (state, text) = Asked::on(&world, "n9").finality();
    assert_eq!(state, TopologyFinality::Reschedule);
    assert_eq!(text, "CSINode \"n9\" of the selected node not found: the node is gone");

    let mut orphan = three();
    orphan.labels.remove("n1");
    let (state, text) = Asked::on(&orphan, "n1").finality();
    assert_eq!(state, TopologyFinality::Reschedule, "a CSINode without its Node is no node, either");
    assert_eq!(text, "selected node \"n1\" not found");
}

#[test]
fn r3_labels_are_those_of_now_and_missing_ones_are_named() {
    let mut world = World::default().node("n1", ZONE_RACK, &[("zone", "z1")]);
    let (state, text) = Asked::on(&world, "n1").finality();
    assert_eq!(state, TopologyFinality::NoChange);
    assert_eq!(text, "selected node \"n1\" lacks the topology labels rack, which CSINode names");
    world = world.node("n1", ZONE_RACK, &at("z1", "A"));
    assert_eq!(Asked::on(&world, "n1").shown(), both(&["A/z1"], &["A/z1"]));
}

#[test]
fn a_node_without_the_driver_or_its_keys_waits() {
    let world = World::default().plain("n1", &[("zone", "z1")]).node("n2", &[], &[("zone", "z1")]);
    for (node, text) in [
        ("n1", "no topology key found for node \"n1\": driver demo.csi.example.com is not registered there"),
        ("n2", "no topology key found for node \"n2\": driver demo.csi.example.com is registered there without any"),
    ] {
        assert_eq!(Asked::on(&world, node).finality(), (TopologyFinality::NoChange, text.to_owned()));
    }
    let (state, text) = Asked::of(&world).finality();
    assert_eq!(state, TopologyFinality::NoChange);
    assert!(text.starts_with("no available topology found"), "{text}");

    let mut unlabelled = World::default().node("n1", ZONE_RACK, &[("zone", "z1")]).node("n2", &["host"], &[]);
    for node in ["n3", "n4", "n5"] {
        unlabelled.drivers.insert(node.to_owned(), Some(vec!["host".to_owned()]));
    }
    let (state, text) = Asked::of(&unlabelled).finality();
    assert_eq!(
        (state, text.as_str()),
        (
            TopologyFinality::NoChange,
            "topologyKeys [[host] [rack zone]] were not found on any nodes: node \"n1\" lacks the labels rack; node \"n2\" \
             lacks the labels host; there is no node \"n3\"; and 2 more"
        )
    );
}

#[test]
fn without_a_node_nothing_is_asked_if_immediate_topology_is_off() {
    let world = three();
    let off = Asked { immediate: false, ..Asked::of(&world) };
    assert_eq!(off.plan(), Ok(None));
    let allowed = Asked { immediate: false, allowed: zones(&["z1"]), ..Asked::of(&world) };
    assert_eq!(allowed.shown(), both(&["z1"], &["z1"]), "what the class allows is asked all the same");
    let chosen = Asked { immediate: false, ..Asked::on(&world, "n1") };
    assert_eq!(chosen.shown().1[0], "A/z2", "a chosen node counts whatever the binding mode");
}

#[test]
fn r40_an_instance_of_one_node_knows_its_own_place_only() {
    let segments = BTreeMap::from([("zone".to_owned(), "z1".to_owned())]);
    let local = NodeTopology { name: "n1".to_owned(), segments };
    assert_eq!(Asked::on(&local, "n1").shown(), both(&["z1"], &["z1"]));
    assert_eq!(Asked::of(&local).shown(), both(&["z1"], &["z1"]));
    assert_eq!(Asked::on(&local, "n2").finality().0, TopologyFinality::Reschedule);
    let elsewhere = Asked { allowed: zones(&["z2"]), ..Asked::on(&local, "n1") };
    assert_eq!(elsewhere.finality().0, TopologyFinality::NoChange);
}

#[test]
fn r7_r9_asking_again_gives_the_same_and_changes_nothing() {
    let world = three();
    for node in [None, Some("n1"), Some("n3")] {
        let asked = Asked { node, ..Asked::of(&world) };
        assert_eq!(asked.plan(), asked.plan());
        let first = asked.plan().unwrap().unwrap();
        assert!(first.requisite.is_sorted(), "turning the preferred places leaves the requisite ones in order");
    }
}

#[test]
fn the_driver_is_told_the_same_places() {
    let requirement = Asked::on(&three(), "n1").plan().unwrap().unwrap();
    let told = requirement.to_proto();
    assert_eq!(told.requisite.iter().map(Segment::of_proto).collect::<Vec<_>>(), requirement.requisite);
    assert_eq!(told.preferred.iter().map(Segment::of_proto).collect::<Vec<_>>(), requirement.preferred);
}

fn any_world() -> impl Strategy<Value = World> {
    let labels = proptest::collection::btree_map("[abc]", "[xyz]", 0..4);
    let keys = proptest::option::of(proptest::collection::btree_set("[abc]", 0..3));
    proptest::collection::btree_map("n[1-6]", (proptest::option::of(labels), keys), 0..6).prop_map(|nodes| {
        let mut world = World::default();
        for (name, (labels, keys)) in nodes {
            if let Some(labels) = labels {
                world.labels.insert(name.clone(), labels);
            }
            world.drivers.insert(name, keys.map(|keys| keys.into_iter().collect()));
        }
        world
    })
}

fn any_allowed() -> impl Strategy<Value = Vec<TopologySelectorTerm>> {
    let values = proptest::collection::vec("[xyz]", 1..3);
    let segment = proptest::collection::btree_map("[abc]", values, 1..3).prop_map(|expressions| TopologySelectorTerm {
        match_label_expressions: expressions
            .into_iter()
            .map(|(key, values)| TopologyExpression { key, values })
            .collect(),
    });
    proptest::collection::vec(segment, 0..3)
}

proptest! {
    #[test]
    fn preferred_is_a_turn_of_requisite_and_the_node_leads(
        world in any_world(),
        allowed_by_class in any_allowed(),
        node in proptest::option::of("n[1-6]"),
        strict: bool,
        claim in "[a-c]{1,3}(-[0-9])?",
    ) {
        let asked = Asked {
            world: &world, node: node.as_deref(), allowed: allowed_by_class.clone(), strict, immediate: true, claim: &claim,
        };
        let plan = asked.plan();
        prop_assert_eq!(&plan, &asked.plan());
        let Ok(Some(Requirement { requisite, preferred })) = plan else { return Ok(()) };
        prop_assert!(!requisite.is_empty());
        prop_assert!(requisite.iter().all(|segment| !segment.is_empty()));
        prop_assert!(requisite.windows(2).all(|pair| pair[0] < pair[1]), "sorted, each once");
        let start = requisite.iter().position(|segment| *segment == preferred[0]).unwrap();
        let mut turned = requisite.clone();
        turned.rotate_left(start);
        prop_assert_eq!(&turned, &preferred);
        if let Some(node) = &node {
            let place = Segment::new(world.labels[node].clone());
            prop_assert!(preferred[0].is_subset_of(&place), "the best place holds the node");
            if strict {
                prop_assert_eq!(requisite.len(), 1);
                prop_assert!(allowed(&requisite[0], &allowed_by_class));
            }
        }
        if !strict || node.is_none() {
            prop_assert!(requisite.iter().all(|segment| allowed(segment, &allowed_by_class)));
        }
    }

    #[test]
    fn segments_are_what_the_nodes_make_whatever_the_order(
        told in proptest::collection::vec(("n[1-4]", proptest::option::of("[xyz]")), 0..30),
    ) {
        let mut segments = Segments::default();
        let mut nodes = BTreeMap::new();
        let mut standing = BTreeSet::new();
        for (node, zone) in told {
            let place = zone.map(|zone| Segment::new([("zone", zone)]));
            let change = segments.set(&node, place.clone());
            match place {
                Some(place) => nodes.insert(node, place),
                None => nodes.remove(&node),
            };
            standing.extend(change.added);
            if let Some(removed) = change.removed {
                prop_assert!(standing.remove(&removed));
            }
            let expected: BTreeSet<&Segment> = nodes.values().collect();
            prop_assert_eq!(&segments.iter().map(AsRef::as_ref).collect::<BTreeSet<_>>(), &expected);
            prop_assert_eq!(standing.iter().map(AsRef::as_ref).collect::<BTreeSet<_>>(), expected);
        }
    }
}

/// Nodes whose lists fail.
struct Unread(World);

impl Cluster for Unread {
    fn driver_on(&self, node: &str) -> DriverOnNode {
        self.0.driver_on(node)
    }

    fn labels(&self, node: &str) -> Option<BTreeMap<String, String>> {
        self.0.labels(node)
    }

    fn each_registered(&self, see: &mut dyn FnMut(&Registered<'_>)) {
        self.0.each_registered(see);
    }

    fn unread(&self) -> Option<String> {
        Some("CSINodes cannot be read: no".to_owned())
    }
}

#[test]
fn where_nodes_cannot_be_read_only_the_claims_wait_that_need_one_and_none_is_sent_elsewhere() {
    for world in [Unread(three()), Unread(World::default())] {
        let told = "the nodes and their topology keys are not known: CSINodes cannot be read: no";
        let waits = (TopologyFinality::NoChange, told.to_owned());
        assert_eq!(Asked::on(&world, "n1").finality(), waits);
        assert_eq!(Asked { allowed: zones(&["z1"]), strict: true, ..Asked::on(&world, "n1") }.finality(), waits);
        assert_eq!(Asked::of(&world).finality(), waits);
        assert_eq!(Asked { allowed: zones(&["z1"]), ..Asked::of(&world) }.shown(), both(&["z1"], &["z1"]));
        assert_eq!(Asked { immediate: false, ..Asked::of(&world) }.plan(), Ok(None));
    }
}
