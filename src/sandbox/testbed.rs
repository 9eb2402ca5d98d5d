//! The testbed: an API, a driver and any number of daemons, on real sockets or on a simulated network. The demo, the
//! integration tests and the simulation use it, with exactly the daemon that `run` starts. Tests of a role without the
//! daemon use the role harness here.

#[cfg(test)]
pub(crate) mod harness;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::app::{self, AppError, Configuration, ConfigurationHandle, Environment};
use crate::cluster::ClusterAccess;
use crate::config::{self, File, Rejected, Sources};
use crate::diagnostics::Door;
use crate::election::Container;
use crate::process::{Clock, Dial, Proxies, Rng, Tasks, watch};
use crate::roles::{self, Instance};
use crate::telemetry::{Meter, TelemetryState};

use super::actors::{Actors, SnapshotHabits};
use super::api::{self, Api, ApiOptions, Identity};
use super::driver::{Driver, Listen, Profile, Server};
use super::network::Network;

/// The API's host on a simulated network.
pub const API_HOST: &str = "api";
/// The driver's host on a simulated network.
pub const DRIVER_HOST: &str = "driver";
/// The administrator's token: people's and the tests'.
pub const ADMIN_TOKEN: &str = "sandbox-admin";

/// Where everything stands.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Loopback TCP for the API, a unix socket in this folder for the driver.
    Sockets {
        /// The folder.
        folder: PathBuf,
    },
    /// A simulated network, for paused time.
    Network(Network),
}

/// Everything but the daemons.
#[derive(Debug)]
pub struct TestBed {
    /// The cluster.
    pub api: Api,
    /// The API's connections, to be cut.
    pub connections: api::Connections,
    /// The driver's backend, which survives its restarts.
    pub driver: Driver,
    /// The driver's process.
    pub server: Server,
    /// The clock.
    pub clock: Clock,
    /// The random numbers.
    pub rng: Rng,
    transport: Transport,
    address: Option<SocketAddr>,
    /// The number of daemons with diagnostics on the network. `None`: diagnostics are not there.
    told: Option<AtomicU64>,
    stop: CancellationToken,
    tasks: Tasks,
}

/// The testbed could not be set.
#[derive(Debug, Error)]
pub enum TestBedError {
    /// A socket could not be opened.
    #[error("cannot open the sandbox's sockets")]
    Sockets(#[from] io::Error),
    /// The daemon's configuration has faults.
    #[error("the daemon's configuration is refused: {0}")]
    Config(Rejected),
}

/// What a daemon finds where it runs.
pub struct Surroundings {
    /// The clock.
    pub clock: Clock,
    /// The random numbers.
    pub rng: Rng,
    /// Its way to the API.
    pub cluster: ClusterAccess,
    /// Its way to the driver.
    pub driver: Dial,
    /// Where it serves its diagnostics.
    pub diagnostics: Option<Door>,
}

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    /// Its name: its host, and the first half of its identity.
    pub name: String,
    /// Its figures.
    pub meter: Meter,
    /// Where its diagnostics are, if they are on a real socket.
    pub diagnostics: Option<SocketAddr>,
    told: Option<Dial>,
    configuration: ConfigurationHandle,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
    network: Option<Network>,
}

