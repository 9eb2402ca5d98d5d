//! The hook for CSI migration: only this file calls the translation of in-tree volumes (spec 2.9). Pure. There is no
//! translation yet, so an in-tree volume is refused with an error that names its source. A later translation can return
//! the translated spec here, without changes of the callers.

use std::borrow::Cow;

use crate::cluster::{CsiSource, VolumeSpec};

use super::error::InvalidAttachment;

/// The CSI form of a volume's spec. `not_csi` is the error for a spec with neither a CSI nor an in-tree source.
pub fn csi_form(
    spec: &VolumeSpec,
    not_csi: impl FnOnce() -> InvalidAttachment,
) -> Result<Cow<'_, VolumeSpec>, InvalidAttachment> {
    match (&spec.csi, spec.in_tree) {
        (Some(_), _) => Ok(Cow::Borrowed(spec)),
        (None, Some(kind)) => Err(InvalidAttachment::InTree(kind)),
        (None, None) => Err(not_csi()),
    }
}

/// The CSI source of a spec, by way of [`csi_form`].
pub fn csi_source(
    spec: &VolumeSpec,
    not_csi: impl FnOnce() -> InvalidAttachment + Clone,
) -> Result<Cow<'_, CsiSource>, InvalidAttachment> {
    match csi_form(spec, not_csi.clone())? {
        Cow::Borrowed(spec) => spec.csi.as_deref().map(Cow::Borrowed).ok_or_else(not_csi),
        Cow::Owned(spec) => spec.csi.map(|csi| Cow::Owned(*csi)).ok_or_else(not_csi),
    }
}
