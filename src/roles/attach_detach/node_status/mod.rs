//! Which volumes the status of each node reports as attached to its kubelet, and the one writer of that list.

pub mod policy;
mod reconcile;

pub(super) use self::reconcile::Nodes;
