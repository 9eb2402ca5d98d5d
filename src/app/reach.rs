//! `check --kubeconfig`: whether the API server can be reached as the daemon would reach it, whether Leases can be created there,
//! and whether the driver's `CSIDriver` object fits the configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::{Api, ApiOptions, Caches, Clients, ClusterAccess, ConnectError, CsiDriver};
use crate::config::Loaded;
use crate::election::{self, LeaseError, LeaseSettings};
use crate::process::{ErrorChain, Proxies};
use crate::roles::{LoadError, Misfits};
use crate::telemetry::Meter;

use super::environment::DEFAULT_NAMESPACE;
use super::plan::{self, Plan};
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
    /// What of the driver's `CSIDriver` object does not fit, or why it cannot be read, as text for people. `None`: no role of the
    /// configuration depends on it, or the driver's name is not known.
    pub driver_object: Option<Vec<String>>,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reached, version {}", self.version)?;
        if let Some(namespace) = &self.leases {
            write!(f, "; Leases can be created in namespace {namespace}")?;
        }
        if self.driver_object.as_ref().is_some_and(Vec::is_empty) {
            f.write_str("; the CSIDriver object fits")?;
        }
        Ok(())
    }
}

/// Asks the API server of a kubeconfig for its version, whether it would create a Lease, and for the `CSIDriver` object of `driver`.
/// `namespace`: the pod's, if it is known.
pub async fn reach(
    kubeconfig: PathBuf,
    loaded: &Loaded,
    proxies: Proxies,
    namespace: Option<&str>,
    driver: Option<&str>,
) -> Result<Reached, ReachError> {
    let access = ClusterAccess::Kubeconfig(kubeconfig.clone());
    let clients = Clients::connect(&access, &client_options(&loaded.config, proxies)).await?;
    let version = match clients.work.apiserver_version().await {
        Ok(version) => version.git_version,
        Err(source) => return Err(ReachError::Request { kubeconfig, source: Box::new(source) }),
    };
    let leases = rehearse_lease(clients.work.clone(), loaded, namespace).await?;
    let driver_object = match driver {
        Some(driver) => look_at_driver_object(clients.work, loaded, driver).await?,
        None => None,
    };
    Ok(Reached { version, leases, driver_object })
}

/// Returns the namespace in which a Lease can be created, if the configuration needs one.
async fn rehearse_lease(
    client: kube::Client,
    loaded: &Loaded,
    namespace: Option<&str>,
) -> Result<Option<String>, ReachError> {
    let section = &loaded.config.leader_election;
    if !section.enabled || !Plan::of_some_driver(loaded, namespace)?.needs_leases() {
        return Ok(None);
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
    match election::rehearse(client, settings, PATIENCE).await {
        Ok(()) => Ok(Some(namespace)),
        Err(source) => Err(ReachError::Lease { namespace, source }),
    }
}

/// The misfits of the driver's object that hold for any driver: `check` does not call the driver. It lists the objects, because the
/// daemon has the right to list them, and not to get one.
async fn look_at_driver_object(
    client: kube::Client,
    loaded: &Loaded,
    driver: &str,
) -> Result<Option<Vec<String>>, ReachError> {
    let roles = plan::load(&loaded.roles, &Caches::new())?;
    let expectations: Vec<_> = roles.iter().filter_map(|role| role.active.expectation.as_ref()).collect();
    if expectations.is_empty() {
        return Ok(None);
    }
    let api = Api::new(client, &ApiOptions::from(&loaded.config.kubernetes), Meter::new());
    let objects = match api.list::<CsiDriver>(None, None).await {
        Ok(objects) => objects,
        Err(error) => return Ok(Some(vec![format!("CSIDriver {driver}: not read: {}", ErrorChain(&error))])),
    };
    let object = objects.iter().find(|object| *object.metadata.name == *driver);
    let found: Misfits = expectations.iter().flat_map(|expectation| expectation.misfits(object, None)).collect();
    Ok(Some(found.into_iter().map(|misfit| format!("CSIDriver {driver}: {}", misfit.text)).collect()))
}
