//! Roles that work without the cluster: such a daemon needs nothing of it, touches nothing of it, and nothing of it
//! touches the daemon.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use csi_control_plane::process::{Clock, Tasks};
use csi_control_plane::sandbox::api::Identity;
use csi_control_plane::sandbox::driver::{Driver, Listen, Method, Profile, Server};
use csi_control_plane::sandbox::kubelet::{Deed, Kubelet, Retries};
use csi_control_plane::sandbox::testbed::TestBed;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::program::{Program, eventually, eventually_some, get, role};
use super::theatre::{DRIVER, Theatre};

/// Where the driver's socket is on the played host.
const ON_HOST: &str = "/var/lib/kubelet/plugins/demo/csi.sock";

/// A node with a driver.
struct Node {
    folder: TempDir,
    driver: Driver,
    server: Server,
}

impl Node {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let driver = Driver::new(Profile::with_nodes(["node-1"]), Clock::system());
        let server = Server::start(&driver, Listen::unix(folder.path().join("csi.sock"), 0o600)).await.unwrap();
        std::fs::create_dir(folder.path().join("registry")).unwrap();
        Self { folder, driver, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn kubelet(&self) -> Kubelet {
        let socket = self.path("csi.sock");
        let host = move |path: &str| if path == ON_HOST { socket.clone() } else { Path::new(path).to_owned() };
        Kubelet::start(&self.path("registry"), Retries::BackingOff, Clock::system(), host)
    }

    fn config(&self, address: SocketAddr) -> Value {
        json!({
            "csi": {"endpoint": format!("unix://{}", self.path("csi.sock").display())},
            // It is not even read.
            "kubernetes": {"kubeconfig": "/no/such/file"},
            "diagnostics": {"listen": address},
            "roles": {
                "liveness": {"listen": address},
                "registrar": {"kubeletRegistrationPath": ON_HOST, "directory": self.path("registry")},
            },
        })
    }

    fn write(&self, config: &Value) -> String {
        let path = self.path("config.yaml");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(config.to_string().as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A port that is free now.
pub(crate) fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The kernel gives the ports from 32768 on to whoever asks for any: to another test, before the program listens.
    let first = 20_000 + u16::try_from(std::process::id() % 100).unwrap() * 100;
    let all = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000);
    all.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).find(|address| TcpListener::bind(address).is_ok()).unwrap()
}

/// A number of `/proc/<pid>/status`, in kilobytes.
fn memory(program: &Program, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn n2_n21_l8_local_roles_alone_need_no_kubeconfig_and_open_no_connection_to_an_api() {
    let node = Node::open().await;
    let kubelet = node.kubelet();
    // The environment in which a pod finds the API server: nothing may connect there.
    let api = TcpListener::bind("127.0.0.1:0").unwrap();
    api.set_nonblocking(true).unwrap();
    let port = api.local_addr().unwrap().port().to_string();
    let address = free();
    let file = node.write(&node.config(address));
    let begun = Clock::system().now();
    let variables = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", &*port)];
    let mut daemon = Program::start(&["run", "--config", &file], &variables);
    daemon.logged("announcing the driver to the kubelet").await;
    let took = begun.elapsed();
    eventually("the kubelet has the driver", async || (kubelet.drivers() == [DRIVER]).then_some(())).await;
    eventually("it is ready", async || (daemon.get("/readyz").await.code == 200).then_some(())).await;

    // The probe of the driver, the diagnostics and the metrics on one listener.
    assert_eq!(get(address, "/healthz").await.body, "ok");
    assert_eq!(get(address, "/livez").await.body, "ok");
    let metrics = get(address, "/metrics").await.body;
    for line in [
        "csi_control_plane_driver_healthy 1",
        "csi_control_plane_registrar_registered 1",
        "csi_control_plane_registrar_announcements_total{reason=\"start\"} 1",
        "method_name=\"/csi.v1.Identity/Probe\"",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let status = daemon.status().await;
    assert_eq!(status["overall"], "healthy", "{status:#}");
    assert_eq!((&status["driver"], &status["caches"]), (&Value::Null, &json!([])));
    for name in ["liveness", "registrar"] {
        assert_eq!(role(&status, name)["state"], "serving", "{status:#}");
    }
    assert!(get(address, "/").await.body.contains("registered"), "the status page");
    println!(
        "local roles alone: announced {took:?} after the start (debug build), VmRSS {} kB, VmHWM {} kB, {} threads",
        memory(&daemon, "VmRSS"),
        memory(&daemon, "VmHWM"),
        memory(&daemon, "Threads"),
    );

    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    let unregistered = || kubelet.deeds().contains(&Deed::Unregistered(DRIVER.to_owned()));
    eventually("the kubelet forgets the driver", async || unregistered().then_some(())).await;
    assert_eq!(api.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no connection to the API");
}

#[tokio::test]
async fn without_a_driver_the_daemon_waits_and_says_so_and_ends_at_once_when_it_is_told_to() {
    let node = Node::open().await;
    node.server.restart(Duration::from_secs(3600)).await;
    let address = free();
    let file = node.write(&node.config(address));
    let mut daemon = Program::start(&["run", "--config", &file], &[]);
    daemon.logged("answering the kubelet's probe of the driver, beside the diagnostics").await;
    let answer = get(address, "/healthz").await;
    assert!(answer.code == 500 && answer.body.contains("cannot connect to the driver's socket"), "{answer:?}");
    let ready = eventually("the reason", async || {
        Some(daemon.get("/readyz").await).filter(|answer| answer.body.contains("waiting for the driver: cannot"))
    });
    assert_eq!(ready.await.code, 500);
    assert_eq!(daemon.get("/livez").await.code, 200);
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
    drop(node.driver);
}

/// The numbers of a process's open files.
fn descriptors(program: &Program) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", program.id())).unwrap().count()
}

#[tokio::test]
async fn l3_a_thousand_probes_leave_the_process_no_descriptor_and_no_thread_more() {
    let node = Node::open().await;
    let (address, diagnostics) = (free(), free());
    let mut config = node.config(diagnostics);
    config["roles"]["liveness"] = json!({ "listen": address, "probeTimeout": "60s" });
    let file = node.write(&config);
    let mut daemon = Program::start(&["run", "--config", &file], &[]);
    daemon.logged("answering the kubelet's probe of the driver").await;
    // The other role's socket is one of its descriptors, too, and may come later.
    daemon.logged("announcing the driver to the kubelet").await;
    let probes = |count: usize| {
        // As many at once as each have a check of their own.
        stream::iter(0..count).map(|_| get(address, "/healthz")).buffer_unordered(4).map(|answer| answer.code)
    };
    assert_eq!(probes(20).collect::<Vec<_>>().await, [200; 20]);
    let has = |program: &Program| (descriptors(program), memory(program, "Threads"));
    // The connections of the last probes, and that which asked for the driver's name, end at once.
    let before = eventually("it rests", async || {
        let now = has(&daemon);
        sleep(Duration::from_millis(200)).await;
        (has(&daemon) == now).then_some(now)
    });
    let before = before.await;
    let asked = node.driver.calls_of(Method::Probe).len();
    assert!(probes(1_000).all(|code| async move { code == 200 }).await);
    assert!(node.driver.calls_of(Method::Probe).len() - asked >= 1_000, "each has asked the driver");
    // Fewer are no fault: the runtime ends a thread that had nothing to do for a second.
    let mut now = before;
    let ended = eventually_some(async || {
        now = has(&daemon);
        (now.0 <= before.0 && now.1 <= before.1).then_some(())
    });
    let ended = ended.await;
    assert!(ended.is_some(), "{now:?} descriptors and threads are left, and there were {before:?}");
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
}

#[tokio::test]
async fn l13_no_reload_closes_the_port_of_the_driver_s_probe() {
    let node = Node::open().await;
    let (address, diagnostics) = (free(), free());
    let mut config = node.config(diagnostics);
    config["roles"]["liveness"] = json!({ "listen": address });
    let file = node.write(&config);
    let mut daemon = Program::start(&["run", "--config", &file], &[]);
    let kubelet = node.kubelet();
    eventually("the kubelet has the driver", async || (kubelet.drivers() == [DRIVER]).then_some(())).await;
    let (probes, _) = Tasks::new("probes");
    let (failed, mut failures) = tokio::sync::mpsc::unbounded_channel();
    probes.spawn("probes", async move {
        loop {
            let answer = get(address, "/healthz").await;
            if answer.code != 200 {
                let _ = failed.send(answer);
            }
        }
    });
    config["csi"]["timeout"] = "20s".into();
    config["roles"]["registrar"]["onShutdown"] = "keep".into();
    node.write(&config);
    daemon.signal("HUP").await;
    let changed = daemon.logged("the configuration has changed").await;
    assert!(!changed["restarted"].to_string().contains("registrar"), "{changed}");
    assert!(failures.try_recv().is_err());

    // A role of the cluster cannot be added: nothing that it needs is there.
    config["roles"]["attacher"] = json!({});
    node.write(&config);
    daemon.signal("HUP").await;
    let refused = daemon.logged("the new configuration is refused, the old one stays").await;
    assert!(refused["summary"].as_str().unwrap().contains("roles.attacher needs a restart"), "{refused}");
    // A change of its own section does not close it either.
    config["roles"].as_object_mut().unwrap().remove("attacher");
    config["roles"]["liveness"]["probeTimeout"] = "20s".into();
    node.write(&config);
    daemon.signal("HUP").await;
    let taken_over = |line: &Value| line["keys"].to_string().contains("probeTimeout");
    let line = eventually("the limit is another", async || daemon.log().iter().find(|line| taken_over(line)).cloned());
    assert!(!line.await["restarted"].to_string().contains("liveness"));
    assert!(failures.try_recv().is_err());
    drop(probes);
    config["roles"]["liveness"]["path"] = "/driver".into();
    node.write(&config);
    daemon.signal("HUP").await;
    let listens = |line: &Value| line["message"] == "answering the kubelet's probe of the driver";
    let twice = async || (daemon.log().iter().filter(|line| listens(line)).count() == 2).then_some(());
    eventually("it has the other path", twice).await;
    assert_eq!(get(address, "/driver").await.code, 200);
    // No change of the file was one for the kubelet.
    let deeds = kubelet.deeds();
    assert!(matches!(deeds.as_slice(), [Deed::Registered(_)]), "{deeds:?}");
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
    assert_eq!(node.kubelet_files(), 1, "onShutdown: keep");
}

impl Node {
    /// How many files are in the kubelet's directory.
    fn kubelet_files(&self) -> usize {
        std::fs::read_dir(self.path("registry")).unwrap().count()
    }
}

#[tokio::test]
async fn l11_what_happens_to_other_roles_does_not_change_the_answer_about_the_driver() {
    let theatre = Theatre::open().await;
    let address = free();
    let mut daemon = theatre.daemon_with("daemon", |config| {
        config["roles"]["liveness"] = json!({ "listen": address });
    });
    daemon.is("serving").await;
    assert_eq!(get(address, "/healthz").await.code, 200);
    // Neither the Lease nor the API server is to be had any more.
    theatre.testbed.api.admit(TestBed::token("daemon"), Identity::limited("nobody", Vec::new()));
    let lost = async || (role(&daemon.status().await, "attacher")["state"] != "serving").then_some(());
    eventually("the attacher has lost its Lease", lost).await;
    assert_eq!(get(address, "/healthz").await.body, "ok");
    assert_eq!(role(&daemon.status().await, "liveness")["state"], "serving");
    daemon.signal("TERM").await;
    daemon.exit().await;
}
