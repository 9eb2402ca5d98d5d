//! The rows N1 to N23 with a played kubelet and a real driver, over unix sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

use super::{NAME, REGISTRATION};
use crate::csi::CsiOptions;
use crate::process::MAX_SOCKET_PATH;
use crate::proto::pluginregistration::registration_client::RegistrationClient;
use crate::proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use crate::roles::kit::local::{Beside, Serving, until};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Server};
use crate::sandbox::kubelet::{Deed, Kubelet, Retries, connect};

#[path = "serve_authority_tests.rs"]
mod authority;
#[path = "serve_csi_node_tests.rs"]
mod csi_node;
#[path = "serve_health_tests.rs"]
mod health;

const DRIVER: &str = "demo.csi.example.com";
/// Where the driver's socket is on the played host.
const ON_HOST: &str = "/var/lib/kubelet/plugins/demo/csi.sock";

/// A node: its kubelet's directory, and a driver that may run.
struct Node {
    beside: Beside,
    registry: PathBuf,
}

impl Node {
    fn new() -> Self {
        Self::with_timeout(CsiOptions::default().timeout)
    }

    /// With a driver that runs.
    async fn with_driver() -> (Self, Server) {
        let node = Self::new();
        let server = node.beside.start_driver().await;
        (node, server)
    }

    /// With this deadline of a call.
    fn with_timeout(timeout: Duration) -> Self {
        let beside = Beside::a_driver_with(timeout);
        let registry = beside.path("plugins_registry");
        fs::create_dir(&registry).unwrap();
        Self { beside, registry }
    }

    fn socket(&self) -> PathBuf {
        self.registry.join(format!("{DRIVER}-reg.sock"))
    }

    /// A kubelet starts, which tries a socket again that it has refused.
    fn kubelet(&self) -> Kubelet {
        self.kubelet_that(Retries::BackingOff)
    }

    fn kubelet_that(&self, retries: Retries) -> Kubelet {
        let socket = self.beside.socket();
        let host = move |path: &str| if path == ON_HOST { socket.clone() } else { PathBuf::from(path) };
        Kubelet::start(&self.registry, retries, self.beside.context.clock, host)
    }

    fn registrar(&self) -> Serving {
        self.registrar_with(&json!({}))
    }

    fn registrar_with(&self, section: &Value) -> Serving {
        self.beside.serve(&REGISTRATION, &self.section(section))
    }

    /// The whole section, with these keys besides.
    fn section(&self, besides: &Value) -> Value {
        let mut whole = json!({ "kubeletRegistrationPath": ON_HOST, "directory": self.registry });
        whole.as_object_mut().unwrap().extend(besides.as_object().unwrap().clone());
        whole
    }

    /// The answer of `healthListen`, where it listens.
    async fn health(&self) -> Option<String> {
        self.ask("/healthz").await
    }

