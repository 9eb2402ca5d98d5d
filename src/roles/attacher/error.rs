//! Why an attempt failed, before or after it reached the driver.

use thiserror::Error;

use crate::cluster::InTree;
use crate::csi::volume::AccessModeError;
use crate::csi::{Client, RpcError};
use crate::roles::kit::finality::{Call, is_final};
use crate::roles::kit::{AttemptError, Op, Reason};
use crate::translation::TranslationError;

/// Why an attachment is invalid. The driver was not called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidAttachment {
    /// Neither a volume nor an inline spec.
    #[error("spec.source names neither a persistentVolumeName nor an inlineVolumeSpec; exactly one is needed")]
    NoSource,
    /// Both at once.
    #[error("spec.source has both a persistentVolumeName and an inlineVolumeSpec; exactly one is allowed")]
    BothSources,
    /// The volume does not exist.
    #[error("persistentvolume \"{0}\" not found")]
    VolumeMissing(String),
    /// The volume is being deleted: attaching it would delay this.
    #[error("persistentvolume \"{0}\" is marked for deletion; it is not attached any more")]
    VolumeDeleting(String),
    /// Not a CSI volume at all.
    #[error("persistentvolume \"{0}\" has no CSI source: only CSI volumes can be attached by this driver")]
    NotCsi(String),
    /// An inline spec without a CSI source.
    #[error("spec.source.inlineVolumeSpec has no CSI source: only CSI volumes can be attached by this driver")]
    InlineNotCsi,
    /// An inline spec with an in-tree source.
    #[error(
        "spec.source.inlineVolumeSpec has the in-tree source {}: the attach/detach controller writes it as a CSI source of {}",
        .0.field(),
        .0.successor()
    )]
    InlineInTree(InTree),
    /// An in-tree volume of ours that has no CSI form.
    #[error("persistentvolume \"{volume}\" cannot be translated to CSI: {cause}")]
    Untranslatable {
        /// The volume.
        volume: String,
        /// Why.
        cause: TranslationError,
    },
    /// A volume of another driver, whose attributes are not ours to read.
    #[error("persistentvolume \"{volume}\" belongs to driver {driver}: the volumeattachment names the wrong attacher")]
    Foreign {
        /// The volume.
        volume: String,
        /// The driver that it belongs to.
        driver: String,
    },
    /// No access mode of the CSI specification fits.
    #[error("the volume's access modes cannot be mapped: {0}")]
    AccessModes(AccessModeError),
    /// The node never registered, or is gone.
    #[error("CSINode \"{0}\" not found: the node has not registered any driver, or is gone")]
    NodeMissing(String),
    /// The driver does not run on the node.
    #[error("CSINode \"{node}\" does not list driver {driver}: the driver is not registered on that node")]
    DriverNotOnNode {
        /// The node.
        node: String,
        /// Our driver.
        driver: String,
    },
}

/// Why an attempt at an attachment failed.
pub type AttachError = AttemptError<InvalidAttachment>;

/// Adds our finalizer to the volume.
pub const PROTECT: Op = Op("cannot add the finalizer to the persistentvolume before attaching");
/// Writes our finalizer, the node ID and the handle to the attachment.
pub const SAVE_INTENT: Op = Op("cannot save the finalizer and the node id on the volumeattachment before attaching");
/// Reads the publish secret.
pub const LOAD_SECRET: Op = Op("cannot load the secret of controllerPublishSecretRef");
/// Writes `attached: true` to the status.
pub const RECORD_ATTACHED: Op = Op("the volume is published, but that could not be recorded");
/// Removes our finalizer from the attachment.
pub const RELEASE: Op = Op("the volume is unpublished, but the volumeattachment could not be released");
/// Writes an error to the status.
pub const WRITE_ERROR: Op = Op("cannot write the error to the status");
/// Removes our finalizer from the volume.
pub const RELEASE_VOLUME: Op = Op("cannot remove the finalizer from the persistentvolume");

impl Reason for InvalidAttachment {
    fn label(&self) -> &'static str {
        match self {
            Self::NoSource | Self::BothSources => "InvalidSource",
            Self::VolumeMissing(_) => "VolumeNotFound",
            Self::VolumeDeleting(_) => "VolumeDeleting",
            Self::NotCsi(_) | Self::InlineNotCsi => "NotCsi",
            Self::InlineInTree(_) | Self::Untranslatable { .. } => "InTree",
            Self::Foreign { .. } => "ForeignVolume",
            Self::AccessModes(_) => "AccessModes",
            Self::NodeMissing(_) => "NodeNotFound",
            Self::DriverNotOnNode { .. } => "DriverNotOnNode",
        }
    }
}

/// Whether the driver has refused to publish the volume with a final error (spec 2.7).
pub fn refuses_publish(error: &AttachError) -> bool {
    matches!(error, AttemptError::Driver(error)
        if error.method == Client::PUBLISH && is_final(Call::Publish, error.code))
}

/// Whether the node no longer exists.
pub fn lacks_node(error: &AttachError) -> bool {
    matches!(error, AttemptError::Reason(InvalidAttachment::NodeMissing(_)))
}

/// The numeric gRPC code for `attachError.errorCode`: present only if the driver answered (spec 2.7, I7).
pub fn error_code(error: &AttachError) -> Option<i32> {
    error.driver().map(RpcError::number)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// Codes that leave the outcome of the call open.
    const OPEN: [i32; 6] = [0, 1, 4, 8, 10, 14];

    #[test]
    fn a_publish_is_refused_by_the_drivers_last_word_on_it_and_by_nothing_else() {
        for number in 0..17 {
            let code = Code::from_i32(number);
            let of = |method| AttachError::Driver(RpcError { method, code, message: "no".into() });
            assert_eq!(refuses_publish(&of(Client::PUBLISH)), !OPEN.contains(&number), "{code:?}");
            assert!(!refuses_publish(&of("/csi.v1.Controller/ControllerUnpublishVolume")));
        }
        let missing = AttachError::Reason(InvalidAttachment::NodeMissing("node-1".into()));
        assert!(!refuses_publish(&missing) && lacks_node(&missing));
    }
}
