//! `orphans`: prints what the leader's status page shows. The daemon that holds the Lease has looked; nothing is looked for here.
//!
//! ```text
//! Lease ──holder──> pod ──port "diagnostics"──> GET …/pods/NAME:PORT/proxy/status.json, through the API server
//! ```

use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::{Clients, ClusterAccess, ConnectError};
use crate::config::Config;
use crate::diagnostics::{DiagnosticsSection, Fact, TableReport};
use crate::election;
use crate::process::Proxies;
use crate::roles::{ORPHANS, ORPHANS_KEY, orphans_lease};

use super::run::client_options;

/// The name of the port of the diagnostics in the chart's pods.
const PORT: &str = "diagnostics";

/// Why the orphans of a driver are not known.
#[derive(Debug, thiserror::Error)]
pub enum OrphansError {
    /// The kubeconfig, its certificates or its proxy cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The API server does not show an object.
    #[error("cannot read {kind} {name:?} in namespace {namespace:?}")]
    Object {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// There is no Lease of this name.
    #[error(
        "there is no Lease {lease:?} in namespace {namespace:?}: give the daemon's namespace with --namespace. A daemon without \
         leader election has no Lease: look at its status page"
    )]
    NoLease {
        /// The Lease.
        lease: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// The Lease has no holder.
    #[error("nothing leads: Lease {0:?} has no holder")]
    NoLeader(String),
    /// The holder's pod does not exist here.
    #[error("the holder of Lease {lease:?}, {identity:?}, is no pod of namespace {namespace:?}")]
    NoPod {
        /// The Lease.
        lease: String,
        /// Its holder.
        identity: String,
        /// Where the pod was looked for.
        namespace: String,
    },
    /// The pod does not answer, or not through the API server.
    #[error("cannot read the status page of pod {pod:?} at port {port} through the API server")]
    Page {
        /// The pod.
        pod: String,
        /// The port of its diagnostics.
        port: i32,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// What answers is no daemon.
    #[error("pod {pod:?} has no status page of this program")]
    NoDaemon {
        /// The pod.
        pod: String,
        /// What is wrong with its answer.
        source: serde_json::Error,
    },
    /// The daemon does not look for orphans.
    #[error("the daemon in pod {0:?} does not look for orphans, or does not serve yet: set {ORPHANS_KEY}: true")]
    Off(String),
}

/// What the leader shows.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OrphansReport {
    /// Its pod.
    pub pod: String,
    /// The orphans.
    pub orphans: TableReport,
    /// How many there are of each kind, or why that is not known.
    pub facts: Vec<Fact>,
}

/// The part of `/status.json` that is read: the rest may be another version's.
#[derive(Debug, Deserialize)]
struct Status {
    roles: Vec<Role>,
    tables: Vec<TableReport>,
}

#[derive(Debug, Deserialize)]
struct Role {
    name: String,
    facts: Vec<Fact>,
}

/// The pod of the leader, of which only the ports are read.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
struct LeaderPod {
    metadata: ObjectMeta,
    spec: Option<PodSpec>,
}

#[derive(Debug, Clone, Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Debug, Clone, Deserialize)]
struct Container {
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: i32,
}

/// Asks the leader of this driver for what it shows, through the API server. `namespace`: of the Lease and the pod.
pub async fn orphans(
    access: &ClusterAccess,
    proxies: Proxies,
    driver: &str,
    namespace: &str,
) -> Result<OrphansReport, OrphansError> {
    let client = Clients::connect(access, &client_options(&Config::default(), proxies)).await?.work;
    let lease_name = orphans_lease(driver);
    let lease: Option<Lease> = read(&client, "Lease", namespace, &lease_name).await?;
    let Some(lease) = lease else {
        return Err(OrphansError::NoLease { lease: lease_name, namespace: namespace.to_owned() });
    };
    let holder = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
    let Some(identity) = holder else { return Err(OrphansError::NoLeader(lease_name)) };
    let name = election::pod_of(&identity);
    let Some(pod) = read::<LeaderPod>(&client, "Pod", namespace, name).await? else {
        return Err(OrphansError::NoPod { lease: lease_name, namespace: namespace.to_owned(), identity });
    };
    let port = port(&pod);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/status.json");
    let page = |source: kube::Error| OrphansError::Page { pod: name.to_owned(), port, source: Box::new(source) };
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| page(kube::Error::HttpError(error)))?;
    let text = client.request_text(request).await.map_err(page)?;
    report(name, &text)
}

async fn read<K>(
    client: &kube::Client,
    kind: &'static str,
    namespace: &str,
    name: &str,
) -> Result<Option<K>, OrphansError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + fmt::Debug + DeserializeOwned,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.map_err(|source| OrphansError::Object {
        kind,
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        source: Box::new(source),
    })
}

/// The port of the diagnostics: the one that the chart's pods name, else the default.
fn port(pod: &LeaderPod) -> i32 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let named = containers.flat_map(|container| container.ports.iter().flatten());
    let named = named.filter(|port| port.name.as_deref() == Some(PORT)).map(|port| port.container_port).next();
    let default = DiagnosticsSection::default().listen.map_or(0, |address| address.port().into());
    named.unwrap_or(default)
}

/// The orphans on the status page of a pod.
fn report(pod: &str, page: &str) -> Result<OrphansReport, OrphansError> {
    let Status { roles, tables } =
        serde_json::from_str(page).map_err(|source| OrphansError::NoDaemon { pod: pod.to_owned(), source })?;
    let table = tables.into_iter().find(|table| table.name == ORPHANS.name);
    let orphans = table.ok_or_else(|| OrphansError::Off(pod.to_owned()))?;
    let told = roles.into_iter().filter(|role| role.name == orphans.role).flat_map(|role| role.facts);
    let facts = told.filter(|fact| fact.name.starts_with("orphaned ")).collect();
    Ok(OrphansReport { pod: pod.to_owned(), orphans, facts })
}

impl fmt::Display for OrphansReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.orphans.rows_total > 0 {
            writeln!(f, "{}", self.orphans)?;
        }
        self.facts.iter().try_for_each(|fact| writeln!(f, "{}: {}", fact.name, fact.value))
    }
}

#[cfg(test)]
#[path = "orphans_tests.rs"]
mod tests;
