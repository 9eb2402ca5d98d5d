//! What the provisioner expects of the driver's `CSIDriver` object. Pure.

use crate::cluster::CsiDriverSpec;
use crate::csi::Capabilities;
use crate::roles::driver_object::{Misfit, misfits};

use super::config::ProvisionerSection;

misfits! {
    /// The scheduler waits for capacity that no program publishes.
    CAPACITY_NOT_PUBLISHED = Fault, "capacity_not_published",
        "storageCapacity is true, but roles.provisioner.capacity.enabled is false: without CSIStorageCapacity objects the scheduler finds \
         no node for a pod whose claim waits for its first consumer. Set capacity.enabled: true, or storageCapacity: false";
    /// The same, because the driver does not tell it.
    CAPACITY_NOT_OFFERED = Fault, "capacity_not_offered",
        "storageCapacity is true, but the driver has no GET_CAPACITY, so no CSIStorageCapacity object is published or kept fresh: the \
         scheduler finds no node for a pod whose claim waits for its first consumer. Set storageCapacity: false";
    /// Capacity is published in vain.
    CAPACITY_NOT_READ = Hint, "capacity_not_read",
        "storageCapacity is false, but roles.provisioner.capacity.enabled is true: the scheduler ignores the CSIStorageCapacity objects \
         that are published. Set storageCapacity: true, or capacity.enabled: false";
    /// kubelet mounts none of the volumes that are created.
    PERSISTENT_NOT_ALLOWED = Fault, "persistent_not_allowed",
        "volumeLifecycleModes lacks Persistent, but the driver creates volumes (CREATE_DELETE_VOLUME): kubelet mounts none of them. Delete \
         the object and create it with Persistent among its modes (the field cannot be changed), or remove roles.provisioner";
    /// The driver cannot see which of its volumes are inline.
    INLINE_NOT_TOLD = Hint, "inline_not_told",
        "volumeLifecycleModes has Ephemeral and Persistent, but podInfoOnMount is false: kubelet does not tell the driver which volume is \
         inline (csi.storage.k8s.io/ephemeral). Set podInfoOnMount: true, unless the driver knows it from the volume's id";
}

/// What does not fit. A driver whose capabilities are not known yet counts as one that creates volumes and reports its capacity.
pub(super) fn misfits(
    object: &CsiDriverSpec,
    driver: Option<&Capabilities>,
    section: &ProvisionerSection,
) -> Vec<&'static Misfit> {
    let creates = driver.is_none_or(|driver| driver.controller_service() && driver.create_delete_volume());
    if !creates {
        return Vec::new();
    }
    let tells = driver.is_none_or(Capabilities::get_capacity);
    let capacity = match (object.storage_capacity, section.capacity.enabled) {
        (true, false) if tells => Some(&CAPACITY_NOT_PUBLISHED),
        (true, _) if !tells => Some(&CAPACITY_NOT_OFFERED),
        (false, true) if tells => Some(&CAPACITY_NOT_READ),
        _ => None,
    };
    let lifecycle = match (object.persistent, object.ephemeral) {
        (false, _) => Some(&PERSISTENT_NOT_ALLOWED),
        (true, true) if !object.pod_info => Some(&INLINE_NOT_TOLD),
        _ => None,
    };
    capacity.into_iter().chain(lifecycle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::{ControllerRpc, PluginService};
    use crate::roles::provisioner::capacity::CapacitySection;

    const CREATES: ControllerRpc = ControllerRpc::CreateDeleteVolume;
    const TELLS: ControllerRpc = ControllerRpc::GetCapacity;

    fn found(object: &CsiDriverSpec, rpcs: Option<&[ControllerRpc]>, enabled: bool) -> Vec<&'static str> {
        let driver = rpcs.map(|rpcs| Capabilities::offering(&[PluginService::ControllerService], rpcs));
        let capacity = CapacitySection { enabled, ..CapacitySection::default() };
        let section = ProvisionerSection { capacity, ..ProvisionerSection::default() };
        misfits(object, driver.as_ref(), &section).iter().map(|misfit| misfit.id).collect()
    }

    #[test]
    fn whether_the_scheduler_waits_for_capacity_is_held_against_whether_it_is_published() {
        let (both, silent, idle) = (Some(&[CREATES, TELLS][..]), Some(&[CREATES][..]), Some(&[TELLS][..]));
        // storageCapacity, capacity.enabled, what the driver offers: what does not fit.
        for (storage_capacity, enabled, offers, expected) in [
            (false, false, both, &[][..]),
            (false, false, silent, &[]),
            (false, false, None, &[]),
            (false, true, both, &["capacity_not_read"]),
            (false, true, silent, &[]),
            (false, true, None, &["capacity_not_read"]),
            (true, false, both, &["capacity_not_published"]),
            (true, false, silent, &["capacity_not_offered"]),
            (true, false, None, &["capacity_not_published"]),
            (true, true, both, &[]),
            (true, true, silent, &["capacity_not_offered"]),
            (true, true, None, &[]),
            (true, false, idle, &[]),
            (false, true, idle, &[]),
        ] {
            let object = CsiDriverSpec { storage_capacity, ..CsiDriverSpec::default() };
            assert_eq!(found(&object, offers, enabled), expected, "{storage_capacity} {enabled} {offers:?}");
        }
    }

    #[test]
    fn the_modes_of_volumes_are_held_against_what_is_created() {
        let creates = Some(&[CREATES][..]);
        // Persistent, Ephemeral, podInfoOnMount: what does not fit.
        for (persistent, ephemeral, pod_info, expected) in [
            (true, false, false, &[][..]),
            (true, false, true, &[]),
            (true, true, true, &[]),
            (true, true, false, &["inline_not_told"]),
            (false, true, true, &["persistent_not_allowed"]),
            (false, true, false, &["persistent_not_allowed"]),
        ] {
            let object = CsiDriverSpec { pod_info, persistent, ephemeral, ..CsiDriverSpec::default() };
            assert_eq!(found(&object, creates, false), expected, "{object:?}");
            assert_eq!(found(&object, Some(&[]), false), [""; 0], "a driver of inline volumes alone: {object:?}");
        }
    }

    #[test]
    fn each_field_that_does_not_fit_is_told() {
        let object = CsiDriverSpec { storage_capacity: true, persistent: false, ..CsiDriverSpec::default() };
        assert_eq!(
            found(&object, Some(&[CREATES, TELLS]), false),
            ["capacity_not_published", "persistent_not_allowed"]
        );
    }
}
