//! Why an attempt failed, before or after it reached the driver. Pure.

use std::time::Duration;

use thiserror::Error;

use crate::cluster::{ApiError, ApiErrorKind, SecretNotText};
use crate::csi::RpcError;
use crate::process::error_chain;
use crate::roles::attempt::Failure;
use crate::roles::kit::secrets::SecretFailure;

use super::finality::{self, Finality};
use super::request::RequestError;
use super::volume::ResponseError;
use crate::roles::provisioner::sources::source::SourceError;
use crate::roles::provisioner::topology::{TopologyError, TopologyFinality};

/// The longest wait for what is not watched: secrets, the contents of snapshots, their volumes, classes of attributes and
/// grants. Nothing wakes a claim or a volume when they come, and whoever brings them looks on.
pub(in crate::roles::provisioner) const UNWATCHED: Duration = Duration::from_secs(30);

/// Why a claim cannot be provisioned as things stand. Nothing was asked of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidClaim {
    /// The claim has no class.
    #[error("the claim names no StorageClass: name one in spec.storageClassName, or make one the default")]
    NoClass,
    /// Its class does not exist.
    #[error("StorageClass \"{0}\" not found: create it, or make the claim anew with another")]
    ClassMissing(String),
    /// Another volume object has the name that its volume must have.
    #[error("the name of the claim's volume is taken: {0}")]
    NameTaken(String),
    /// Its source was changed to one that a volume populator serves, while the driver still owes an answer.
    #[error("the claim's data source {0} is left to a volume populator, but the driver still owes an answer for it")]
    Populator(String),
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
            Self::Populator(_) => "Populator",
            Self::Source(error) => error.label(),
            Self::Request(error) => error.label(),
        }
    }

    /// Whether what was begun may be ended by it, where the driver owes no answer.
    pub fn finality(&self) -> Finality {
        match self {
            Self::Source(error) => error.finality(),
            Self::Request(error) => error.finality(),
            Self::NoClass | Self::ClassMissing(_) | Self::NameTaken(_) | Self::Populator(_) => Finality::NoChange,
        }
    }
}

