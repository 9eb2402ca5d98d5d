//! Why a deletion failed: the reasons, and the requests that may fail. Pure.

use thiserror::Error;

use crate::cluster::InTree;
use crate::roles::kit::io::REFRESH;
use crate::roles::kit::secrets::SecretFailure;
use crate::roles::kit::{AttemptError, Op, OpError, Reason};
use crate::roles::provisioner::parameters::secrets::SecretError;
use crate::translation::TranslationError;

/// Why a volume cannot be deleted now. The driver was not called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeleteReason {
    /// It has no CSI source.
    #[error("the volume has no CSI source")]
    NotCsi,
    /// It is an in-tree volume that another driver has taken over.
    #[error("the volume has the in-tree source {}, which {} serves, and no other driver deletes", .0.field(), .0.successor())]
    InTree(InTree),
    /// It is an in-tree volume of our driver, and has no CSI form.
    #[error("the in-tree volume cannot be translated to CSI: {0}")]
    Untranslatable(TranslationError),
    /// Another object has the same handle.
    #[error(
        "volume {handle} is not deleted: persistentvolume \"{other}\" has the same handle{}, and is not released with the reclaim policy Delete", spelling(.spelled.as_deref())
    )]
    Shared {
        /// The driver's id of the volume.
        handle: String,
        /// The other object.
        other: String,
        /// How the other object spells the handle, if not the same way.
        spelled: Option<String>,
    },
    /// The driver cannot delete volumes.
    #[error("driver {driver} does not have the capability {capability}, which is needed to delete a volume")]
    Capability {
        /// Our driver.
        driver: String,
        /// The missing capability, by its name in the specification.
        capability: &'static str,
    },
    /// Volume or class name the secret in an unusable way.
    #[error(transparent)]
    SecretReference(#[from] SecretError),
    /// The volume may need a secret, and neither volume nor class name it.
    #[error(
        "cannot find out which secret DeleteVolume needs: {0}; set deleteWithoutSecret to delete the volume without it"
    )]
    SecretUnknown(&'static str),
}

/// Why an attempt at a volume failed.
pub type DeleteError = AttemptError<DeleteReason>;

/// Adds our finalizer to the volume.
pub const PROTECT: Op = Op("cannot add the finalizer to the persistentvolume");
/// Waits until the journal has no entry for the volume.
pub const FORGET: Op = Op("the persistentvolume stays until the journal has no entry of it");
/// Deletes the object of a deleted volume.
pub const REMOVE: Op = Op("the volume is deleted, but its persistentvolume could not be");
/// Removes our finalizer from the volume.
pub const RELEASE: Op = Op("cannot remove the finalizer from the persistentvolume");
/// Reads the secret. It may exist at the next attempt.
const LOAD_SECRET: Op = Op("cannot load the deletion secret");
/// Reads the secret, where there is none and only people can bring it: the text says what they can do.
const LOAD_MISSING_SECRET: Op =
    Op("cannot load the deletion secret; set deleteWithoutSecret to delete the volume without it");
/// Reads the secret, where the daemon may not: the secret may exist, and is waited for.
const READ_FORBIDDEN_SECRET: Op =
    Op("cannot load the deletion secret; give the daemon's service account the right to get it");
/// Puts the secret's content into a CSI request.
const USE_SECRET: Op = Op("the deletion secret cannot be used");

/// The secret could not be read, or does not fit into a CSI request.
pub fn secret_failed(failure: SecretFailure) -> OpError {
    let op = match &failure {
        SecretFailure::NotText(_) => USE_SECRET,
        SecretFailure::Api(_) if failure.is_missing() => LOAD_MISSING_SECRET,
        SecretFailure::Api(_) if failure.is_withheld() => READ_FORBIDDEN_SECRET,
        SecretFailure::Api(_) => LOAD_SECRET,
    };
    op.failed(failure)
}

/// Whether the volume itself could not be deleted, which people must know. Finalizers are our own concern.
pub fn is_of_the_volume(error: &DeleteError) -> bool {
    let is_upkeep = [PROTECT, RELEASE, REFRESH].into_iter().any(|op| error.is_of(op));
    !is_upkeep && !matches!(error, AttemptError::Endless(_))
}

impl Reason for DeleteReason {
    fn label(&self) -> &'static str {
        match self {
            Self::NotCsi => "NotCsi",
            Self::InTree(_) | Self::Untranslatable(_) => "InTree",
            Self::Capability { .. } => "Capability",
            Self::Shared { .. } => "HandleShared",
            Self::SecretReference(error) => error.label(),
            Self::SecretUnknown(_) => "SecretUnknown",
        }
    }
}

/// The words for how another object spells the handle.
fn spelling(spelled: Option<&str>) -> String {
    spelled.map(|spelled| format!(", spelled {spelled}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ObjectName, SecretNotText};
    use crate::roles::kit::failure::UNWATCHED;

    #[test]
    fn a_secret_that_is_no_text_is_reported_with_its_place() {
        let cause = SecretNotText { secret: ObjectName::namespaced("ns", "keys"), key: "token".into() };
        let error = DeleteError::from(secret_failed(SecretFailure::NotText(cause)));
        assert_eq!(error.label(), "SecretNotText");
        assert_eq!(error.retry_cap(), Some(UNWATCHED));
        assert_eq!(
            error.message(),
            "the deletion secret cannot be used: secret ns/keys: the value of key token is not UTF-8 text, which a CSI \
             secret must be"
        );
    }

    #[test]
    fn people_are_told_that_a_volume_cannot_be_deleted_and_not_of_the_upkeep_of_finalizers() {
        let failed = |op: Op| {
            DeleteError::from(op.failed(SecretFailure::NotText(SecretNotText {
                secret: ObjectName::namespaced("ns", "keys"),
                key: "token".into(),
            })))
        };
        for op in [FORGET, REMOVE, LOAD_SECRET, LOAD_MISSING_SECRET, READ_FORBIDDEN_SECRET, USE_SECRET] {
            assert!(is_of_the_volume(&failed(op)), "{op:?}");
        }
        for op in [PROTECT, RELEASE, REFRESH] {
            assert!(!is_of_the_volume(&failed(op)), "{op:?}");
        }
        assert!(is_of_the_volume(&DeleteReason::NotCsi.into()));
        assert!(!is_of_the_volume(&AttemptError::Endless(40)));
    }
}
