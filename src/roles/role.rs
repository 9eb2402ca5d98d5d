//! The interface of a role, of which there are two kinds.
//!
//! | | works with | is served |
//! |---|---|---|
//! | [`Role`] | the cluster, and most with the driver | in terms: while the driver is ready and, where there is a Lease, while this process leads |
//! | [`LocalRole`] | the driver's socket and this machine alone | from the daemon's start to its end, whatever the driver and the cluster do |
//!
//! A daemon that hosts only local roles does not read credentials, connects to no API server and watches nothing. A daemon whose roles of
//! the cluster all work for all drivers ([`ClusterRole::needs_driver`]) connects to no driver for them.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::cluster::rbac::Rule;
use crate::cluster::{
    Api, ApiError, ApiOptions, ClientOptions, Clients, ClusterAccess, ConnectError, Credentials, EventRecorder, Object,
    ObjectName,
};
use crate::config::RoleSection;
use crate::config::sidecar::Sidecar;
use crate::csi::{Csi, Dialer, Driver};
use crate::diagnostics::Board;
use crate::election::{Container, Term};
use crate::process::{Clock, Rng, TaskEnd, panic_message};
use crate::telemetry::Meter;
use crate::telemetry::names::{Foreign, Metric};

use super::wiring::Wiring;

/// The work of a sidecar, as a role writes it.
pub trait Serve: Send + Sync {
    /// Serves one term and returns when it is over. Called again for the next term; keeps nothing between terms.
    fn serve_term(&self, role: &RoleContext, term: Term) -> impl Future<Output = Result<(), RoleError>> + Send;
}

/// The same as a value: each role that serves is one.
pub trait Role: Send + Sync {
    /// Serves one term.
    fn serve<'a>(&'a self, cx: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>>;
}

impl<S: Serve> Role for S {
    fn serve<'a>(&'a self, cx: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        Box::pin(self.serve_term(cx, term))
    }
}

/// The resources of a role during a term.
#[derive(Debug, Clone)]
pub struct RoleContext {
    /// The driver as it was when the term began. Its client survives a restart of the driver.
    pub driver: Arc<Driver>,
    /// The connection to the driver, for roles that watch its state.
    pub csi: Csi,
    /// The work path to the Kubernetes API.
    pub api: Api,
    /// Writes Kubernetes Events in the name of the role's component.
    pub events: EventRecorder,
    /// The status board for the role's queues.
    pub board: Board,
    /// Figures.
    pub meter: Meter,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub rng: Rng,
    /// Where this process runs.
    pub instance: Instance,
}

impl RoleContext {
    /// The same for one role, with its own component for Events.
    #[must_use]
    pub fn of_role(&self, role: &ClusterRole) -> Self {
        let events = self.events.of_component(&(role.event_source)(&self.driver.name));
        Self { events, ..self.clone() }
    }
}

/// The work of a sidecar that needs no cluster.
pub trait LocalRole: Send + Sync {
    /// Serves until `stop`, whether the driver answers or not. Called again after an error.
    fn serve<'a>(&'a self, cx: &'a LocalContext, stop: CancellationToken) -> BoxFuture<'a, Result<(), RoleError>>;

    /// Takes over a changed section, already validated, without an end of its service. `false`: it cannot, so that it ends and is
    /// loaded again.
    fn take_over(&self, section: &Value) -> bool {
        let _ = section;
        false
    }
}

/// The resources of a local role.
#[derive(Debug, Clone)]
pub struct LocalContext {
    /// Makes connections of the role's own to the driver.
    pub driver: Dialer,
    /// The driver's address, for people.
    pub endpoint: String,
    /// The way to the cluster, for a role whose section asks for it.
    pub cluster: ClusterOnRequest,
    /// Where the daemon's diagnostics are served, if anywhere.
    pub diagnostics: Option<SocketAddr>,
    /// The status board.
    pub board: Board,
    /// Metrics.
    pub meter: Meter,
    /// Clock.
    pub clock: Clock,
    /// Random numbers.
    pub rng: Rng,
}

