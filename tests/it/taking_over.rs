//! Leases that are taken over before they expire, because their holder has provably ended; and all that is no such proof.

use std::time::Duration;

use csi_control_plane::election::Container;
use csi_control_plane::roles::csi_attacher;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::failures::plan;
use crate::ground::{Daemon, is_a_cluster};
use crate::objects;
use crate::rights::without;
use crate::world::World;
use crate::world::leases::holder;

/// Where the daemons and their Leases are.
const NAMESPACE: &str = "kube-system";
const CONTAINER: &str = "daemon";

/// A time that only a proven end explains: a Lease lasts for 15 s after its last renewal, which is at most 5 s old. A busy machine
/// takes its time.
fn at_once() -> Duration {
    Duration::from_secs(if is_a_cluster() { 5 } else { 1 })
}

/// The pod of a daemon. The scenario is its kubelet.
struct Host {
    name: String,
    uid: String,
}

impl Host {
    /// A pod as a controller makes it.
    async fn new(world: &World, short: &str) -> Self {
        let name = world.name(short);
        let pod = json!({ "metadata": { "name": name },
            "spec": { "containers": [{ "name": CONTAINER, "image": "example.com/none" }] } });
        let created = pods(world).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let host = Self { name, uid: created.uid().unwrap() };
        host.report(world, &json!({ "running": {} }), &json!({})).await;
        host
    }

    /// Starts the container: its process knows where it is.
    async fn start(&self, world: &World, overrides: Value) -> Daemon {
        let container = Container::named(&self.uid, CONTAINER);
        world.ground().start_in(&self.name, container, &objects::config_with(overrides).to_string()).await
    }

    /// What the kubelet says of the container, and of its last start.
    async fn report(&self, world: &World, state: &Value, last: &Value) {
        let container = json!({ "name": CONTAINER, "image": "example.com/none", "imageID": "", "ready": false,
            "restartCount": 0, "state": state, "lastState": last });
        let status = Patch::Merge(json!({ "status": { "containerStatuses": [container] } }));
        pods(world).patch_status(&self.name, &PatchParams::default(), &status).await.unwrap();
    }
}

fn pods(world: &World) -> Api<Pod> {
    Api::namespaced(world.client(), NAMESPACE)
}

/// The container has ended. Its process has left this identity in the termination log.
fn ended(identity: &str) -> Value {
    json!({ "terminated": { "exitCode": 137, "reason": "Error",
        "message": format!("\nleader election identity: {identity}\n") } })
}

/// Waits until the process of this host leads, and returns its identity.
async fn leader(world: &World, host: &str) -> String {
    let lease = csi_attacher::lease(world.driver_name());
    let lease = world.lease_held_by(&lease, "held by the host", |holder| holder.starts_with(host)).await;
    holder(&lease).unwrap().to_owned()
}

async fn transitions(world: &World) -> Option<i32> {
    let lease = csi_attacher::lease(world.driver_name());
    world.leases().get(&lease).await.unwrap().spec.unwrap().lease_transitions
}

/// Asks for an attachment, and says how long it took.
async fn next_attach(world: &World, node: &str, volume: &str) -> Duration {
    let begin = Instant::now();
    let volume = world.volume(volume).await;
    world.attached(&world.attach(&volume, node).await).await;
    begin.elapsed()
}

#[tokio::test]
async fn a_container_that_is_started_again_does_not_wait_for_the_lease_of_its_last_process() {
    let world = World::new().await;
    let (host, node) = (Host::new(&world, "first").await, world.node("node").await);
    let daemon = host.start(&world, json!({})).await;
    let start = next_attach(&world, &node, "first").await;
    let last = leader(&world, &host.name).await;
    assert!(last.starts_with(&format!("{}_{}_{CONTAINER}_", host.name, host.uid)), "{last}");
    daemon.kill();
    // The kubelet has reported nothing yet.
    let _daemon = host.start(&world, json!({})).await;
    let took = next_attach(&world, &node, "next").await;
    assert!(took < start + at_once(), "{took:?}, and the first start took {start:?}");
    assert_ne!(leader(&world, &host.name).await, last);
    assert_eq!(transitions(&world).await, Some(1));
}

#[tokio::test]
async fn a_standby_leads_as_soon_as_the_kubelet_reports_the_end_of_the_leaders_container() {
    let world = World::new().await;
    let (host, other) = (Host::new(&world, "first").await, Host::new(&world, "second").await);
    let daemon = host.start(&world, json!({})).await;
    let (node, _, _) = world.attached_anew().await;
    let identity = leader(&world, &host.name).await;
    let standby = other.start(&world, json!({})).await;
    world.shows(&standby, "a standby", |status| status["overall"] == "standby").await;
    daemon.kill();
    host.report(&world, &ended(&identity), &json!({})).await;
    let took = next_attach(&world, &node, "next").await;
    assert!(took < at_once(), "{took:?}");
    leader(&world, &other.name).await;
    assert_eq!(transitions(&world).await, Some(1));
}

