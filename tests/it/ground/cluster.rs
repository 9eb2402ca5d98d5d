//! A real API server, the demo driver, and daemons that use a kubeconfig, each with a service account that has exactly the
//! rights that `check` prints for its configuration.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use csi_control_plane::app::Plan;
use csi_control_plane::cluster::ClusterAccess;
use csi_control_plane::config::{self, File, Loaded, Sources};
use csi_control_plane::diagnostics::Door;
use csi_control_plane::election::Container;
use csi_control_plane::process::{Clock, Dial, Rng};
use csi_control_plane::roles::{self, Instance};
use csi_control_plane::sandbox::api::tcp_connections;
use csi_control_plane::sandbox::driver::{Driver, Listen, Profile, Server};
use csi_control_plane::sandbox::testbed::{Daemon, Surroundings};
use futures::StreamExt as _;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::cable::Cable;
use crate::control_plane::{ControlPlane, Extent};
use crate::records::{RPCS, Watched};
use crate::{accounts, shared};

/// The namespace of the daemons: of their accounts and Leases.
pub(crate) const NAMESPACE: &str = "kube-system";

/// How long an outage lasts.
pub(super) const OUTAGE: Duration = Duration::from_secs(30);

/// A driver and its daemons, on a cluster that others use too.
pub(crate) struct Ground {
    cluster: Arc<ControlPlane>,
    client: kube::Client,
    driver: Driver,
    server: Server,
    // After the server: what it was doing has ended. Before the folder, which has the logs of sidecars.
    watched: Watched,
    folder: TempDir,
}

impl Ground {
    /// Sets up a driver of this profile.
    pub(crate) async fn set(profile: Profile) -> Self {
        Self::on(shared::api().await, profile).await
    }

    /// The same where the API server stores the health of claims.
    pub(crate) async fn with_volume_health(profile: Profile) -> Self {
        Self::on(shared::with_volume_health().await, profile).await
    }

    /// The same with the controllers of a cluster.
    pub(crate) async fn with_controllers(profile: Profile) -> Self {
        Self::on(shared::with_controllers().await, profile).await
    }

    /// The same, and claims may name sources in other namespaces, with the kinds of snapshots and grants.
    pub(crate) async fn with_sources_anywhere(profile: Profile) -> Self {
        let ground = Self::on(shared::with_controllers_across_namespaces().await, profile).await;
        ground.install_snapshots().await;
        ground
    }

    /// Without controllers, where claims may name sources in other namespaces, with the kinds of snapshots and grants.
    pub(crate) async fn across_namespaces(profile: Profile) -> Self {
        let ground = Self::on(shared::across_namespaces().await, profile).await;
        ground.install_snapshots().await;
        ground
    }

    /// The same with the kinds of snapshots and a snapshot-controller.
    pub(crate) async fn with_snapshots(profile: Profile) -> Self {
        Self::on(shared::with_snapshots().await, profile).await
    }

    /// Gives the cluster the kinds of snapshots and grants.
    pub(crate) async fn install_snapshots(&self) {
        crate::kinds::install(&self.client).await;
    }

    /// The same on a certain cluster.
    pub(crate) async fn on(cluster: Arc<ControlPlane>, mut profile: Profile) -> Self {
        write_logs(&cluster.folder);
        let client = cluster.client().await;
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched {
            driver: profile.name.clone(),
            takes_pairs: !profile.abort_while_pending,
            rpcs: Some(cluster.folder.join(format!("{}-{RPCS}", profile.name))),
            cluster: cluster.folder.clone(),
            logs: vec![folder.path().to_owned()],
        };
        profile.record.clone_from(&watched.rpcs);
        let driver = Driver::new(profile, Clock::system());
        let server = Server::start(&driver, Listen::unix(folder.path().join("csi.sock"), 0o600)).await.unwrap();
        Self { cluster, client, driver, server, watched, folder }
    }

    /// The same on a control plane of its own.
    pub(crate) async fn alone(profile: Profile) -> Self {
        Self::on(Arc::new(ControlPlane::start(Extent::Api).await), profile).await
    }

    /// The same with controllers.
    pub(crate) async fn alone_with_controllers(profile: Profile) -> Self {
        Self::on(Arc::new(ControlPlane::start(Extent::Controllers).await), profile).await
    }

    /// A client that may do everything.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The control plane that it runs on.
    pub(crate) fn cluster(&self) -> &ControlPlane {
        &self.cluster
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.cluster.admin_kubeconfig()
    }

    /// The driver's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// Where the programs of this driver may log.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The driver's backend.
    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Kills the driver's process, and starts it again after `down`.
    pub(crate) async fn restart_driver(&self, down: Duration) {
        self.server.restart(down).await;
        abandoned_socket(&self.socket());
        self.server.up().await;
    }

    /// Starts a daemon on this host name with this configuration, and the rights that `check` prints for it.
    pub(crate) async fn start(&self, host: &str, yaml: &str) -> Daemon {
        let token = self.account(host, yaml).await;
        self.start_as(host, yaml, NAMESPACE, &token).await
    }

    /// The same in this container of a pod that is named as the host.
    pub(crate) async fn start_in_container(&self, host: &str, container: Container, yaml: &str) -> Daemon {
        let token = self.account(host, yaml).await;
        self.start_in(Instance { container: Some(container), ..instance(host, NAMESPACE) }, yaml, &token).await
    }

