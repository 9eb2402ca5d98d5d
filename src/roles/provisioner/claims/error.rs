//! Why an attempt failed, before or after it reached the driver. Pure.

use std::time::Duration;

use thiserror::Error;

use crate::csi::RpcError;
use crate::process::error_chain;
use crate::queue::Outcome;
use crate::roles::kit::failure::UNWATCHED;
use crate::roles::kit::report::gist;
use crate::roles::kit::{self, Op, Reason};

use super::request::RequestError;
use super::response::ResponseError;
use crate::roles::provisioner::finality::Finality;
use crate::roles::provisioner::sources::source::{SourceError, WaitsFor};
use crate::roles::provisioner::topology::{TopologyError, TopologyFinality};

/// Why a claim cannot be provisioned now. The driver was not called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidClaim {
    /// The claim has no class.
    #[error("the claim names no StorageClass: name one in spec.storageClassName, or make one the default")]
    NoClass,
    /// Its class does not exist.
    #[error("StorageClass \"{0}\" not found: create it, or create the claim again with another class")]
    ClassMissing(String),
    /// Another PersistentVolume has the name that the claim's volume must have.
    #[error("the name of the claim's volume is taken: {0}")]
    NameTaken(String),
    /// Its source can't be used.
    #[error(transparent)]
    Source(SourceError),
    /// No request can be made of the claim and its class.
    #[error(transparent)]
    Request(RequestError),
}

impl InvalidClaim {
    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoClass => "NoClass",
            Self::ClassMissing(_) => "ClassNotFound",
            Self::NameTaken(_) => "NameTaken",
            Self::Source(error) => error.label(),
            Self::Request(error) => error.label(),
        }
    }

    /// The outcome of an attempt that fails with it, if no request waits for the driver's answer.
    pub fn finality(&self) -> Finality {
        match self {
            Self::Source(error) => error.finality(),
            Self::Request(error) => error.finality(),
            Self::NoClass | Self::ClassMissing(_) | Self::NameTaken(_) => Finality::NoChange,
        }
    }
}

/// Reads the PersistentVolume of the name of the claim's volume.
pub const CONFIRM: Op = Op("cannot check whether the claim's volume exists already");
/// Reads what has become of the PersistentVolumes since a request of an earlier term was recorded.
pub const HISTORY: Op = Op("cannot find out whether a PersistentVolume was stored for a request of an earlier leader");
/// Reads the class, which the cache does not have.
pub const READ_CLASS: Op = Op("cannot read the StorageClass");
/// Reads an object of the data source.
pub const READ_SOURCE: Op = Op("cannot read the data source");
/// Adds the finalizer to the source.
pub const PROTECT_SOURCE: Op = Op("cannot protect the data source");
/// Reads the class of attributes.
pub const READ_ATTRIBUTES_CLASS: Op = Op("cannot read the VolumeAttributesClass");
/// Reads the provisioner's secret.
pub const READ_SECRET: Op = Op("cannot load the provisioner's secret");
/// Records the request in the journal, before the driver is called.
pub const RECORD: Op = Op("cannot save the request in the journal");
/// Stores the PersistentVolume.
pub const SAVE_VOLUME: Op = Op("the volume is created, but its PersistentVolume could not be stored");
/// Removes the selected node from a claim that another node may be able to serve.
pub const RESCHEDULE: Op = Op("cannot remove the selected node from the claim");
/// Reads the claim, whose PersistentVolume has gone.
pub const READ_CLAIM: Op = Op("cannot read the claim, whose PersistentVolume is gone");
/// Reads the claim again.
pub const REFRESH: Op = Op("cannot read the claim again after a conflict");

/// Why an attempt at a claim failed.
pub type AttemptError = kit::AttemptError<ClaimReason>;

/// Why an attempt at a claim ended before the claim was settled.
pub type Stop = kit::Stop<ClaimReason>;

/// The provisioner's own reasons why an attempt at a claim fails.
#[derive(Debug, Clone, Error)]
pub enum ClaimReason {
    /// The claim cannot be provisioned now. The driver was not called.
    #[error(transparent)]
    Invalid(#[from] InvalidClaim),
    /// The cluster does not say where the volume should be.
    #[error("error generating accessibility requirements")]
    Topology(#[from] TopologyError),
    /// The driver's answer to `CreateVolume` cannot be used.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// The driver says that the request itself is wrong, and tried sooner it is refused again.
    #[error("{0} (infeasible: retried rarely until the claim or its class changes)")]
    Infeasible(RpcError),
    /// The driver has created the volume in an earlier term, and the volume cannot be used.
    #[error("volume {0} is unusable, and is deleted before another one is requested")]
    Unfit(String),
    /// The volume exists, and another PersistentVolume has its name.
    #[error("the volume {handle} is created, but the name of its PersistentVolume is taken: {other}")]
    SaveTaken {
        /// The driver's id of our volume.
        handle: String,
        /// What has the name.
        other: String,
    },
    /// The volume exists, and a PersistentVolume that is not the claim's has it.
    #[error(
        "PersistentVolume \"{other}\" now has volume {handle}, which the driver created for this claim: it is neither deleted nor stored for the claim"
    )]
    Anothers {
        /// The driver's id of the volume.
        handle: String,
        /// The PersistentVolume that has the volume.
        other: String,
    },
    /// The volume is not wanted, or cannot be used, and the driver did not delete it.
    #[error("volume {handle}, which {}, could not be deleted", fault(.unfit.as_deref()))]
    Discard {
        /// The driver's id of the volume.
        handle: String,
        /// Why a claim that still waits cannot use it. `None`: the claim no longer wants it.
        unfit: Option<Box<AttemptError>>,
        /// The driver's answer.
        #[source]
        source: RpcError,
    },
}

