//! What a step of an expansion has brought.

use crate::roles::kit::Secret;
use crate::roles::resizer::turn::Turn;

use super::decide::{Answer, Refused};

/// What a step has brought.
#[derive(Debug)]
pub enum Done {
    /// Nothing that the attempt must know.
    Nothing,
    /// The secret.
    Secret(Secret),
    /// The volume is locked.
    Turn(Turn),
    /// The driver has expanded the volume.
    Answered(Answer),
    /// It has not.
    Refused(Refused),
    /// The claim says so.
    RefusalRecorded,
    /// All of the answer is recorded.
    Recorded,
    /// The answer no longer matters.
    Dropped,
    /// The claim is gone.
    Gone,
}
