//! What a claim waits for, as a metric and the status page tell it. Pure.

use tokio::time::Instant;

use crate::cluster::ObjectName;
use crate::roles::kit::AttemptError;

use super::error::{ChangeError, InvalidChange, Wait};
use super::job::Job;

/// What a claim waits for, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The claim.
    pub claim: ObjectName,
    /// Which of its changes waits.
    pub job: Job,
    /// For what.
    pub reason: Reason,
    /// Since when, for this reason. A try that fails in another way does not begin a new wait.
    pub since: Instant,
    /// Tries that have failed since then.
    pub failed: usize,
    /// The words for people.
    pub says: String,
}

/// For what a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The driver has refused the size or the class as infeasible: for another request of the user, or the end of the pause.
    Infeasible,
    /// For the end of the pods that use its volume.
    InUse,
    /// For its node, which has to expand the file system.
    Node,
    /// For a `VolumeAttributesClass` that can be used.
    ClassMissing,
    /// For the next attempt after a failed one.
    Backoff,
}

impl Reason {
    /// All of them, by their words.
    pub const LABELS: [&'static str; 5] = ["infeasible", "inUse", "node", "classMissing", "backoff"];

    /// The word for people and metrics.
    pub fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }

    /// Whether it waits for the next try after one that failed, however that did.
    fn is_failure(self) -> bool {
        matches!(self, Self::Infeasible | Self::Backoff)
    }

    /// Whether this one and the other are one wait.
    pub fn continues(self, other: Self) -> bool {
        self == other || (self.is_failure() && other.is_failure())
    }
}

/// What the claim waits for after this end of an attempt, and the words for it. `is_infeasible`: what the driver has refused.
pub fn waiting_for(error: &ChangeError, is_infeasible: bool) -> Option<(Reason, String)> {
    let reason = match error {
        AttemptError::Reason(InvalidChange::Waits { wait, .. }) => match wait {
            Wait::Node => Reason::Node,
            Wait::Pods | Wait::PodList => Reason::InUse,
            Wait::Infeasible(_) => Reason::Infeasible,
            Wait::Class(_) | Wait::Classes => Reason::ClassMissing,
            Wait::NodeRetry(_) | Wait::Volume | Wait::Driver => Reason::Backoff,
        },
        AttemptError::Reason(InvalidChange::NoExpansion(_) | InvalidChange::NoModification(_)) => return None,
        AttemptError::Driver(_) if is_infeasible => Reason::Infeasible,
        _ => Reason::Backoff,
    };
    Some((reason, error.message()))
}

/// The words for what the driver has refused as infeasible, if the claim does not have the driver's.
pub fn infeasible_text(job: Job) -> &'static str {
    match job {
        Job::Expand => "the driver says that the size is infeasible",
        Job::Modify => "the driver says that the class is infeasible",
    }
}
