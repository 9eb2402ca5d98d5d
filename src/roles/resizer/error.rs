//! Why an attempt failed, before or after it reached the driver.

use std::time::Duration;

use thiserror::Error;
use tonic::Code;

use crate::cluster::quantity::QuantityError;
use crate::csi::code_name;
use crate::csi::volume::AccessModeError;
use crate::process::ErrorChain;
use crate::roles::kit::finality::{Call, is_final};
use crate::roles::kit::{AttemptError, Op, Reason};
use crate::translation::NotServed;

use super::names;

/// Why the volume of a claim cannot be changed now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidChange {
    /// The driver cannot expand volumes.
    #[error("CSI driver {0} does not support volume expansion")]
    NoExpansion(String),
    /// The driver cannot modify volumes.
    #[error("CSI driver {0} does not support volume modification")]
    NoModification(String),
    /// The size is not a number of bytes that CSI can express.
    #[error(transparent)]
    Size(#[from] QuantityError),
    /// An in-tree volume that has no CSI form.
    #[error("failed to translate persistent volume: {}", ErrorChain(.0))]
    NotServed(NotServed),
    /// The PersistentVolume has no volume handle.
    #[error("empty volume handle")]
    NoHandle,
    /// CSI has no access mode for the volume.
    #[error("failed to get capabilities of volume {volume} with {source}")]
    AccessModes {
        /// The volume.
        volume: String,
        /// Why.
        source: AccessModeError,
    },
    /// The driver has answered with success and with a size that is smaller than requested.
    #[error(
        "the driver answered with {} bytes: at least {} were requested", .answered, .asked
    )]
    TooSmall {
        /// The requested size.
        asked: i64,
        /// The size in the answer.
        answered: i64,
    },
    /// The API server has dropped what was written.
    #[error(
        "the API server does not store {0}: its feature gate {1} is off, and without it the daemon does not call the driver"
    )]
    NotStored(&'static str, &'static str),
    /// The class does not exist.
    #[error("VAC \"{0}\" does not exist.")]
    NoClass(String),
    /// The class is another driver's.
    #[error("VAC \"{class}\" is for driver \"{driver}\", not \"{ours}\".")]
    ForeignClass {
        /// The class.
        class: String,
        /// The driver that it is for.
        driver: String,
        /// Ours.
        ours: String,
    },
    /// Nothing is wrong: something else has to happen first.
    #[error("{says}")]
    Waits {
        /// What it waits for.
        wait: Wait,
        /// The words for people.
        says: String,
        /// A Warning on the claim says so.
        warns: bool,
    },
}

/// What a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Its node has to act.
    Node,
    /// Its volume is in use.
    Pods,
    /// The pods of its namespace are not listed yet.
    PodList,
    /// The driver has refused the size or the class as infeasible.
    Infeasible(Duration),
    /// A node has failed at this size before.
    NodeRetry(Duration),
    /// A class that can be used, and the reason why there is none.
    Class(Box<InvalidChange>),
    /// Classes can be read.
    Classes,
    /// The cache lacks its volume.
    Volume,
    /// It is not known yet how the driver expands volumes.
    Driver,
}

/// Why an attempt at a claim failed.
pub type ChangeError = AttemptError<InvalidChange>;

/// The secret for the call is read.
pub const LOAD_SECRET: Op = Op("error getting secret");
/// The expansion is marked as begun.
pub const BEGIN_EXPANSION: Op = Op("cannot mark the expansion of the claim as begun");
/// The modification is marked as begun.
pub const BEGIN_MODIFICATION: Op = Op("cannot mark the modification of the claim as begun");
/// The new size is written to the PersistentVolume.
pub const RECORD_SIZE: Op = Op("the volume is expanded, but its persistentvolume could not be updated");
/// The claim's status gets the state that its node has to act.
pub const RECORD_NODE: Op = Op("the volume is expanded, but the claim could not be marked for its node");
/// The claim's status gets its new size.
pub const RECORD_DONE: Op = Op("the volume is expanded, but the claim could not be updated");
/// The claim's status gets the reason why the driver has refused.
pub const RECORD_REFUSAL: Op = Op("the driver has refused, but that could not be written to the claim");
/// The annotation with the size before the expansion is removed from the PersistentVolume.
pub const CLEAN_UP: Op = Op("cannot remove the size before the expansion from the persistentvolume");
/// The claim's status gets the state that its class is missing, or another driver's.
pub const RECORD_UNUSABLE: Op = Op("cannot mark the claim as waiting for a VolumeAttributesClass that can be used");
/// The new class is written to the PersistentVolume.
pub const RECORD_CLASS: Op = Op("the volume is modified, but its persistentvolume could not be updated");
/// The claim's status gets its new class.
pub const RECORD_MODIFIED: Op = Op("the volume is modified, but the claim could not be updated");
/// The condition of a cancelled modification is removed from the claim.
pub const CANCEL: Op = Op("cannot remove the condition of the cancelled modification from the claim");

impl Reason for InvalidChange {
    fn label(&self) -> &'static str {
        match self {
            Self::NoExpansion(_) | Self::NoModification(_) => "Unsupported",
            Self::Size(_) => "Size",
            Self::NotServed(_) => "InTree",
            Self::NoHandle => "NoHandle",
            Self::AccessModes { .. } => "AccessModes",
            Self::TooSmall { .. } => "OutOfRange",
            Self::NotStored(..) => "NotStored",
            Self::NoClass(_) => "ClassNotFound",
            Self::ForeignClass { .. } => names::FOREIGN_CLASS,
            Self::Waits { .. } => "Waits",
        }
    }
}

/// Whether the error is final (resizer spec 3.6): the call can no longer change the volume.
pub fn is_refusal(code: Code) -> bool {
    is_final(Call::Change, code)
}

/// Whether this is the name of a final error. Of a reason that is not known nothing follows.
pub fn is_refusal_name(reason: &str) -> bool {
    (1..=16).map(Code::from_i32).any(|code| is_refusal(code) && code_name(code) == reason)
}

/// Whether the driver says that an expansion to this size is infeasible.
pub fn is_infeasible_expansion(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}

/// Whether the driver says that this modification is infeasible.
pub fn is_infeasible_modification(code: Code) -> bool {
    code == Code::InvalidArgument
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::codes;

    #[test]
    fn words_that_are_no_final_code_are_no_refusal() {
        for reason in ["", "Retrying", "internal", "OK", "DeadlineExceeded"] {
            assert!(!is_refusal_name(reason), "{reason}");
        }
    }

    /// Resizer spec 3.6.
    #[test]
    fn every_code_has_its_class_for_each_job() {
        let refusals = [2, 3, 5, 6, 7, 9, 11, 12, 13, 15, 16];
        assert_eq!(codes(is_refusal), refusals);
        assert_eq!(codes(|code| is_refusal_name(code_name(code))), refusals);
        assert_eq!(codes(is_infeasible_expansion), [3, 5, 11]);
        assert_eq!(codes(is_infeasible_modification), [3]);
    }
}
