//! A real kubelet, with a real API server, registers the driver through the role `registrar`. No container is started: what registers
//! a driver needs none.

use std::path::{Path, PathBuf};

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Action, Driver, Fault, Listen, Method, Profile, Server};
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::control_plane::{ControlPlane, Extent};
use crate::node::machine::containerd_is_up;
use crate::program::{Program, eventually};
use crate::programs;

/// The node, by an address: it needs no lookup.
const NODE: &str = "127.0.0.1";
/// The driver's id of it.
const ID: &str = "node-1";
/// Where the driver's socket is, for the kubelet, too.
const SOCKET: &str = "/var/lib/kubelet/plugins/demo.csi.example.com/csi.sock";
/// The kubelet's directory for the sockets of those that want to be registered.
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";

const CONTAINERD: &str = "version = 3\n";

/// The kubelet's configuration. It evicts nothing, whatever this machine has left.
fn kubelet_config(group: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{group}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "address": NODE,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "evictionHard": {"memory.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "volumePluginDir": "/var/lib/kubelet/flexvolume",
        "nodeStatusUpdateFrequency": "2s",
        "oomScoreAdj": 0,
        "healthzPort": 0,
    })
}

/// A node of a cluster, with the demo driver.
struct Node {
    cluster: ControlPlane,
    _containerd: programs::Program,
    kubelet: Option<programs::Program>,
    driver: Driver,
    _server: Server,
}

impl Node {
    async fn start() -> Self {
        let group = super::group();
        let cluster = ControlPlane::start(Extent::Api).await;
        let write = |name: &str, text: &str| std::fs::write(cluster.folder.join(name), text).unwrap();
        write("containerd.toml", CONTAINERD);
        write("kubelet.json", &kubelet_config(&group).to_string());
        let start =
            || programs::Program::start(&cluster.folder, "containerd", &["--config=containerd.toml".to_owned()]);
        let containerd = containerd_is_up(&cluster.folder.join("containerd.log"), start).await;

        let driver = Driver::new(Profile::with_nodes([ID]), Clock::system());
        std::fs::create_dir_all(Path::new(SOCKET).parent().unwrap()).unwrap();
        let server = Server::start(&driver, Listen::unix(PathBuf::from(SOCKET), 0o600)).await.unwrap();
        let mut node = Self { cluster, _containerd: containerd, kubelet: None, driver, _server: server };
        node.start_kubelet();
        let there = || Path::new(REGISTRY).is_dir().then_some(());
        eventually("the kubelet looks for drivers", async || there()).await;
        node
    }

    fn start_kubelet(&mut self) {
        let arguments =
            ["--config=kubelet.json", "--kubeconfig=admin.kubeconfig", &format!("--hostname-override={NODE}")];
        let arguments = arguments.map(str::to_owned);
        self.kubelet = Some(programs::Program::start(&self.cluster.folder, "kubelet", &arguments));
    }

    async fn stop_kubelet(&mut self) {
        self.kubelet.take().unwrap().stop().await;
    }

    /// The daemon with the registrar alone; `section` is its configuration.
    fn daemon(&self, section: &Value) -> Program {
        let config = json!({
            "csi": {"endpoint": format!("unix://{SOCKET}")},
            "kubernetes": {"kubeconfig": self.cluster.admin_kubeconfig()},
            "diagnostics": {"listen": "127.0.0.1:0"},
            "roles": {"registrar": section},
        });
        let file = self.cluster.folder.join("registrar.json");
        std::fs::write(&file, config.to_string()).unwrap();
        Program::start(&["run", "--config", file.to_str().unwrap()], &[("NODE_NAME", NODE)])
    }

    async fn nodes(&self) -> Api<CSINode> {
        Api::all(self.cluster.client().await)
    }

    /// The driver's id of this node in its `CSINode`, if the kubelet has the driver.
    async fn known_as(&self) -> Option<String> {
        let node = self.nodes().await.get_opt(NODE).await.unwrap()?;
        node.spec.drivers.into_iter().find(|driver| driver.name == self.driver.profile().name).map(|it| it.node_id)
    }

    /// Waits until the kubelet has the driver, and the daemon knows it.
    async fn registered(&self, daemon: &Program) {
        let text = format!("the kubelet has the driver; it says:\n{}", self.last_words());
        eventually(&text, async || self.known_as().await.filter(|id| id == ID)).await;
        eventually("the daemon is ready", async || (daemon.get("/readyz").await.code == 200).then_some(())).await;
        let metrics = daemon.get("/metrics").await.body;
        assert!(metrics.contains("csi_control_plane_registrar_registered 1"), "{metrics}");
    }

    /// Waits until the kubelet has no driver.
    async fn forgotten(&self) {
        eventually("the kubelet forgets the driver", async || self.known_as().await.is_none().then_some(())).await;
    }

    /// How often the kubelet has asked the driver which node it is on: once for each registration.
    fn registrations(&self) -> usize {
        self.driver.calls_of(Method::NodeGetInfo).len()
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.cluster.folder.join("kubelet.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

#[tokio::test]
async fn a_real_kubelet_registers_the_driver_and_has_it_again_after_all_that_happens_on_a_node() {
    let mut node = Node::start().await;

    // A driver that cannot say which node it is on is refused, and registered once it can.
    let failing = Action::Fail { code: Code::Internal, message: "no disk answers".to_owned() };
    node.driver.inject(Fault::on(Method::NodeGetInfo, failing).times(1));
    let daemon = node.daemon(&json!({"directory": REGISTRY}));
    let told = daemon.logged("the kubelet does not register the driver").await;
    assert!(told["reason"].as_str().unwrap().contains("no disk answers"), "{told:#}");
    node.registered(&daemon).await;

    // The kubelet restarts: it finds the socket, and asks again.
    let before = node.registrations();
    node.stop_kubelet().await;
    node.start_kubelet();
    eventually("the kubelet asks again", async || (node.registrations() > before).then_some(())).await;
    node.registered(&daemon).await;
    assert_eq!(daemon.log().iter().filter(|line| line["reason"] == "start").count(), 1, "{}", daemon.stderr());

    // The daemon is killed: the kubelet keeps the driver, and hears of the next daemon, whose socket replaces the one that is left.
    let sockets = || -> Vec<_> { std::fs::read_dir(REGISTRY).unwrap().map(|it| it.unwrap().file_name()).collect() };
    let mut killed = daemon;
    killed.signal("KILL").await;
    assert_eq!(killed.exit().await, None);
    assert_eq!(sockets().len(), 1, "what was killed removes nothing: {:?}", sockets());
    assert_eq!(node.known_as().await.as_deref(), Some(ID));
    let before = node.registrations();
    let mut daemon = node.daemon(&json!({"directory": REGISTRY, "csiNodeInterval": "10s"}));
    eventually("the kubelet asks for the new socket", async || (node.registrations() > before).then_some(())).await;
    node.registered(&daemon).await;
    assert_eq!(sockets().len(), 1, "{:?}", sockets());

    // The registration is lost, as when somebody deletes the CSINode: the kubelet does not make it again by itself.
    let nodes = node.nodes().await;
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    assert_eq!(node.known_as().await, None);
    let announced = || daemon.log().iter().any(|line| line["reason"] == "lost");
    eventually("the driver is announced again", async || announced().then_some(())).await;
    node.registered(&daemon).await;

    // It stops in order: the kubelet forgets the driver, and nothing is left.
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    node.forgotten().await;
    assert_eq!(sockets(), Vec::<std::ffi::OsString>::new());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1, "the CSINode itself is the kubelet's");
}
