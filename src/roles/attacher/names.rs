//! The attacher's names that other programs see. All are csi-attacher's names, so that a migration needs no clean-up.

pub use super::super::csi_attacher::{event_source, finalizer, lease};
pub use crate::cluster::names::{
    ANNOTATION_NODE_ID, ANNOTATION_PUBLISH_SECRET, ANNOTATION_RECORDED_FOR, ANNOTATION_TRACEPARENT,
    ANNOTATION_VOLUME_HANDLE,
};

/// The work queue of VolumeAttachments (metric label `name`).
pub const QUEUE_ATTACHMENTS: &str = "csi-attacher-va";
/// The work queue of PersistentVolumes (metric label `name`).
pub const QUEUE_VOLUMES: &str = "csi-attacher-pv";
