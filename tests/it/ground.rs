//! The ground that the scenarios stand on here: the sandbox's API and the demo driver, on real sockets.
//!
//! Another target can bring its own `ground` with the same items and run the same scenarios elsewhere: see [`crate::world`].

use std::time::Duration;

use csi_control_plane::process::{Clock, Entropy};
use csi_control_plane::sandbox::driver::{Driver, Profile};
use csi_control_plane::sandbox::stage::{ADMIN_TOKEN, Ground as StageGround, Stage};
use tempfile::TempDir;

pub(crate) use csi_control_plane::sandbox::stage::Daemon;

/// An API and a driver of its own for every scenario.
pub(crate) struct Ground {
    /// All of the sandbox's powers, for the scenarios under `sandbox_only`.
    pub(crate) stage: Stage,
    client: kube::Client,
    /// Holds the driver's socket.
    _folder: TempDir,
}

impl Ground {
    /// Sets up an API and a driver of this profile.
    pub(crate) async fn set(profile: Profile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ground = StageGround::Sockets { folder: folder.path().to_owned() };
        let stage = Stage::set(ground, profile, Clock::system(), Entropy::system()).await.unwrap();
        let client = client(&stage, ADMIN_TOKEN);
        Self { stage, client, _folder: folder }
    }

    /// A client that may do everything.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The driver's backend.
    pub(crate) fn driver(&self) -> &Driver {
        &self.stage.driver
    }

    /// Ends the driver's process, and starts it again after `down`.
    pub(crate) async fn restart_driver(&self, down: Duration) {
        self.stage.server.restart(down).await;
        self.stage.server.up().await;
    }

    /// Starts a daemon on this host name with this configuration.
    pub(crate) async fn start(&self, host: &str, yaml: &str) -> Daemon {
        self.stage.start(host, yaml).await.unwrap()
    }
}

/// A client of the stage's API that comes with this token.
pub(crate) fn client(stage: &Stage, token: &str) -> kube::Client {
    let mut config = kube::Config::new(stage.url().unwrap().parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    config.try_into().unwrap()
}
