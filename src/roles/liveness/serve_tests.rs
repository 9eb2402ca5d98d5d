//! The rows of the specification over HTTP and a real driver's socket.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use super::{LivenessSection, NAME, REGISTRATION};
use crate::diagnostics::Overall;
use crate::process::watch;
use crate::roles::kit::local::{Beside, Serving, until};
use crate::sandbox::driver::{Action, Fault, Lie, Method, Server};

/// The role, beside a driver.
struct Stage {
    beside: Beside,
    serving: Serving,
    address: String,
}

impl Stage {
    async fn open(section: Value) -> Self {
        let beside = Beside::a_driver();
        let mut whole = json!({ "listen": "127.0.0.1:0" });
        whole.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
        let serving = beside.serve(&REGISTRATION, &whole);
        until("it listens", async || beside.fact(NAME, "listening on").is_some()).await;
        let address = beside.fact(NAME, "listening on").unwrap();
        Self { beside, serving, address }
    }

    /// The same with a driver that runs.
    async fn with_driver(section: Value) -> (Self, Server) {
        let stage = Self::open(section).await;
        let server = stage.beside.start_driver().await;
        (stage, server)
    }

    async fn ask(&self, method: &str) -> (u16, String) {
        self.ask_for(method, "/healthz").await
    }

    async fn ask_for(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The answer to a probe.
    async fn probe(&self) -> (u16, String) {
        self.ask("GET").await
    }

    async fn is_healthy(&self) {
        assert_eq!(self.probe().await, (200, "ok".to_owned()));
    }

    async fn is_unhealthy(&self, reason: &str) {
        let (status, body) = self.probe().await;
        assert!(status == 500 && body.contains(reason), "{status} {body}");
    }
}

/// A limit that no check reaches on a busy machine.
fn patient() -> watch::Receiver<LivenessSection> {
    watch::channel(LivenessSection { probe_timeout: Duration::from_secs(60), ..LivenessSection::default() }).1
}

#[tokio::test]
async fn l1_a_driver_that_is_not_ready_is_unhealthy_and_nothing_crashes() {
    let (stage, _server) = Stage::with_driver(json!({})).await;
    stage.is_healthy().await;
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Lie(Lie::NotReady)));
    stage.is_unhealthy("driver responded but is not ready").await;
    stage.beside.driver.clear_faults();
    stage.is_healthy().await;
}

#[tokio::test]
async fn l2_a_socket_file_that_is_removed_under_a_living_driver_is_unhealthy() {
    let (stage, _server) = Stage::with_driver(json!({})).await;
    let link = stage.beside.context.driver.connect(Duration::from_secs(30)).await.unwrap();
    stage.is_healthy().await;
    fs::remove_file(stage.beside.socket()).unwrap();
    stage.is_unhealthy("No such file or directory").await;
    assert!(link.probe(Duration::from_secs(30)).await.unwrap(), "the old connection lives");
}

/// The descriptors of this process that are sockets to the driver cannot be told from those of other tests, so that the driver counts.
#[tokio::test(flavor = "multi_thread")]
async fn l3_ten_thousand_checks_leave_no_connection_and_no_task() {
    let beside = Beside::a_driver();
    let _server = beside.start_driver().await;
    let checks = super::checks::Checks::new(beside.context.clone(), patient());
    let runtime = tokio::runtime::Handle::current().metrics();
    assert!(checks.answer().await.is_healthy());
    let before = beside.driver.connections();
    until("the first connection is closed", async || runtime.num_alive_tasks() < 40).await;
    let tasks = runtime.num_alive_tasks();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let open = descriptors();
    for _ in 0..10_000 {
        assert!(checks.answer().await.is_healthy());
    }
    assert_eq!(beside.driver.connections() - before, 10_000, "each check has a connection of its own");
    until("all tasks have ended", async || runtime.num_alive_tasks() <= tasks).await;
    // Other tests of this process open and close files meanwhile: never ten thousand.
    assert!(descriptors() < open + 1_000, "{open} descriptors before, {} after", descriptors());
}

