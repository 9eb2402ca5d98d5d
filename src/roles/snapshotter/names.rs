//! The names that other programs see of the snapshotter. All are csi-snapshotter's, so that swapping one for the other needs no
//! clean-up.

pub use crate::cluster::names::{
    ANNOTATION_CONTENT_UID, ANNOTATION_GROUP_BEING_CREATED, ANNOTATION_GROUP_BEING_DELETED, ANNOTATION_GROUP_HANDLE,
    ANNOTATION_GROUP_SECRET_NAME, ANNOTATION_GROUP_SECRET_NAMESPACE, ANNOTATION_SNAPSHOT_BEING_CREATED,
    ANNOTATION_SNAPSHOT_BEING_DELETED, ANNOTATION_SNAPSHOT_SECRET_NAME, ANNOTATION_SNAPSHOT_SECRET_NAMESPACE,
    ANNOTATION_SNAPSHOTTING, ANNOTATION_UNLISTED_MEMBERS, FINALIZER_BOUND_CONTENT, FINALIZER_BOUND_GROUP_CONTENT,
    LABEL_MANAGED_BY,
};

use crate::cluster::names::object_name;

/// The work queue of contents (metric label `name`).
pub const CONTENT_QUEUE: &str = "csi-snapshotter-content";
/// The same of contents of groups.
pub const GROUP_CONTENT_QUEUE: &str = "csi-snapshotter-groupsnapshotcontent";

/// The API group of snapshots.
pub const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// The API group of groups of snapshots.
pub const GROUP_SNAPSHOTS: &str = "groupsnapshot.storage.k8s.io";

/// The value of the annotation of a content whose snapshot is being created. Only its presence counts.
pub const YES: &str = "yes";

/// The Lease.
///
/// ```
/// use csi_control_plane::roles::snapshotter;
///
/// assert_eq!(snapshotter::names::lease("ebs.csi.aws.com"), "external-snapshotter-leader-ebs-csi-aws-com");
/// ```
pub fn lease(driver: &str) -> String {
    object_name(&format!("external-snapshotter-leader-{driver}"))
}

/// The component that Events come from.
pub fn event_source(driver: &str) -> String {
    format!("csi-snapshotter {driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_names_are_those_of_the_go_sidecar() {
        assert_eq!(lease("Demo.CSI.Example.com"), "external-snapshotter-leader-demo-csi-example-com");
        assert_eq!(event_source("demo.csi"), "csi-snapshotter demo.csi");
    }
}
