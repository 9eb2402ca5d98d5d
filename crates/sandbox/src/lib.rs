//! What surrounds the daemon, in one process: a Kubernetes API, the controllers that storage needs, a CSI driver and a network. HTTP,
//! gRPC and state are real; only the machines are missing. It knows nothing of the daemon.

pub mod actors;
pub mod api;
pub mod driver;
pub mod network;