/// Why an attempt to provision a claim failed.
#[derive(Debug, Clone, Error)]
pub enum AttemptError {
    /// Refused before anything was asked of the driver.
    #[error(transparent)]
    Refused(#[from] InvalidClaim),
    /// Nobody can say where the volume should be.
    #[error("error generating accessibility requirements")]
    Topology(#[from] TopologyError),
    /// The driver said no, or nothing.
    #[error(transparent)]
    Driver(#[from] RpcError),
    /// The driver made something that cannot be used.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// The volume is one that could not be used.
    #[error("volume {0} could not be used when it was made, and is deleted before another is asked for")]
    Unfit(String),
    /// Nobody wants the volume any more, and what it was made from is gone.
    #[error("volume {0} was made from what is no more, for a claim that wants none any more, and is deleted")]
    Sourceless(String),
    /// What exists under the name of the volume could not be read.
    #[error("cannot see whether the claim's volume exists already")]
    Confirm(#[source] ApiError),
    /// Something that the volume is to be made from could not be read.
    #[error("cannot read the data source")]
    Source(#[source] ApiError),
    /// The source could not be protected by a finalizer.
    #[error("cannot protect the data source")]
    Protect(#[source] ApiError),
    /// The class of attributes could not be read.
    #[error("cannot read the VolumeAttributesClass")]
    AttributesClass(#[source] ApiError),
    /// The secret could not be read.
    #[error("cannot load the provisioner's secret")]
    Secret(#[source] ApiError),
    /// The secret holds bytes that no CSI request can carry.
    #[error(transparent)]
    SecretNotText(#[from] SecretNotText),
    /// The claim could not be marked before the driver was asked.
    #[error("cannot write down on the claim what is about to be asked of the driver")]
    SaveIntent(#[source] ApiError),
    /// The claim could not be taken for this node.
    #[error("cannot take the claim for this node")]
    Take(#[source] ApiError),
    /// Nobody could say whether the claim's node still exists.
    #[error("cannot see whether the node that the claim is for still exists")]
    Holder(#[source] ApiError),
    /// What a node that is gone has left on the claim could not be taken off.
    #[error("cannot take off the claim what a node that is gone has left there")]
    Free(#[source] ApiError),
    /// The volume exists, but no volume object tells of it.
    #[error("the volume is created, but its PersistentVolume could not be stored")]
    Save(#[source] ApiError),
    /// The volume exists, and another volume object has its name.
    #[error("the volume {handle} is created, but the name of its PersistentVolume is taken: {other}")]
    SaveTaken {
        /// The driver's id of our volume.
        handle: String,
        /// What is there.
        other: String,
    },
    /// The volume exists, and it is somebody else's.
    #[error(
        "volume {handle}, which the driver has made for this claim, is the one of PersistentVolume \"{other}\" by now: it is \
         neither deleted nor stored for the claim"
    )]
    Anothers {
        /// The driver's id of the volume.
        handle: String,
        /// The object that tells of it.
        other: String,
    },
    /// The volume that nobody wants, or nobody can use, could not be deleted.
    #[error("volume {handle}, which {}, could not be deleted", fault(.unfit.as_deref()))]
    Discard {
        /// The driver's id of the volume.
        handle: String,
        /// Why a claim that still waits can't have it. `None`: nobody wants it any more.
        unfit: Option<Box<Self>>,
        /// What the driver said.
        #[source]
        source: RpcError,
    },
    /// All is done, but the claim still carries our mark.
    #[error("cannot take our mark off the claim")]
    Release(#[source] ApiError),
    /// The claim could not be read again after a conflict.
    #[error("cannot read the claim again after a conflict")]
    Refresh(#[source] ApiError),
    /// The API takes each write and shows none of them.
    #[error("gave up after {0} steps: the API's answers do not show what was written to it")]
    Endless(u32),
}

/// What is wrong with a volume that has to go.
fn fault(unfit: Option<&AttemptError>) -> String {
    unfit.map_or_else(|| "nobody wants any more".to_owned(), |why| format!("cannot be used ({})", why.message()))
}

impl AttemptError {
    /// Whether the driver was asked and may have less or more room than it said (spec 5.4).
    pub fn is_of_the_driver(&self) -> bool {
        matches!(
            self,
            Self::Driver(_) | Self::Response(_) | Self::Unfit(_) | Self::Sourceless(_) | Self::Discard { .. }
        )
    }

    /// Whether it ends when somebody brings something, or the right to it, that nobody watches.
    fn waits_unwatched(&self) -> bool {
        match self {
            Self::Refused(InvalidClaim::Source(error)) => !error.waits_for().wakes(),
            Self::Refused(InvalidClaim::Request(error)) => error.is_of_attributes_class(),
            Self::AttributesClass(error) | Self::Source(error) => error.kind().is_withheld(),
            _ => self.is_of_missing_secret(),
        }
    }

    /// Whether there is no secret until people change that: it is not there, not for us to read, or no text.
    pub(in crate::roles::provisioner) fn is_of_missing_secret(&self) -> bool {
        match self {
            Self::Secret(error) => error.kind().is_withheld(),
            Self::SecretNotText(_) => true,
            _ => false,
        }
    }

    /// A word for metrics and events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.label(),
            Self::Topology(error) => error.label(),
            Self::Driver(error) | Self::Discard { source: error, .. } => error.label(),
            Self::Response(error) => error.label(),
            Self::Unfit(_) => "Unfit",
            Self::Sourceless(_) => "Sourceless",
            Self::SecretNotText(_) => "SecretNotText",
            Self::SaveTaken { .. } => "NameTaken",
            Self::Anothers { .. } => "HandleTaken",
            Self::Endless(_) => "Endless",
            _ => self.api().map_or("Unknown", ApiError::label),
        }
    }

    /// Whether another attempt at the same can't fare better: the driver has said that the request itself is wrong.
    pub fn is_infeasible(&self) -> bool {
        matches!(self, Self::Driver(error) if finality::is_infeasible(error.code))
    }

    /// Whether an old view of the claim may be the cause: then it is read again, and decided again.
    pub fn is_stale(&self) -> bool {
        let is_stale =
            |kind: ApiErrorKind| kind.is_stale() || matches!(kind, ApiErrorKind::Forbidden | ApiErrorKind::NotFound);
        matches!(self, Self::SaveIntent(_) | Self::Release(_) | Self::Take(_) | Self::Free(_))
            && self.api().map(ApiError::kind).is_some_and(is_stale)
    }

    /// What the attempt leaves behind where the driver was not asked. Its own answers have a table of their own.
    pub fn finality(&self) -> Finality {
        match self {
            Self::Refused(refusal) => refusal.finality(),
            Self::Topology(error) if error.finality() == TopologyFinality::Reschedule => Finality::Reschedule,
            _ => Finality::NoChange,
        }
    }
}

impl Failure for AttemptError {
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Confirm(error)
            | Self::Source(error)
            | Self::Protect(error)
            | Self::AttributesClass(error)
            | Self::Secret(error)
            | Self::SaveIntent(error)
            | Self::Take(error)
            | Self::Holder(error)
            | Self::Free(error)
            | Self::Save(error)
            | Self::Release(error)
            | Self::Refresh(error) => Some(error),
            _ => None,
        }
    }

    fn driver(&self) -> Option<&RpcError> {
        match self {
            Self::Driver(error) | Self::Discard { source: error, .. } => Some(error),
            _ => None,
        }
    }

    fn retry_cap(&self) -> Option<Duration> {
        match self {
            Self::Driver(error) | Self::Discard { source: error, .. } => error.retry_cap(),
            _ => self.waits_unwatched().then_some(UNWATCHED),
        }
    }

    fn message(&self) -> String {
        let text = error_chain(self);
        if self.is_infeasible() {
            return format!("{text} (infeasible: it is tried again rarely until the claim or its class changes)");
        }
        text
    }
}

impl From<RequestError> for AttemptError {
    fn from(error: RequestError) -> Self {
        Self::Refused(InvalidClaim::Request(error))
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

impl From<SourceError> for AttemptError {
    fn from(error: SourceError) -> Self {
        Self::Refused(InvalidClaim::Source(error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tonic::Code;

    use super::*;
    use crate::cluster::{ObjectName, PersistentVolume};
    use crate::roles::provisioner::fixtures::{DRIVER, claim};
    use crate::roles::provisioner::sources::source::{Source, Wanted, check_clone, check_grants, check_snapshot};

    fn answered(code: Code) -> RpcError {
        RpcError { method: "/x/Y", code, message: "no".into() }
    }

    fn secret() -> AttemptError {
        SecretNotText { secret: ObjectName::namespaced("shop", "s"), key: "k".into() }.into()
    }

    fn reclaim(unfit: Option<AttemptError>) -> AttemptError {
        AttemptError::Discard { handle: "v".into(), unfit: unfit.map(Box::new), source: answered(Code::Internal) }
    }

    #[test]
    fn a_class_that_is_missing_is_told_with_what_to_do() {
        for (refusal, expected) in [
            (InvalidClaim::NoClass, "the claim names no StorageClass: name one"),
            (InvalidClaim::ClassMissing("gold".into()), "StorageClass \"gold\" not found: create it"),
        ] {
            assert!(refusal.to_string().starts_with(expected), "{refusal}");
        }
    }

    #[test]
    fn a_volume_that_is_not_deleted_is_told_with_what_is_wrong_with_it() {
        let small = ResponseError::TooSmall { id: "v".into(), created: 5, requested: 10 };
        for (error, expected) in [
            (reclaim(None), "volume v, which nobody wants any more, could not be deleted: "),
            (
                reclaim(Some(small.into())),
                "volume v, which cannot be used (the driver created volume v with 5 bytes: at least 10 were \
                 requested), could not be deleted: ",
            ),
        ] {
            let text = error.message();
            assert_eq!(text, format!("{expected}{}", answered(Code::Internal)));
        }
    }

    #[test]
    fn whoever_brings_what_nobody_watches_waits_half_a_minute_at_the_most() {
        let unwatched = Some(UNWATCHED);
        let (clone, source) =
            (claim(json!({})), claim(json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}})));
        let wanted = Wanted { claim: &clone, driver: DRIVER, prevent_mode_conversion: true };
        let snapshot = json!({"metadata": {"name": "s"}, "status": {"boundVolumeSnapshotContentName": "content-1"}});
        let snapshot = serde_json::from_value(snapshot).unwrap();
        let (missing, at) = (None::<&PersistentVolume>, ("shop", "s"));
        let foreign = Source::Claim { namespace: "far".into(), name: "c".into() };
        let class = RequestError::AttributesClassDriver { name: "a".into(), found: "b".into(), driver: DRIVER.into() };
        for (error, cap) in [
            (check_grants(&[], "shop", &foreign).unwrap_err().into(), unwatched),
            (check_snapshot(&wanted, at, Some(&snapshot), None).unwrap_err().into(), unwatched),
            (check_clone(&wanted, at, Some(&source), missing).unwrap_err().into(), unwatched),
            (RequestError::AttributesClassMissing("a".into()).into(), unwatched),
            (class.into(), unwatched),
            (secret(), unwatched),
            // What wakes the claim when it comes.
            (check_snapshot(&wanted, at, None, None).unwrap_err().into(), None),
            (check_clone(&wanted, at, None, missing).unwrap_err().into(), None),
            (RequestError::Selector.into(), None),
            (InvalidClaim::ClassMissing("gold".into()).into(), None),
            (AttemptError::Driver(answered(Code::Internal)), None),
            (AttemptError::Driver(answered(Code::Aborted)), answered(Code::Aborted).retry_cap()),
        ] {
            assert_eq!(AttemptError::retry_cap(&error), cap, "{}", error.message());
        }
        assert!(UNWATCHED > answered(Code::Aborted).retry_cap().unwrap());
    }

    #[test]
    fn what_the_driver_was_asked_for_in_vain_may_have_changed_its_room() {
        for (error, expected) in [
            (answered(Code::Internal).into(), true),
            (ResponseError::NoVolume.into(), true),
            (AttemptError::Unfit("v".into()), true),
            (AttemptError::Sourceless("v".into()), true),
            (reclaim(None), true),
            (InvalidClaim::NoClass.into(), false),
            (RequestError::Selector.into(), false),
            (secret(), false),
            (AttemptError::Endless(1), false),
        ] {
            assert_eq!(AttemptError::is_of_the_driver(&error), expected, "{}", error.message());
        }
    }
}
