//! Whether a claim is this node's: the stage before the work on a claim, with one daemon per node. Pure.
//!
//! A claim for which our driver was called in this term stays here, whichever node owns it now: we must finish what the
//! answer brings. Any other claim belongs to the daemon of its selected node, and no other daemon touches it while that
//! node exists.

use super::contention::Verdict;
use crate::roles::kit::{Admission, Next};
use crate::roles::provisioner::claims::claim::Claim;
use crate::roles::provisioner::claims::decide::Ignored;

/// What the stage knows of a claim.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The claim. If it is gone, as it was last seen.
    pub claim: &'a Claim,
    /// The claim is gone, or our driver was called for it in this term: this daemon finishes the work.
    pub has_to_end: bool,
    /// Why no daemon creates a volume for the claim, if that is so.
    pub ignored: Option<Ignored>,
    /// The decision of the nodes' contention.
    pub verdict: Verdict,
    /// This node's driver has room, or could not be asked.
    pub has_room: bool,
}

/// The next action: one request, or one note in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Begin the wait before the next look at the claim. No request.
    BeginWait,
    /// Read the selected node: it may be deleted.
    AskForHolder(String),
    /// Ask the driver how much room this node has.
    AskCapacity,
    /// Write this node's name on the claim.
    BecomeOwner,
    /// Remove the deleted node from the claim.
    ReleaseOwnership,
}

/// The next step for the claim, or whose claim it is.
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
