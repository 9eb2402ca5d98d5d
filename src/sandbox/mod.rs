//! A cluster and a storage driver inside this process, for the `sandbox` command, the tests and the simulation. HTTP,
//! gRPC and state are real; only the machines are missing.
//!
//! The API, the driver, the network and the other controllers are a crate of their own, `crates/sandbox`, which knows nothing of the
//! daemon. Here is what starts a daemon beside them.

#[cfg(test)]
mod client_tests;
pub mod demo;
pub mod kubelet;
mod plugin;
pub mod testbed;
mod verb;

pub use csi_control_plane_sandbox::{actors, api, driver, network};
pub use plugin::{Plugin, serve};
pub use verb::{SandboxError, Wanted, run};
