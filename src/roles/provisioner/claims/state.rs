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

use tokio::time::Instant;

use crate::roles::kit::secrets::Secret;

use super::claim::Claim;
use super::error::AttemptError;
use super::intent::Intent;
use super::request::Request;
use super::transition::{Change, transition};
use super::volume::Created;

/// What the term knows of one claim.
#[derive(Debug, Clone)]
pub struct ClaimState {
    /// The claim as it was last seen: all that is left of it once it is gone by force.
    pub claim: Claim,
    /// What people were told.
    pub reported: Reported,
    phase: Phase,
}

/// How far a claim is.
#[derive(Debug, Clone)]
pub enum Phase {
    /// The driver has not been asked in this term, or has answered for good and nothing came of it. No mark on the claim is
    /// ours.
    Idle {
        /// What is to be asked.
        plan: Option<Box<Plan>>,
    },
    /// The claim carries our mark since a moment ago, and the driver was not asked yet.
    Marked {
        /// What is to be asked.
        plan: Option<Box<Plan>>,
    },
    /// The driver may be at it: asked without a final answer, or asked by another process or in an earlier term.
    Creating {
        /// What is asked: the same, byte by byte, until the driver has answered for good. `None`: not worked out yet.
        plan: Option<Box<Plan>>,
        /// Who has asked.
        by: Asker,
        /// The API itself has said, in this term, that no volume of the claim's name exists and that the claim carries our mark.
        confirmed: bool,
        /// The secret that the driver was asked with: its namespace may go before the driver has answered.
        kept: Option<Secret>,
    },
    /// The volume exists, and no PersistentVolume names it yet.
    Created(Box<Made>),
    /// The volume exists and cannot be used: it has to go.
    Discarding(Box<Unusable>),
    /// The driver's answer was final, and nothing exists. The mark is still to be removed.
    Finished {
        /// And so is the node that the scheduler chose.
        reschedule: bool,
        /// A mark on the claim is the one of what ended. Else another has put it there since.
        marked: bool,
        /// The node that the scheduler had chosen when the request was made.
        node: Option<String>,
        /// Why what was begun is over: told once the claim is released.
        failure: Option<AttemptError>,
    },
    /// The PersistentVolume exists. The mark is still to be removed.
    Stored {
        /// What was asked.
        plan: Option<Box<Plan>>,
        /// Who has asked.
        by: Asker,
        /// The driver has made the volume in this term, and the success is still to be told.
        success: Option<Box<Success>>,
    },
}

/// What the driver is asked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The request.
    pub request: Arc<Request>,
    /// What is to stand on the claim while the driver is asked.
    pub written: Arc<str>,
    /// What the request was made from, as far as it may change under it.
    pub made_from: MadeFrom,
    /// The node that the scheduler had chosen when the request was made.
    pub node: Option<String>,
    /// A volume may exist whatever error the driver answers: what we ask now is not what was written down before it was
    /// asked, or it has said once that there is a volume, and not which. Only a volume that can be used ends this.
    pub doubtful: bool,
    /// The volume that the driver has made can't be used and is being deleted. Until that is certain, whatever it answers is
    /// that volume, even if it looks fit by now: a deletion that was asked for may still come.
    pub unfit: bool,
    /// What the volume is made from is known from the claim's annotation alone, which anybody may have written: whatever the
    /// driver makes of it is deleted.
    pub untrusted: bool,
}

/// What tells whether a request would be another if it were worked out again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MadeFrom {
    /// The uid of the class: another one of its name may have other parameters.
    pub class: String,
    /// The class of changeable attributes that the claim names.
    pub attributes_class: Option<String>,
}

/// Who has asked the driver for the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// We, in this term.
    Us,
    /// Another process, or we in an earlier term. Our own driver was not asked in this one.
    Another,
    /// First another, and then we.
    AnotherAndUs,
}

/// A volume without a PersistentVolume.
#[derive(Debug, Clone)]
pub struct Made {
    /// What was asked.
    pub plan: Plan,
    /// Who has asked.
    pub by: Asker,
    /// The secret that the driver was asked with.
    pub kept: Option<Secret>,
    /// What the driver said of the volume.
    pub volume: Created,
    /// A PersistentVolume may have been stored for it: only the volume's own life cycle may delete it now.
    pub may_be_stored: bool,
    /// When the attempt began that made the volume.
    pub begun: Instant,
}

/// A volume that cannot be used.
#[derive(Debug, Clone)]
pub struct Unusable {
    /// What was asked.
    pub plan: Plan,
    /// Who has asked.
    pub by: Asker,
    /// The secret that the driver was asked with.
    pub kept: Option<Secret>,
    /// The driver's id of the volume.
    pub volume_id: String,
    /// Why it cannot be used.
    pub why: AttemptError,
}

/// What is to be told of a claim that gets its volume, in whatever attempt that is stored.
#[derive(Debug, Clone)]
pub struct Success {
    /// When the attempt began that made the volume.
    pub begun: Instant,
    /// What the driver said of the volume.
    pub volume: Created,
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

impl Default for Phase {
    fn default() -> Self {
        Self::Idle { plan: None }
    }
}

impl Plan {
    /// Puts what was learnt of the volume into what is to stand on the claim.
    pub(super) fn rewrite(&mut self) {
        if let Ok(intent) = Intent::parse(&self.written) {
            let (doubtful, unfit) = (self.doubtful, self.unfit);
            self.written = Intent { doubtful, unfit, ..intent }.encode().into();
        }
    }
}

impl Phase {
    /// Begun by another process, or in an earlier term.
    pub(super) fn resumed() -> Self {
        Self::Creating { plan: None, by: Asker::Another, confirmed: false, kept: None }
    }

    /// A word for the status page.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Idle { .. } => "not asked for",
            Self::Marked { .. } => "marked, not asked for",
            Self::Creating { .. } => "in background",
            Self::Created(_) => "created, not stored",
            Self::Discarding(_) => "unusable, to be deleted",
            Self::Finished { .. } => "ended, still marked",
            Self::Stored { .. } => "stored, still marked",
        }
    }
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
