//! `check --kubeconfig`: whether the API server can be reached as the daemon would reach it, and whether Leases can be created there.

use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::{Clients, ClusterAccess, ConnectError};
use crate::config::Loaded;
use crate::election::{self, LeaseError, LeaseSettings};
use crate::process::Proxies;
use crate::roles::LoadError;

use super::environment::DEFAULT_NAMESPACE;
use super::plan::Plan;
use super::run::client_options;

/// How long the API is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The Lease whose creation is tried, and not stored.
const LEASE: &str = "csi-control-plane-check";

/// Why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The kubeconfig, its certificates or its proxy cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is no connection, or the server refuses.
    #[error("cannot ask the API server of {} for its version", .kubeconfig.display())]
    Request {
        /// Whose server it is.
        kubeconfig: PathBuf,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// No Lease can be created where the configuration says.
    #[error("nobody could lead in namespace {namespace:?}")]
    Lease {
        /// The Leases' namespace.
        namespace: String,
        /// Why not.
        source: LeaseError,
    },
    /// The roles cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// What the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Its version.
    pub version: String,
    /// The namespace in which Leases can be created. `None`: the configuration needs none.
    pub leases: Option<String>,
}

/// Asks the API server of a kubeconfig for its version, and whether it would create a Lease. `namespace`: the pod's, if it is known.
pub async fn reach(
    kubeconfig: PathBuf,
    loaded: &Loaded,
    proxies: Proxies,
    namespace: Option<&str>,
) -> Result<Reached, ReachError> {
    let access = ClusterAccess::Kubeconfig(kubeconfig.clone());
    let clients = Clients::connect(&access, &client_options(&loaded.config, proxies)).await?;
    let version = match clients.work.apiserver_version().await {
        Ok(version) => version.git_version,
        Err(source) => return Err(ReachError::Request { kubeconfig, source: Box::new(source) }),
    };
    let section = &loaded.config.leader_election;
    if !section.enabled || !Plan::of_some_driver(loaded, namespace)?.needs_leases() {
        return Ok(Reached { version, leases: None });
    }
    let told = section.namespace.as_deref().or(namespace);
    let settings = LeaseSettings {
        namespace: told.unwrap_or(DEFAULT_NAMESPACE).to_owned(),
        name: LEASE.to_owned(),
        identity: LEASE.to_owned(),
        lease_duration: section.lease_duration,
        renew_deadline: section.renew_deadline,
        retry_period: section.retry_period,
        labels: section.labels.clone(),
        holder_pods: None,
    };
    let namespace = settings.namespace.clone();
    match election::rehearse(clients.work, settings, PATIENCE).await {
        Ok(()) => Ok(Reached { version, leases: Some(namespace) }),
        Err(source) => Err(ReachError::Lease { namespace, source }),
    }
}
