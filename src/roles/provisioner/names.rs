//! The names that other programs see of the provisioner. All but those that begin with `csi-control-plane.io` are
//! csi-provisioner's, so that swapping one for the other needs no clean-up.

pub use crate::cluster::names::{
    ANNOTATION_ALLOW_MODE_CHANGE, ANNOTATION_ALPHA_SELECTED_NODE, ANNOTATION_DELETION_SECRET_NAME,
    ANNOTATION_DELETION_SECRET_NAMESPACE, ANNOTATION_MIGRATED_TO, ANNOTATION_MODIFY_SECRET_NAME,
    ANNOTATION_MODIFY_SECRET_NAMESPACE, ANNOTATION_PROVISIONED_BY, ANNOTATION_SELECTED_NODE,
    ANNOTATION_STORAGE_PROVISIONER, ANNOTATION_TRACEPARENT, FINALIZER_CLONING, FINALIZER_PROVISIONER,
};

use crate::cluster::names::object_name;

/// The finalizer on a `VolumeSnapshot` while a volume is created from it.
pub const FINALIZER_SNAPSHOT_SOURCE: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";

/// The label of a `CSIStorageCapacity` that names its driver.
pub const LABEL_DRIVER_NAME: &str = "csi.storage.k8s.io/drivername";
/// The label of a `CSIStorageCapacity` that names the program that updates it.
pub const LABEL_MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
/// The value of that label; with one daemon per node, the part before the node's name.
pub const MANAGED_BY_PROVISIONER: &str = "external-provisioner";

/// The volume attribute that names the provisioner that created it.
pub const ATTRIBUTE_PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// The work queue of claims (metric label `name`).
pub const QUEUE_CLAIMS: &str = "claims";
/// The work queue of PersistentVolumes that may have to be deleted (metric label `name`).
pub const QUEUE_DELETIONS: &str = "volumes";
/// The work queue of data sources, which keep a finalizer while they are read (metric label `name`).
pub const QUEUE_SOURCES: &str = "sources";
/// The work queue of `CSIStorageCapacity` objects (metric label `name`).
pub const QUEUE_CAPACITY: &str = "csistoragecapacity";

/// The Lease: the driver's name as an object's name. csi-provisioner keeps capitals, which the API refuses, so no
/// replica leads.
///
/// ```
/// use csi_control_plane::roles::provisioner::names;
///
/// assert_eq!(names::lease("ebs.csi.aws.com"), "ebs-csi-aws-com");
/// ```
pub fn lease(driver: &str) -> String {
    object_name(driver)
}

/// The component of the Events. csi-provisioner adds the host and a random number, so each restart repeats the same
/// failure as another Event. This name stays the same.
pub fn event_source(driver: &str) -> String {
    format!("external-provisioner {driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_from_a_component_that_is_called_as_the_sidecar_and_outlives_a_restart() {
        assert_eq!(event_source("demo.csi"), "external-provisioner demo.csi");
    }

    #[test]
    fn the_provisioners_lease_is_the_drivers_name() {
        for (driver, expected) in
            [("ebs.csi.aws.com", "ebs-csi-aws-com"), ("Demo.Example.com", "demo-example-com"), ("a-", "a-x")]
        {
            assert_eq!(lease(driver), expected);
        }
    }
}
