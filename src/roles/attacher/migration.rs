//! The CSI form of an attachment's volume: the only place that asks for the translation of in-tree volumes (spec 2.9, migration
//! spec 10). Pure.

use std::borrow::Cow;

use crate::cluster::{CsiSource, InTree, PersistentVolume, VolumeSpec};
use crate::translation::{self, NotServed, repair_handle};

use super::attachment::Source;
use super::error::InvalidAttachment;

/// The CSI form of what an attachment attaches. `volume` is the PersistentVolume that it names. An inline specification arrives
/// translated.
pub fn csi_form<'a>(
    source: &'a Source,
    volume: Option<&'a PersistentVolume>,
    driver: &str,
) -> Result<Cow<'a, VolumeSpec>, InvalidAttachment> {
    let (name, volume) = match (source, volume) {
        (Source::Inline(spec), _) => {
            return match (&spec.csi, spec.in_tree) {
                (Some(_), _) => Ok(Cow::Borrowed(spec)),
                (None, Some(kind)) => Err(InvalidAttachment::InlineInTree(kind)),
                (None, None) => Err(InvalidAttachment::InlineNotCsi),
            };
        }
        (Source::Volume(name), None) => return Err(InvalidAttachment::VolumeMissing(name.clone())),
        (Source::Volume(name), Some(volume)) => (name, volume),
    };
    let foreign = |driver: &str| InvalidAttachment::Foreign { volume: name.clone(), driver: driver.to_owned() };
    translation::csi_form(volume, driver).map_err(|why| match (why, &volume.spec.foreign_driver) {
        // Another driver's volume is refused: the attach/detach controller never names us as its attacher, and the cache does not
        // have its attributes.
        (NotServed::NotCsi, Some(driver)) => foreign(driver),
        (NotServed::NotCsi, None) => InvalidAttachment::NotCsi(name.clone()),
        (NotServed::OtherDriver(kind), _) => foreign(kind.successor()),
        (NotServed::Untranslatable(cause), _) => InvalidAttachment::Untranslatable { volume: name.clone(), cause },
    })
}

/// The CSI source of what an attachment attaches, by way of [`csi_form`].
pub fn csi_source<'a>(
    source: &'a Source,
    volume: Option<&'a PersistentVolume>,
    driver: &str,
) -> Result<Cow<'a, CsiSource>, InvalidAttachment> {
    let none = || not_csi(source);
    match csi_form(source, volume, driver)? {
        Cow::Borrowed(spec) => spec.csi.as_deref().map(Cow::Borrowed).ok_or_else(none),
        Cow::Owned(spec) => spec.csi.map(|csi| Cow::Owned(*csi)).ok_or_else(none),
    }
}

/// That there is no CSI source.
pub fn not_csi(source: &Source) -> InvalidAttachment {
    match source {
        Source::Inline(_) => InvalidAttachment::InlineNotCsi,
        Source::Volume(name) => InvalidAttachment::NotCsi(name.clone()),
    }
}

/// The handle as the driver lists it. Only drivers that have taken a plugin over have handles to repair; one that cannot be repaired is
/// compared as it is.
pub fn listed_handle(driver: &str, handle: String, node_id: &str) -> String {
    if InTree::of_driver(driver).is_none() {
        return handle;
    }
    repair_handle(driver, &handle, node_id).unwrap_or(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_and_m26_only_what_can_be_repaired_is_and_only_for_a_driver_that_has_taken_a_plugin_over() {
        let (gce, handle) = ("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
        let node = "projects/p/zones/us-east1-b/instances/n";
        assert_eq!(listed_handle(gce, handle.into(), node), "projects/p/zones/us-east1-b/disks/d");
        assert_eq!(listed_handle(gce, handle.into(), "odd"), handle, "as it is");
        assert_eq!(listed_handle("demo", handle.into(), node), handle);
        assert_eq!(listed_handle("ebs.csi.aws.com", "vol-1".into(), node), "vol-1");
    }
}
