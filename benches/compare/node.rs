//! The sidecar of a node's pod: one process with the roles that need no cluster, beside a driver and a kubelet that is played.
//!
//! There is no API server, and nobody to compare with: the programs that it replaces are not built here. What is quoted of them stands in
//! [`crate::report`].

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::sandbox::driver::{Driver, Listen, Profile, Server};
use csi_control_plane::sandbox::kubelet::{Kubelet, Retries};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::arguments::Arguments;
use crate::programs::Program;
use crate::run::{Figures, Run};
use crate::{kernel, machine, report};

/// What workload and scenario are called.
pub(crate) const NAME: &str = report::NODE;

/// After so long the memory is read. Everything that the process does, it has done by then but for further probes.
const REST: Duration = Duration::from_secs(10);
/// The bound of what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks for the socket.
const LOOK: Duration = Duration::from_millis(1);
/// So many probes of the driver are answered before the memory is read.
const PROBES: usize = 5;

/// Whether it was asked for.
pub(crate) fn is_wanted(arguments: &Arguments) -> bool {
    let is_named = Arguments::wants(&arguments.workloads, NAME) && Arguments::wants(&arguments.scenarios, NAME);
    is_named && !contenders(arguments).is_empty()
}

/// How long it takes, in seconds, about.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    (REST.as_secs_f64() + 1.0) * (arguments.rounds * contenders(arguments).len()) as f64
}

/// Who takes part: ours, and another build of it.
pub(crate) fn contenders(arguments: &Arguments) -> Vec<(&'static str, PathBuf)> {
    let before = arguments.before.clone().map(|binary| (report::US_BEFORE, binary));
    let all = [(report::US, arguments.binary.clone())].into_iter().chain(before);
    all.filter(|(name, _)| Arguments::wants(&arguments.contenders, name)).collect()
}

/// Plays every round.
pub(crate) async fn play(arguments: &Arguments, occasion: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    for round in 1..=arguments.rounds {
        for (contender, binary) in contenders(arguments) {
            let load = machine::load();
            let figures = measure(&binary).await;
            let told: Vec<String> = figures.iter().map(|(name, value)| format!("{name}={value:.2}")).collect();
            eprintln!("{NAME} {round} {contender}: {}", told.join(" "));
            let (scenario, occasion) = (NAME.to_owned(), occasion.to_owned());
            runs.push(Run { scenario, contender: contender.to_owned(), round, occasion, load, figures });
        }
    }
    runs
}

async fn measure(binary: &Path) -> Figures {
    assert!(binary.is_file(), "{} is not built: `just compare` does", binary.display());
    let folder = tempfile::tempdir().unwrap();
    let [socket, registry, config] = ["csi.sock", "registry", "node.yaml"].map(|name| folder.path().join(name));
    std::fs::create_dir(&registry).unwrap();
    let driver = Driver::new(Profile::with_nodes(["node-1"]), Clock::system());
    let server = Server::start(&driver, Listen::unix(socket.clone(), 0o600)).await.unwrap();
    let kubelet = Kubelet::start(&registry, Retries::BackingOff, Clock::system(), |path| Path::new(path).to_owned());
    let probed = free();
    let yaml = json!({
        "csi": { "endpoint": format!("unix://{}", socket.display()) },
        "diagnostics": { "listen": "127.0.0.1:0" },
        "roles": {
            "liveness": { "listen": probed },
            "registrar": { "directory": registry, "kubeletRegistrationPath": socket },
        },
    });
    std::fs::write(&config, yaml.to_string()).unwrap();

    let begun = Clock::system().now();
    let arguments = ["run".to_owned(), "--config".to_owned(), config.display().to_string()];
    let mut program = Program::run(folder.path(), NAME, binary, &arguments);
    until(&mut program, LOOK, || has_socket(&registry)).await;
    let announced = begun.elapsed();
    until(&mut program, LOOK, || !kubelet.drivers().is_empty()).await;
    for _ in 0..PROBES {
        let answer = probe(probed).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    sleep(REST).await;
    program.check().unwrap();
    let process = program.id();
    let figures = Figures::from([
        ("first_ms".to_owned(), announced.as_secs_f64() * 1000.0),
        ("rss_bytes".to_owned(), kernel::memory(process).now),
        ("anonymous_bytes".to_owned(), kernel::anonymous(process)),
        ("binary_bytes".to_owned(), std::fs::metadata(binary).unwrap().len() as f64),
    ]);
    program.stop().await;
    server.stop().await;
    figures
}

/// Whether the driver is announced. Names that begin with a dot are those of sockets that are being made.
fn has_socket(registry: &Path) -> bool {
    let mut names = std::fs::read_dir(registry).unwrap().flatten().map(|entry| entry.file_name());
    names.any(|name| !name.to_string_lossy().starts_with('.'))
}

/// Waits until something holds, as long as the program runs.
async fn until(program: &mut Program, look: Duration, mut holds: impl FnMut() -> bool) {
    let held = timeout(PATIENCE, async {
        while !holds() {
            program.check().unwrap();
            sleep(look).await;
        }
    });
    held.await.expect("the sidecar starts, and the kubelet registers the driver");
}

/// A port that is free now.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The whole answer to a probe of the driver.
async fn probe(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
