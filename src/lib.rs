//! One daemon that hosts every CSI sidecar's role beside a storage driver on Kubernetes.

pub mod csi;
pub mod process;
pub mod proto;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod telemetry;
