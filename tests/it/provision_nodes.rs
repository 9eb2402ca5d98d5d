//! A daemon and a driver on each node (provisioner spec 2.14): which daemon creates a claim's volume, and which deletes
//! it. Claims of a node that is gone: [`super::provision_nodes_gone`]. Capacity: [`super::provision_nodes_room`].
//! Events: [`super::provision_nodes_told`]. Finalizers of volumes: [`super::provision_nodes_volumes`].
//!
//! Each node has its own backend, so that a test sees the calls to each driver apart: none, for a claim of another
//! node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::cluster::names;
use csi_control_plane::process::Dial;
use csi_control_plane::sandbox::driver::{Action, Call, Driver, Fault, Method, Node as DriverNode, Profile, Server};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::objects::{config_with, merge};
use crate::supplier::{figure, unanswered};
use crate::supply::{SELECTED_NODE, ZONE, phase, pool};
use crate::world::{World, bounded};

/// The name of the daemon on a node.
fn host_on(node: &str) -> String {
    format!("{node}-daemon")
}

/// A node with a driver of its own, whose volumes are on that node.
pub(crate) struct Local {
    pub(crate) node: String,
    pub(crate) driver: Driver,
    server: Server,
    dial: Dial,
}

impl Local {
    /// Sets up a node whose driver has so much room.
    pub(crate) async fn set(world: &World, short: &str, gibibytes: i64) -> Self {
        let node = world.name(short);
        world.place(short, &[(ZONE, &node)]).await;
        let here = DriverNode { segments: [(ZONE.to_owned(), node.clone())].into(), ..DriverNode::default() };
        let profile = Profile {
            name: world.driver_name().to_owned(),
            nodes: [(world.node_id(&node), here)].into(),
            ..Profile::default()
        };
        let driver = Driver::new(profile.in_pools([pool(&node, gibibytes)]), world.ground().clock());
        let (server, dial) = world.ground().start_driver(&node, &host_on(&node), &driver).await;
        Self { node, driver, server, dial }
    }

    /// A world with these nodes, each with room for ten volumes.
    pub(crate) async fn each<const N: usize>(names: [&str; N]) -> (World, [Self; N]) {
        let world = World::of_nodes().await;
        let mut nodes = Vec::new();
        for name in names {
            nodes.push(Self::set(&world, name, 10).await);
        }
        (world, nodes.try_into().ok().unwrap())
    }

    /// The name of its daemon, and of the pod that it runs in.
    pub(crate) fn host(&self) -> String {
        host_on(&self.node)
    }

    /// Starts its daemon; `section` is merged into the provisioner's.
    pub(crate) async fn daemon(&self, world: &World, section: Value) -> Daemon {
        let mut provisioner = json!({ "retry": { "initial": "50ms", "max": "400ms", "infeasible": "1s" }, "resync": "0s",
            "capacity": { "pollInterval": "1s" },
            "nodeDeployment": { "enabled": true, "baseDelay": "300ms", "maxDelay": "600ms" } });
        merge(&mut provisioner, section);
        let config =
            config_with(json!({ "roles": { "attacher": null, "reconciler": null, "provisioner": provisioner } }));
        let driver = self.dial.clone();
        let daemon = world.ground().start_on(&self.host(), &self.node, &config.to_string(), driver).await;
        world.serving(&daemon).await;
        daemon
    }

    /// Its driver dies, and is back at once.
    pub(crate) async fn restart_driver(&self) {
        self.server.restart(Duration::ZERO).await;
    }

    /// The calls that make and delete volumes.
    pub(crate) fn changes(&self) -> Vec<Arc<Call>> {
        let changing = |call: &Arc<Call>| [Method::CreateVolume, Method::DeleteVolume].contains(&call.method);
        self.driver.calls().into_iter().filter(changing).collect()
    }

    /// Asserts that its driver was never called to create or delete a volume.
    pub(crate) fn assert_left_alone(&self) {
        assert_eq!(crate::world::brief(&self.changes()), Vec::<String>::new(), "{}", self.node);
    }

    /// The driver has volumes.
    pub(crate) async fn driver_until(&self, what: &str, holds: impl Fn(&Driver) -> bool) {
        bounded(what, self.driver.until(holds)).await;
    }

