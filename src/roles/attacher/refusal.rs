//! Why an attempt failed, before or after it reached the driver. Pure.

use thiserror::Error;
use tonic::Code;

use crate::cluster::{ApiError, ApiErrorKind, InTree, SecretNotText};
use crate::csi::volume::AccessModeError;
use crate::csi::{Client, RpcError};
use crate::roles::attempt::Failure;
use crate::roles::secret::SecretFailure;

/// Why an attachment cannot be worked on as things stand. Nothing was asked of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Neither a volume nor an inline spec.
    #[error("spec.source names neither a persistentVolumeName nor an inlineVolumeSpec; exactly one is needed")]
    NoSource,
    /// Both at once.
    #[error("spec.source has both a persistentVolumeName and an inlineVolumeSpec; exactly one is allowed")]
    BothSources,
    /// The volume does not exist.
    #[error("persistentvolume \"{0}\" not found")]
    VolumeMissing(String),
    /// The volume is going away: attaching it would only hold it up.
    #[error("persistentvolume \"{0}\" is marked for deletion; it is not attached any more")]
    VolumeDeleting(String),
    /// Not a CSI volume at all.
    #[error("persistentvolume \"{0}\" has no CSI source: only CSI volumes can be attached by this driver")]
    NotCsi(String),
    /// An inline spec without a CSI source.
    #[error("spec.source.inlineVolumeSpec has no CSI source: only CSI volumes can be attached by this driver")]
    InlineNotCsi,
    /// An in-tree volume: CSI migration is needed.
    #[error("the volume has the in-tree source {}; CSI migration to {} is not supported", .0.field(), .0.successor())]
    InTree(InTree),
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

impl Refusal {
    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoSource | Self::BothSources => "InvalidSource",
            Self::VolumeMissing(_) => "VolumeNotFound",
            Self::VolumeDeleting(_) => "VolumeDeleting",
            Self::NotCsi(_) | Self::InlineNotCsi => "NotCsi",
            Self::InTree(_) => "InTree",
            Self::Foreign { .. } => "ForeignVolume",
            Self::AccessModes(_) => "AccessModes",
            Self::NodeMissing(_) => "NodeNotFound",
            Self::DriverNotOnNode { .. } => "DriverNotOnNode",
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Error)]
pub enum AttemptError {
    /// Refused before anything was asked of the driver.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The driver said no, or nothing.
    #[error(transparent)]
    Driver(#[from] RpcError),
    /// The volume could not be protected by our finalizer.
    #[error("cannot add the finalizer to the persistentvolume before attaching")]
    Protect(#[source] ApiError),
    /// The attachment could not be marked before publishing.
    #[error("cannot save the finalizer and the node id on the volumeattachment before attaching")]
    SaveIntent(#[source] ApiError),
    /// The publish secret could not be read.
    #[error("cannot load the secret of controllerPublishSecretRef")]
    Secret(#[source] ApiError),
    /// The publish secret holds bytes that no CSI request can carry.
    #[error(transparent)]
    SecretNotText(SecretNotText),
    /// The driver published, but the result could not be recorded.
    #[error("the volume is published, but that could not be recorded")]
    RecordAttached(#[source] ApiError),
    /// The driver unpublished, but the finalizer could not be removed.
    #[error("the volume is unpublished, but the volumeattachment could not be released")]
    Release(#[source] ApiError),
    /// The failure could not be written to the status.
    #[error("cannot write the error to the status")]
    WriteError(#[source] ApiError),
    /// The API takes each write and shows none of them.
    #[error("gave up after {0} steps: the API's answers do not show what was written to it")]
    Endless(u32),
    /// The attachment or its volume could not be read again after a conflict.
    #[error("cannot read the object again after a conflict")]
    Refresh(#[source] ApiError),
    /// The attachment or its volume could not be read before the driver was asked: the cache alone is not trusted with that.
    #[error("cannot read the object to confirm it before the driver is asked")]
    Confirm(#[source] ApiError),
}

/// Whether a failed publish or unpublish is the driver's last word: nothing goes on any more that may yet have its effect. The
/// table of external-attacher's classifier (spec 2.7).
pub fn is_final(code: Code) -> bool {
    match code {
        // `Ok` is no error: an answer that claims both has said nothing.
        Code::Ok
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unavailable
        | Code::ResourceExhausted
        | Code::Aborted => false,
        Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => true,
    }
}

impl From<SecretFailure> for AttemptError {
    fn from(failure: SecretFailure) -> Self {
        match failure {
            SecretFailure::Api(error) => Self::Secret(error),
            SecretFailure::NotText(error) => Self::SecretNotText(error),
        }
    }
}

impl AttemptError {
    /// A word for metrics and events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.label(),
            Self::Driver(error) => error.label(),
            Self::SecretNotText(_) => "SecretNotText",
            Self::Endless(_) => "Endless",
            _ => self.api().map_or("Unknown", ApiError::label),
        }
    }

    /// Whether the driver was asked to publish the volume, and has refused for good.
    pub fn refuses_publish(&self) -> bool {
        matches!(self, Self::Driver(error) if error.method == Client::PUBLISH && is_final(error.code))
    }

    /// Whether there is no node any more to which the volume could be published.
    pub fn lacks_node(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NodeMissing(_)))
    }

    /// The numeric gRPC code for `attachError.errorCode`: present only if the driver answered (spec 2.7, I7).
    pub fn error_code(&self) -> Option<i32> {
        self.driver().map(RpcError::number)
    }

    /// Whether it says that the attachment itself is gone. The watch will say so, too; until then nobody is to be told.
    pub fn says_gone(&self) -> bool {
        matches!(
            self,
            Self::SaveIntent(error)
                | Self::RecordAttached(error)
                | Self::Release(error)
                | Self::Refresh(error)
                | Self::Confirm(error)
                if error.kind() == ApiErrorKind::NotFound
        )
    }
}

impl Failure for AttemptError {
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Refused(_) | Self::Driver(_) | Self::SecretNotText(_) | Self::Endless(_) => None,
            Self::Protect(error)
            | Self::SaveIntent(error)
            | Self::Secret(error)
            | Self::RecordAttached(error)
            | Self::Release(error)
            | Self::WriteError(error)
            | Self::Refresh(error)
            | Self::Confirm(error) => Some(error),
        }
    }

    fn driver(&self) -> Option<&RpcError> {
        if let Self::Driver(error) = self { Some(error) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes that leave open what became of the call.
    const OPEN: [i32; 6] = [0, 1, 4, 8, 10, 14];

    #[test]
    fn a_publish_is_refused_by_the_drivers_last_word_on_it_and_by_nothing_else() {
        for number in 0..17 {
            let code = Code::from_i32(number);
            assert_eq!(is_final(code), !OPEN.contains(&number), "{code:?}");
            let of = |method| AttemptError::Driver(RpcError { method, code, message: "no".into() });
            assert_eq!(of(Client::PUBLISH).refuses_publish(), is_final(code), "{code:?}");
            assert!(!of("/csi.v1.Controller/ControllerUnpublishVolume").refuses_publish());
        }
        let missing = AttemptError::Refused(Refusal::NodeMissing("node-1".into()));
        assert!(!missing.refuses_publish() && missing.lacks_node());
    }
}