/// The way to the cluster for local roles. No credentials are read and no connection is opened before a role asks.
#[derive(Debug, Clone)]
pub struct ClusterOnRequest {
    /// The API's address and our credentials.
    pub access: ClusterAccess,
    /// The timeouts of the connections.
    pub clients: ClientOptions,
    /// The limits of requests.
    pub api: ApiOptions,
    /// The node that this process runs on, if known.
    pub node: Option<String>,
}

/// Reads objects. A local role has no term, and so no right to write.
#[derive(Debug, Clone)]
pub struct Reader {
    api: Api,
    credentials: Credentials,
}

impl ClusterOnRequest {
    /// Reads the credentials. The connection opens with the first request.
    pub async fn connect(&self, meter: &Meter) -> Result<Reader, ConnectError> {
        let clients = Clients::connect(&self.access, &self.clients).await?;
        Ok(Reader { api: Api::new(clients.work, &self.api, meter.clone()), credentials: clients.credentials })
    }
}

impl Reader {
    /// Reads an object that may not exist.
    pub async fn get_opt<K: Object>(&self, name: &ObjectName) -> Result<Option<K>, ApiError> {
        // A local role has no task that renews them.
        self.credentials.look_if_due().await;
        self.api.get_opt(name).await
    }
}

/// Where a process runs, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// The machine's or pod's host name: the first part of the identity on Leases, unless the pod's name is.
    pub host: String,
    /// The namespace that it runs in. In a [`RoleContext`] it is always known: by default `default`, never the kubeconfig's.
    pub namespace: Option<String>,
    /// The namespace of its Leases, unless the configuration names one. `None`: the one that it runs in.
    pub leases: Option<String>,
    /// Its pod.
    pub pod: Option<String>,
    /// The node that its pod runs on.
    pub node: Option<String>,
    /// Its container, if it alone holds the container's lock.
    pub container: Option<Container>,
}

/// One line of [`super::ROLES`].
pub struct Registration {
    /// The role's name: its key below `roles` in the configuration, its label everywhere else.
    pub name: &'static str,
    /// Its part of the configuration file.
    pub section: RoleSection,
    /// The Go sidecar that it replaces; `None`: another role has the table of its sidecar.
    pub sidecar: Option<&'static Sidecar>,
    /// Its keys below `roles.<name>` that need a restart of the process. A change of another key restarts only the
    /// role.
    pub restart_keys: &'static [&'static str],
    /// Its metrics.
    pub metrics: &'static [Metric],
    /// Metrics of its Go sidecar that we do not have.
    pub foreign_metrics: &'static [&'static [Foreign]],
    /// What it works with, and how it is loaded.
    pub kind: Kind,
}

/// What a role works with.
pub enum Kind {
    /// The cluster, and most with the driver.
    Cluster(ClusterRole),
    /// The driver's socket and this machine: no Lease, and no API server unless its section asks for it. Every replica serves it.
    Local(LocalRegistration),
}

/// The registration of a role that works without the cluster.
pub struct LocalRegistration {
    /// Reads its section.
    pub load: LoadLocal,
    /// The rights of a section that asks for the cluster; none: it does not.
    pub rules: fn(&Value) -> Vec<Rule>,
    /// Its section in the sandbox; `None`: it has nothing to do there.
    pub sandbox: fn(&SandboxNode) -> Option<Value>,
}

/// The registration of a role that works with the cluster.
pub struct ClusterRole {
    /// Whether it works for the driver of the daemon. `false`: for all drivers of the cluster. It makes no call, and what it is called by
    /// others does not depend on the driver.
    pub needs_driver: bool,
    /// Its Lease, depending on its section: a role may be configured to run on every replica.
    pub lease: fn(&Value) -> LeasePolicy,
    /// The component that its Events come from, for a driver of this name: the Go sidecar's.
    pub event_source: fn(driver: &str) -> String,
    /// Its section in the sandbox, where all delays are short; `None`: the sandbox itself does its work.
    pub sandbox: fn(SandboxDriver) -> Option<Value>,
    /// Declares what the role needs. Does no I/O, so that `check` can print the plan offline.
    pub load: Load,
}

