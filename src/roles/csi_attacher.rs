//! Names of csi-attacher, which two roles replace: the attacher and the reconciler.

use crate::cluster::names::{object_name, sanitised};

/// The finalizer on VolumeAttachments and PersistentVolumes. The provisioner adds it to volumes that it creates, for
/// the attacher.
pub fn finalizer(driver: &str) -> String {
    format!("external-attacher/{}", sanitised(driver))
}

/// The Lease. Lower case, where csi-lib-utils keeps capitals: a driver's name may have capitals, but an object's name
/// may not, so no replica could lead. For all other names both give the same result.
///
/// ```
/// use csi_control_plane::roles::csi_attacher;
///
/// assert_eq!(csi_attacher::lease("ebs.csi.aws.com"), "external-attacher-leader-ebs-csi-aws-com");
/// ```
pub fn lease(driver: &str) -> String {
    object_name(&format!("external-attacher-leader-{driver}"))
}

/// The component of Events. csi-attacher writes no Events; the format is that of external-resizer.
pub fn event_source(driver: &str) -> String {
    format!("external-attacher {driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_those_of_the_go_sidecar() {
        for (driver, expected) in [
            ("ebs.csi.aws.com", "external-attacher/ebs-csi-aws-com"),
            ("a_b/c", "external-attacher/a-b-c"),
            ("a.b", "external-attacher/a-b"),
            ("a-b", "external-attacher/a-b"),
            ("Driver.", "external-attacher/Driver-X"),
            ("treiber-ü", "external-attacher/treiber--X"),
        ] {
            assert_eq!(finalizer(driver), expected);
        }
    }

    #[test]
    fn events_come_from_a_component_that_is_called_as_the_sidecar() {
        assert_eq!(event_source("demo.csi"), "external-attacher demo.csi");
    }

    #[test]
    fn r50_lease_names_are_valid_object_names_whatever_the_driver_is_called() {
        for (driver, expected) in [
            ("ebs.csi.aws.com", "external-attacher-leader-ebs-csi-aws-com"),
            ("Demo.CSI.Example.com", "external-attacher-leader-demo-csi-example-com"),
            ("driver-", "external-attacher-leader-driver-x"),
        ] {
            assert_eq!(lease(driver), expected);
        }
    }
}
