//! The `demo-driver` verb: the demo driver alone, as a CSI plugin that mounts, for a node with pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::driver::{Driver, Listen, Node, Profile, Server};
use super::verb::{SandboxError, Signals, telemetry_settings};
use crate::csi::Endpoint;
use crate::process::{Clock, input};
use crate::telemetry::{Meter, Telemetry};

/// The mode of the socket: the daemon may be another user of the driver's group.
const MODE: u32 = 0o660;

/// The options of a demo driver alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Where it listens.
    pub endpoint: String,
    /// The folder of its state and of its volumes, the same for all of its processes.
    pub storage: PathBuf,
    /// The node that it stands on. `None`: it has no node service.
    pub node_id: Option<String>,
    /// What it is, as YAML, in place of the default.
    pub profile: Option<PathBuf>,
}

impl Plugin {
    /// Who the driver is. Every node may have volumes: they are the cluster's, and their number is unknown here.
    fn profile(&self) -> Result<Profile, SandboxError> {
        let mut profile = match &self.profile {
            None => Profile::default(),
            Some(path) => {
                let text = input::read(path).map_err(|source| SandboxError::Folder { path: path.clone(), source })?;
                serde_yaml::from_str(&text).map_err(|source| SandboxError::Profile { path: path.clone(), source })?
            }
        };
        profile.accept_unknown_nodes = true;
        profile.node_service = self.node_id.is_some();
        profile.storage = Some(self.storage.clone());
        if let Some(id) = &self.node_id {
            let segments = profile.nodes.get(id).map(|node| node.segments.clone()).unwrap_or_default();
            profile.nodes.insert(id.clone(), Node { segments, ..Node::default() });
            profile.here = Some(id.clone());
        }
        Ok(profile)
    }
}

/// Serves until a signal.
pub fn serve(wanted: &Plugin, variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
    let endpoint = Endpoint::parse(&wanted.endpoint)?;
    let driver = Driver::new(wanted.profile()?, Clock::system());
    if wanted.node_id.is_some() {
        driver.recover_mounts().map_err(SandboxError::Storage)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(SandboxError::Runtime)?;
    runtime.block_on(async {
        let telemetry = Telemetry::install(&telemetry_settings(variables), variables, Clock::system(), &Meter::new())?;
        let mut signals = Signals::listen().map_err(SandboxError::Signal)?;
        let path = endpoint.path().to_owned();
        let listen = Listen::unix(path.clone(), MODE);
        let server = Server::start(&driver, listen).await.map_err(|source| SandboxError::Folder { path, source })?;
        signals.next().await;
        server.stop().await;
        telemetry.shutdown(Duration::from_secs(1)).await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_plugin_stands_on_the_node_that_it_is_told_and_knows_its_zone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile.yaml");
        fs::write(&file, "nodes: {b: {segments: {zone: b}}, a: {}}\nmaxVolumeSize: 5\n").unwrap();
        let plugin = |node: Option<&str>| Plugin {
            endpoint: "unix:///s".to_owned(),
            storage: "/storage".into(),
            node_id: node.map(str::to_owned),
            profile: Some(file.clone()),
        };
        let node = plugin(Some("b")).profile().unwrap();
        assert_eq!((node.here.as_deref(), node.node_service, node.max_volume_size), (Some("b"), true, 5));
        assert_eq!(node.nodes["b"].segments["zone"], "b");
        let controller = plugin(None).profile().unwrap();
        assert!(!controller.node_service && controller.storage.is_some());
        fs::write(&file, "colour: red\n").unwrap();
        let told = plugin(None).profile().unwrap_err().to_string();
        assert_eq!(told, format!("{} is no profile of the demo driver", file.display()));
    }
}
