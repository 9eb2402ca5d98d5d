//! Why a volume could not be deleted.

use std::time::Duration;

use thiserror::Error;

use crate::cluster::{ApiError, InTree, SecretNotText};
use crate::csi::RpcError;
use crate::roles::attempt::Failure;
use crate::roles::kit::failure::UNWATCHED;
use crate::roles::kit::secrets::SecretFailure;
use crate::roles::provisioner::parameters::secrets::SecretError;

/// Why an attempt at a volume failed.
#[derive(Debug, Error)]
pub enum DeleteError {
    /// Nothing that a CSI driver could delete.
    #[error("the volume has no CSI source")]
    NotCsi,
    /// An in-tree volume: CSI migration is needed.
    #[error(
        "the volume has the in-tree source {}; CSI migration to {} is not supported: delete it by hand",
        .0.field(), .0.successor()
    )]
    InTree(InTree),
    /// Somebody else has the same volume, by another object.
    #[error(
        "volume {handle} is not deleted: persistentvolume \"{other}\" names it, too, and is not released with the reclaim \
         policy Delete"
    )]
    Shared {
        /// The driver's id of the volume.
        handle: String,
        /// The other object.
        other: String,
    },
    /// The driver can't delete volumes.
    #[error("driver {driver} does not have the capability {capability}, which is needed to delete a volume")]
    Capability {
        /// Our driver.
        driver: String,
        /// The capability, by its name in the specification.
        capability: &'static str,
    },
    /// Nobody knows where the secret is.
    #[error(transparent)]
    SecretReference(#[from] SecretError),
    /// It may need a secret, and nobody knows which.
    #[error(
        "nobody knows the secret that the volume must be deleted with: {0}; set deleteWithoutSecret to go on without"
    )]
    SecretUnknown(&'static str),
    /// The secret could not be read.
    #[error("cannot load the deletion secret{}", way_out(.0))]
    Secret(#[source] ApiError),
    /// The secret holds bytes that no CSI request can carry.
    #[error("the deletion secret cannot be used")]
    SecretNotText(#[source] SecretNotText),
    /// Whether it is still to be deleted could not be read.
    #[error("cannot see whether the volume is still to be deleted")]
    Confirm(#[source] ApiError),
    /// The driver said no, or nothing.
    #[error(transparent)]
    Driver(#[from] RpcError),
    /// Our finalizer could not be put on it.
    #[error("cannot put the finalizer on the persistentvolume")]
    Protect(#[source] ApiError),
    /// The volume is deleted, its object is not.
    #[error("the volume is deleted, but its persistentvolume could not be")]
    Remove(#[source] ApiError),
    /// Our finalizer could not be taken off.
    #[error("cannot take the finalizer off the persistentvolume")]
    Release(#[source] ApiError),
    /// The object could not be read again after a conflict.
    #[error("cannot read the persistentvolume again after a conflict")]
    Refresh(#[source] ApiError),
    /// The API takes each write and shows none of them.
    #[error("gave up after {0} steps: the API's answers do not show what was written to it")]
    Endless(u32),
}

/// What people can do about a secret that is not to be had. One that could not be read just now needs nothing but another try.
fn way_out(error: &ApiError) -> &'static str {
    if error.kind().is_withheld() { "; set deleteWithoutSecret to go on without" } else { "" }
}

impl From<SecretFailure> for DeleteError {
    fn from(failure: SecretFailure) -> Self {
        match failure {
            SecretFailure::Api(error) => Self::Secret(error),
            SecretFailure::NotText(error) => Self::SecretNotText(error),
        }
    }
}

impl DeleteError {
    /// A word for metrics and events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotCsi => "NotCsi",
            Self::InTree(_) => "InTree",
            Self::Capability { .. } => "Capability",
            Self::Shared { .. } => "HandleShared",
            Self::SecretReference(error) => error.label(),
            Self::SecretUnknown(_) => "SecretUnknown",
            Self::SecretNotText(_) => "SecretNotText",
            Self::Driver(error) => error.label(),
            Self::Endless(_) => "Endless",
            _ => self.api().map_or("Unknown", ApiError::label),
        }
    }

    /// Whether the volume itself could not be deleted, which people must hear of; the upkeep of finalizers is our affair.
    pub fn is_of_the_volume(&self) -> bool {
        !matches!(self, Self::Protect(_) | Self::Release(_) | Self::Refresh(_) | Self::Endless(_))
    }
}

impl Failure for DeleteError {
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Secret(error)
            | Self::Confirm(error)
            | Self::Protect(error)
            | Self::Remove(error)
            | Self::Release(error)
            | Self::Refresh(error) => Some(error),
            _ => None,
        }
    }

    fn driver(&self) -> Option<&RpcError> {
        if let Self::Driver(error) = self { Some(error) } else { None }
    }

    fn retry_cap(&self) -> Option<Duration> {
        match self {
            Self::Driver(error) => error.retry_cap(),
            Self::Secret(error) => error.kind().is_withheld().then_some(UNWATCHED),
            Self::SecretNotText(_) => Some(UNWATCHED),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ObjectName;

    #[test]
    fn a_secret_that_is_no_text_is_told_with_its_place() {
        let cause = SecretNotText { secret: ObjectName::namespaced("ns", "keys"), key: "token".into() };
        let error = DeleteError::from(SecretFailure::NotText(cause));
        assert_eq!(error.label(), "SecretNotText");
        assert_eq!(
            error.message(),
            "the deletion secret cannot be used: secret ns/keys: the value of key token is not UTF-8 text, which a CSI \
             secret must be"
        );
    }
}
