//! Turns scheduled pods into VolumeAttachments, and takes those away when the pods are gone and the node has let go: what the
//! attach/detach controller of kube-controller-manager does (attach-detach spec). It serves the volumes of all drivers.
//!
//! Not here yet:
//!
//! - what reads caches and writes: only what is decided is here;
//! - the line in [`ROLES`](super::ROLES), and with it what users see: until then no daemon hosts the role.

pub mod config;
pub mod guard;
pub mod memory;
pub mod node_status;
pub mod orphans;
pub mod volume;
pub mod volume_id;
pub mod wishes;