    fn is_home_of(&self, volume: &PersistentVolume) -> bool {
        // By its name: each backend counts its handles for itself.
        self.driver.state().volumes().values().any(|made| made.name == volume.name_any())
    }
}

impl World {
    /// A world whose nodes each have a driver: the world's own is on none of them.
    pub(crate) async fn of_nodes() -> Self {
        let world = Self::supplied(|_| {}).await;
        // A volume that is on its node already is not attached; without this, the cluster would wait for it to be, for minutes.
        let spec = json!({ "attachRequired": false });
        world.create::<CSIDriver>(json!({ "metadata": { "name": world.driver_name() }, "spec": spec })).await;
        world
    }

    /// Waits until a claim is bound to a volume that is on this node and says so.
    pub(crate) async fn on_node(&self, claim: &str, local: &Local) -> PersistentVolume {
        let volume = self.supplied_with(claim).await;
        assert!(local.is_home_of(&volume), "{claim} is not on {}", local.node);
        let affinity = serde_json::to_value(volume.spec.as_ref().unwrap().node_affinity.as_ref().unwrap()).unwrap();
        let terms = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [local.node] }] }]);
        assert_eq!(affinity.pointer("/required/nodeSelectorTerms"), Some(&terms));
        let source = volume.spec.as_ref().unwrap().csi.as_ref().unwrap();
        let maker = &source.volume_attributes.as_ref().unwrap()["storage.kubernetes.io/csiProvisionerIdentity"];
        assert!(maker.ends_with(&format!("-{}-{}", self.driver_name(), local.node)), "{maker}");
        assert_eq!(self.claim_now(claim).await.annotations()[SELECTED_NODE], local.node);
        volume
    }

    /// Has claims that no node was chosen for provisioned by three nodes, and tells how many each got.
    async fn competed(&self, node_deployment: Value) -> BTreeMap<String, usize> {
        let (mut locals, mut daemons) = (Vec::new(), Vec::new());
        for short in ["n1", "n2", "n3"] {
            let local = Local::set(self, short, 100).await;
            daemons.push(local.daemon(self, json!({ "nodeDeployment": node_deployment })).await);
            locals.push(local);
        }
        let class = self.class("class", json!({})).await;
        let mut claims = Vec::new();
        for number in 0..12 {
            claims.push(self.claim(&format!("claim-{number}"), &class, json!({})).await);
        }
        let mut made = BTreeMap::new();
        for claim in &claims {
            let volume = self.supplied_with(claim).await;
            let home: Vec<&Local> = locals.iter().filter(|local| local.is_home_of(&volume)).collect();
            assert_eq!(home.len(), 1, "{claim} is in one place");
            self.on_node(claim, home[0]).await;
            *made.entry(home[0].node.clone()).or_default() += 1;
        }
        for local in &locals {
            let names: Vec<_> = local.changes().into_iter().map(|call| (call.method, call.name.clone())).collect();
            let unique: BTreeSet<_> = names.iter().map(|(_, name)| name).collect();
            assert!(names.iter().all(|(method, _)| *method == Method::CreateVolume), "nobody cleans up: {names:?}");
            assert_eq!(unique.len(), names.len(), "nobody asks twice: {names:?}");
            assert_eq!(names.len(), made.get(&local.node).copied().unwrap_or_default(), "nobody asks for another's");
        }
        made
    }
}

#[tokio::test]
async fn claims_without_a_node_are_shared_by_the_nodes_and_each_is_provisioned_once() {
    let world = World::of_nodes().await;
    // Far apart: on a busy machine timers that are due at about the same time fire in one go, in the nodes' order.
    let made = world.competed(json!({ "baseDelay": "2s", "maxDelay": "3s" })).await;
    // One node for all of twelve draws is a chance of one in 177 147.
    assert!(made.len() > 1, "not fair: {made:?}");
}

#[tokio::test]
async fn nodes_that_reach_for_a_claim_at_the_same_moment_leave_it_to_the_first() {
    let world = World::of_nodes().await;
    world.competed(json!({ "baseDelay": "1ms", "maxDelay": "2ms" })).await;
}

