//! Two replicas of the binary, as processes, each with exactly the rights that `check` prints. The leader is stopped or
//! killed while it works on attaches, claims and deletions.

use std::path::Path;

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::burst::{self, Burst};
use crate::ground::cluster::NAMESPACE;
use crate::load::{Load, came_and_went, coming_and_going};
use crate::program::{Program, THIS, run_of};
use crate::supplier::supplier;
use crate::world::World;
use crate::{accounts, objects};

/// Starts the binary as a replica of this name, its configuration changed like this.
pub(crate) async fn replica(world: &World, host: &str, change: &Value) -> Program {
    replica_of(Path::new(THIS), world, host, change).await
}

/// The same for another version of the binary, with the rights that it prints itself.
pub(crate) async fn replica_of(program: &Path, world: &World, host: &str, change: &Value) -> Program {
    let ground = world.real();
    let host = world.name(host);
    let file = ground.folder().join(format!("{host}.yaml"));
    let mut config = objects::config_with(json!({
        "csi": { "endpoint": format!("unix://{}", ground.socket().display()) },
        "leaderElection": { "namespace": NAMESPACE },
        "diagnostics": { "listen": "127.0.0.1:0" },
    }));
    objects::merge(&mut config, change.clone());
    std::fs::write(&file, config.to_string()).unwrap();
    let path = file.to_str().unwrap();
    let variables = [("POD_NAMESPACE", NAMESPACE)];
    let checked = run_of(program, &["check", "--config", path, "--driver-name", world.driver_name()], &variables).await;
    let manifests = &checked.stdout[checked.stdout.find("apiVersion:").unwrap()..];
    let token = accounts::token(&world.client(), NAMESPACE, &host, manifests).await;
    let kubeconfig = ground.cluster().kubeconfig(&host, &token);
    objects::merge(&mut config, json!({ "kubernetes": { "kubeconfig": kubeconfig } }));
    std::fs::write(&file, config.to_string()).unwrap();
    Program::start_of(program, &["run", "--config", path], &variables)
}

/// The first leads, the second stands by, and there is work in flight.
async fn at_work(world: &World, node: &str, change: &Value) -> (Program, Program, (Load, Load)) {
    let first = replica(world, "first", change).await;
    first.is("serving").await;
    let second = replica(world, "second", change).await;
    second.is("standby").await;
    let load = coming_and_going(world, node).await;
    (first, second, load)
}

/// Longer than the patience of every wait: who serves next has seen that the Lease was handed back.
fn long_lease() -> Value {
    json!({ "leaderElection": { "leaseDuration": "10m" } })
}

#[tokio::test]
async fn a_leader_that_is_told_to_stop_hands_over_and_nothing_is_done_twice() {
    let world = World::new().await;
    let node = world.node("node").await;
    let (mut first, second, load) = at_work(&world, &node, &long_lease()).await;
    first.signal("TERM").await;
    first.logged("stopping: waiting for work in flight, then releasing the leases").await;
    world.driver().release();
    let next = Load::put(&world, &node, "next", 2).await;
    assert_eq!(first.exit().await, Some(0), "{}", first.stderr());
    second.is("serving").await;
    next.attached(&world).await;
    came_and_went(&world, &load, 1, &[]).await;
    world.called_at_most(1, &next.volumes, &[]);
}

#[tokio::test]
async fn a_leader_that_is_killed_is_succeeded_and_what_it_had_begun_is_finished() {
    let world = World::new().await;
    let node = world.node("node").await;
    let (mut first, second, load) = at_work(&world, &node, &json!({})).await;
    first.signal("KILL").await;
    assert_eq!(first.exit().await, None);
    world.driver().release();
    let next = Load::put(&world, &node, "next", 2).await;
    second.is("serving").await;
    next.attached(&world).await;
    came_and_went(&world, &load, 2, &[]).await;
    world.called_at_most(1, &next.volumes, &[]);
}

#[tokio::test]
async fn the_rights_that_check_prints_are_enough_for_all_that_the_binary_does() {
    let world = World::new().await;
    let replica = replica(&world, "alone", &json!({})).await;
    let (node, secret) = (world.node("node").await, world.name("secret"));
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let fails = Action::fail(tonic::Code::Internal, "no luck");
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, fails).once());
    let reference = json!({ "csi": { "controllerPublishSecretRef": { "name": secret, "namespace": "default" } } });
    let volume = world.volume_with("pv", reference).await;
    let attachment = world.attach(&volume, &node).await;
    let attached = world.attached(&attachment).await;
    world.events_until(&attached.metadata.uid.unwrap(), "a recovery", |events| events.len() > 1).await;
    world.delete_volume(&volume).await;
    world.detached(&attachment).await;
    world.gone::<PersistentVolume>(&volume).await;
    world.balanced().await;
    replica.is("serving").await;
    let told = replica.stderr() + &replica.get("/status.json").await.body;
    assert!(!told.contains("forbidden"), "{told}");
    assert_eq!(replica.get("/readyz").await.code, 200);
}

/// The first provisions, the second stands by, and claims come and go.
async fn at_work_for_claims(world: &World, class: &str, change: &Value) -> (Program, Program, (Burst, Burst)) {
    let mut config = supplier(json!({}));
    objects::merge(&mut config, change.clone());
    let first = replica(world, "first", &config).await;
    first.plays("provisioner", "serving").await;
    let second = replica(world, "second", &config).await;
    second.plays("provisioner", "standby").await;
    let load = burst::coming_and_going(world, class).await;
    (first, second, load)
}

#[tokio::test]
async fn a_leader_that_is_told_to_stop_while_claims_come_and_go_hands_over_and_no_volume_is_asked_for_twice() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let (mut first, second, load) = at_work_for_claims(&world, &class, &long_lease()).await;
    first.signal("TERM").await;
    first.logged("stopping: waiting for work in flight, then releasing the leases").await;
    let next = Burst::ask(&world, &class, "next", 2).await;
    world.driver().release();
    assert_eq!(first.exit().await, Some(0), "{}", first.stderr());
    second.plays("provisioner", "serving").await;
    next.provisioned(&world).await;
    burst::came_and_went(&world, &load, 1, &[]).await;
}

#[tokio::test]
async fn a_leader_that_is_killed_while_claims_come_and_go_is_succeeded_and_its_volumes_are_asked_for_once_more() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let (mut first, second, load) = at_work_for_claims(&world, &class, &json!({})).await;
    let before = world.supplies();
    first.signal("KILL").await;
    assert_eq!(first.exit().await, None);
    world.driver_until("calls that nobody waits for", |_| world.supplies_in_flight() == 0).await;
    world.driver().release();
    let next = Burst::ask(&world, &class, "next", 2).await;
    second.plays("provisioner", "serving").await;
    next.provisioned(&world).await;
    burst::came_and_went(&world, &load, 1, &before).await;
    assert_eq!(next.asked(&world), [1, 1]);
}