impl TestBed {
    /// Sets the testbed with an API that knows the administrator, and a driver of this profile.
    pub async fn set_up(transport: Transport, profile: Profile, clock: Clock, rng: Rng) -> Result<Self, TestBedError> {
        let options = ApiOptions {
            tokens: [(ADMIN_TOKEN.into(), Identity::admin("sandbox-admin"))].into(),
            managed_fields: matches!(transport, Transport::Sockets { .. }),
            ..ApiOptions::new(clock, rng.clone())
        };
        let api = Api::new(options);
        let connections = api::Connections::default();
        let driver = Driver::new(profile, clock);
        let (tasks, _) = Tasks::new("testbed");
        let stop = CancellationToken::new();
        let (listen, address) = match &transport {
            Transport::Sockets { folder } => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
                let address = listener.local_addr()?;
                let incoming = api::tcp_connections(listener).boxed();
                tasks.spawn("api", api::serve(api.clone(), incoming, connections.clone(), stop.clone()));
                (Listen::unix(folder.join("csi.sock"), 0o600), Some(address))
            }
            Transport::Network(network) => {
                let incoming = network.listen(API_HOST)?;
                tasks.spawn("api", api::serve(api.clone(), incoming, connections.clone(), stop.clone()));
                (Listen::network(network.clone(), DRIVER_HOST), None)
            }
        };
        let server = Server::start(&driver, listen).await?;
        let told = None;
        Ok(Self { api, connections, driver, server, clock, rng, transport, address, told, stop, tasks })
    }

    /// Daemons serve their diagnostics on the simulated network, too.
    #[must_use]
    pub fn with_diagnostics(self) -> Self {
        Self { told: Some(AtomicU64::new(0)), ..self }
    }

    /// The API's URL, if it is on a real socket.
    pub fn url(&self) -> Option<String> {
        self.address.map(|address| format!("http://{address}"))
    }

    /// The API's address, if it is on a real socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Lets the controllers of a cluster work from now on.
    pub fn start_actors(&self) {
        Actors::of(self.api.clone()).start(&self.tasks);
    }

    /// The same with a snapshot-controller, whose habits a test may change from now on.
    pub fn start_actors_with_snapshots(&self, habits: SnapshotHabits) -> watch::Sender<SnapshotHabits> {
        let (sender, receiver) = watch::channel(habits);
        Actors::of(self.api.clone()).with_snapshots(receiver).start(&self.tasks);
        sender
    }

    /// Gives the cluster the kinds of snapshots and grants.
    pub fn install_snapshots(&self) {
        for group in ["snapshot.storage.k8s.io", "gateway.networking.k8s.io"] {
            self.api.install(group);
        }
    }

    /// Gives the cluster the kinds of groups of snapshots, in their newest version.
    pub fn install_groups(&self) {
        self.api.install("groupsnapshot.storage.k8s.io/v1");
    }

    /// How `host` reaches the API.
    pub fn api_dial(&self, host: &str) -> Dial {
        match (&self.transport, self.address) {
            (Transport::Network(network), _) => network.dial(host, API_HOST),
            (Transport::Sockets { .. }, Some(address)) => Dial::tcp(address),
            (Transport::Sockets { .. }, None) => Dial::new(|| async { Err(io::ErrorKind::NotConnected.into()) }),
        }
    }

    /// How `host` reaches the driver.
    pub fn driver_dial(&self, host: &str) -> Dial {
        match &self.transport {
            Transport::Network(network) => network.dial(host, DRIVER_HOST),
            Transport::Sockets { folder } => Dial::unix(folder.join("csi.sock")),
        }
    }

    /// The token and the user's name of a daemon.
    pub fn token(name: &str) -> String {
        format!("token-of-{name}")
    }

    /// Starts a daemon with this configuration, as an administrator of the cluster.
    pub async fn start(&self, name: &str, yaml: &str) -> Result<Daemon, TestBedError> {
        self.api.admit(Self::token(name).as_str(), Identity::admin(name));
        self.start_as(name, yaml, Self::token(name), self.driver_dial(name)).await
    }

    /// Starts a daemon that comes with this token and talks to this driver. The sockets of the configuration are not used.
    pub async fn start_as(&self, name: &str, yaml: &str, token: String, driver: Dial) -> Result<Daemon, TestBedError> {
        self.start_over(name, yaml, token, self.api_dial(name), driver).await
    }

    /// Starts a daemon that runs on a node and talks to that node's own driver, as an administrator of the cluster.
    pub async fn start_on(&self, name: &str, node: &str, yaml: &str, driver: Dial) -> Result<Daemon, TestBedError> {
        self.api.admit(Self::token(name).as_str(), Identity::admin(name));
        let instance = Instance { node: Some(node.to_owned()), ..instance(name) };
        self.start_behind(self.door().await?, instance, yaml, Self::token(name), self.api_dial(name), driver)
    }

    /// Starts a daemon in a pod of this namespace, as an administrator of the cluster.
    pub async fn start_in(&self, name: &str, namespace: &str, yaml: &str) -> Result<Daemon, TestBedError> {
        self.api.admit(Self::token(name).as_str(), Identity::admin(name));
        let instance = Instance { namespace: Some(namespace.to_owned()), ..instance(name) };
        let (api, driver) = (self.api_dial(name), self.driver_dial(name));
        self.start_behind(self.door().await?, instance, yaml, Self::token(name), api, driver)
    }

    /// Starts a daemon in this container of a pod of its name, as an administrator of the cluster.
    pub async fn start_in_container(
        &self,
        name: &str,
        container: Container,
        yaml: &str,
    ) -> Result<Daemon, TestBedError> {
        self.api.admit(Self::token(name).as_str(), Identity::admin(name));
        let instance = Instance { container: Some(container), ..instance(name) };
        let (api, driver) = (self.api_dial(name), self.driver_dial(name));
        self.start_behind(self.door().await?, instance, yaml, Self::token(name), api, driver)
    }

    /// The same as [`TestBed::start_as`] with a way of its own to the API.
    pub async fn start_over(
        &self,
        name: &str,
        yaml: &str,
        token: String,
        api: Dial,
        driver: Dial,
    ) -> Result<Daemon, TestBedError> {
        self.start_behind(self.door().await?, instance(name), yaml, token, api, driver)
    }

    /// The same as [`TestBed::start_as`] with its diagnostics on this listener.
    pub fn start_at(
        &self,
        listener: TcpListener,
        name: &str,
        yaml: &str,
        token: String,
        driver: Dial,
    ) -> Result<Daemon, TestBedError> {
        self.start_behind(Some(Door::Tcp(listener)), instance(name), yaml, token, self.api_dial(name), driver)
    }

    /// Where a daemon serves its diagnostics; `None`: on the network.
    async fn door(&self) -> Result<Option<Door>, TestBedError> {
        Ok(match &self.transport {
            Transport::Network(_) => None,
            Transport::Sockets { .. } => Some(Door::Tcp(TcpListener::bind(("127.0.0.1", 0)).await?)),
        })
    }

    fn start_behind(
        &self,
        diagnostics: Option<Door>,
        instance: Instance,
        yaml: &str,
        token: String,
        api: Dial,
        driver: Dial,
    ) -> Result<Daemon, TestBedError> {
        let network = match &self.transport {
            Transport::Network(network) => Some(network.clone()),
            Transport::Sockets { .. } => None,
        };
        let (diagnostics, told) = match (&network, &self.told) {
            (Some(network), Some(count)) => {
                // One daemon may begin before another on the same host has ended.
                let place = format!("{}:diagnostics-{}", instance.host, count.fetch_add(1, Ordering::Relaxed));
                (Some(Door::Connections(network.listen(&place)?.boxed())), Some(network.dial("people", &place)))
            }
            _ => (diagnostics, None),
        };
        let surroundings = Surroundings {
            clock: self.clock,
            rng: self.rng.clone(),
            cluster: ClusterAccess::Endpoint { dial: api, token: Some(token) },
            driver,
            diagnostics,
        };
        let daemon = Daemon::start(instance, yaml, surroundings)?;
        Ok(Daemon { told: told.or(daemon.told), network, ..daemon })
    }

    /// Takes the testbed down.
    pub async fn tear_down(self) {
        self.server.stop().await;
        self.stop.cancel();
        self.tasks.abort_all();
    }
}

