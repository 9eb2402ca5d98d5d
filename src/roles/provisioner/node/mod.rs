//! Node deployment: each node has a driver and a daemon of its own, and one of them becomes the owner of a claim.

pub mod contention;
pub(super) mod ownership;
pub mod scope;
