//! The names that other programs see of the attacher. All are csi-attacher's, so that swapping one for the other needs no
//! clean-up.

pub use super::super::csi_attacher::{event_source, finalizer, lease};
pub use crate::cluster::names::{
    ANNOTATION_NODE_ID, ANNOTATION_PUBLISH_SECRET, ANNOTATION_TRACEPARENT, ANNOTATION_VOLUME_HANDLE,
};

/// The work queue of VolumeAttachments (metric label `name`).
pub const QUEUE_ATTACHMENTS: &str = "csi-attacher-va";
/// The work queue of PersistentVolumes (metric label `name`).
pub const QUEUE_VOLUMES: &str = "csi-attacher-pv";
