//! A driver with the Go sidecars in pods moves over to the daemon and back as `migrate` tells it, word by word, while pods write: they
//! notice nothing, and each side alone makes, attaches, mounts and grows volumes.
//!
//! The programs of csi-attacher, csi-provisioner and csi-resizer are theirs. Those of node-driver-registrar and livenessprobe are ours,
//! with their flags, if no folder of `CLUSTER_PROGRAMS` before has theirs: `NODE_SIDECARS=FOLDER just node swap`.

use serde_json::Value;

use super::lab::{NAME, NAMESPACE};
use super::mounted::a_volume_grows_under_a_running_pod;
use super::observer::Seen;
use super::upheaval::a_volume_is_used;
use super::vendor::{CONTROLLER, PLUGIN, Vendor, containers};

/// The Leases of csi-attacher, csi-provisioner and csi-resizer.
const LEASES: usize = 3;
/// How long attaching may rest when the Lease has a new holder, in seconds.
const PAUSE: f64 = 1.0;

impl Vendor {
    /// A new claim gets a volume, a pod writes to it, another volume grows under its pod, and all goes.
    async fn works(&self, with: &str) {
        a_volume_is_used(&self.lab, with, self.node()).await;
        a_volume_grows_under_a_running_pod(&self.lab, self.node()).await;
    }

    /// What the node's port answers.
    fn answer(&self, path: &str) -> String {
        let address = format!("/api/v1/nodes/{}:9808/proxy{path}", self.node());
        self.lab.kubectl(&["get", "--raw", &address]).unwrap_or_else(|told| panic!("{path}: {told}"))
    }

    /// The port that the pod of a workload takes on its node, by the label `app`.
    async fn port_of(&self, app: &str) -> u64 {
        let told = self.done(&format!("kubectl get pods -n {NAMESPACE} -l app={app} -o json")).await;
        let pods: Value = serde_json::from_str(&told).unwrap();
        let containers = pods["items"][0]["spec"]["containers"].as_array().unwrap();
        let daemon = containers.iter().find(|it| it["name"] == "csi-control-plane").expect("the daemon's container");
        daemon["ports"][0]["hostPort"].as_u64().unwrap_or_else(|| panic!("no port of the node: {daemon:#}"))
    }

    /// The live objects, in the files that `migrate` reads.
    async fn write_manifests(&self) {
        self.done(&format!("kubectl get -n {NAMESPACE} {CONTROLLER} {PLUGIN} -o yaml >driver.yaml")).await;
        self.done(&format!("kubectl get csidriver {NAME} -o yaml >csidriver.yaml")).await;
    }
}

/// Attaching went on when the Lease had a new holder.
fn went_on(what: &str, seen: &Seen) {
    for takeover in &seen.takeovers {
        println!(
            "{what}: {} of {} is {}'s {:.1} s after it last changed",
            takeover.lease,
            takeover.from,
            takeover.to,
            takeover.after.as_secs_f64(),
        );
        if takeover.lease.contains("attacher") {
            let resumed = seen.resumed_after(takeover).as_secs_f64();
            println!("{what}: an attachment is done {resumed:.2} s after csi-attacher's Lease was taken");
            assert!(resumed < PAUSE, "{what}: attaching rested for {resumed} s more than the hand-over of the Lease");
        }
    }
    let attachers = seen.takeovers.iter().filter(|takeover| takeover.lease.contains("attacher")).count();
    assert_eq!((seen.takeovers.len(), attachers), (LEASES, 1), "{what}: each Lease was taken over once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_moves_over_and_back_by_the_printed_steps_and_the_pods_that_write_notice_nothing() {
    let vendor = Vendor::install(|_| {}).await;
    let before = [vendor.spec(CONTROLLER).await, vendor.spec(PLUGIN).await];
    assert_eq!(containers(&before[1]), ["liveness-probe", "node-driver-registrar", "driver"]);
    assert_eq!(vendor.answer("/healthz"), "ok");
    vendor.works("theirs").await;
    let objects = vendor.objects().await;

    vendor.write_manifests().await;
    let (controller_over, controller_back) = vendor.steps("driver.yaml", CONTROLLER).await;
    let (plugin_over, plugin_back) = vendor.steps("driver.yaml", PLUGIN).await;
    went_on("the controller, over", &vendor.carry_out("the controller, over", &controller_over, LEASES).await);
    vendor.carry_out("the node plugin, over", &plugin_over, 0).await;
    for workload in [CONTROLLER, PLUGIN] {
        assert_eq!(containers(&vendor.spec(workload).await), ["csi-control-plane", "driver"]);
    }
    // The kubelet heard it from the daemon, which answers in livenessprobe's place.
    let metrics = vendor.answer("/metrics");
    assert!(metrics.lines().any(|line| line == "csi_control_plane_registrar_registered 1"), "{metrics}");
    assert_eq!(vendor.answer("/healthz"), "ok");
    // The daemon does with its own rights.
    vendor.done("kubectl delete -f rights.yaml").await;
    vendor.works("ours").await;

    vendor.done("kubectl apply -f rights.yaml").await;
    vendor.carry_out("the node plugin, back", &plugin_back, 0).await;
    went_on("the controller, back", &vendor.carry_out("the controller, back", &controller_back, LEASES).await);
    assert_eq!([vendor.spec(CONTROLLER).await, vendor.spec(PLUGIN).await], before, "as it was");
    assert_eq!(vendor.answer("/healthz"), "ok");
    assert_eq!(vendor.objects().await, objects, "what was there, and nothing else");
    vendor.works("theirs-again").await;
    vendor.end_writers().await;
}

/// The sidecars have opened no port of the node. The daemon opens one for its probes, in each of two pods that stand on one node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_and_a_node_plugin_that_had_no_port_get_two_that_differ_and_one_node_carries_both() {
    let vendor = Vendor::install(without_a_livenessprobe).await;
    vendor.write_manifests().await;
    let (controller_over, controller_back) = vendor.steps("driver.yaml", CONTROLLER).await;
    let (plugin_over, plugin_back) = vendor.steps("driver.yaml", PLUGIN).await;
    vendor.carry_out("the node plugin without a port, over", &plugin_over, 0).await;
    vendor.carry_out("the controller beside it, over", &controller_over, LEASES).await;
    let ports = [vendor.port_of("demo-controller").await, vendor.port_of("demo-node").await];
    println!("the ports of controller and node plugin: {ports:?}");
    assert!(ports[0] != ports[1] && ports.iter().all(|port| (18000..19000).contains(port)), "{ports:?}");
    vendor.works("ours-beside-each-other").await;
    vendor.carry_out("the controller beside it, back", &controller_back, LEASES).await;
    vendor.carry_out("the node plugin without a port, back", &plugin_back, 0).await;
    vendor.end_writers().await;
}

/// Takes what has a port out of the node plugin.
fn without_a_livenessprobe(object: &mut Value) {
    if let Some(containers) = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut) {
        containers.retain(|container| container["name"] != "liveness-probe");
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            container.remove("livenessProbe");
            container.remove("ports");
        }
    }
}
