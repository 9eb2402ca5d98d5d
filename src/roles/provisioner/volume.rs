//! PersistentVolumes as our driver sees them: which are its own, and which keep their data. Pure.

use crate::cluster::{InTree, PersistentVolume};
use crate::translation::csi_form;

use super::names;

/// Whether this daemon looks after the volume (spec 3.1): by its provisioner, or else by its source.
pub fn is_ours(volume: &PersistentVolume, driver: &str) -> bool {
    let source = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
    let is_of_source = provisioned_by(volume).is_none() && source == Some(driver);
    is_of_source || was_made_by(volume, driver) || volume.migrated_to() == Some(driver)
}

/// Whether the volume's provisioner is our driver, or the in-tree plugin that our driver has taken over: the plugin has
/// created the volume, or we have, for a class of the plugin (migration spec 10).
pub fn was_made_by(volume: &PersistentVolume, driver: &str) -> bool {
    let plugin = InTree::of_driver(driver).map(InTree::plugin);
    provisioned_by(volume).is_some_and(|by| by == driver || plugin == Some(by))
}

/// The provisioner that created the volume, if the object names one.
pub fn provisioned_by(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotation(names::ANNOTATION_PROVISIONED_BY)
}

/// The handle of our driver that a PersistentVolume has, or that its CSI form has.
pub fn handle_of(volume: &PersistentVolume, driver: &str) -> Option<String> {
    let form = csi_form(volume, driver).ok()?;
    form.csi.as_ref().filter(|csi| csi.driver == *driver).map(|csi| csi.volume_handle.clone())
}

/// Whether an object stands for data in use, or data that its user wants to keep. Two objects of one volume that are both
/// released and to be deleted need not wait for each other: the second deletion finds no volume, which is success in
/// CSI.
pub fn keeps(volume: &PersistentVolume) -> bool {
    !(is_released(volume) && is_delete(volume))
}

/// Whether the volume is deleted with its claim.
pub fn is_delete(volume: &PersistentVolume) -> bool {
    volume.spec.reclaim_policy.as_deref() == Some("Delete")
}

/// Whether its claim is gone.
pub fn is_released(volume: &PersistentVolume) -> bool {
    volume.phase.as_deref() == Some("Released")
}
