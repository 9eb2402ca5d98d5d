//! `check --kubeconfig`: whether the API server can be reached as the daemon would reach it.

use std::path::PathBuf;

use crate::cluster::{Clients, ClusterAccess, ConnectError};
use crate::config::Config;
use crate::process::Proxies;

use super::run::client_options;

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
}

/// Asks the API server of a kubeconfig for its version.
pub async fn reach(kubeconfig: PathBuf, config: &Config, proxies: Proxies) -> Result<String, ReachError> {
    let access = ClusterAccess::Kubeconfig(kubeconfig.clone());
    let clients = Clients::connect(&access, &client_options(config, proxies)).await?;
    match clients.work.apiserver_version().await {
        Ok(version) => Ok(version.git_version),
        Err(source) => Err(ReachError::Request { kubeconfig, source: Box::new(source) }),
    }
}
