//! Announces the driver to this node's kubelet: what node-driver-registrar does.
//!
//! ```text
//!   driver ── Probe, GetPluginInfo ──> driver (watched) ─┐
//!   plugins_registry ── file ──> socket ─────────────────┼─> decide (P) ──> announce · withdraw ──> socket
//!   kubelet ── GetInfo, NotifyRegistrationStatus ──> server ─┤
//!   CSINode ── get, with `csiNodeInterval` ──> csi_node ─────┘
//! ```
//!
//! - The kubelet finds a socket in its directory, asks it for the driver's name and endpoint, calls the driver itself and says how it
//!   went. The socket may then be idle for months; it is needed again when the kubelet restarts.
//! - Nothing is announced before the driver has answered, and a driver that falls silent stays announced: unregistering breaks more
//!   than it heals.
//! - No other process is fought: a file that is not ours is replaced at the start, never removed, and never replaced again.
//! - The kubelet names the socket's path as the `:authority`, which no server for Rust takes: `authority` replaces it.
//! - The process never ends because of the driver or the kubelet.
//! - A kubelet that has lost the driver does not say so. Only if the configuration asks for it, the node's CSINode is looked at.
//! - A changed section is taken over while the role is served: the socket stays, unless the kubelet must ask anew.

mod authority;
mod config;
mod csi_node;
mod decide;
mod driver;
mod health;
pub mod metrics;
pub mod names;
mod self_check;
mod serve;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod serve_tests;
mod server;
mod shown;
pub mod sidecar;
mod socket;

use serde_json::{Value, json};

use crate::config::RoleSection;

pub use self::config::{OnShutdown, RegistrarSection};
use super::role::{Kind, LocalRegistration, LocalRole, Registration, SandboxNode};

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<RegistrarSection>(NAME)
        .with_warnings(config::warnings)
        .with_needs(config::needs)
        .with_conflicts(config::conflicts),
    sidecar: Some(&sidecar::SIDECAR),
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Local(LocalRegistration { load, rules: csi_node::rules, sandbox }),
};

const NAME: &str = "registrar";

fn load(section: &Value) -> Result<Box<dyn LocalRole>, serde_json::Error> {
    Ok(Box::new(serve::Registrar::new(RoleSection::read(section)?)))
}

fn sandbox(node: &SandboxNode) -> Option<Value> {
    Some(json!({ "directory": node.registry.as_ref()?, "kubeletRegistrationPath": node.socket }))
}