#[tokio::test]
async fn a_late_report_of_an_earlier_process_is_no_proof_against_the_next_one() {
    let world = World::new().await;
    let (host, other) = (Host::new(&world, "first").await, Host::new(&world, "second").await);
    let daemon = host.start(&world, json!({})).await;
    let (node, _, _) = world.attached_anew().await;
    let first = leader(&world, &host.name).await;
    daemon.kill();
    let daemon = host.start(&world, json!({})).await;
    next_attach(&world, &node, "second").await;
    let second = leader(&world, &host.name).await;
    let standby = other.start(&world, json!({})).await;
    world.shows(&standby, "a standby", |status| status["overall"] == "standby").await;
    // The container runs again, and the API still has the end of its last start.
    host.report(&world, &ended(&first), &json!({})).await;
    host.report(&world, &json!({ "running": {} }), &ended(&first)).await;
    next_attach(&world, &node, "third").await;
    assert_eq!(leader(&world, &host.name).await, second);
    daemon.kill();
    host.report(&world, &json!({ "waiting": { "reason": "CrashLoopBackOff" } }), &ended(&second)).await;
    let took = next_attach(&world, &node, "fourth").await;
    assert!(took < at_once(), "{took:?}");
    leader(&world, &other.name).await;
    assert_eq!(transitions(&world).await, Some(2), "the standby has seen all reports, and believed the last one");
}

#[tokio::test]
async fn a_pod_that_is_deleted_by_force_proves_nothing_so_the_lease_decides() {
    let world = World::new().await;
    let (host, other) = (Host::new(&world, "first").await, Host::new(&world, "second").await);
    let daemon = host.start(&world, objects::short_lease()).await;
    let (node, _, _) = world.attached_anew().await;
    leader(&world, &host.name).await;
    let standby = other.start(&world, objects::short_lease()).await;
    world.shows(&standby, "a standby", |status| status["overall"] == "standby").await;
    pods(&world).delete(&host.name, &DeleteParams::default().grace_period(0)).await.unwrap();
    // The process lives on: it works, and has the Lease.
    next_attach(&world, &node, "during").await;
    assert_eq!(transitions(&world).await, Some(0));
    daemon.kill();
    let took = next_attach(&world, &node, "next").await;
    // It was renewed half a second ago at the most, and a busy machine may be slower.
    assert!(took > Duration::from_secs(4), "{took:?}");
    leader(&world, &other.name).await;
}

#[tokio::test]
async fn without_the_right_to_watch_pods_a_standby_waits_for_the_lease_and_says_why() {
    let world = World::new().await;
    let (lease, leases) = (csi_attacher::lease(world.driver_name()), world.leases());
    let now = world.ground().clock().wall().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let held: Lease = serde_json::from_value(json!({
        "metadata": { "name": lease, "namespace": NAMESPACE },
        "spec": { "holderIdentity": "the-go-sidecar", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now,
            "leaseTransitions": 0 },
    }))
    .unwrap();
    leases.create(&PostParams::default(), &held).await.unwrap();
    let (host, other) = (Host::new(&world, "first").await, Host::new(&world, "daemon").await);
    let standby = other.start(&world, json!({})).await;
    world.shows(&standby, "a standby", |status| status["overall"] == "standby").await;
    world.ground().grant(&other.name, &without(&plan(&world), Some(("watch", "pods")))).await;
    let identity = format!("{}_{}_{CONTAINER}_00000001", host.name, host.uid);
    let spec = |spec: Value| Patch::Merge(json!({ "spec": spec }));
    leases.patch(&lease, &PatchParams::default(), &spec(json!({ "holderIdentity": identity }))).await.unwrap();
    host.report(&world, &ended(&identity), &json!({})).await;
    world
        .shows(&standby, "the right that is missing", |status| {
            let text = status.to_string().replace('\\', "");
            text.contains("cannot watch the holder's pod of lease")
                && text.contains("cannot watch resource \"pods\"")
                && status["overall"] == "standby"
        })
        .await;
    assert_eq!(leader(&world, &host.name).await, identity);
    leases.patch(&lease, &PatchParams::default(), &spec(json!({ "leaseDurationSeconds": 1 }))).await.unwrap();
    leader(&world, &other.name).await;
    world.shows(&standby, "no error", |status| !status.to_string().contains("holder's pod")).await;
    let bound = if is_a_cluster() { Duration::from_secs(30) } else { at_once() };
    let node = world.node("node").await;
    assert!(next_attach(&world, &node, "next").await < bound);
}
