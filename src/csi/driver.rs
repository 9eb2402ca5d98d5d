//! The driver at the socket: the handshake, and the driver's data for the rest of the daemon.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Code;
use tracing::warn;

use super::capabilities::{Capabilities, PluginService};
use super::channel::ConnectError;
use super::client::Client;
use super::error::RpcError;
use super::meeting::{MeetError, meet};
use super::snapshot_locks::SnapshotLocks;
use super::volume_listings::VolumeListings;
use super::volume_locks::VolumeLocks;
use super::volume_passes::VolumePasses;
use crate::proto;

/// The state of the connection to the driver.
#[derive(Debug, Clone)]
pub enum DriverState {
    /// Not met yet.
    Connecting {
        /// When we began to connect.
        since: Instant,
        /// What failed last.
        last_error: Option<String>,
    },
    /// Connected, ready and known.
    Ready(Arc<Driver>),
    /// The driver was ready; now the connection is gone or the new one is not ready yet.
    Lost {
        /// The driver when the connection ended. If nothing has changed, the same `Arc` becomes ready again.
        driver: Arc<Driver>,
        /// When the connection ended.
        since: Instant,
        /// What failed last.
        last_error: Option<String>,
    },
    /// The driver's name changed. This state is final, and no calls are made: finalizers, Leases and metrics contain
    /// the old name, so only a new process can serve the new driver. The text has both names.
    Fatal(String),
}

impl DriverState {
    /// The driver, if it is ready.
    pub fn ready(&self) -> Option<&Arc<Driver>> {
        match self {
            Self::Ready(driver) => Some(driver),
            Self::Connecting { .. } | Self::Lost { .. } | Self::Fatal(_) => None,
        }
    }

    /// What failed last, if anything did.
    pub fn last_error(&self) -> Option<&str> {
        match self {
            Self::Connecting { last_error, .. } | Self::Lost { last_error, .. } => last_error.as_deref(),
            Self::Fatal(error) => Some(error),
            Self::Ready(_) => None,
        }
    }
}

/// One generation of the driver: its name, its capabilities, and its client.
pub struct Driver {
    /// The driver's name, constant for the life of the process; empty if there is no driver.
    pub name: String,
    /// Its capabilities. If they change after a restart, a new generation begins.
    pub capabilities: Capabilities,
    /// Counts from 1; 0: there is no driver ([`Driver::is_absent`]).
    pub generation: u64,
    /// Calls the driver. Refuses once another generation has begun.
    pub client: Client,
    /// Which volumes are being changed. Shared by all generations.
    pub operations: VolumeLocks,
    /// Which snapshots are being restored or deleted. Shared by all generations.
    pub snapshots: SnapshotLocks,
    /// Where volumes were last seen attached. Shared by all generations.
    pub listings: VolumeListings,
    /// The passes over `ListVolumes`. One is made at a time. Shared by all generations.
    pub passes: VolumePasses,
    vendor_version: Mutex<String>,
}

impl Driver {
    pub(super) fn new(
        identity: Identity,
        generation: u64,
        client: Client,
        operations: VolumeLocks,
        snapshots: SnapshotLocks,
        listings: VolumeListings,
        passes: VolumePasses,
    ) -> Self {
        let Identity { name, vendor_version, capabilities } = identity;
        Self {
            name,
            capabilities,
            generation,
            client,
            operations,
            snapshots,
            listings,
            passes,
            vendor_version: Mutex::new(vendor_version),
        }
    }

    /// Whether there is no driver: no role of the daemon needs one, and each call fails.
    pub fn is_absent(&self) -> bool {
        self.generation == 0
    }

    /// The vendor's last reported version: an upgrade alone does not begin a generation.
    pub fn vendor_version(&self) -> String {
        self.vendor_version.lock().clone()
    }

    pub(super) fn set_vendor_version(&self, version: String) {
        *self.vendor_version.lock() = version;
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("capabilities", &self.capabilities.names())
            .finish_non_exhaustive()
    }
}

/// The result of a handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) vendor_version: String,
    pub(super) capabilities: Capabilities,
}

/// Why there is no ready driver yet. All errors except a renamed driver are retried.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Meeting(#[from] MeetError),
    #[error("the driver's name changed from {known:?} to {found:?}: restart this process to serve the new driver")]
    Renamed { known: String, found: String },
    #[error("cannot get the driver's services")]
    Services(#[source] RpcError),
    #[error("cannot get the driver's controller capabilities")]
    Controller(#[source] RpcError),
    #[error("cannot get the driver's capabilities for groups of snapshots")]
    Groups(#[source] RpcError),
}

/// Whether the driver may answer if it is asked again.
fn is_passing(code: Code) -> bool {
    use Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable};
    matches!(code, Cancelled | DeadlineExceeded | Aborted | Unavailable | ResourceExhausted)
}

/// Probes once and, if the driver is ready, gets its name and its capabilities. Each call has its own deadline
/// (attacher R28).
///
/// `known` is the name that the driver must have, or receives its name.
pub(super) async fn identify(
    client: &Client,
    known: impl FnOnce(&str) -> Result<(), HandshakeError>,
) -> Result<Identity, HandshakeError> {
    let info = meet(client).await?;
    known(&info.name)?;
    let services = client
        .get_plugin_capabilities(proto::GetPluginCapabilitiesRequest {})
        .await
        .map_err(HandshakeError::Services)?;
    let mut capabilities = Capabilities::from_responses(&services, None);
    if capabilities.controller_service() {
        let controller = client
            .controller_get_capabilities(proto::ControllerGetCapabilitiesRequest {})
            .await
            .map_err(HandshakeError::Controller)?;
        capabilities = Capabilities::from_responses(&services, Some(&controller));
    }
    if capabilities.has_service(PluginService::GroupControllerService) {
        match client.group_controller_get_capabilities(proto::GroupControllerGetCapabilitiesRequest {}).await {
            Ok(groups) => capabilities = capabilities.with_groups(&groups),
            Err(error) if is_passing(error.code) => return Err(HandshakeError::Groups(error)),
            // Groups alone need the answer: whatever else the driver offers is served.
            Err(error) => warn!(%error, "the driver does not say what it can do for groups of snapshots"),
        }
    }
    Ok(Identity { name: info.name, vendor_version: info.vendor_version, capabilities })
}
