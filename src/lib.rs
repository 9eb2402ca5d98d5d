//! One daemon that hosts every CSI sidecar's role beside a storage driver on Kubernetes.

pub mod csi;
pub mod election;
pub mod process;
pub mod proto;
pub mod queue;
pub mod telemetry;