impl Daemon {
    /// Starts what `run` starts: in this pod, with this configuration.
    pub fn start(instance: Instance, yaml: &str, surroundings: Surroundings) -> Result<Self, TestBedError> {
        let name = instance.host.clone();
        let file = File { name: format!("{name}.yaml"), text: yaml.to_owned() };
        let sources = Sources { file: Some(file), ..Sources::default() };
        let loaded = config::load(&sources, &roles::sections()).map_err(TestBedError::Config)?;
        let (meter, stop, configuration) =
            (roles::metrics::meter(), CancellationToken::new(), Configuration::told(yaml));
        let Surroundings { clock, rng, cluster, driver, diagnostics } = surroundings;
        let address = diagnostics.as_ref().and_then(Door::address);
        let environment = Environment {
            clock,
            rng,
            meter: meter.clone(),
            cluster,
            proxies: Proxies::default(),
            driver,
            endpoint: loaded.config.csi.endpoint.clone(),
            instance,
            diagnostics,
            telemetry: TelemetryState::default(),
            configuration: Some(configuration.clone()),
        };
        let (told, configuration) = (address.map(Dial::tcp), configuration.handle());
        let running = spawn(app::serve(loaded, environment, stop.clone()));
        Ok(Self { name, meter, diagnostics: address, told, configuration, stop, running, network: None })
    }

    /// How to reach its diagnostics, if it has any.
    pub fn diagnostics_dial(&self) -> Option<Dial> {
        self.told.clone()
    }

    /// Gives it another configuration while it runs.
    pub fn configure(&self, yaml: &str) {
        self.configuration.tell(yaml);
    }

    /// Asks it to stop, as SIGTERM does.
    pub fn terminate(&self) {
        self.stop.cancel();
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) -> Result<(), AppError> {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits until it has ended. A daemon that was killed has ended without an error.
    pub async fn ended(self) -> Result<(), AppError> {
        self.running.await.unwrap_or(Ok(()))
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Ends it here and now, as SIGKILL does: nothing is let end, nothing handed back, every connection reset.
    pub fn kill(self) {
        self.running.abort();
        if let Some(network) = &self.network {
            network.crash(&self.name);
        }
    }
}

/// A daemon of this name in a pod of the same name, on no node in particular.
fn instance(name: &str) -> Instance {
    Instance {
        host: name.to_owned(),
        namespace: Some("kube-system".to_owned()),
        pod: Some(name.to_owned()),
        ..Instance::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "a daemon is what owns tasks; its handle stands for the process")]
fn spawn(daemon: impl Future<Output = Result<(), AppError>> + Send + 'static) -> JoinHandle<Result<(), AppError>> {
    tokio::spawn(daemon.in_current_span())
}