/// What is wrong with a volume that has to go.
fn fault(unfit: Option<&AttemptError>) -> String {
    unfit.map_or_else(|| "no claim wants any more".to_owned(), |why| format!("cannot be used ({})", why.message()))
}

impl Reason for ClaimReason {
    fn label(&self) -> &'static str {
        match self {
            Self::Invalid(invalid) => invalid.label(),
            Self::Topology(error) => error.label(),
            Self::Response(error) => error.label(),
            Self::Infeasible(error) => error.label(),
            Self::Unfit(_) => "Unfit",
            Self::SaveTaken { .. } => "NameTaken",
            Self::Anothers { .. } => "HandleTaken",
            Self::Discard { source, .. } => source.label(),
        }
    }

    fn driver(&self) -> Option<&RpcError> {
        match self {
            Self::Discard { source, .. } | Self::Infeasible(source) => Some(source),
            _ => None,
        }
    }

    fn retry_cap(&self) -> Option<Duration> {
        let is_unwatched = match self {
            Self::Invalid(InvalidClaim::Source(error)) => !error.waits_for().wakes(),
            Self::Invalid(InvalidClaim::Request(error)) => error.is_of_attributes_class(),
            _ => false,
        };
        if is_unwatched { Some(UNWATCHED) } else { self.driver().and_then(RpcError::retry_cap) }
    }

    fn gist(&self) -> String {
        match self {
            // The texts contain the driver's IDs and sizes, which may differ in each attempt.
            Self::Response(error) => error.gist().to_owned(),
            Self::Unfit(_) => String::new(),
            Self::SaveTaken { other, .. } | Self::Anothers { other, .. } => gist(other),
            Self::Discard { handle, unfit, source } => {
                let said =
                    if handle.is_empty() { source.to_string() } else { source.to_string().replace(handle, "…") };
                let why = unfit.as_ref().map(|why| why.gist()).unwrap_or_default();
                format!("not deleted {why}: {}", gist(&said))
            }
            Self::Invalid(_) | Self::Topology(_) | Self::Infeasible(_) => gist(&error_chain(self)),
        }
    }
}

impl AttemptError {
    /// Whether the driver was called, so that its free capacity may have changed (spec 5.4).
    pub fn is_of_the_driver(&self) -> bool {
        match self {
            Self::Driver(_) => true,
            Self::Reason(reason) => !matches!(
                reason,
                ClaimReason::Invalid(_)
                    | ClaimReason::Topology(_)
                    | ClaimReason::SaveTaken { .. }
                    | ClaimReason::Anothers { .. }
            ),
            Self::Op(_) | Self::Unseen(..) | Self::Replaced(..) | Self::Endless(_) => false,
        }
    }

    /// Whether another attempt with the same request is useless: the driver says that the request itself is wrong.
    pub fn is_infeasible(&self) -> bool {
        matches!(self, Self::Reason(ClaimReason::Infeasible(_)))
    }

    /// The outcome of an attempt that did not call the driver. [`after_create`](crate::roles::provisioner::finality::after_create) has the outcomes of the
    /// driver's answers.
    pub fn finality(&self) -> Finality {
        match self {
            Self::Reason(ClaimReason::Invalid(invalid)) => invalid.finality(),
            Self::Reason(ClaimReason::Topology(error)) if error.finality() == TopologyFinality::Reschedule => {
                Finality::Reschedule
            }
            _ => Finality::NoChange,
        }
    }

    /// When to try again. An object that no cache watches does not wake the claim when it appears. `watches_snapshots`: snapshots do.
    pub fn retry(&self, watches_snapshots: bool) -> Outcome {
        let is_withheld = self.api().is_some_and(|error| error.kind().is_withheld());
        let is_read = is_withheld && (self.is_of(READ_SOURCE) || self.is_of(READ_ATTRIBUTES_CLASS));
        let waits_for_snapshot = match self {
            Self::Reason(ClaimReason::Invalid(InvalidClaim::Source(error))) => error.waits_for() == WaitsFor::Snapshot,
            _ => self.is_of(READ_SOURCE),
        };
        match self.outcome() {
            Outcome::Retry { .. } if is_read || (waits_for_snapshot && !watches_snapshots) => {
                Outcome::Retry { cap: Some(UNWATCHED) }
            }
            outcome => outcome,
        }
    }
}

impl From<InvalidClaim> for AttemptError {
    fn from(invalid: InvalidClaim) -> Self {
        Self::Reason(invalid.into())
    }
}

impl From<TopologyError> for AttemptError {
    fn from(error: TopologyError) -> Self {
        Self::Reason(error.into())
    }
}

impl From<ResponseError> for AttemptError {
    fn from(error: ResponseError) -> Self {
        Self::Reason(error.into())
    }
}

impl From<RequestError> for AttemptError {
    fn from(error: RequestError) -> Self {
        InvalidClaim::Request(error).into()
    }
}

impl From<SourceError> for AttemptError {
    fn from(error: SourceError) -> Self {
        InvalidClaim::Source(error).into()
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