#[tokio::test]
async fn a_claim_goes_where_there_is_room_and_waits_until_there_is_some() {
    let world = World::of_nodes().await;
    let (small, large) = (Local::set(&world, "small", 1).await, Local::set(&world, "large", 20).await);
    let _daemons = (small.daemon(&world, json!({})).await, large.daemon(&world, json!({})).await);
    let class = world.class("class", json!({})).await;
    let of =
        |gibibytes: i64| json!({ "spec": { "resources": { "requests": { "storage": format!("{gibibytes}Gi") } } } });
    let claim = world.claim("claim", &class, of(10)).await;
    world.on_node(&claim, &large).await;
    small.assert_left_alone();

    // At first no node has room for this one: the Go sidecar would not look again.
    let huge = world.claim("huge", &class, of(50)).await;
    let asked = |driver: &Driver| driver.calls_of(Method::GetCapacity).len() > 2;
    small.driver_until("the room is looked for again", asked).await;
    assert!(!world.claim_now(&huge).await.annotations().contains_key(SELECTED_NODE));
    small.driver.change_profile(|profile| profile.pools = vec![pool(&small.node, 100)]);
    world.on_node(&huge, &small).await;
    assert_eq!((small.changes().len(), large.changes().len()), (1, 1));
}

#[tokio::test]
async fn a_claim_that_waits_for_a_pod_is_provisioned_by_the_daemon_of_the_pods_node() {
    let (world, [first, second]) = Local::each(["n1", "n2"]).await;
    let _daemons = (first.daemon(&world, json!({})).await, second.daemon(&world, json!({})).await);
    let (_, claim) = world.waiting_claim_anew("claim").await;
    let pod = world.pod("pod", &[&claim], Some(&second.node)).await;
    world.on_node(&claim, &second).await;
    assert_eq!(world.scheduled(&pod).await, second.node);
    first.assert_left_alone();
    assert_eq!(first.driver.calls_of(Method::GetCapacity).len(), 0, "it was not even asked for its room");
    world.delete_pod(&pod).await;
}

#[tokio::test]
async fn claims_without_a_node_are_left_alone_where_immediate_binding_is_off() {
    let (world, [local]) = Local::each(["n1"]).await;
    let _daemon = local.daemon(&world, json!({ "nodeDeployment": { "immediateBinding": false } })).await;
    let (now, later) = (world.class("now", json!({})).await, world.waiting_class("later", json!({})).await);
    let immediate = world.claim("immediate", &now, json!({})).await;
    let waiting = world.claim("waiting", &later, json!({})).await;
    world.select(&waiting, Some(&local.node)).await;
    world.on_node(&waiting, &local).await;
    let left = world.claim_now(&immediate).await;
    assert!(phase(&left) == "Pending" && !left.annotations().contains_key(SELECTED_NODE));
    // Once a node is selected, it is provisioned like any other.
    world.select(&immediate, Some(&local.node)).await;
    world.on_node(&immediate, &local).await;
}

#[tokio::test]
async fn r40_a_node_outside_of_the_allowed_topologies_does_not_compete() {
    let (world, [outside, inside]) = Local::each(["out", "in"]).await;
    let hasty = json!({ "nodeDeployment": { "baseDelay": "1ms", "maxDelay": "1s" } });
    let _daemons = (outside.daemon(&world, hasty).await, inside.daemon(&world, json!({})).await);
    let allowed = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": [inside.node] }] }]);
    let class = world.class("class", json!({ "allowedTopologies": allowed })).await;
    for short in ["a", "b", "c"] {
        let claim = world.claim(short, &class, json!({})).await;
        world.on_node(&claim, &inside).await;
    }
    outside.assert_left_alone();
}

#[tokio::test]
async fn s0_a_claim_that_names_its_class_by_the_old_annotation_is_provisioned() {
    let (world, [local]) = Local::each(["n1"]).await;
    let _daemon = local.daemon(&world, json!({})).await;
    let class = world.class("class", json!({})).await;
    let old = json!({ "metadata": { "annotations": { names::ANNOTATION_BETA_STORAGE_CLASS: class } },
        "spec": { "storageClassName": null } });
    let claim = world.claim("claim", "", old).await;
    world.on_node(&claim, &local).await;
}

