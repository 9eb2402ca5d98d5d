//! The Kubernetes API: clients and shared caches.

mod config;

pub use config::KubernetesSection;
