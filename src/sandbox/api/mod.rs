//! An in-process Kubernetes API.

pub mod pure;
