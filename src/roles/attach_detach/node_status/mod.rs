//! Which volumes the status of each node reports as attached to its kubelet.

pub mod policy;
