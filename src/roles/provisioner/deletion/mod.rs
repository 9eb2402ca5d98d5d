//! Deletes volumes whose claims are gone, and keeps our finalizer on those whose deletion is ours.

pub mod decide;
mod handler;
pub mod refusal;

pub(super) use handler::handle;
