//! Whether a claim is this node's: the stage before the work on a claim, with one daemon per node. Pure.
//!
//! A claim for which our driver was called in this term stays here, whichever node owns it now: we must finish what the
//! answer brings. Any other claim belongs to the daemon of its selected node, and no other daemon touches it while that
//! node exists.

use std::sync::Arc;
use std::time::Duration;

use super::progress::Progress;
use crate::cluster::{SmolStr, StorageClass};
use crate::roles::kit::drive::Next;
use crate::roles::provisioner::claim::Claim;
use crate::roles::provisioner::claims::decide::Ignored;
use crate::roles::provisioner::claims::progress::Beginning;
use crate::roles::provisioner::node::contention::{Race, Sight, Verdict};

/// What one decision is made from.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct View {
    /// Our node.
    pub own: String,
    /// The claim. If it is gone, as it was last seen.
    pub claim: Claim,
    /// Its class, if that is known.
    pub class: Option<Arc<StorageClass>>,
    /// What an attempt at the claim would know when it begins.
    pub beginning: Beginning,
    /// The claim is gone, or our driver was called for it in this term: this daemon finishes the work.
    pub has_to_end: bool,
    /// Why no daemon creates a volume for the claim, if that is so.
    pub ignored: Option<Ignored>,
    /// What is remembered of the contention.
    pub race: Race,
    /// The class binds without waiting for a pod.
    pub immediate: bool,
    /// We are configured to compete for such claims.
    pub competes: bool,
    /// The class's `allowedTopologies` include our node.
    pub in_reach: bool,
    /// Now, from any fixed moment.
    pub now: Duration,
    /// Whether Events are written.
    pub has_events: bool,
}

/// One request or call, or one note in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Begin the wait before the next look at the claim. No request.
    BeginWait,
    /// Read the selected node: it may be deleted.
    AskForHolder(String),
    /// Ask the driver how much room this node has, in the next of its places.
    AskCapacity,
    /// Write this node's name on the claim.
    BecomeOwner,
    /// Remove the deleted node from the claim.
    ReleaseOwnership,
    /// Clear the journal of the deleted node.
    ClearJournal(String),
    /// A write was forbidden: read the claim again.
    ReadAgain,
    /// Leave the claim to others. No request. With a time: until then.
    Leave(Option<Duration>),
}

impl View {
    /// The version of the claim that was seen.
    pub fn version(&self) -> Option<SmolStr> {
        self.claim.object.metadata.resource_version.clone()
    }

    fn verdict(&self, progress: &Progress) -> Verdict {
        let selected = self.claim.selected_node.as_deref();
        let holder = progress.holder.as_ref().filter(|(node, _)| Some(node.as_str()) == selected);
        let sight = Sight {
            own: &self.own,
            selected,
            immediate: self.immediate,
            competes: self.competes,
            in_reach: self.in_reach,
            holder: holder.map(|(_, found)| *found),
        };
        self.race.verdict(&sight, self.now)
    }
}

/// The next step for the claim. There is none if the claim is this daemon's, or was left.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    if progress.is_left {
        return Next::Done;
    }
    if let Some(node) = &progress.freed {
        return Next::Do(Step::ClearJournal(node.clone()));
    }
    if progress.refused.as_ref().is_some_and(|refused| refused.version == view.version()) {
        return Next::Do(Step::ReadAgain);
    }
    decide(view, view.verdict(progress), progress.has_room)
}

/// The next step after the verdict of the nodes' contention. `has_room`: this node's driver has room, or could not be asked.
fn decide(view: &View, verdict: Verdict, has_room: bool) -> Next<Step> {
    let View { claim, ignored, .. } = view;
    if view.has_to_end || verdict == Verdict::Mine {
        return Next::Done;
    }
    // The daemon of the claim's node writes the Event; for a claim without a node, the daemon that takes the claim.
    if ignored.is_some_and(|why| !why.is_told() || claim.selected_node.is_some()) {
        return Next::Do(Step::Leave(None));
    }
    Next::Do(match verdict {
        Verdict::Mine => return Next::Done,
        Verdict::Begin => Step::BeginWait,
        Verdict::Other { look_again: wait } | Verdict::Compete { delay: wait } => Step::Leave(Some(wait)),
        Verdict::AskForHolder => Step::AskForHolder(claim.selected_node.clone().unwrap_or_default()),
        Verdict::Free => Step::ReleaseOwnership,
        Verdict::Ignore => Step::Leave(None),
        Verdict::Claim if has_room || ignored.is_some() => Step::BecomeOwner,
        Verdict::Claim => Step::AskCapacity,
    })
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
