//! What a step of a modification has brought.

use crate::roles::kit::Secret;
use crate::roles::resizer::turn::Turn;

use super::decide::Refused;

/// What a step has brought.
#[derive(Debug)]
pub enum Done {
    /// Nothing that the attempt must know.
    Nothing,
    /// The API has no such class.
    LookedUp,
    /// The secret.
    Secret(Secret),
    /// The volume is locked.
    Turn(Turn),
    /// The driver has changed the volume to this class.
    Answered(String),
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