    async fn ask(&self, path: &str) -> Option<String> {
        let address = self.beside.fact(NAME, "health port")?;
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    async fn answers_on_its_health_port(&self) {
        let is_well = |answer: String| answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok");
        until("the health port answers", async || self.health().await.is_some_and(is_well)).await;
    }

    fn state(&self) -> String {
        self.beside.fact(NAME, "registration").unwrap_or_default()
    }

    async fn shows(&self, state: &str) {
        until(&format!("the state {state:?}"), async || self.state().contains(state)).await;
    }

    fn is_ready(&self) -> bool {
        self.beside.context.board.readyz().conditions.iter().all(|condition| condition.failure.is_none())
    }

    fn announcements(&self) -> u64 {
        self.beside.fact(NAME, "announcements").unwrap().parse().unwrap()
    }
}

async fn registered(kubelet: &Kubelet) {
    until("the kubelet has the driver", async || kubelet.drivers() == [DRIVER]).await;
}

fn registrations(kubelet: &Kubelet) -> usize {
    kubelet.deeds().iter().filter(|deed| matches!(deed, Deed::Registered(_))).count()
}

#[tokio::test]
async fn n1_n11_n20_n21_a_driver_is_registered_over_a_stale_socket_with_protocol_v1_and_without_a_cluster() {
    let node = Node::new();
    drop(std::os::unix::net::UnixListener::bind(node.socket()).unwrap());
    let _server = node.beside.start_driver().await;
    let _serving = node.registrar();
    let kubelet = node.kubelet();
    registered(&kubelet).await;
    let info = PluginInfo {
        r#type: "CSIPlugin".into(),
        name: DRIVER.into(),
        endpoint: ON_HOST.into(),
        supported_versions: vec!["1.0.0".into()],
    };
    assert_eq!(kubelet.deeds().last(), Some(&Deed::Registered(info)));
    node.shows("registered").await;
    assert!(node.is_ready());
    assert_eq!(fs::metadata(node.socket()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn n2_the_socket_goes_with_the_daemon_and_the_kubelet_forgets_the_driver() {
    let (node, _server) = Node::with_driver().await;
    let (serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    serving.end().await;
    assert!(!node.socket().exists());
    until("the driver is gone", async || kubelet.drivers().is_empty()).await;
    assert_eq!(fs::read_dir(&node.registry).unwrap().count(), 0);
}

#[tokio::test]
async fn a_registration_that_is_to_stay_stays() {
    let (node, _server) = Node::with_driver().await;
    let (serving, kubelet) = (node.registrar_with(&json!({ "onShutdown": "keep" })), node.kubelet());
    registered(&kubelet).await;
    serving.end().await;
    assert!(node.socket().exists());
    let _successor = node.registrar();
    until("the successor is registered", async || registrations(&kubelet) == 2).await;
}

#[tokio::test]
async fn n3_a_file_in_the_way_is_a_fault_and_untouched() {
    let (node, _server) = Node::with_driver().await;
    fs::write(node.socket(), "precious").unwrap();
    let (_serving, kubelet) = (node.registrar(), node.kubelet());
    node.shows("exists and is not a socket").await;
    assert!(!node.is_ready());
    assert_eq!(fs::read_to_string(node.socket()).unwrap(), "precious");
    fs::remove_file(node.socket()).unwrap();
    registered(&kubelet).await;
}

#[tokio::test]
async fn n6_a_missing_directory_is_not_made() {
    let (node, _server) = Node::with_driver().await;
    fs::remove_dir(&node.registry).unwrap();
    let _serving = node.registrar();
    node.shows("does not exist").await;
    assert!(!node.is_ready() && !node.registry.exists());
    fs::create_dir(&node.registry).unwrap();
    registered(&node.kubelet()).await;
}

#[tokio::test]
async fn n5_n8_a_driver_that_answers_slowly_is_registered_and_stays_so() {
    let limit = Duration::from_millis(1500);
    let node = Node::with_timeout(limit);
    let slow = Action::Delay(Duration::from_secs(1));
    node.beside.driver.inject(Fault::on(Method::GetPluginInfo, slow).once());
    let _server = node.beside.start_driver().await;
    let (serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    // Every deadline of the start is over then, and the kubelet's next start finds the socket served.
    let over = node.beside.context.clock.now() + limit + Duration::from_secs(1);
    until("the deadline of the start is over", async || node.beside.context.clock.now() > over).await;
    assert_eq!(super::self_check::ask(&node.socket()).await.unwrap().name, DRIVER);
    registered(&node.kubelet()).await;
    assert_eq!(node.announcements(), 1);
    serving.end().await;
}

#[tokio::test]
async fn n12_n19_a_refusal_is_visible_and_heals_with_the_driver() {
    let node = Node::new();
    let broken = Action::fail(Code::Unavailable, "no such instance");
    node.beside.driver.inject(Fault::on(Method::NodeGetInfo, broken).times(2));
    let _server = node.beside.start_driver().await;
    let (_serving, kubelet) = (node.registrar(), node.kubelet_that(Retries::Never));
    node.shows("kubelet refused: NodeGetInfo: no such instance").await;
    assert!(!node.is_ready());
    registered(&kubelet).await;
    node.shows("registered").await;
    let refused = kubelet.deeds().iter().filter(|deed| matches!(deed, Deed::Refused(_))).count();
    assert_eq!((refused, node.beside.fact(NAME, "refusals").unwrap().as_str()), (2, "2"));
    assert_eq!(node.announcements(), 3, "a kubelet that does not try again by itself sees a new file");
    assert!(node.is_ready());
}

#[tokio::test]
async fn n13_in_a_roll_out_the_file_of_the_new_instance_stays() {
    let (node, _server) = Node::with_driver().await;
    let (old, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    let new = node.registrar();
    until("the new instance is registered", async || registrations(&kubelet) == 2).await;
    let file = super::socket::look(&node.registry, &node.socket(), None);
    assert_eq!(file, super::decide::Place::AnotherSocket);
    old.end().await;
    assert!(node.socket().exists());
    assert_eq!(kubelet.drivers(), [DRIVER]);
    new.end().await;
    assert!(!node.socket().exists());
}

#[tokio::test]
async fn n14_a_file_that_another_process_removes_is_announced_again() {
    let (node, _server) = Node::with_driver().await;
    let (_serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    fs::remove_file(node.socket()).unwrap();
    until("registered again", async || registrations(&kubelet) == 2).await;
    assert_eq!(node.announcements(), 2);
}

#[tokio::test]
async fn n15_a_kubelet_that_restarts_is_answered_without_a_write() {
    let (node, _server) = Node::with_driver().await;
    let _serving = node.registrar();
    for _ in 0..3 {
        let kubelet = node.kubelet();
        registered(&kubelet).await;
        node.shows("registered").await;
    }
    assert_eq!(node.announcements(), 1);
}

#[tokio::test]
async fn n16_a_driver_that_restarts_alone_is_not_announced_again() {
    let (node, server) = Node::with_driver().await;
    let (_serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    let asked = node.beside.driver.calls_of(Method::GetPluginInfo).len();
    server.restart(Duration::from_millis(200)).await;
    let again = async || node.beside.driver.calls_of(Method::GetPluginInfo).len() > asked;
    until("the driver is asked for its name again", again).await;
    assert_eq!((node.announcements(), registrations(&kubelet)), (1, 1));
    assert_eq!(kubelet.drivers(), [DRIVER]);
}

#[tokio::test]
async fn n17_n18_nothing_is_announced_before_the_driver_answers_whatever_is_there() {
    let node = Node::new();
    drop(std::os::unix::net::UnixListener::bind(node.socket()).unwrap());
    let _serving = node.registrar();
    node.shows("waiting for the driver: cannot connect to the driver's socket").await;
    assert!(!node.is_ready());
    node.beside.driver.inject(Fault::on(Method::Probe, Action::Lie(Lie::NotReady)));
    let _server = node.beside.start_driver().await;
    node.shows("waiting for the driver: the driver is not ready yet").await;
    assert_eq!(node.announcements(), 0);
    node.beside.driver.clear_faults();
    registered(&node.kubelet()).await;
}

#[tokio::test]
async fn a_kubelet_that_starts_first_or_last_finds_the_driver() {
    for kubelet_first in [true, false] {
        let node = Node::new();
        let early = kubelet_first.then(|| node.kubelet());
        let _serving = node.registrar();
        let _server = node.beside.start_driver().await;
        until("it is announced", async || node.socket().exists()).await;
        let kubelet = early.unwrap_or_else(|| node.kubelet());
        registered(&kubelet).await;
    }
}

#[tokio::test]
async fn n23_a_driver_is_registered_through_a_path_of_107_bytes_and_a_longer_one_is_shown_with_both_lengths() {
    let mut node = Node::new();
    let _server = node.beside.start_driver().await;
    let folder = |length: usize| node.beside.path(&"x".repeat(length - node.beside.path("").as_os_str().len()));
    // A slash and the socket's name follow.
    let room = MAX_SOCKET_PATH - 1 - node.socket().file_name().unwrap().len();
    let [fits, longer] = [room, room + 1].map(folder);
    for directory in [&fits, &longer] {
        fs::create_dir(directory).unwrap();
    }
    node.registry = longer;
    let serving = node.registrar();
    node.shows("has 108 bytes, its last part 29 of them; unix sockets allow at most 107").await;
    assert!(!node.is_ready());
    serving.kill();
    let serving =
        node.registrar_with(&json!({"directory": fits, "kubeletRegistrationPath": format!("/{}", "x".repeat(107))}));
    node.shows("has 108 bytes, its last part 107 of them").await;
    serving.kill();
    node.registry = fits;
    assert_eq!(node.socket().as_os_str().len(), 107);
    let (_serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
}

#[tokio::test]
async fn a_killed_instances_file_is_replaced_by_the_next_one() {
    let (node, _server) = Node::with_driver().await;
    let (serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    serving.kill();
    assert!(node.socket().exists());
    assert_eq!(kubelet.drivers(), [DRIVER], "the kubelet keeps it");
    let _next = node.registrar();
    until("the next one is registered", async || registrations(&kubelet) == 2).await;
}

#[tokio::test]
async fn a_driver_that_comes_back_with_another_name_is_registered_under_that() {
    let (node, server) = Node::with_driver().await;
    let (_serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    node.beside.driver.change_profile(|profile| profile.name = "other.csi".to_owned());
    server.restart(Duration::from_millis(50)).await;
    until("the new name", async || kubelet.drivers() == ["other.csi"]).await;
    assert!(!node.socket().exists());
    assert!(kubelet.deeds().contains(&Deed::Unregistered(DRIVER.to_owned())));
}

#[tokio::test]
async fn a_changed_configuration_unregisters_nothing_that_the_kubelet_need_not_ask_anew() {
    let (node, _server) = Node::with_driver().await;
    let (serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    let keys = json!({ "onShutdown": "keep", "withdrawAfter": "10s", "healthListen": "127.0.0.1:0" });
    assert!(serving.take_over(&node.section(&keys)));
    node.answers_on_its_health_port().await;
    assert!(serving.take_over(&node.section(&json!({ "onShutdown": "keep" }))));
    until("the health port is closed", async || node.beside.fact(NAME, "health port").is_none()).await;
    assert_eq!((node.announcements(), kubelet.deeds().len()), (1, 1), "{:?}", kubelet.deeds());

    // The kubelet learns another path of the driver's socket from a new file only.
    let elsewhere = json!({ "onShutdown": "keep", "kubeletRegistrationPath": node.beside.socket() });
    assert!(serving.take_over(&node.section(&elsewhere)));
    until("it is registered with the other path", async || registrations(&kubelet) == 2).await;
    let Some(Deed::Registered(info)) = kubelet.deeds().pop() else { panic!("{:?}", kubelet.deeds()) };
    assert_eq!(Path::new(&info.endpoint), node.beside.socket());
    serving.end().await;
    assert!(node.socket().exists(), "the changed onShutdown counts");
}

#[tokio::test]
async fn another_directory_gets_the_socket_and_the_old_one_keeps_nothing() {
    let (node, _server) = Node::with_driver().await;
    let (serving, kubelet) = (node.registrar(), node.kubelet());
    registered(&kubelet).await;
    let other = node.beside.path("other_registry");
    assert!(serving.take_over(&node.section(&json!({ "directory": other }))));
    until("the old one is empty", async || !node.socket().exists()).await;
    node.shows("other_registry does not exist").await;
    fs::create_dir(&other).unwrap();
    until("the new one has it", async || fs::read_dir(&other).unwrap().count() == 1).await;
    serving.end().await;
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

/// A kubelet that calls the driver for up to two minutes speaks of the file that it found before.
#[tokio::test]
async fn a_late_verdict_on_a_socket_that_was_replaced_is_not_taken() {
    for late in [true, false] {
        let node = Node::new();
        let _server = node.beside.start_driver().await;
        let _serving = node.registrar();
        until("it is announced", async || node.socket().exists()).await;
        let mut old = RegistrationClient::new(connect(&node.socket()).await.unwrap());
        old.get_info(InfoRequest {}).await.unwrap();
        node.shows("kubelet has asked").await;
        fs::remove_file(node.socket()).unwrap();
        until("it is announced again", async || node.announcements() == 2).await;
        node.shows("announced to the kubelet").await;
        let verdict = |plugin_registered| RegistrationStatus { plugin_registered, error: String::new() };
        old.notify_registration_status(verdict(late)).await.unwrap();
        // What the new socket hears comes after it.
        let mut new = RegistrationClient::new(connect(&node.socket()).await.unwrap());
        new.get_info(InfoRequest {}).await.unwrap();
        node.shows("kubelet has asked").await;
        assert!(!node.is_ready(), "the kubelet has not registered the new socket yet");
        assert_eq!(node.beside.fact(NAME, "refusals").unwrap(), "0");
        new.notify_registration_status(verdict(true)).await.unwrap();
        node.shows("registered").await;
        assert!(node.is_ready());
    }
}