#[tokio::test]
async fn l4_a_driver_that_nobody_can_connect_to_is_unhealthy() {
    let (stage, server) = Stage::with_driver(json!({})).await;
    stage.is_healthy().await;
    server.stop().await;
    // A file without a process behind it.
    drop(std::os::unix::net::UnixListener::bind(stage.beside.socket()).unwrap());
    stage.is_unhealthy("Connection refused").await;
    stage.is_unhealthy(&stage.beside.context.endpoint).await;
}

#[tokio::test]
async fn l5_the_port_is_open_before_the_driver_is_there_and_says_why() {
    let stage = Stage::open(json!({})).await;
    stage.is_unhealthy("No such file or directory").await;
    assert_eq!(stage.beside.fact(NAME, "driver").unwrap(), "not healthy");
    let report = stage.beside.report(NAME);
    assert_eq!(report.overall, Overall::Failing, "no role of the cluster has to say so");
    let failure = report.roles[0].failure.as_ref().unwrap();
    let (age, reason) = failure.strip_prefix("at the last check, ").unwrap().split_once(" ago: ").unwrap();
    assert!(age.ends_with('s') && reason.contains("No such file"), "{failure}");
    let _server = stage.beside.start_driver().await;
    stage.is_healthy().await;
    assert_eq!(stage.beside.fact(NAME, "driver").unwrap(), "healthy");
    assert_eq!(stage.beside.report(NAME).overall, Overall::Healthy);
}

#[tokio::test]
async fn l6_a_probe_may_take_almost_as_long_as_its_limit() {
    let (stage, _server) = Stage::with_driver(json!({ "probeTimeout": "60s" })).await;
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Delay(Duration::from_millis(2900))));
    stage.is_healthy().await;
    assert_eq!(LivenessSection::default().probe_timeout, Duration::from_secs(3));
}

#[tokio::test]
async fn l7_only_a_change_of_the_answer_is_logged() {
    // `decide` has the rule; this counts what reaches the log.
    let stage = Stage::open(json!({})).await;
    let warnings = crate::roles::kit::fixtures::Warnings::begin();
    for _ in 0..20 {
        stage.is_unhealthy("No such file").await;
    }
    let _server = stage.beside.start_driver().await;
    for _ in 0..20 {
        stage.is_healthy().await;
    }
    assert!(warnings.count() <= 1, "{:?}", warnings.errors());
}

#[tokio::test]
async fn l9_each_answer_is_of_its_own_moment() {
    let (stage, _server) = Stage::with_driver(json!({ "probeTimeout": "500ms" })).await;
    stage.is_healthy().await;
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Hang));
    stage.is_unhealthy("driver did not answer Probe within 500ms").await;
    stage.beside.driver.clear_faults();
    until("healthy again", async || stage.probe().await.0 == 200).await;
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::fail(Code::Internal, "no backend")));
    stage.is_unhealthy("rpc error: code = Internal desc = no backend").await;
}

#[tokio::test]
async fn l10_a_check_that_hangs_does_not_keep_another_from_its_answer() {
    let (stage, _server) = Stage::with_driver(json!({ "probeTimeout": "60s" })).await;
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Hang).once());
    let mut first = TcpStream::connect(&stage.address).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    until("the first check hangs", async || stage.beside.driver.calls_of(Method::Probe).len() == 1).await;
    stage.is_healthy().await;
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(1), first.read(&mut byte)).await.is_err(), "it still waits");
    // The client goes away, and with it the call.
    drop(first);
}

#[tokio::test]
async fn a_fifth_request_joins_the_youngest_check() {
    let (stage, _server) = Stage::with_driver(json!({})).await;
    let checks = super::checks::Checks::new(stage.beside.context.clone(), patient());
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Delay(Duration::from_millis(300))));
    let answers = futures::future::join_all((0..9).map(|_| checks.answer())).await;
    assert!(answers.iter().all(|answer| answer.is_healthy()));
    assert_eq!(stage.beside.driver.calls_of(Method::Probe).len(), 4);
    assert!(checks.answer().await.is_healthy());
    assert_eq!(stage.beside.driver.calls_of(Method::Probe).len(), 5, "an answer that is there is not joined");
}

