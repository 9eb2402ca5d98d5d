//! A cluster and a storage driver inside this process, for the `sandbox` command, the tests and the simulation. HTTP,
//! gRPC and state are real; only the machines are missing.

pub mod actors;
pub mod api;
pub mod demo;
pub mod driver;
pub mod kubelet;
pub mod network;
mod plugin;
pub mod testbed;
mod verb;

pub use plugin::{Plugin, serve};
pub use verb::{SandboxError, Wanted, run};