impl Registration {
    /// Its registration as a role of the cluster, if it is one.
    pub fn cluster(&self) -> Option<&ClusterRole> {
        match &self.kind {
            Kind::Cluster(role) => Some(role),
            Kind::Local(_) => None,
        }
    }
}

/// The properties of the sandbox's driver, on which a role's section depends. Users may use their own driver.
#[derive(Debug, Clone, Copy)]
pub struct SandboxDriver {
    /// Whether it has topology.
    pub has_topology: bool,
    /// Whether it reports the capacity of each segment.
    pub tells_room: bool,
    /// Whether each attempt is to be seen as an Event: people look at a sandbox that is kept.
    pub shows_attempts: bool,
}

impl SandboxDriver {
    /// The value of a role's key `events`.
    pub fn events(self) -> &'static str {
        if self.shows_attempts { "all" } else { "changes" }
    }
}

/// The machine that the sandbox is, on which a local role's section depends.
#[derive(Debug, Clone)]
pub struct SandboxNode {
    /// Where the daemon's diagnostics are served.
    pub diagnostics: SocketAddr,
    /// The driver's socket.
    pub socket: PathBuf,
    /// Where the sandbox's kubelet looks for drivers. `None`: the driver has no node service that a kubelet could ask.
    pub registry: Option<PathBuf>,
}

/// Reads a role's section and declares what the role needs. Only [`RoleSection::read`] can fail.
pub type Load = fn(&Value, &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error>;

/// Reads a local role's section. Only [`RoleSection::read`] can fail.
pub type LoadLocal = fn(&Value) -> Result<Box<dyn LocalRole>, serde_json::Error>;

/// The Lease of a role of the cluster.
#[derive(Debug, Clone, Copy)]
pub enum LeasePolicy {
    /// The Go sidecar's Lease for a driver of this name, so that an old and a new controller are never both active.
    /// Roles with the same Lease have the same leader.
    Sidecar(fn(driver: &str) -> String),
    /// None: every replica serves it.
    None,
}

impl LeasePolicy {
    /// None where each node has a daemon of its own, because all of them work. Otherwise the sidecar's.
    pub fn unless_per_node(is_per_node: bool, lease: fn(driver: &str) -> String) -> Self {
        if is_per_node { Self::None } else { Self::Sidecar(lease) }
    }

    /// The Lease's name for this driver.
    pub fn name(self, driver: &str) -> Option<String> {
        match self {
            Self::Sidecar(lease) => Some(lease(driver)),
            Self::None => None,
        }
    }
}

/// Why a term ended with an error.
#[derive(Debug, Error)]
pub enum RoleError {
    /// A task of the role ended unexpectedly.
    #[error("task {} {}", .0.task, .0.fate)]
    TaskEnded(TaskEnd),
    /// This process can't serve the role: something is missing, and a restart may help.
    #[error("{0}")]
    Unfit(&'static str),
    /// The role cannot listen.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The role's own task panicked.
    #[error("the role panicked: {0}")]
    Panicked(String),
    /// A subscriber of the role to a cache panicked. The message names the kind.
    #[error("{0}")]
    SubscriberPanicked(String),
}

impl RoleError {
    /// A panic that was caught while the role served.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        Self::Panicked(panic_message(panic))
    }
}

/// A role's section, already validated, could not be read.
#[derive(Debug, Error)]
#[error("cannot read the section of role {role}")]
pub struct LoadError {
    /// The role.
    pub role: &'static str,
    /// What serde says.
    #[source]
    pub source: serde_json::Error,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}
