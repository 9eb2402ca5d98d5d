//! The `sandbox` verb: sets up the testbed on this machine, starts the daemon, and plays the demo.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};
use serde_yaml::Value;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::actors::SnapshotHabits;
use super::api::{Token, kubeconfig};
use super::demo::{self, Backend, BackendError, Demo, Machine, Narrator, Own, StoryError};
use super::driver::{GIB, Node, Pool, Profile, Refusal};
use super::kubelet::{Kubelet, Retries};
use super::testbed::{ADMIN_TOKEN, TestBed, TestBedError, Transport};
use crate::config::{self, File, ReadError, Rejected, Sources};
use crate::csi::{Endpoint, EndpointError};
use crate::process::{Clock, Rng};
use crate::roles::{self, Kind, ROLES, Registration, SandboxDriver, SandboxNode};
use crate::telemetry::{LogFormat, LogSettings, Meter, Telemetry, TelemetryError, TelemetrySettings, TraceSettings};

/// The label of the demo driver's nodes that says where they are.
const ZONE: &str = "topology.demo.csi.example.com/zone";

/// The sandbox did not come to a good end.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// The sandbox's folder or a file in it could not be made.
    #[error("cannot prepare {}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The user's configuration cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The user's configuration has faults.
    #[error(transparent)]
    Config(#[from] Rejected),
    /// The configurations could not be merged.
    #[error("cannot merge the configuration with the sandbox's own")]
    Merge(#[from] serde_yaml::Error),
    /// Logs could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The address of the user's driver makes no sense.
    #[error("--csi-endpoint")]
    Endpoint(#[from] EndpointError),
    /// The user's driver cannot be driven.
    #[error("cannot use this driver in the sandbox")]
    Backend(#[from] BackendError),
    /// The testbed could not be set.
    #[error(transparent)]
    TestBed(#[from] TestBedError),
    /// The demo did not come to its end.
    #[error("the demo did not finish")]
    Demo(#[from] StoryError),
    /// A second signal came while the sandbox stopped.
    #[error("interrupted before the daemon had stopped and released its leases")]
    Interrupted,
    /// What a demo driver alone is told to be makes no sense.
    #[error("{} is no profile of the demo driver", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
    /// The storage of a demo driver alone cannot be used.
    #[error("cannot use the storage: {0}")]
    Storage(Refusal),
    /// Signals cannot be listened for.
    #[error("cannot wait for Ctrl-C")]
    Signal(#[source] io::Error),
}

/// The options of the sandbox.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Stay up after the demo.
    pub keep: bool,
    /// The user's own driver; none: the demo driver.
    pub endpoint: Option<String>,
    /// The id of a node that the user's driver knows. `None`: ask its node service.
    pub node_id: Option<String>,
    /// A file that changes the sandbox's configuration.
    pub overlay: Option<PathBuf>,
    /// The bound of each step. `None`: a minute.
    pub step_timeout: Option<Duration>,
}

/// Runs the sandbox until its demo has ended; with `--keep` until a signal.
pub fn run(wanted: Wanted, variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(SandboxError::Runtime)?;
    runtime.block_on(async {
        let telemetry = Telemetry::install(&telemetry_settings(variables), variables, Clock::system(), &Meter::new())?;
        let folder = Folder::make()?;
        let result = play(wanted, &folder.0).await;
        telemetry.shutdown(Duration::from_secs(1)).await;
        result
    })
}

async fn play(wanted: Wanted, folder: &Path) -> Result<(), SandboxError> {
    let (clock, rng) = (Clock::system(), Rng::system());
    let step_timeout = wanted.step_timeout.unwrap_or(demo::STEP_TIMEOUT);
    let mut narrator = Narrator::new(Box::new(io::stdout()), step_timeout, clock.now());
    let transport = Transport::Sockets { folder: folder.to_owned() };
    let testbed = TestBed::set_up(transport, demo_profile(), clock, rng.clone()).await?;

    let config_path = folder.join("kubeconfig");
    let url = testbed.url().unwrap_or_default();
    kubeconfig::write(&config_path, &url, Some(&Token::from(ADMIN_TOKEN)))
        .map_err(|source| SandboxError::Folder { path: config_path.clone(), source })?;
    narrator.say(format_args!("Kubernetes API   {url}"));
    narrator.say(format_args!("kubeconfig       {}", config_path.display()));

    let address = wanted.endpoint.clone().unwrap_or_else(|| format!("unix://{}", folder.join("csi.sock").display()));
    let (backend, dial) = match wanted.endpoint {
        None => {
            narrator.say(format_args!("demo CSI driver  {address}"));
            (Backend::Demo(testbed.driver.clone()), testbed.driver_dial("sandbox"))
        }
        Some(address) => {
            let dial = Endpoint::parse(&address)?.dial();
            narrator.say(format_args!("your CSI driver  {address}"));
            let own = Own::meet(&address, dial.clone(), wanted.node_id, clock, rng, |why| narrator.say(why)).await?;
            (Backend::Own(Box::new(own)), dial)
        }
    };
    let (has_topology, tells_room) = (backend.has_topology(), backend.tells_room());
    let driver = SandboxDriver { has_topology, tells_room, shows_attempts: wanted.keep };
    let door = TcpListener::bind(("127.0.0.1", 0)).await.map_err(TestBedError::Sockets)?;
    let registry = backend.has_node_service().then(|| folder.join("plugins_registry"));
    let node = SandboxNode {
        diagnostics: door.local_addr().map_err(TestBedError::Sockets)?,
        socket: Endpoint::parse(&address)?.path().to_owned(),
        registry: registry.clone(),
    };
    let yaml = configuration(&address, driver, Some(&node), wanted.overlay.as_deref())?;
    let kubelet = registry.map(|registry| start_kubelet(&registry, clock)).transpose()?;
    let machine = Machine { kubelet, probe: node.diagnostics };
    testbed.install_snapshots();
    testbed.install_groups();
    testbed.api.keep_volume_health();
    // The cluster's own controllers: a claim is bound, a pod finds its node, its volumes are asked for, a snapshot gets its content.
    let _habits = testbed.start_actors_with_snapshots(SnapshotHabits::default());
    Demo::announce(&testbed.api, &backend)?;
    let daemon = testbed.start_at(door, demo::DAEMON, &yaml, ADMIN_TOKEN.to_owned(), dial)?;
    if let Some(address) = daemon.diagnostics {
        narrator.say(format_args!("status page      http://{address}/"));
    }
    narrator.say("");

    let mut signals = Signals::listen().map_err(SandboxError::Signal)?;
    let api = testbed.api.clone();
    let mut demo = Demo::new(&api, &backend, &mut narrator).on(&machine);
    // Stopped in the middle of it, too, the daemon hands back its leases and the folder goes.
    tokio::select! {
        biased;
        () = signals.next() => demo.narrator.say("\nStopping. A second Ctrl-C ends it at once."),
        told = tell(&mut demo, wanted.keep, folder, &backend) => told?,
    }
    let stop = async {
        demo.stop(daemon).await?;
        testbed.tear_down().await;
        Ok(())
    };
    tokio::select! {
        biased;
        () = signals.next() => return Err(SandboxError::Interrupted),
        stopped = stop => stopped.map_err(SandboxError::Demo)?,
    }
    let ((steps, skipped), elapsed) = (narrator.count(), narrator.elapsed());
    let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    narrator.say(format_args!("\n{steps} steps observed{skipped} in {:.1}s", elapsed.as_secs_f64()));
    Ok(())
}

/// Plays the demo; where it is to be kept, says what there is to try, and never ends.
async fn tell(demo: &mut Demo<'_>, keep: bool, folder: &Path, backend: &Backend) -> Result<(), SandboxError> {
    demo.furnish()?;
    demo.play().await?;
    if !keep {
        return Ok(());
    }
    demo.linger().await?;
    let try_path = folder.join("try.yaml");
    fs::write(&try_path, demo::manifest_to_try(&backend.name()))
        .map_err(|source| SandboxError::Folder { path: try_path.clone(), source })?;
    demo.narrator.say(format_args!(
        "\nKept up: two pods have their volumes, and a group of snapshots of both; an attachment and a claim fail. Try\n\
         \x20 export KUBECONFIG={}\n\
         \x20 kubectl get pods,pvc,pv,volumeattachments\n\
         \x20 kubectl apply -f {}\n\
         \x20 kubectl get volumesnapshots,volumegroupsnapshots\n\
         \x20 kubectl describe pvc reports\n\
         Ctrl-C stops it.",
        folder.join("kubeconfig").display(),
        try_path.display()
    ));
    std::future::pending().await
}

/// Two nodes in two zones, each with storage of its own.
pub(super) fn demo_profile() -> Profile {
    let zones = [("demo-node-a", "zone-a", 200 * GIB), ("demo-node-b", "zone-b", 120 * GIB)];
    let mut profile =
        Profile::default().with_volume_health().in_pools(zones.map(|(_, zone, size)| Pool::at([(ZONE, zone)], size)));
    for (node, zone, _) in zones {
        let segments = BTreeMap::from([(ZONE.to_owned(), zone.to_owned())]);
        profile.nodes.insert(node.to_owned(), Node { segments, ..Node::default() });
    }
    profile
}

/// The kubelet of this machine, which finds the driver in this directory.
fn start_kubelet(registry: &Path, clock: Clock) -> Result<Kubelet, SandboxError> {
    let made = DirBuilder::new().mode(0o700).create(registry);
    made.map_err(|source| SandboxError::Folder { path: registry.to_owned(), source })?;
    Ok(Kubelet::start(registry, Retries::BackingOff, clock, |path| Path::new(path).to_owned()))
}

/// The sandbox's configuration for the driver at `address`, with the overlay's keys on top. Without a node, no role is in it that works
/// with this machine's files and ports.
pub(super) fn configuration(
    address: &str,
    driver: SandboxDriver,
    node: Option<&SandboxNode>,
    overlay: Option<&Path>,
) -> Result<String, SandboxError> {
    let built_in = built_in(address, driver, node);
    let Some(path) = overlay else { return Ok(serde_yaml::to_string(&built_in)?) };
    let file = File::read(path)?;
    let base = File { name: "the sandbox's own configuration".to_owned(), text: serde_yaml::to_string(&built_in)? };
    let merged = merge(built_in, &file.text);
    // Here and not by the daemon, which sees one file: so a fault points at the user's line.
    config::load(&Sources { base: Some(base), file: Some(file), ..Sources::default() }, &roles::sections())?;
    Ok(merged?)
}

/// Every role that has something to do, and everything sooner than in a cluster.
fn built_in(address: &str, driver: SandboxDriver, node: Option<&SandboxNode>) -> Json {
    let section = |role: &Registration| {
        let section = match &role.kind {
            Kind::Cluster(role) => (role.sandbox)(driver)?,
            Kind::Local(role) => (role.sandbox)(node?)?,
        };
        Some((role.name.to_owned(), section))
    };
    let roles: serde_json::Map<_, _> = ROLES.iter().filter_map(section).collect();
    json!({
        "csi": { "endpoint": address },
        "leaderElection": { "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms" },
        "roles": roles,
    })
}

fn merge(base: Json, overlay: &str) -> Result<String, serde_yaml::Error> {
    fn lay(base: &mut Value, over: Value) {
        match (base, over) {
            (Value::Mapping(base), Value::Mapping(over)) => {
                for (key, value) in over {
                    lay(base.entry(key).or_insert(Value::Null), value);
                }
            }
            // A block that holds comments alone changes nothing.
            (Value::Mapping(_), Value::Null) => {}
            (base, over) => *base = over,
        }
    }
    let mut merged = serde_yaml::to_value(base)?;
    lay(&mut merged, serde_yaml::from_str(overlay)?);
    serde_yaml::to_string(&merged)
}

/// Warnings for people, unless `RUST_LOG` asks for more.
pub(super) fn telemetry_settings(variables: &BTreeMap<String, String>) -> TelemetrySettings {
    TelemetrySettings {
        logs: LogSettings {
            level: variables.get("RUST_LOG").cloned().unwrap_or_else(|| "error".to_owned()),
            format: LogFormat::Text,
        },
        traces: TraceSettings {
            endpoint: None,
            sample_ratio: 1.0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: "sandbox".to_owned(),
        },
    }
}

/// The signals that end the sandbox: SIGINT and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A private folder that goes when the sandbox does. Its name is by chance: in containers that share a temporary folder many
/// processes have the same number.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, SandboxError> {
        let path = std::env::temp_dir().join(format!("csi-control-plane-sandbox-{}", Rng::system().suffix()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| SandboxError::Folder { path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_changes_what_it_names_and_keeps_the_rest() {
        let driver = SandboxDriver { has_topology: false, tells_room: true, shows_attempts: false };
        let merged = merge(built_in("unix:///s", driver, None), "roles: { attacher: { workers: 3 } }").unwrap();
        let value: serde_json::Value = serde_yaml::from_str(&merged).unwrap();
        assert_eq!(value["roles"]["attacher"]["workers"], 3);
        assert_eq!(value["roles"]["attacher"]["retry"]["initial"], "250ms");
        assert_eq!(value["roles"]["reconciler"]["interval"], "500ms");
        assert_eq!(value["roles"]["provisioner"]["topology"], false);
        assert_eq!(value["roles"]["provisioner"]["capacity"], json!({ "enabled": true, "ownerLevel": -1 }));
        let same = serde_yaml::to_string(&built_in("unix:///s", driver, None)).unwrap();
        for nothing in ["", "# roles:\n", "csi:\nroles:\n  # attacher:\n"] {
            assert_eq!(merge(built_in("unix:///s", driver, None), nothing).unwrap(), same, "{nothing:?}");
        }
    }

    #[test]
    fn a_fault_of_an_overlay_points_at_its_line_and_one_of_both_at_the_sandbox() {
        let driver = SandboxDriver { has_topology: true, tells_room: true, shows_attempts: false };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.yaml");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            configuration("unix:///s", driver, None, Some(&path)).unwrap_err().to_string()
        };
        let mine = |place: &str| format!("({}{place})", path.display());
        for (text, key, origin) in [
            ("# mine\nroles:\n  attacher: { wrkers: 3 }\n", "roles.attacher.wrkers", mine(":3")),
            ("roles: { attacher: { workers: 0 } }", "roles.attacher.workers", mine(":1")),
            ("roles: [", "(the whole file)", mine(":2:1")),
            (
                "leaderElection: { leaseDuration: 1s }",
                "leaderElection.renewDeadline",
                "(the sandbox's own configuration)".to_owned(),
            ),
        ] {
            let says = refused(text);
            assert!(says.contains(&format!("\n  {key}  {origin}\n")), "{text}: {says}");
        }
        let missing = configuration("unix:///s", driver, None, Some(Path::new("/none.yaml"))).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read the configuration file /none.yaml");
    }

    #[test]
    fn a_kept_sandbox_shows_each_attempt_as_an_event() {
        let of = |shows_attempts| {
            let built =
                built_in("unix:///s", SandboxDriver { has_topology: true, tells_room: true, shows_attempts }, None);
            ["attacher", "provisioner", "resizer", "snapshotter"].map(|role| built["roles"][role]["events"].clone())
        };
        assert_eq!((of(true), of(false)), ([(); 4].map(|()| json!("all")), [(); 4].map(|()| json!("changes"))));
    }
}
