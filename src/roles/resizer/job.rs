//! The two jobs of a claim, and what the queue and the memory of a term know them by. Pure.

use std::fmt;

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

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        if self == Self::Expand { Self::Modify } else { Self::Expand }
    }

    /// What the term's memory knows it by. Names come back, uids do not.
    pub fn id(self, uid: &str) -> String {
        format!("{uid}/{}", self.label())
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
