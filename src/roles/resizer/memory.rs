//! The two jobs of a claim, and what the queue and the memory of a term know them by.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::cluster::ObjectName;

/// One of the two jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// The volume is expanded.
    Expand,
    /// The volume is modified.
    Modify,
}

impl Job {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Expand, Self::Modify];

    /// The word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Expand => "expand",
            Self::Modify => "modify",
        }
    }
}

/// What the queue holds: one job of one claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkKey {
    /// The claim.
    pub claim: ObjectName,
    /// Which of its jobs.
    pub job: Job,
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.claim, self.job.label())
    }
}

/// What the term knows of the last call of a job of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastCall {
    /// This term has made no call. The claim's status says how the last one has ended, or that it may be running: whoever repeats a call
    /// that was refused says so first.
    Earlier,
    /// The call may still be running.
    Open,
    /// The driver has refused at this time: nothing is running.
    Refused(Timestamp),
}

impl LastCall {
    /// Whether the last call has certainly ended in a refusal. `says_so`: the claim's status says that of an earlier call.
    pub fn is_refused(self, says_so: bool) -> bool {
        match self {
            Self::Earlier => says_so,
            Self::Open => false,
            Self::Refused(_) => true,
        }
    }

    /// When the driver has refused in this term.
    pub fn refused_at(self) -> Option<Time> {
        if let Self::Refused(at) = self { Some(Time(at)) } else { None }
    }
}

/// A job of a claim, by the claim's uid.
pub type JobOf = (String, Job);
