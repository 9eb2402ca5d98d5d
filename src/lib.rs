//! One daemon that hosts every CSI sidecar's role beside a storage driver on Kubernetes.

pub mod cluster;
pub mod csi;
pub mod process;
pub mod proto;
pub mod telemetry;
