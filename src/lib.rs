//! One daemon that hosts every CSI sidecar's role beside a storage driver on Kubernetes.

pub mod app;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod csi;
pub mod diagnostics;
pub mod election;
pub mod process;
pub mod proto;
pub mod queue;
pub mod roles;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod telemetry;
