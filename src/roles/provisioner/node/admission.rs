//! Whether a claim is this node's: what stands before the work on a claim where each node has a daemon. Pure.
//!
//! A claim that our driver was asked for in this term is worked on whoever has it by now: what comes of the answer must be dealt
//! with here. Any other claim is the daemon's whose node is selected, and nobody else touches it while there is that node.

use super::contention::Verdict;
use crate::roles::kit::{Admission, Next};
use crate::roles::provisioner::claims::claim::Claim;
use crate::roles::provisioner::claims::decide::Ignored;

/// What the stage knows of a claim.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The claim; as it was last seen, if it is gone.
    pub claim: &'a Claim,
    /// The claim is gone, or our driver was asked for it in this term: what is left of that is dealt with here.
    pub has_to_end: bool,
    /// Why no daemon makes a volume for it, if so.
    pub ignored: Option<Ignored>,
    /// What the contention of the nodes says of it.
    pub verdict: Verdict,
    /// This node's driver has said that it has room, or could not be asked.
    pub has_room: bool,
}

/// One request, or one note in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Begin the wait after which the claim is looked at again. No request.
    BeginWait,
    /// Read the node that was selected: it may be deleted.
    AskForHolder(String),
    /// Ask the driver how much room this node has.
    AskCapacity,
    /// Write this node's name on the claim.
    BecomeOwner,
    /// Remove the deleted node from the claim.
    ReleaseOwnership,
}

/// What to do about the claim of `view`, or whose it is.
pub fn next_step(view: &View<'_>) -> Next<Step, Admission> {
    let claim = view.claim;
    if view.has_to_end || view.verdict == Verdict::Mine {
        return Next::Done(Admission::Mine);
    }
    // The daemon of the claim's node writes the Event; for a claim without a node, the daemon that takes the claim.
    if view.ignored.is_some_and(|why| !why.is_told() || claim.selected_node.is_some()) {
        return Next::Done(Admission::NotMine);
    }
    match view.verdict {
        Verdict::Mine => Next::Done(Admission::Mine),
        Verdict::Begin => Next::Do(Step::BeginWait),
        Verdict::Other { look_again } => Next::Done(Admission::RetryAfter(look_again)),
        Verdict::AskForHolder => Next::Do(Step::AskForHolder(claim.selected_node.clone().unwrap_or_default())),
        Verdict::Free => Next::Do(Step::ReleaseOwnership),
        Verdict::Compete { delay } => Next::Done(Admission::RetryAfter(delay)),
        Verdict::Ignore => Next::Done(Admission::NotMine),
        Verdict::Claim if view.has_room || view.ignored.is_some() => Next::Do(Step::BecomeOwner),
        Verdict::Claim => Next::Do(Step::AskCapacity),
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
