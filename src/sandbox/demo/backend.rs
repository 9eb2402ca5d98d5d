//! The driver of the demo: the demo driver, or the user's own on its socket.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::presence::{self, Absent};
use crate::csi::{self, Csi, CsiOptions, RpcError};
use crate::process::{Clock, Dial, Rng, Tasks};
use crate::proto::list_volumes_response::Entry;
use crate::proto::node_client::NodeClient;
use crate::proto::{ControllerUnpublishVolumeRequest, ListVolumesRequest, NodeGetInfoRequest};
use crate::sandbox::driver::Driver;
use crate::telemetry::Meter;

/// How long the user's driver may take to answer for the first time, and its node service.
const PATIENCE: Duration = Duration::from_secs(30);

/// The driver behind the demo.
#[derive(Debug)]
pub enum Backend {
    /// Ours, which can misbehave on demand.
    Demo(Driver),
    /// The user's, spoken to over a connection of the demo's own.
    Own(Box<Own>),
}

/// The user's driver.
#[derive(Debug)]
pub struct Own {
    driver: std::sync::Arc<csi::Driver>,
    place: Place,
    has_node_service: bool,
    _tasks: Tasks,
}

/// A node as the driver knows it.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its id at the driver.
    pub node_id: String,
    /// Where it is, if the driver says so.
    pub segments: BTreeMap<String, String>,
}

