//! The names that other programs see of the attach/detach controller: those of kube-controller-manager's, where it has them (attach-detach
//! spec 0).

use crate::cluster::names::object_name;

/// The component that Events come from.
pub const COMPONENT: &str = "attachdetach-controller";
/// The reason of the Event that a volume is attached.
pub const ATTACHED: &str = "SuccessfulAttachVolume";
/// The reason of the Event that a volume cannot be attached, or waits.
pub const ATTACH_FAILED: &str = "FailedAttachVolume";
/// The reason of the Event that a volume is not detached.
pub const DETACH_FAILED: &str = "FailedDetachVolume";
/// The reason of the Event that an attachment of an unknown volume was deleted.
pub const ORPHAN: &str = "OrphanAttachment";

/// The queue of volumes.
pub const QUEUE_VOLUMES: &str = "attach-detach-volumes";
/// The queue of nodes, whose status is written.
pub const QUEUE_NODES: &str = "attach-detach-nodes";
/// The queue of attachments of unknown volumes.
pub const QUEUE_ORPHANS: &str = "attach-detach-orphans";

/// The Lease: one per cluster, whatever drivers there are.
pub fn lease(_driver: &str) -> String {
    object_name("attach-detach-controller")
}

/// The component that Events come from, whatever the driver.
pub fn event_source(_driver: &str) -> String {
    COMPONENT.to_owned()
}
