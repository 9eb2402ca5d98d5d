//! The sandbox's API and the demo driver, on a simulated network. Time stands still while any of them works, so no machine is
//! too slow for a scenario, and an outage costs nothing.

use std::cell::Cell;
use std::time::Duration;

use csi_control_plane::cluster::{ClientOptions, Clients, ClusterAccess};
use csi_control_plane::election::Container;
use csi_control_plane::process::{Clock, Dial, Rng};
use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::{Grant, Identity};
use csi_control_plane::sandbox::driver::{Driver, Listen, Profile, Server};
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::{ADMIN_TOKEN, API_HOST, Daemon, TestBed, Transport};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::runtime::{self, Handle};

use crate::cable::Cable;

/// How long an outage lasts: longer than the Leases of the scenarios that have one.
pub(super) const OUTAGE: Duration = Duration::from_secs(9);
/// When the scenarios begin.
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// An API and a driver of its own for every scenario.
pub(crate) struct Ground {
    /// All of the sandbox's powers, for the scenarios under `sandbox_only`.
    pub(crate) testbed: TestBed,
    network: Network,
    client: kube::Client,
}

impl Ground {
    /// Sets up an API and a driver of this profile.
    pub(crate) async fn set(profile: Profile) -> Self {
        stop_time();
        let network = Network::new();
        let transport = Transport::Network(network.clone());
        let clock = Clock::simulated(BEGIN.parse().unwrap());
        let testbed = TestBed::set_up(transport, profile, clock, Rng::system()).await.unwrap().with_diagnostics();
        let client = client(&testbed, ADMIN_TOKEN).await;
        Self { testbed, network, client }
    }

    /// The same on a cluster of its own, which each has here.
    pub(crate) async fn alone(profile: Profile) -> Self {
        Self::set(profile).await
    }

    /// The same with an API that stores the health of claims.
    pub(crate) async fn with_volume_health(profile: Profile) -> Self {
        let ground = Self::set(profile).await;
        ground.testbed.api.keep_volume_health();
        ground
    }

    /// The same with the controllers of a cluster.
    pub(crate) async fn with_controllers(profile: Profile) -> Self {
        let ground = Self::set(profile).await;
        ground.testbed.start_actors();
        ground
    }

    /// The same on a cluster of its own, which each has here.
    pub(crate) async fn alone_with_controllers(profile: Profile) -> Self {
        Self::with_controllers(profile).await
    }

    /// The same where claims may name sources in other namespaces, with the kinds of snapshots and grants.
    pub(crate) async fn with_sources_anywhere(profile: Profile) -> Self {
        let ground = Self::with_controllers(profile).await;
        ground.testbed.api.allow_sources_anywhere();
        ground.install_snapshots().await;
        ground
    }

    /// The same with the kinds of snapshots and a snapshot-controller.
    pub(crate) async fn with_snapshots(profile: Profile) -> Self {
        let ground = Self::set(profile).await;
        ground.install_snapshots().await;
        ground.testbed.start_actors_with_snapshots(SnapshotHabits::default());
        ground
    }

    /// Gives the cluster the kinds of snapshots and grants.
    pub(crate) async fn install_snapshots(&self) {
        self.testbed.install_snapshots();
        tokio::task::yield_now().await;
    }

    /// A client that may do everything.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The driver's backend.
    pub(crate) fn driver(&self) -> &Driver {
        &self.testbed.driver
    }

    /// Kills the driver's process, and starts it again after `down`.
    pub(crate) async fn restart_driver(&self, down: Duration) {
        self.testbed.server.restart(down).await;
        self.testbed.server.up().await;
    }

    /// Starts a daemon on this host name with this configuration.
    pub(crate) async fn start(&self, host: &str, yaml: &str) -> Daemon {
        self.testbed.start(host, yaml).await.unwrap()
    }

    /// The same in this container of a pod that is named as the host.
    pub(crate) async fn start_in_container(&self, host: &str, container: Container, yaml: &str) -> Daemon {
        self.testbed.start_in_container(host, container, yaml).await.unwrap()
    }

    /// Starts a daemon with exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn start_with(&self, host: &str, yaml: &str, roles: &[Value]) -> Daemon {
        self.grant(host, roles).await;
        self.testbed.start_as(host, yaml, TestBed::token(host), self.testbed.driver_dial(host)).await.unwrap()
    }

    /// The clock that daemons and driver use.
    pub(crate) fn clock(&self) -> Clock {
        self.testbed.clock
    }

    /// Serves a node's own driver, for the daemon of this name.
    pub(crate) async fn start_driver(&self, node: &str, daemon: &str, driver: &Driver) -> (Server, Dial) {
        let address = format!("driver-{node}");
        let server = Server::start(driver, Listen::network(self.network.clone(), &address)).await.unwrap();
        (server, self.network.dial(daemon, &address))
    }

    /// Starts a daemon that runs on a node, beside the driver that this leads to.
    pub(crate) async fn start_on(&self, host: &str, node: &str, yaml: &str, driver: Dial) -> Daemon {
        self.testbed.start_on(host, node, yaml, driver).await.unwrap()
    }

    /// Starts a daemon whose line to the API is in our hand.
    pub(crate) async fn start_wired(&self, host: &str, yaml: &str) -> (Daemon, Cable) {
        let socket = format!("cable:{host}");
        let incoming = self.network.listen(&socket).unwrap().boxed();
        let cable = Cable::lay(incoming, self.network.dial("cable", API_HOST));
        self.testbed.api.admit(TestBed::token(host), Identity::admin(host));
        let (api, driver) = (self.network.dial(host, &socket), self.testbed.driver_dial(host));
        let daemon = self.testbed.start_over(host, yaml, TestBed::token(host), api, driver).await.unwrap();
        (daemon, cable)
    }

    /// Interrupts everybody, as far as a server in the same process can be restarted, and calls `meanwhile`.
    pub(crate) async fn restart_api(&self, meanwhile: impl FnOnce()) {
        self.testbed.connections.cut_all();
        meanwhile();
        tokio::task::yield_now().await;
    }

    /// Makes the API forget all versions but the latest.
    pub(crate) async fn forget(&self) {
        self.testbed.api.compact();
        tokio::task::yield_now().await;
    }

    /// Gives the daemon on a host exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn grant(&self, host: &str, roles: &[Value]) {
        let grants = roles.iter().flat_map(|role| Grant::of_role(role).unwrap()).collect();
        self.testbed.api.admit(TestBed::token(host), Identity::limited(host, grants));
        tokio::task::yield_now().await;
    }
}

/// A client of the test bed's API that comes with this token.
pub(crate) async fn client(testbed: &TestBed, token: &str) -> kube::Client {
    let access = ClusterAccess::Endpoint { dial: testbed.api_dial("people"), token: Some(token.to_owned()) };
    Clients::connect(&access, &ClientOptions::default()).await.unwrap().work
}

/// Lets time pass only while nobody has anything to do, in this scenario.
fn stop_time() {
    thread_local! {
        static STOPPED: Cell<Option<runtime::Id>> = const { Cell::new(None) };
    }
    let here = Handle::current().id();
    // A scenario may have several worlds.
    if STOPPED.replace(Some(here)) != Some(here) {
        tokio::time::pause();
    }
}