/// The user's driver cannot be driven.
#[derive(Debug, Error)]
pub enum BackendError {
    /// Nothing answers there.
    #[error(
        "no CSI driver at {endpoint}: expected a driver that listens on this unix socket; start it, or give the path of its socket \
         to --csi-endpoint"
    )]
    NotThere {
        /// Where.
        endpoint: String,
        /// What is there instead.
        #[source]
        source: Absent,
    },
    /// It did not become ready.
    #[error(
        "the driver at {endpoint} did not become ready within {limit}s: look at its log; {last_error}",
        limit = PATIENCE.as_secs()
    )]
    NotReady {
        /// Where it is.
        endpoint: String,
        /// What was last seen of it.
        last_error: String,
    },
    /// Its node service does not say where it runs.
    #[error("the driver's socket has no node service: give --node-id the ID of a node that the driver knows")]
    Node(#[source] tonic::Status),
    /// Its node service does not answer.
    #[error("the driver's node service did not answer NodeGetInfo within {limit}s", limit = PATIENCE.as_secs())]
    Silent,
    /// Its socket could not be reached.
    #[error("cannot connect to the driver's node service")]
    Connect(#[source] tonic::transport::Error),
    /// It cannot do what the demo is about.
    #[error("the demo needs a driver that creates volumes: this driver lacks CREATE_DELETE_VOLUME")]
    MakesNoVolumes,
    /// A volume could not be detached outside Kubernetes.
    #[error("cannot detach a volume outside Kubernetes")]
    Volume(#[source] RpcError),
}

impl Own {
    /// Meets the driver at `endpoint`. Without a node id, its node service is asked where it runs. `say` is told why a user waits.
    pub async fn meet(
        endpoint: &str,
        dial: Dial,
        node_id: Option<String>,
        clock: Clock,
        rng: Rng,
        mut say: impl FnMut(&str),
    ) -> Result<Self, BackendError> {
        let csi = Csi::new(dial.clone(), CsiOptions::default(), Meter::new(), clock, rng);
        let found = presence::find(&csi.dialer()).await;
        let found = found.map_err(|source| BackendError::NotThere { endpoint: endpoint.to_owned(), source })?;
        if let Some(why) = found.why_wait() {
            say(&format!("waiting up to {}s for the driver: {why}", PATIENCE.as_secs()));
        }
        let (tasks, _) = Tasks::new("demo");
        tasks.spawn("csi", csi.clone().run());
        let mut states = csi.state();
        let ready = timeout(PATIENCE, states.wait_for(|state| state.ready().is_some())).await;
        let driver = match ready {
            Ok(Ok(state)) => state.ready().cloned(),
            Ok(Err(_)) | Err(_) => None,
        };
        let Some(driver) = driver else {
            let state = csi.state().borrow().clone();
            let last_error = state.last_error().unwrap_or("it has not answered").to_owned();
            return Err(BackendError::NotReady { endpoint: endpoint.to_owned(), last_error });
        };
        if !driver.capabilities.create_delete_volume() {
            return Err(BackendError::MakesNoVolumes);
        }
        let has_node_service = node_id.is_none();
        let place = match node_id {
            // Only the node service knows where the driver runs; without it, volumes are requested for any place.
            Some(node_id) => Place { node_id, segments: BTreeMap::new() },
            None => timeout(PATIENCE, ask_for_node(&dial)).await.map_err(|_| BackendError::Silent)??,
        };
        Ok(Self { driver, place, has_node_service, _tasks: tasks })
    }
}

/// Over a connection of its own: the shared one has no calls of the node service.
async fn ask_for_node(dial: &Dial) -> Result<Place, BackendError> {
    let dial = dial.clone();
    let connector = tower::service_fn(move |_| {
        let dial = dial.clone();
        async move { dial.dial().await.map(TokioIo::new) }
    });
    let endpoint = Channel::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.map_err(BackendError::Connect)?;
    let info = NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await.map_err(BackendError::Node)?;
    let info = info.into_inner();
    let segments = info.accessible_topology.unwrap_or_default().segments.into_iter().collect();
    Ok(Place { node_id: info.node_id, segments })
}

impl Backend {
    /// The driver's name.
    pub fn name(&self) -> String {
        match self {
            Self::Demo(driver) => driver.profile().name,
            Self::Own(own) => own.driver.name.clone(),
        }
    }

    /// The demo's nodes. The user's driver knows only the one that it runs on.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Self::Demo(driver) => {
                let nodes = driver.profile().nodes.into_iter();
                nodes.map(|(node_id, node)| Place { node_id, segments: node.segments }).collect()
            }
            Self::Own(own) => vec![own.place.clone()],
        }
    }

    /// Whether a kubelet can ask the driver where it runs.
    pub fn has_node_service(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => own.has_node_service,
        }
    }

    /// Whether volumes have a place that is known.
    pub fn has_topology(&self) -> bool {
        self.places().iter().all(|place| !place.segments.is_empty())
    }

    /// Whether the capacity of each place can be published for the scheduler.
    pub fn tells_room(&self) -> bool {
        let has_capability = match self {
            Self::Demo(_) => true,
            Self::Own(own) => own.driver.capabilities.get_capacity(),
        };
        has_capability && self.has_topology()
    }

    /// Whether the driver makes volumes larger.
    pub fn expands(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => own.driver.capabilities.expand_volume(),
        }
    }

    /// Whether the driver takes snapshots.
    pub fn takes_snapshots(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => own.driver.capabilities.create_delete_snapshot(),
        }
    }

    /// Whether the driver takes snapshots of several volumes at one moment.
    pub fn takes_groups(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => own.driver.capabilities.group_snapshots(),
        }
    }

    /// Whether the driver has any snapshot. `None`: it may have others than the demo's.
    pub fn has_snapshots(&self) -> Option<bool> {
        match self {
            Self::Demo(driver) => Some(!driver.state().snapshots().is_empty()),
            Self::Own(_) => None,
        }
    }

    /// Whether the driver reports where its volumes are published.
    pub fn lists(&self) -> bool {
        match self {
            Self::Demo(_) => true,
            Self::Own(own) => {
                own.driver.capabilities.list_volumes() && own.driver.capabilities.list_volumes_published_nodes()
            }
        }
    }

    /// Detaches a volume outside Kubernetes.
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

    /// Where a volume is published, by the driver's own answer. `None`: it cannot say.
    pub async fn published(&self, handle: &str) -> Option<Vec<String>> {
        match self {
            Self::Demo(driver) => Some(driver.published(handle).into_iter().collect()),
            Self::Own(own) => {
                if !self.lists() {
                    return None;
                }
                let entry = own.entry(handle).await.ok()??;
                Some(entry.status?.published_node_ids)
            }
        }
    }

    /// Whether the driver has the volume, by its own answer. `None`: it cannot say.
    pub async fn has(&self, handle: &str) -> Option<bool> {
        match self {
            Self::Demo(driver) => Some(driver.state().volumes().contains_key(handle)),
            Self::Own(own) if own.driver.capabilities.list_volumes() => {
                own.entry(handle).await.ok().map(|found| found.is_some())
            }
            Self::Own(_) => None,
        }
    }
}

impl Own {
    /// The volume in the driver's list.
    async fn entry(&self, handle: &str) -> Result<Option<Entry>, RpcError> {
        let mut request = ListVolumesRequest::default();
        loop {
            let page = self.driver.client.list_volumes(request.clone()).await?;
            let is_it = |entry: &Entry| entry.volume.as_ref().is_some_and(|volume| volume.volume_id == handle);
            let found = page.entries.into_iter().find(is_it);
            if found.is_some() || page.next_token.is_empty() {
                return Ok(found);
            }
            request.starting_token = page.next_token;
        }
    }
}
