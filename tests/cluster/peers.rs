//! The daemon with Go programs: csi-attacher, before and after us, and csi-sanity.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use csi_control_plane::process::Clock;
use csi_control_plane::roles::csi_attacher;
use csi_control_plane::sandbox::driver::{Driver, Listen, Node, Profile, Server};
use serde_json::{Value, json};

use crate::cluster::sidecar;
use crate::ground::cluster::NAMESPACE;
use crate::programs::{Program, find};
use crate::world::{World, brief};

/// Starts csi-attacher beside our daemons, with the Lease timing of the scenarios.
pub(crate) fn csi_attacher(world: &World, more: &[String]) -> Program {
    sidecar::start(world, "csi-attacher", &[&sidecar::flags(world), more].concat())
}

/// Waits until the attacher's Lease is held by someone of whom `holds` is true.
async fn until_held(world: &World, what: &str, holds: impl Fn(&str) -> bool) {
    world.lease_held_by(&csi_attacher::lease(world.driver_name()), what, holds).await;
}

#[tokio::test]
async fn the_daemon_takes_over_what_csi_attacher_attached_and_hands_back_what_it_attached() {
    let world = World::new().await;
    let (node, first, second) = (world.node("node").await, world.volume("first").await, world.volume("second").await);
    let third = world.volume("third").await;
    let daemon_host = world.name("daemon");
    let of_daemon = |holder: &str| holder.starts_with(&daemon_host);
    crate::accounts::namespace(&world.client(), NAMESPACE).await;

    // csi-attacher attaches, and the daemon beside it waits for the same lease.
    let attacher = csi_attacher(&world, &[]);
    let by_them = world.attach(&first, &node).await;
    world.attached(&by_them).await;
    until_held(&world, "held by csi-attacher", |holder| !of_daemon(holder)).await;
    let daemon = world.daemon(json!({})).await;
    let waits = |role: &Value| {
        role["name"] == "attacher"
            && role["state"] == "standby"
            && role["lease"] == format!("{NAMESPACE}/{}", csi_attacher::lease(world.driver_name()))
            && role["leader"].as_str().is_some_and(|leader| !leader.is_empty() && !of_daemon(leader))
    };
    world
        .shows(&daemon, "a daemon that waits for the same lease", |status| {
            status["roles"].as_array().is_some_and(|roles| roles.iter().any(waits))
        })
        .await;
    // Meanwhile the work is csi-attacher's.
    let meanwhile = world.attach(&third, &node).await;
    world.attached(&meanwhile).await;
    let who = |volume: &str| world.publishes(volume).iter().map(|call| call.connection).collect::<BTreeSet<u64>>();
    assert_eq!(who(&third), who(&first), "{:#?}", brief(&world.driver().calls()));

    // It stops; the daemon detaches what it attached, without having attached it again.
    attacher.stop().await;
    until_held(&world, "held by the daemon", of_daemon).await;
    for (attachment, volume) in [(&by_them, &first), (&meanwhile, &third)] {
        world.detached(attachment).await;
        assert!(!world.is_published(volume, &node));
        // csi-attacher may ask twice by itself, when its own patch wakes it.
        assert_eq!(who(volume).len(), 1, "{:#?}", brief(&world.driver().calls()));
    }

    // And back.
    let by_us = world.attach(&second, &node).await;
    world.attached(&by_us).await;
    daemon.stop().await.unwrap();
    let attacher = csi_attacher(&world, &[]);
    until_held(&world, "held by csi-attacher again", |holder| !of_daemon(holder)).await;
    world.detached(&by_us).await;
    assert!(!world.is_published(&second, &node));
    assert_eq!(world.publishes(&second).len(), 1, "{:#?}", brief(&world.driver().calls()));
    assert!(who(&second).is_disjoint(&who(&first)), "{:#?}", brief(&world.driver().calls()));
    world.delete_volume(&second).await;
    attacher.stop().await;
}

/// What csi-sanity cannot ask of the demo driver: it has no statistics, and notes where volumes would be mounted without mounting them.
/// Of CSI 1.13 it has neither a node's word on health nor snapshots with a place.
const NOT_ASKED: [&str; 5] = [
    "NodeGetVolumeStats",
    "should remove target path",
    "NodeGetVolumeHealth",
    "NodeGetStorageHealth",
    "accessibility requirements",
];

#[tokio::test]
async fn the_demo_driver_passes_all_suites_of_csi_sanity_that_it_has_the_services_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let node = Node { max_volumes: 2, ..Node::default() };
    let nodes = BTreeMap::from([("node-1".to_owned(), node)]);
    let profile = Profile { nodes, ..Profile::default() }.with_volume_health();
    let driver = Driver::new(profile, Clock::system());
    let server = Server::start(&driver, Listen::unix(folder.path().join("csi.sock"), 0o600)).await.unwrap();
    std::fs::write(path("mutable.yaml"), "iops: \"3000\"\n").unwrap();
    let mut sanity = Command::new(find("csi-sanity"));
    sanity
        .arg(format!("--csi.endpoint=unix://{}", path("csi.sock")))
        .arg(format!("--csi.mountdir={}", path("mount")))
        .arg(format!("--csi.stagingdir={}", path("staging")))
        .arg(format!("--csi.testvolumemutableparameters={}", path("mutable.yaml")))
        .arg("--csi.testnodevolumeattachlimit")
        .arg("--ginkgo.no-color")
        .arg(format!("--ginkgo.skip={}", NOT_ASKED.join("|")))
        .arg(format!("--ginkgo.json-report={}", path("report.json")));
    let done = tokio::task::spawn_blocking(move || sanity.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let tail: Vec<&str> = told.lines().rev().take(60).collect();
    assert!(done.status.success(), "{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    server.stop().await;
    assert_eq!(driver.violations(), []);
    let left = driver.state();
    assert!(left.volumes().is_empty(), "{left:?}");

    // Suites that skip what they were run for would pass too.
    let report: Value = serde_json::from_slice(&std::fs::read(path("report.json")).unwrap()).unwrap();
    let specs = report[0]["SpecReports"].as_array().unwrap();
    let in_state = |state: &str| -> Vec<String> {
        let here = specs.iter().filter(|spec| spec["LeafNodeType"] == "It" && spec["State"] == state);
        here.map(|spec| format!("{} {}", spec["ContainerHierarchyTexts"], spec["LeafNodeText"])).collect()
    };
    let (passed, skipped) = (in_state("passed"), in_state("skipped"));
    let unexpected: Vec<_> = skipped.iter().filter(|spec| !NOT_ASKED.iter().any(|text| spec.contains(text))).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let count = |suite: &str| passed.iter().filter(|spec| spec.contains(suite)).count();
    let suites = ["Identity Service", "[Controller Server]", "GroupController Service", "Node Service"].map(count);
    assert_eq!(suites, [3, 65, 6, 19], "{passed:#?}");
    let changes = ["ExpandVolume [Controller Server]", "ModifyVolume [Controller Server]"].map(count);
    assert!(changes.iter().all(|specs| *specs > 0), "{passed:#?}");
    // The resizer's calls.
    assert_eq!(
        ["ExpandVolume [Controller Server]", "ModifyVolume [Controller Server]"].map(count),
        [3, 6],
        "{passed:#?}"
    );
}
