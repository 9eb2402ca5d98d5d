//! The driver that the story drives: the demo one, or the user's own over its socket.

use std::time::Duration;

use thiserror::Error;
use tonic::transport::{Channel, Endpoint};

use crate::csi::{self, Csi, CsiOptions, RpcError};
use crate::process::{Clock, Dial, Entropy, Tasks};
use crate::proto::node_client::NodeClient;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use crate::proto::{
    CapacityRange, ControllerUnpublishVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, NodeGetInfoRequest,
    VolumeCapability,
};
use crate::sandbox::driver::Driver;
use crate::telemetry::Meter;

/// How long the user's driver may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The driver behind the story.
#[derive(Debug)]
pub enum Backend {
    /// Ours, which can misbehave on demand.
    Demo(Driver),
    /// The user's, spoken to over a connection of the story's own.
    Own(Box<Own>),
}

/// The user's driver.
#[derive(Debug)]
pub struct Own {
    driver: std::sync::Arc<csi::Driver>,
    node_id: String,
    _tasks: Tasks,
}

/// The user's driver cannot be driven.
#[derive(Debug, Error)]
pub enum BackendError {
    /// It did not become ready.
    #[error("the driver did not become ready within {limit}s: {0}", limit = PATIENCE.as_secs())]
    NotReady(String),
    /// Its node service does not say where it runs.
    #[error("the driver's socket has no node service to ask for a node; name one that it knows with --node-id")]
    Node(#[source] tonic::Status),
    /// Its socket could not be reached.
    #[error("cannot connect to the driver's node service")]
    Connect(#[source] tonic::transport::Error),
    /// A volume could not be created or deleted.
    #[error("cannot prepare the story's volumes")]
    Volume(#[source] RpcError),
    /// It answered without a volume.
    #[error("CreateVolume answered without a volume")]
    NoVolume,
}

impl Own {
    /// Meets the driver at `address`. Without a node id, its node service is asked where it runs.
    pub async fn meet(
        address: &str,
        dial: Dial,
        node_id: Option<String>,
        clock: Clock,
        entropy: Entropy,
    ) -> Result<Self, BackendError> {
        let csi = Csi::new(dial, CsiOptions::default(), Meter::new(), clock, entropy);
        let (tasks, _) = Tasks::new("story");
        tasks.spawn("csi", csi.clone().run());
        let mut states = csi.state();
        let ready = tokio::time::timeout(PATIENCE, states.wait_for(|state| state.ready().is_some())).await;
        let driver = match ready {
            Ok(Ok(state)) => state.ready().cloned(),
            Ok(Err(_)) | Err(_) => None,
        };
        let Some(driver) = driver else {
            let state = csi.state().borrow().clone();
            return Err(BackendError::NotReady(state.last_error().unwrap_or("no answer").to_owned()));
        };
        let node_id = match node_id {
            Some(node_id) => node_id,
            None => ask_for_node(address).await?,
        };
        Ok(Self { driver, node_id, _tasks: tasks })
    }
}

async fn ask_for_node(address: &str) -> Result<String, BackendError> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(BackendError::Connect)?;
    let channel: Channel = endpoint.connect().await.map_err(BackendError::Connect)?;
    let info = NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await.map_err(BackendError::Node)?;
    Ok(info.into_inner().node_id)
}

impl Backend {
    /// The driver's name.
    pub fn name(&self) -> String {
        match self {
            Self::Demo(driver) => driver.profile().name,
            Self::Own(own) => own.driver.name.clone(),
        }
    }

    /// The driver's ids of the story's two nodes. The user's driver knows only the node that it runs on.
    pub fn node_ids(&self) -> Vec<String> {
        match self {
            Self::Demo(_) => vec!["demo-node-a".to_owned(), "demo-node-b".to_owned()],
            Self::Own(own) => vec![own.node_id.clone()],
        }
    }

    /// Whether a driver can be asked where its volumes are published.
    pub fn lists(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => {
                own.driver.capabilities.list_volumes() && own.driver.capabilities.list_volumes_published_nodes()
            }
        }
    }

    /// Makes a volume at the driver and returns its handle.
    pub async fn create(&self, name: &str) -> Result<String, BackendError> {
        match self {
            Self::Demo(driver) => {
                driver.seed([name]);
                Ok(name.to_owned())
            }
            Self::Own(own) => {
                let request = CreateVolumeRequest {
                    name: format!("csi-control-plane-story-{name}"),
                    capacity_range: Some(CapacityRange { required_bytes: 1 << 20, limit_bytes: 0 }),
                    volume_capabilities: vec![VolumeCapability {
                        access_type: Some(AccessType::Mount(MountVolume::default())),
                        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
                    }],
                    ..CreateVolumeRequest::default()
                };
                let answer = own.driver.client.create_volume(request).await.map_err(BackendError::Volume)?;
                Ok(answer.volume.ok_or(BackendError::NoVolume)?.volume_id)
            }
        }
    }

    /// Removes the volume at the driver.
    pub async fn delete(&self, handle: &str) -> Result<(), BackendError> {
        match self {
            Self::Demo(_) => Ok(()),
            Self::Own(own) => {
                let request = DeleteVolumeRequest { volume_id: handle.to_owned(), ..DeleteVolumeRequest::default() };
                own.driver.client.delete_volume(request).await.map(|_| ()).map_err(BackendError::Volume)
            }
        }
    }

    /// Detaches a volume behind Kubernetes' back.
    pub async fn detach_behind(&self, handle: &str, node_id: &str) -> Result<(), BackendError> {
        match self {
            Self::Demo(driver) => {
                driver.detach_behind(handle, node_id);
                Ok(())
            }
            Self::Own(own) => {
                let request = ControllerUnpublishVolumeRequest {
                    volume_id: handle.to_owned(),
                    node_id: node_id.to_owned(),
                    ..ControllerUnpublishVolumeRequest::default()
                };
                own.driver.client.controller_unpublish_volume(request).await.map(|_| ()).map_err(BackendError::Volume)
            }
        }
    }

    /// Where a volume is published, as the driver itself says. `None`: it cannot be asked.
    pub async fn published(&self, handle: &str) -> Option<Vec<String>> {
        match self {
            Self::Demo(driver) => Some(driver.published(handle).into_iter().collect()),
            Self::Own(own) => {
                if !self.lists() {
                    return None;
                }
                let listed = own.driver.client.list_volumes(crate::proto::ListVolumesRequest::default()).await.ok()?;
                let entry = listed
                    .entries
                    .into_iter()
                    .find(|entry| entry.volume.as_ref().is_some_and(|volume| volume.volume_id == handle))?;
                Some(entry.status?.published_node_ids)
            }
        }
    }
}
