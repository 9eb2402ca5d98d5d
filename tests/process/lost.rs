//! A Kubernetes API that cannot be reached for some seconds, twice: the log tells of each outage once for all roles, Leases and watches.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use csi_control_plane::process::Tasks;
use csi_control_plane::sandbox::api::kubeconfig;
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::program::{Program, role};
use super::theatre::Theatre;

/// How long the API is lost: long enough for a back-off step of the log.
const LOST: Duration = Duration::from_secs(5);

/// A road to the API that can be closed: connections break, and new ones are refused.
struct Road {
    at: SocketAddr,
    to: SocketAddr,
    open: Option<(CancellationToken, Tasks)>,
    /// Has the port as well, and never listens, so that nobody else gets it while the road is closed or opens.
    _kept: TcpSocket,
}

fn bound(at: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(at).unwrap();
    socket
}

impl Road {
    fn to(to: SocketAddr) -> Self {
        let kept = bound("127.0.0.1:0".parse().unwrap());
        let at = kept.local_addr().unwrap();
        let mut road = Self { at, to, open: None, _kept: kept };
        road.open();
        road
    }

    fn open(&mut self) {
        let listener = bound(self.at).listen(64).unwrap();
        let (closed, (tasks, _)) = (CancellationToken::new(), Tasks::new("road"));
        let (to, closing) = (self.to, closed.clone());
        tasks.spawn("road", async move {
            closing.run_until_cancelled(carry(listener, to)).await;
        });
        self.open = Some((closed, tasks));
    }

    async fn close(&mut self) {
        let (closed, tasks) = self.open.take().unwrap();
        closed.cancel();
        super::program::eventually("the road is closed", async || tasks.running().is_empty().then_some(())).await;
    }
}

/// Carries bytes between every connection and `to`. Dropped, it breaks all of them.
async fn carry(listener: TcpListener, to: SocketAddr) {
    let mut carried = futures::stream::FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut from, _) = accepted.unwrap();
                carried.push(async move {
                    let mut there = TcpStream::connect(to).await.unwrap();
                    // Its end is an error to whoever broke it.
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut there).await;
                });
            }
            Some(()) = futures::StreamExt::next(&mut carried) => {}
        }
    }
}

/// The lines about the API since the first `seen` lines; every other warning is a fault.
fn told(daemon: &Program, seen: usize) -> Vec<Value> {
    let lines = daemon.log().split_off(seen);
    let about = |line: &Value| line["message"].as_str().is_some_and(|text| text.contains("the Kubernetes API"));
    let others: Vec<&Value> = lines.iter().filter(|line| line["level"] != "INFO" && !about(line)).collect();
    assert!(others.is_empty(), "lines beside those about the outage: {others:#?}");
    let foreign = |line: &&Value| !line["target"].as_str().unwrap().starts_with("csi_control_plane");
    assert_eq!(lines.iter().find(foreign), None, "a library's line");
    lines.into_iter().filter(about).collect()
}

#[tokio::test]
async fn an_api_that_is_lost_twice_is_told_by_steps_for_all_roles_and_watches_together() {
    let theatre = Theatre::open().await;
    let mut road = Road::to(theatre.testbed.address().unwrap());
    let path = theatre.path("road.kubeconfig");
    kubeconfig::write(&path, &format!("http://{}", road.at), Some(&TestBed::token("daemon").into())).unwrap();
    let mut daemon = theatre.daemon_with("daemon", |config| {
        config["kubernetes"]["kubeconfig"] = path.to_str().unwrap().into();
        // No term ends because of an outage that is shorter.
        config["leaderElection"] = json!({"leaseDuration": "90s", "renewDeadline": "80s", "retryPeriod": "500ms"});
        for name in ["provisioner", "resizer"] {
            config["roles"][name] = json!({});
        }
    });
    theatre.attach("before");
    theatre.attached("before").await;
    for name in ["attacher", "provisioner", "resizer"] {
        daemon.plays(name, "serving").await;
    }
    for outage in 1..=2 {
        let seen = daemon.log().len();
        road.close().await;
        let volume = format!("volume-{outage}");
        theatre.attach(&volume);
        let is_told = |status: &Value| {
            let api = &status["api"];
            api["lostForSeconds"].is_number()
                && api["lastError"].as_str().is_some_and(|error| error.contains("Connection refused"))
                && status["overall"] == "degraded"
        };
        daemon.shows("the outage on the status page", is_told).await;
        // An outage lasts; that it ends by itself is nothing to wait for.
        tokio::time::sleep(LOST).await;
        road.open();
        theatre.attached(&volume).await;
        daemon.shows("no outage", |status| status["api"]["lostForSeconds"].is_null()).await;
        for name in ["attacher", "provisioner", "resizer"] {
            // A Lease's watch, too, answers again after its back-off.
            let is_well = |status: &Value| {
                let role = role(status, name);
                role["state"] == "serving" && role["lastError"].is_null()
            };
            daemon.shows(&format!("the {name} serving, without an error"), is_well).await;
        }
        let told = told(&daemon, seen);
        let count = |text: &str| told.iter().filter(|line| line["message"] == text).count();
        let (lost, still) =
            (count("the Kubernetes API does not answer"), count("the Kubernetes API still does not answer"));
        let back: Vec<&Value> =
            told.iter().filter(|line| line["message"] == "the Kubernetes API answers again").collect();
        // The second outage comes within the first back-off step of the log, and may begin without a line.
        assert!(lost <= 1 && (outage == 2 || lost == 1), "{told:#?}");
        let [back] = back[..] else { panic!("one line at the end: {told:#?}") };
        let lasted = back["lost_for_seconds"].as_f64().unwrap();
        assert!(lasted >= LOST.as_secs_f64() - 1.0, "{back}");
        // After 2 s, 6 s, 14 s and so on.
        let steps = (1..32).take_while(|step| 2_f64.powi(step + 1) - 2.0 <= lasted).count();
        assert!(still >= 1 && still <= steps, "{still} lines for {lasted} s, expected {steps} at most: {told:#?}");
        assert_eq!(told.len(), lost + still + 1, "{told:#?}");
        let levels: BTreeSet<&str> = told.iter().map(|line| line["level"].as_str().unwrap()).collect();
        assert_eq!(levels, BTreeSet::from(["INFO", "WARN"]));
    }
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
}
