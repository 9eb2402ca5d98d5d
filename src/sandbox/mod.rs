//! A cluster and a storage driver inside this process: what the `sandbox` verb, the tests and the simulation run the daemon
//! against. Real HTTP, real gRPC, real state; only the machines are missing.

pub mod actors;
pub mod api;
pub mod demo;
pub mod driver;
pub mod network;
pub mod testbed;
mod verb;

pub use verb::{SandboxError, Wanted, run};
