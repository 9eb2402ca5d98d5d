//! Deletes volumes whose claims are gone, and keeps our finalizer on those whose deletion is ours.

pub mod decide;
pub mod error;
mod handler;

pub(super) use handler::handle;
