//! The one connection to the driver, for all roles.
//!
//! ```text
//!   Endpoint ─> Dial ─> Csi::run ── handshake ──> watch<DriverState> ──Ready(Arc<Driver>)──> roles
//!                                                                          │
//!                                       client      one method per RPC: deadline, span, metric, typed error
//!                                       limiter     no more calls of an RPC at once than the driver takes
//!                                       capabilities  what the driver can do; a change begins a generation
//!                                       operations  one mutating RPC per volume at a time
//!                                       snapshots   restores of a snapshot beside each other, its deletion alone
//!                                       listings    where volumes were last seen attached
//!                                       passes      one ListVolumes pass at a time, for all roles that want one
//!                Dial ─> Dialer ─> Link: a connection of its own, for roles that check the driver itself
//! ```
//! Contract: a holder of an `Arc<Driver>` may keep it. If the driver restarts, calls fail as `Unavailable` until it is
//! back. If it comes back with other capabilities, these calls fail permanently and the state has a new `Arc`, so that
//! no decision based on old capabilities reaches the new driver. No role's call ever reaches a driver whose name was
//! not checked. A pure file says so in its first lines.

pub mod capabilities;
mod channel;
mod client;
mod config;
mod driver;
pub mod error;
mod grpc_status;
mod limit;
mod limiter;
mod link;
mod listed_volume;
pub mod listing;
mod meeting;
mod neighbours;
pub mod redact;
mod rpcs;
mod service;
mod snapshot_locks;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;
pub mod volume;
mod volume_listings;
mod volume_locks;
mod volume_passes;

pub use capabilities::{Capabilities, ControllerRpc, GroupRpc, PluginService};
pub use channel::{ConnectError, Endpoint, EndpointError};
pub use client::{Client, Concurrency, CsiOptions};
pub use config::CsiSection;
pub use driver::{Driver, DriverState};
pub use error::{RpcError, code_name};
pub use limiter::CallActivity;
pub use link::{Dialer, Link};
pub use listed_volume::{ListedVolume, known_bytes};
pub use meeting::{MeetError, NameError, check_name};
pub use service::Csi;
pub use snapshot_locks::{SnapshotActivity, SnapshotLock, SnapshotLocks};
pub use volume::AccessModeError;
pub use volume_listings::{PublishedOn, VolumeListing, VolumeListings};
pub use volume_locks::{Both, GroupLock, VolumeActivity, VolumeLock, VolumeLocks};
pub use volume_passes::{NextPass, Pages, Pass, PassConsumer, Turn, VolumePasses};
