//! Kubernetes and a storage driver without either: what the `sandbox` verb and the tests run the daemon against.

pub mod driver;
pub mod network;
