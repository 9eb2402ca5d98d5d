//! What a term knows of a claim beyond what the API shows: what the driver was asked, and what it has answered. Pure.
//!
//! ```text
//!        mark          Asking                Made                   PV stored            mark removed
//!   Idle ────> Marked ────────> Creating ───────> Created ───────────────> Stored ──────────────> (forgotten)
//!    ▲ │         (no mark: Idle)  ▲ │ ▲  │             │ not wanted
//!    │ └── another's mark ────────┘ │ │  │ Unusable     ▼
//!    │         no final answer ─────┼─┘  └───────> Discarding ── DeleteVolume ─┐
//!    │                              │ Refused: nothing exists                  │
//!    └──────── Concluded ──── Finished <───────────────────────────────────────┘
//! ```
//!
//! [`transition`] is the only way from one phase to another. What belongs to a phase lives in that phase's variant, so that a
//! volume without a plan, or an answer to a question that nobody asked, cannot be written down.
//!
//! Whose mark is on a claim decides what may be done about it: the mark of a `Marked` claim is removed without asking the driver,
//! because we put the mark there in this term and have not asked since. A mark that is met in any other way is another's, who may
//! have asked.
//!
//! A phase in which a volume may exist is left on a final answer, a deletion or a stored PersistentVolume only. What happens to
//! the claim meanwhile (its node is taken away, it is bound to something else, deleted, or gone by force) never clears it: that is
//! how the Go sidecar leaks (spec 2.4).

use std::sync::Arc;

use crate::roles::kit::secrets::Secret;

use super::claim::Claim;
use super::phase::{Asker, MadeFrom, Phase, Plan};
use super::request::Request;
use super::transition::{Change, transition};

/// What the term knows of one claim.
#[derive(Debug, Clone)]
pub struct ClaimState {
    /// The claim as it was last seen: all that is left of it once it is gone by force.
    pub claim: Claim,
    /// What people were told.
    pub reported: Reported,
    phase: Phase,
}

/// What people were told of a claim, so that they hear of changes only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    /// That it is being provisioned.
    pub provisioning: bool,
    /// That its source is not protected.
    pub unprotected: bool,
    /// Why it failed last, without what is new in each of a driver's answers.
    pub failure: Option<String>,
}

impl ClaimState {
    /// A claim at first sight. A marked one was begun by another process, or in an earlier term, and how far it got is not known.
    pub fn at_first_sight(claim: Claim) -> Self {
        let phase = if claim.guarded { Phase::resumed() } else { Phase::default() };
        Self { claim, reported: Reported::default(), phase }
    }

    /// A claim in this phase.
    #[cfg(test)]
    pub(in crate::roles::provisioner) fn at(claim: Claim, phase: Phase) -> Self {
        Self { claim, reported: Reported::default(), phase }
    }

    /// How far the claim is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Goes on to the next phase.
    pub fn apply(&mut self, change: Change) {
        self.phase = transition(std::mem::take(&mut self.phase), change);
    }

    /// What the driver is asked, or was.
    pub fn plan(&self) -> Option<&Plan> {
        match &self.phase {
            Phase::Idle { plan }
            | Phase::Marked { plan }
            | Phase::Creating { plan, .. }
            | Phase::Stored { plan, .. } => plan.as_deref(),
            Phase::Created(made) => Some(&made.plan),
            Phase::Discarding(unusable) => Some(&unusable.plan),
            Phase::Finished { .. } => None,
        }
    }

    /// The request of the plan.
    pub fn request(&self) -> Option<&Arc<Request>> {
        self.plan().map(|plan| &plan.request)
    }

    /// The secret that the driver was asked with.
    pub fn kept(&self) -> Option<&Secret> {
        match &self.phase {
            Phase::Creating { kept, .. } => kept.as_ref(),
            Phase::Created(made) => made.kept.as_ref(),
            Phase::Discarding(unusable) => unusable.kept.as_ref(),
            _ => None,
        }
    }

    /// Who has asked the driver, where an answer is outstanding or was given.
    pub fn by(&self) -> Option<Asker> {
        match &self.phase {
            Phase::Creating { by, .. } | Phase::Stored { by, .. } => Some(*by),
            Phase::Created(made) => Some(made.by),
            Phase::Discarding(unusable) => Some(unusable.by),
            Phase::Idle { .. } | Phase::Marked { .. } | Phase::Finished { .. } => None,
        }
    }

    /// Whether it was found marked: another process, or an earlier term, has begun it.
    pub fn is_resumed(&self) -> bool {
        matches!(self.by(), Some(Asker::Another | Asker::AnotherAndUs))
    }

    /// Whether a volume may exist at the driver that only this entry, or the claim's mark, tells of.
    pub fn is_begun(&self) -> bool {
        matches!(self.phase, Phase::Creating { .. } | Phase::Created(_) | Phase::Discarding(_))
    }

    /// Whether the driver may be at it, or was asked without a final answer.
    pub fn is_creating(&self) -> bool {
        matches!(self.phase, Phase::Creating { .. })
    }

    /// Whether the driver has answered, and not all of what that means is recorded: also that a volume can't be used, or the next
    /// leader would store it.
    pub fn has_answer(&self) -> bool {
        matches!(self.phase, Phase::Created(_) | Phase::Discarding(_) | Phase::Finished { .. } | Phase::Stored { .. })
    }

    /// Whether another's driver owes the answer, not ours.
    pub fn is_anothers(&self) -> bool {
        self.by() == Some(Asker::Another)
    }

    /// Whether our own driver was asked in this term, and what has come of it is still to be dealt with.
    pub fn is_owed_here(&self) -> bool {
        self.is_begun() && !self.is_anothers()
    }

    /// What is asked is known to be other than what was asked first, and its class has changed since: what was asked first may
    /// have come back with it, and is worked out again.
    pub fn is_outdated(&self, made_from: &MadeFrom) -> bool {
        self.is_creating() && self.plan().is_some_and(|plan| plan.doubtful && plan.made_from != *made_from)
    }

    /// Whether the driver owes no answer and has given none that is still to be acted on.
    pub fn is_unasked(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. } | Phase::Marked { .. })
    }

    /// Whether the claim has its PersistentVolume.
    pub fn is_stored(&self) -> bool {
        matches!(self.phase, Phase::Stored { .. })
    }
}
