//! The CSI form of a PersistentVolume, whatever source it has: what roles ask for (migration spec 10). Pure.

use std::borrow::Cow;

use thiserror::Error;

use crate::cluster::{InTree, PersistentVolume, VolumeSpec};

use super::error::TranslationError;
use super::volume::volume_to_csi;

/// Why a PersistentVolume has no CSI form for our driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotServed {
    /// Neither a CSI volume nor of a plugin that a CSI driver has taken over, or another driver's CSI volume.
    #[error("the volume has no CSI source")]
    NotCsi,
    /// Of a plugin that another driver has taken over.
    #[error("the volume is of {}, which {} serves", .0.plugin(), .0.successor())]
    OtherDriver(InTree),
    /// It cannot be translated.
    #[error("cannot translate the in-tree volume")]
    Untranslatable(#[source] TranslationError),
}

/// The volume's specification with a CSI source: its own, or the translated one of an in-tree volume that `driver` has taken over.
pub fn csi_form<'a>(volume: &'a PersistentVolume, driver: &str) -> Result<Cow<'a, VolumeSpec>, NotServed> {
    match (&volume.spec.csi, volume.spec.in_tree) {
        (Some(_), _) => Ok(Cow::Borrowed(&volume.spec)),
        (None, None) => Err(NotServed::NotCsi),
        (None, Some(kind)) if kind.successor() != driver => Err(NotServed::OtherDriver(kind)),
        (None, Some(_)) => {
            let translated = volume_to_csi(volume).map_err(NotServed::Untranslatable)?;
            Ok(Cow::Owned(translated.spec_of(&volume.spec)))
        }
    }
}

/// The volume itself with that specification.
pub fn csi_volume<'a>(volume: &'a PersistentVolume, driver: &str) -> Result<Cow<'a, PersistentVolume>, NotServed> {
    Ok(match csi_form(volume, driver)? {
        Cow::Borrowed(_) => Cow::Borrowed(volume),
        Cow::Owned(spec) => Cow::Owned(PersistentVolume { spec, ..volume.clone() }),
    })
}
