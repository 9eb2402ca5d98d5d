//! Answers the kubelet's probe of the driver: what livenessprobe does.
//!
//! ```text
//!  kubelet ── GET /healthz ──> routes ──> checks ── a new connection, Probe ──> driver
//!                                │           └─ decide (P): start or join, and what the answer means
//!                                └─ 200 or 500 with the reason: the kubelet restarts the driver's container
//! ```
//!
//! - The probe stands on the driver's container and names our port: the answer is about the driver, never about this daemon. So
//!   nothing but a check of this moment changes it: no Lease, no other role, no API server, no reload, no earlier answer.
//! - Each check has a connection of its own, because a connection that lives says nothing about a socket file that is gone (L2).
//! - The port is open before the driver answers, so that the kubelet's events have a reason instead of "connection refused" (L5).
//! - A changed section is taken over while the role is served: the port stays open, unless its address is the change (L13).
//! - A check belongs to the requests that wait for it: when the last client goes away, the call is cancelled.

mod checks;
mod config;
mod decide;
pub mod metrics;
pub mod names;
mod serve;
#[cfg(test)]
#[cfg(feature = "sandbox")]
mod serve_tests;
pub mod sidecar;

use serde_json::{Value, json};

use crate::config::RoleSection;

pub use self::config::LivenessSection;
use super::role::{Kind, LocalRegistration, LocalRole, Registration, SandboxNode};

/// The role's line in [`super::ROLES`].
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<LivenessSection>(NAME).with_warnings(config::warnings),
    sidecar: Some(&sidecar::SIDECAR),
    restart_keys: &[],
    metrics: metrics::ALL,
    foreign_metrics: metrics::FOREIGN,
    kind: Kind::Local(LocalRegistration { load, rules: |_| Vec::new(), sandbox: |node| Some(sandbox(node)) }),
};

const NAME: &str = "liveness";

fn load(section: &Value) -> Result<Box<dyn LocalRole>, serde_json::Error> {
    Ok(Box::new(serve::Liveness::new(RoleSection::read(section)?)))
}

/// A page beside the diagnostics.
fn sandbox(node: &SandboxNode) -> Value {
    json!({ "listen": node.diagnostics })
}