#[tokio::test]
async fn a_volume_is_deleted_by_the_daemon_of_its_node_even_if_that_comes_late() {
    let (world, [home, other]) = Local::each(["home", "other"]).await;
    let (daemon, _other) = (home.daemon(&world, json!({})).await, other.daemon(&world, json!({})).await);
    let class = world.waiting_class("class", json!({})).await;
    let claims = [world.claim("a", &class, json!({})).await, world.claim("b", &class, json!({})).await];
    let mut volumes = Vec::new();
    for claim in &claims {
        world.select(claim, Some(&home.node)).await;
        volumes.push(world.on_node(claim, &home).await.name_any());
    }
    world.delete_claim(&claims[0]).await;
    world.gone::<PersistentVolume>(&volumes[0]).await;
    daemon.stop().await.unwrap();
    world.delete_claim(&claims[1]).await;
    let released = |it: &PersistentVolume| it.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Released"));
    world.until(&volumes[1], "released", released).await;
    // The other daemon has seen it as well when it has made a volume for a claim that came later.
    let later = world.claim("later", &class, json!({})).await;
    world.select(&later, Some(&other.node)).await;
    world.on_node(&later, &other).await;
    assert_eq!(home.driver.state().volumes().len(), 1, "nobody else has deleted it");
    let _back = home.daemon(&world, json!({})).await;
    world.gone::<PersistentVolume>(&volumes[1]).await;
    assert_eq!(home.driver.state().volumes().len(), 0);
    assert_eq!(home.driver.calls_of(Method::DeleteVolume).len(), 2, "each once");
    assert_eq!(other.driver.calls_of(Method::DeleteVolume).len(), 0);
}

#[tokio::test]
async fn a_driver_that_fails_on_one_node_does_not_hold_up_the_others() {
    let (world, [broken, sound]) = Local::each(["broken", "sound"]).await;
    let _daemons = (broken.daemon(&world, json!({})).await, sound.daemon(&world, json!({})).await);
    broken.driver.inject(Fault::on(Method::CreateVolume, Action::fail(Code::Internal, "no luck")));
    let (class, stuck) = world.waiting_claim_anew("stuck").await;
    world.select(&stuck, Some(&broken.node)).await;
    world.claim_told(&stuck, "ProvisioningFailed", "no luck").await;
    let claim = world.claim("claim", &class, json!({})).await;
    world.select(&claim, Some(&sound.node)).await;
    world.on_node(&claim, &sound).await;
    broken.driver.clear_faults();
    world.on_node(&stuck, &broken).await;
}

#[tokio::test]
async fn what_is_in_background_is_counted_by_the_daemon_whose_it_is_alone() {
    let (world, [home, other]) = Local::each(["home", "other"]).await;
    // Its look at whether the other node is still there never comes.
    let patient = json!({ "nodeDeployment": { "baseDelay": "100h", "maxDelay": "1000h" } });
    let daemon = home.daemon(&world, patient.clone()).await;
    home.driver.inject(unanswered());
    let (_, claim) = world.claim_anew("claim").await;
    world.select(&claim, Some(&home.node)).await;
    let background = |metrics: &str| figure(metrics, "csi_control_plane_claims_in_background", &[world.driver_name()]);
    world.metrics_until(&daemon, "it counts its own", |metrics| background(metrics) == Some(1.0)).await;
    let bystander = other.daemon(&world, patient).await;
    let there = BTreeMap::from([(claim.clone(), home.node.clone())]);
    let sees = |status: &Value| remembered(status).as_ref() == Some(&there);
    world.shows(&bystander, "it has seen the claim", sees).await;
    // Both figures are brought up to date at once.
    let oldest = "csi_control_plane_claims_oldest_pending_age_seconds";
    let has_counted = |metrics: &str| figure(metrics, oldest, &[]).is_some_and(|age| age > 0.0);
    let metrics = world.metrics_until(&bystander, "it has counted", has_counted).await;
    assert_eq!(background(&metrics), Some(0.0));
    home.driver.clear_faults();
    world.on_node(&claim, &home).await;
}