    /// Starts a daemon with exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn start_with(&self, host: &str, yaml: &str, roles: &[Value]) -> Daemon {
        let manifests: Vec<String> = roles.iter().map(Value::to_string).collect();
        let token = accounts::token(&self.client, NAMESPACE, host, &manifests.join("\n---\n")).await;
        self.grant(host, roles).await;
        self.start_as(host, yaml, NAMESPACE, &token).await
    }

    /// The clock that daemons and driver use.
    #[expect(clippy::unused_self, reason = "as on the other ground")]
    pub(crate) fn clock(&self) -> Clock {
        Clock::system()
    }

    /// Serves a node's own driver, for the daemon of this name.
    pub(crate) async fn start_driver(&self, node: &str, _daemon: &str, driver: &Driver) -> (Server, Dial) {
        driver.change_profile(|profile| profile.record.clone_from(&self.watched.rpcs));
        let socket = self.folder.path().join(format!("{node}.sock"));
        (Server::start(driver, Listen::unix(socket.clone(), 0o600)).await.unwrap(), Dial::unix(socket))
    }

    /// Starts a daemon that runs on a node, beside the driver that this leads to, with the rights that `check` prints for it.
    pub(crate) async fn start_on(&self, host: &str, node: &str, yaml: &str, driver: Dial) -> Daemon {
        let kubeconfig = self.cluster.kubeconfig(host, &self.account(host, yaml).await);
        let instance = Instance { node: Some(node.to_owned()), ..instance(host, NAMESPACE) };
        Self::start_instance(instance, yaml, kubeconfig, driver).await
    }

    /// Starts a daemon whose line to the API is in our hand.
    pub(crate) async fn start_wired(&self, host: &str, yaml: &str) -> (Daemon, Cable) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cable = Cable::lay(tcp_connections(listener).boxed(), Dial::tcp(self.cluster.address()));
        let token = self.account(host, yaml).await;
        let kubeconfig = self.cluster.kubeconfig_through(host, &token, address);
        let driver = Dial::unix(self.socket());
        (Self::start_instance(instance(host, NAMESPACE), yaml, kubeconfig, driver).await, cable)
    }

    /// Stops the API server in order and starts it again; `meanwhile` is called when there is none.
    pub(crate) async fn restart_api(&self, meanwhile: impl FnOnce()) {
        self.cluster.restart_api(meanwhile).await;
    }

    /// Makes the API forget all versions but the latest: etcd's memory, and its own.
    pub(crate) async fn forget(&self) {
        self.cluster.compact().await;
        self.cluster.restart_api(|| {}).await;
    }

    /// Gives the daemon on a host exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn grant(&self, host: &str, roles: &[Value]) {
        let manifests: Vec<String> = roles.iter().map(Value::to_string).collect();
        accounts::grant(&self.client, NAMESPACE, host, &manifests.join("\n---\n")).await;
        accounts::until_enforced(&self.client, NAMESPACE, host, roles).await;
    }

    /// Makes the account of a daemon with the rights that `check` prints for its configuration, and returns its token.
    async fn account(&self, host: &str, yaml: &str) -> String {
        let plan = Plan::of(&load(host, yaml), &self.driver.profile().name, Some(NAMESPACE)).unwrap();
        accounts::token(&self.client, NAMESPACE, host, &plan.manifests).await
    }

    /// Starts a daemon in this namespace with this token.
    pub(crate) async fn start_as(&self, host: &str, yaml: &str, namespace: &str, token: &str) -> Daemon {
        self.start_in(instance(host, namespace), yaml, token).await
    }

    /// Starts a daemon in this pod, beside our driver, with this token.
    pub(crate) async fn start_in(&self, instance: Instance, yaml: &str, token: &str) -> Daemon {
        let kubeconfig = self.cluster.kubeconfig(&instance.host, token);
        Self::start_instance(instance, yaml, kubeconfig, Dial::unix(self.socket())).await
    }

    async fn start_instance(instance: Instance, yaml: &str, kubeconfig: PathBuf, driver: Dial) -> Daemon {
        let surroundings = Surroundings {
            clock: Clock::system(),
            rng: Rng::system(),
            cluster: ClusterAccess::Kubeconfig(kubeconfig),
            driver,
            diagnostics: Some(Door::Tcp(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())),
        };
        Daemon::start(instance, yaml, surroundings).unwrap()
    }
}

/// Lets the daemons of all tests here log into a file in this folder, if they have none yet.
fn write_logs(folder: &Path) {
    static LOG: Once = Once::new();
    LOG.call_once(|| {
        let file = std::fs::File::create(folder.join("daemons.log")).unwrap();
        let ours = EnvFilter::new("csi_control_plane=debug");
        let log = tracing_subscriber::fmt().with_ansi(false).with_env_filter(ours).with_writer(Arc::new(file));
        log.try_init().expect("no other subscriber is everybody's");
    });
}

/// Leaves what a driver that was killed leaves behind: its socket's file, where nobody listens.
fn abandoned_socket(path: &Path) {
    // A process that is back already has it.
    drop(UnixListener::bind(path));
}

/// A daemon on this host, in a pod of the same name, on no node in particular.
fn instance(host: &str, namespace: &str) -> Instance {
    let namespace = Some(namespace.to_owned());
    Instance { host: host.to_owned(), namespace, pod: Some(host.to_owned()), ..Instance::default() }
}

fn load(host: &str, yaml: &str) -> Loaded {
    let file = File { name: format!("{host}.yaml"), text: yaml.to_owned() };
    config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap()
}
