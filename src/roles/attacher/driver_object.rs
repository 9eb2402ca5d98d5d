//! What the attacher expects of the driver's `CSIDriver` object. Pure.

use crate::cluster::CsiDriverSpec;
use crate::csi::Capabilities;
use crate::roles::driver_object::{Misfit, misfits};

use super::config::AttacherSection;

misfits! {
    /// Kubernetes waits for no attachment, and the driver needs one.
    ATTACH_NOT_CALLED = Fault, "attach_not_called",
        "attachRequired is false, but the driver attaches volumes (PUBLISH_UNPUBLISH_VOLUME): Kubernetes makes no VolumeAttachment, and \
         ControllerPublishVolume is never called. Delete the object and create it with attachRequired: true (the field cannot be changed), \
         or remove roles.attacher";
    /// Kubernetes waits for attachments that are nothing to the driver.
    ATTACH_NOT_NEEDED = Hint, "attach_not_needed",
        "attachRequired is true, but the driver attaches no volume (no PUBLISH_UNPUBLISH_VOLUME): each volume on a node costs a \
         VolumeAttachment, which is answered without a call. An object with attachRequired: false saves it";
    /// kubelet does not see that a node is full.
    LIMIT_NOT_REPORTED = Fault, "limit_not_reported",
        "nodeAllocatableUpdatePeriodSeconds is set, but roles.attacher.errorCodes is false: kubelet does not see that an attach failed \
         because the node is full, and the pod stays there. Set errorCodes: true, or remove nodeAllocatableUpdatePeriodSeconds";
}

/// What does not fit. Without the driver's word, only what is wrong with any driver.
pub(super) fn misfits(
    object: &CsiDriverSpec,
    driver: Option<&Capabilities>,
    section: &AttacherSection,
) -> Vec<&'static Misfit> {
    let attaches = driver.map(|driver| driver.controller_service() && driver.publish_unpublish());
    let attach = match (object.attach_required, attaches) {
        (false, Some(true)) => Some(&ATTACH_NOT_CALLED),
        (true, Some(false)) => Some(&ATTACH_NOT_NEEDED),
        _ => None,
    };
    // An attach that no driver is asked for never fails because a node is full.
    let may_fail = object.attach_required && attaches != Some(false);
    let limit = (object.updates_limit && may_fail && !section.error_codes).then_some(&LIMIT_NOT_REPORTED);
    attach.into_iter().chain(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::{ControllerRpc, PluginService};

    fn driver(attaches: bool) -> Capabilities {
        let rpcs: &[ControllerRpc] = if attaches { &[ControllerRpc::PublishUnpublishVolume] } else { &[] };
        Capabilities::offering(&[PluginService::ControllerService], rpcs)
    }

    #[test]
    fn what_the_object_says_of_attaching_is_held_against_what_the_driver_does() {
        let (yes, no, unasked) = (Some(driver(true)), Some(driver(false)), None);
        // attachRequired, nodeAllocatableUpdatePeriodSeconds, errorCodes, the driver attaches: what does not fit.
        for (attach_required, updates_limit, error_codes, driver, expected) in [
            (true, false, true, &yes, &[][..]),
            (true, true, true, &yes, &[]),
            (true, false, false, &yes, &[]),
            (true, true, false, &yes, &["limit_not_reported"]),
            (true, false, true, &no, &["attach_not_needed"]),
            (true, true, false, &no, &["attach_not_needed"]),
            (true, false, true, &unasked, &[]),
            (true, true, false, &unasked, &["limit_not_reported"]),
            (false, false, true, &yes, &["attach_not_called"]),
            (false, true, false, &yes, &["attach_not_called"]),
            (false, false, true, &no, &[]),
            (false, true, false, &no, &[]),
            (false, true, false, &unasked, &[]),
        ] {
            let object = CsiDriverSpec { attach_required, updates_limit, ..CsiDriverSpec::default() };
            let section = AttacherSection { error_codes, ..AttacherSection::default() };
            let found: Vec<&str> = misfits(&object, driver.as_ref(), &section).iter().map(|misfit| misfit.id).collect();
            assert_eq!(found, expected, "{object:?} errorCodes {error_codes} {driver:?}");
        }
    }

    #[test]
    fn a_driver_without_a_controller_attaches_nothing() {
        let driver = Capabilities::offering(&[], &[ControllerRpc::PublishUnpublishVolume]);
        let (object, section) = (CsiDriverSpec::default(), AttacherSection::default());
        assert_eq!(misfits(&object, Some(&driver), &section), [&ATTACH_NOT_NEEDED]);
    }
}