#[tokio::test]
async fn an_entry_of_another_node_stays_until_that_nodes_driver_was_asked() {
    let (world, [first, second]) = Local::each(["n1", "n2"]).await;
    let hasty = json!({ "nodeDeployment": { "baseDelay": "1ms", "maxDelay": "2ms" } });
    let daemons = (first.daemon(&world, hasty.clone()).await, second.daemon(&world, hasty).await);
    let class = world.class("class", json!({})).await;
    // One after the other fails for want of the source, and remembers the claim.
    let from = json!({ "kind": "PersistentVolumeClaim", "name": world.name("source") });
    let of_second = json!({ "metadata": { "annotations": { SELECTED_NODE: second.node } } });
    let mut clone = of_second.clone();
    clone["spec"]["dataSource"] = from;
    let clone = world.claim("clone", &class, clone).await;
    for (local, daemon) in [(&second, &daemons.1), (&first, &daemons.0)] {
        world.select(&clone, Some(&local.node)).await;
        let failed = "controller_persistentvolumeclaim_provision_failed_total";
        let has_failed = |metrics: &str| figure(metrics, failed, &[&class]).is_some_and(|count| count >= 1.0);
        world.metrics_until(daemon, "it has failed here", has_failed).await;
    }
    let name = world.volume_name(&clone).await;
    first.driver.inject(unanswered().volume(&name));
    let of_first = json!({ "metadata": { "annotations": { SELECTED_NODE: first.node } } });
    let source = world.claim("source", &class, of_first).await;
    world.on_node(&source, &first).await;
    first.driver_until("the clone is asked for", |it| !it.creates_of(&name).is_empty()).await;
    daemons.0.kill();
    world.delete_claim_and_wait(&clone).await;
    // The other daemon has seen that as well when it has made a volume for a claim that came later.
    let later = world.claim("later", &class, json!({})).await;
    world.select(&later, Some(&second.node)).await;
    world.on_node(&later, &second).await;
    assert!(world.is_recorded(&clone).await, "the first has asked, and has no answer yet");
    first.driver.clear_faults();
    let _back = first.daemon(&world, json!({})).await;
    world.forgotten(&clone).await;
    let is_gone = |it: &Driver| it.state().volumes().values().all(|volume| volume.name != name);
    first.driver_until("its volume is deleted", is_gone).await;
}

/// The claims that a daemon remembers because it may take them, by name, each with the other node that has it.
pub(crate) fn remembered(status: &Value) -> Option<BTreeMap<String, String>> {
    let tables = status["tables"].as_array()?;
    let table = tables.iter().find(|it| it["name"] == "otherNodesClaims")?;
    let row = |row: &Value| {
        let claim = row["claim"].as_str()?.strip_prefix("default/")?;
        Some((claim.to_owned(), row["node"].as_str().unwrap_or_default().to_owned()))
    };
    table["rows"].as_array()?.iter().map(row).collect()
}

#[tokio::test]
async fn claims_that_others_have_taken_or_that_are_gone_are_forgotten() {
    let (world, [quick, late]) = Local::each(["quick", "late"]).await;
    let hasty = json!({ "nodeDeployment": { "baseDelay": "1ms", "maxDelay": "2ms" } });
    // Its turn never comes here, nor its look at whether the other node is still there.
    let patient = json!({ "nodeDeployment": { "baseDelay": "100h", "maxDelay": "1000h" } });
    let daemons = [quick.daemon(&world, hasty).await, late.daemon(&world, patient).await];
    let class = world.class("class", json!({})).await;
    // Too large for any node, so that both keep it in mind.
    let huge = json!({ "spec": { "resources": { "requests": { "storage": "500Gi" } } } });
    let huge = world.claim("huge", &class, huge).await;
    let nobodys = BTreeMap::from([(huge.clone(), String::new())]);
    let only_that = |status: &Value| remembered(status).as_ref() == Some(&nobodys);
    for daemon in &daemons {
        world.shows(daemon, "the claim that nobody has room for", only_that).await;
    }
    let elsewhere = world.claim("elsewhere", &class, json!({})).await;
    world.on_node(&elsewhere, &quick).await;
    // A claim of another provisioner, one that waits for a pod, and one that is gone before a daemon has taken it.
    let foreign = world.class("foreign", json!({ "provisioner": "other.csi.example.com" })).await;
    world.claim("foreign", &foreign, json!({})).await;
    let waiting = world.waiting_class("waiting", json!({})).await;
    let waiting = world.claim("waiting", &waiting, json!({})).await;
    world.select(&waiting, Some(&quick.node)).await;
    world.on_node(&waiting, &quick).await;
    for daemon in &daemons {
        world.shows(daemon, "nothing but the claim that nobody has room for", only_that).await;
    }
    world.delete_claim_and_wait(&huge).await;
    for daemon in &daemons {
        world.shows(daemon, "no claim at all", |status| remembered(status) == Some(BTreeMap::new())).await;
    }
}
