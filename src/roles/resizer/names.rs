//! The names that other programs see of the resizer. All but one reason are csi-resizer's, so that swapping one for the other needs
//! no clean-up.

pub use crate::cluster::names::{
    ANNOTATION_EXPANSION_NOT_REQUIRED, ANNOTATION_MODIFY_SECRET_NAME, ANNOTATION_MODIFY_SECRET_NAMESPACE,
    ANNOTATION_PRE_RESIZE_CAPACITY, ANNOTATION_STORAGE_RESIZER,
};

use crate::cluster::names::object_name;

/// The states of `status.allocatedResourceStatuses.storage`.
pub const CONTROLLER_RESIZE_IN_PROGRESS: &str = "ControllerResizeInProgress";
/// The driver has refused the size as infeasible.
pub const CONTROLLER_RESIZE_INFEASIBLE: &str = "ControllerResizeInfeasible";
/// The volume has its size, and the node has to act.
pub const NODE_RESIZE_PENDING: &str = "NodeResizePending";
/// The node is at work.
pub const NODE_RESIZE_IN_PROGRESS: &str = "NodeResizeInProgress";
/// The node cannot do it.
pub const NODE_RESIZE_INFEASIBLE: &str = "NodeResizeInfeasible";

/// The condition of a claim that is being expanded.
pub const RESIZING: &str = "Resizing";
/// The condition of a claim whose node has to act.
pub const FILE_SYSTEM_RESIZE_PENDING: &str = "FileSystemResizePending";
/// The condition that says why the driver has not expanded the volume.
pub const CONTROLLER_RESIZE_ERROR: &str = "ControllerResizeError";
/// The condition that says why the node has not; the kubelet writes it.
pub const NODE_RESIZE_ERROR: &str = "NodeResizeError";
/// The condition of a claim whose volume is being modified.
pub const MODIFYING_VOLUME: &str = "ModifyingVolume";
/// The condition that says why the driver has not modified the volume.
pub const MODIFY_VOLUME_ERROR: &str = "ModifyVolumeError";
/// The reason of that condition where the claim names a class of another driver. csi-resizer has no such reason: it sends the class to
/// its driver. All other reasons are names of gRPC codes.
pub const FOREIGN_CLASS: &str = "ForeignClass";

/// The states of `status.modifyVolumeStatus.status`.
pub const PENDING: &str = "Pending";
/// The driver was called, or will be called.
pub const IN_PROGRESS: &str = "InProgress";
/// The driver has refused the class as infeasible.
pub const INFEASIBLE: &str = "Infeasible";

/// The driver of Amazon's EBS merges an expansion and a modification that come together: resizer spec 5.3.
pub const PAIRED_DRIVERS: &[&str] = &["ebs.csi.aws.com"];

/// The work queue (metric label `name`).
pub fn queue(driver: &str) -> String {
    format!("{driver}-pvc")
}

/// The Lease.
///
/// ```
/// use csi_control_plane::roles::resizer;
///
/// assert_eq!(resizer::names::lease("ebs.csi.aws.com"), "external-resizer-ebs-csi-aws-com");
/// ```
pub fn lease(driver: &str) -> String {
    object_name(&format!("external-resizer-{driver}"))
}

/// The component that Events come from.
pub fn event_source(driver: &str) -> String {
    format!("external-resizer {driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_go_sidecar() {
        assert_eq!(lease("Demo.CSI.Example.com"), "external-resizer-demo-csi-example-com");
        assert_eq!(event_source("demo.csi"), "external-resizer demo.csi");
        assert_eq!(queue("demo.csi"), "demo.csi-pvc");
    }
}