#[tokio::test]
async fn l12_checks_survive_restarts_of_the_driver() {
    let (stage, server) = Stage::with_driver(json!({})).await;
    for _ in 0..3 {
        stage.is_healthy().await;
        server.restart(Duration::from_millis(50)).await;
        stage.is_unhealthy("cannot connect to the driver's socket").await;
        server.up().await;
    }
    stage.is_healthy().await;
}

#[tokio::test]
async fn only_get_and_head_are_answered() {
    let (stage, _server) = Stage::with_driver(json!({})).await;
    assert_eq!(stage.ask("HEAD").await, (200, String::new()));
    assert_eq!(stage.ask("POST").await.0, 405);
    assert_eq!(stage.beside.driver.calls_of(Method::Probe).len(), 1, "HEAD asks, POST does not");
}

/// Port 0 is another one for each new listener, so that the same address is the same listener.
#[tokio::test]
async fn l13_a_changed_section_is_taken_over_by_the_listener_that_is_there() {
    let (stage, _server) = Stage::with_driver(json!({ "probeTimeout": "60s" })).await;
    // A connection that waits to be accepted, one that waits for its answer, and one whose request comes later.
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Hold).once());
    let mut asked = TcpStream::connect(&stage.address).await.unwrap();
    asked.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    until("the check waits", async || stage.beside.driver.calls_of(Method::Probe).len() == 1).await;
    let mut later = TcpStream::connect(&stage.address).await.unwrap();

    let changed = json!({ "listen": "127.0.0.1:0", "path": "/driver", "probeTimeout": "500ms" });
    assert!(stage.serving.take_over(&changed));
    assert_eq!(stage.ask_for("GET", "/driver").await, (200, "ok".to_owned()), "at once");
    assert_eq!(stage.ask_for("POST", "/driver").await.0, 405);
    assert_eq!(stage.probe().await, (404, "not found\n".to_owned()));
    assert_eq!(stage.beside.fact(NAME, "listening on").unwrap(), stage.address);
    // What was asked before has its answer, by the limit of then, and a connection from before asks by the section of now.
    stage.beside.driver.release();
    let mut answer = String::new();
    asked.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok"), "{answer}");
    stage.beside.driver.inject(Fault::on(Method::Probe, Action::Hang));
    later.write_all(b"GET /driver HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    later.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("driver did not answer Probe within 500ms"), "{answer}");
}

#[tokio::test]
async fn l13_another_address_needs_another_listener() {
    let (stage, _server) = Stage::with_driver(json!({})).await;
    assert!(!stage.serving.take_over(&json!({ "listen": "127.0.0.1:1" })));
    assert!(!stage.serving.take_over(&json!({ "listen": "nowhere" })));
    stage.is_healthy().await;
}

#[tokio::test]
async fn l13_the_page_beside_the_diagnostics_follows_its_section() {
    let mut beside = Beside::a_driver();
    let _server = beside.start_driver().await;
    beside.context.diagnostics = Some("127.0.0.1:8080".parse().unwrap());
    let section = |path: &str| json!({ "listen": "127.0.0.1:8080", "path": path });
    let serving = beside.serve(&REGISTRATION, &section("/healthz"));
    let has = |path: &str| beside.context.board.find_page(path).is_some();
    until("the page is there", async || has("/healthz")).await;
    assert!(serving.take_over(&section("/driver")));
    until("it is at the other path", async || has("/driver") && !has("/healthz")).await;
    let page = beside.context.board.find_page("/driver").unwrap();
    let request = axum::http::Request::get("/driver").body(axum::body::Body::empty()).unwrap();
    assert_eq!(tower::ServiceExt::oneshot(page, request).await.unwrap().status(), 200);
    serving.end().await;
    assert!(!has("/driver"));
}
