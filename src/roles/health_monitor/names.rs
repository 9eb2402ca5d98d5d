//! The names that other programs see of the health monitor. All are those of external-health-monitor, so that swapping one for the other
//! needs no clean-up.

use crate::cluster::names::object_name;

/// The reason of the Event that something is wrong.
pub const ABNORMAL: &str = "VolumeConditionAbnormal";
/// The reason of the Event that all is well again.
pub const NORMAL: &str = "VolumeConditionNormal";
/// The reason of the Event about kinds of conditions that are not known.
pub const UNKNOWN: &str = "UnknownVolumeHealthCondition";
/// The reason of the Event that the driver does not know the volume.
pub const NOT_FOUND: &str = "VolumeNotFound";
/// The reason of the Event that a node has failed whose pods use the claim.
pub const NODE_FAILED: &str = "NodeFailed";
/// The reason of the Event that the node is ready again.
pub const NODE_RECOVERED: &str = "NodeRecovered";

/// The queue of volumes, by their handles.
pub const QUEUE: &str = "csi-monitor-pv-queue";

/// The Lease.
///
/// ```
/// use csi_control_plane::roles::health_monitor;
///
/// assert_eq!(health_monitor::names::lease("ebs.csi.aws.com"), "external-health-monitor-leader-ebs-csi-aws-com");
/// ```
pub fn lease(driver: &str) -> String {
    object_name(&format!("external-health-monitor-leader-{driver}"))
}

/// The component that Events come from.
pub fn event_source(driver: &str) -> String {
    format!("csi-pv-monitor-controller-{driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_go_sidecar() {
        assert_eq!(lease("Demo.CSI.Example.com"), "external-health-monitor-leader-demo-csi-example-com");
        assert_eq!(event_source("demo.csi"), "csi-pv-monitor-controller-demo.csi");
    }
}
