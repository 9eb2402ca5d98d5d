//! The state of a claim in this term, beyond what the API shows: which request was sent, and the driver's answer. Pure.
//!
//! ```text
//!     Asking             Made               PV stored         Seen
//! Idle ────> Creating ───────> Created ───────────────> Stored ───> (forgotten)
//!  ▲           ▲ │ ▲ │             │ not wanted
//!  │           │ │ │ │ Unusable    ▼
//!  │ no final  └─┘ │ └───────> Discarding ── DeleteVolume ─┐
//!  │ answer        │                                        │
//!  │ an entry of   │ Refused: nothing exists                │
//!  │ the journal ──┘     │                                  │
//!  └──── Concluded ── Finished <────────────────────────────┘
//! ```
//!
//! [`transition`] is the only way from one phase to another. What belongs to a phase lives in that phase's variant, so that a
//! volume without a request, or an answer without a call, cannot be expressed.
//!
//! A claim leaves a phase in which a volume may exist only on a final answer, a deletion or a stored PersistentVolume. What happens
//! to the claim meanwhile (its node is removed, it is bound to another volume, it is deleted) never changes the phase: the Go sidecar
//! leaks volumes because it forgets them then (spec 2.4).

use std::sync::Arc;

use crate::roles::kit::secrets::Secret;

use super::phase::{Asker, Phase, Plan};
use super::request::Request;
use super::transition::{Change, transition};
use crate::roles::provisioner::claim::Claim;

/// The state of one claim in this term.
#[derive(Debug, Clone)]
pub struct ClaimState {
    /// The claim as it was last seen. It may be gone.
    pub claim: Claim,
    /// Which Events were written.
    pub reported: Reported,
    phase: Phase,
}

/// Which Events of a claim were written, so that only changes are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    /// That its volume is being created.
    pub provisioning: bool,
    /// That its data source is not protected.
    pub unprotected: bool,
    /// The last failure, without the parts that differ in each answer of the driver.
    pub failure: Option<String>,
}

impl ClaimState {
    /// A claim that this term sees for the first time. The journal has no entry for it, so the driver was not called.
    pub fn at_first_sight(claim: Claim) -> Self {
        Self::resumed(claim, Phase::default())
    }

    /// A claim in this phase.
    pub(super) fn resumed(claim: Claim, phase: Phase) -> Self {
        Self { claim, reported: Reported::default(), phase }
    }

    /// A claim in this phase.
    #[cfg(test)]
    pub(in crate::roles::provisioner) fn at(claim: Claim, phase: Phase) -> Self {
        Self::resumed(claim, phase)
    }

    /// How far the claim is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Applies a change, which may lead to the next phase.
    pub fn apply(&mut self, change: Change) {
        self.phase = transition(std::mem::take(&mut self.phase), change);
    }

    /// The request, and what it depends on.
    pub fn plan(&self) -> Option<&Plan> {
        match &self.phase {
            Phase::Idle { plan } | Phase::Stored { plan, .. } => plan.as_deref(),
            Phase::Creating { plan, .. } => Some(plan),
            Phase::Created(made) => Some(&made.plan),
            Phase::Discarding(unusable) => Some(&unusable.plan),
            Phase::Finished { .. } => None,
        }
    }

    /// The request.
    pub fn request(&self) -> Option<&Arc<Request>> {
        self.plan().map(|plan| &plan.request)
    }

    /// A version of the API from before the PersistentVolume can have been stored, if it is not known whether it was: by an earlier term, or
    /// by a write of this term whose answer was lost.
    pub fn since(&self) -> Option<&str> {
        let plan = self.plan()?;
        match &self.phase {
            Phase::Created(made) if made.may_be_stored => Some(&plan.request.plan.claim.resource_version),
            _ => plan.unproven.as_deref(),
        }
    }

    /// The secret of the driver's call.
    pub fn kept(&self) -> Option<&Secret> {
        match &self.phase {
            Phase::Creating { kept, .. } => kept.as_ref(),
            Phase::Created(made) => made.kept.as_ref(),
            Phase::Discarding(unusable) => unusable.kept.as_ref(),
            _ => None,
        }
    }

    /// Whether this is the secret with which the driver was called first: its refusal of another one says nothing of that call. Which secret
    /// an earlier term had is not known.
    pub fn is_first_secret(&self, secret: Option<&Secret>) -> bool {
        let has_secret = self.request().is_some_and(|request| request.secret.is_some());
        !has_secret || (!self.is_resumed() && self.kept() == secret)
    }

    /// Which term has called the driver, if one has.
    pub fn by(&self) -> Option<Asker> {
        match &self.phase {
            Phase::Creating { by, .. } | Phase::Stored { by, .. } => Some(*by),
            Phase::Created(made) => Some(made.by),
            Phase::Discarding(unusable) => Some(unusable.by),
            Phase::Idle { .. } | Phase::Finished { .. } => None,
        }
    }

    /// Whether an earlier term has called the driver.
    pub fn is_resumed(&self) -> bool {
        matches!(self.by(), Some(Asker::EarlierTerm | Asker::BothTerms))
    }

    /// Whether a volume may exist that no PersistentVolume names.
    pub fn is_begun(&self) -> bool {
        matches!(self.phase, Phase::Creating { .. } | Phase::Created(_) | Phase::Discarding(_))
    }

    /// Whether the driver was called and has not given its final answer.
    pub fn is_creating(&self) -> bool {
        matches!(self.phase, Phase::Creating { .. })
    }

    /// Whether the driver has answered, and the daemon must still write something because of the answer. This includes a volume that
    /// cannot be used: without the write the next leader would store it.
    pub fn has_answer(&self) -> bool {
        matches!(self.phase, Phase::Created(_) | Phase::Discarding(_) | Phase::Finished { .. } | Phase::Stored { .. })
    }

    /// Whether an earlier term has called the driver, and this term has not yet.
    pub fn is_of_earlier_term(&self) -> bool {
        self.by() == Some(Asker::EarlierTerm)
    }

    /// Whether no request was sent, or its final answer was handled.
    pub fn is_unasked(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }

    /// The version in which the API has shown the PersistentVolume, if it was stored and that was reported.
    pub fn stored_version(&self) -> Option<u128> {
        match &self.phase {
            Phase::Stored { version, success: None, .. } => *version,
            _ => None,
        }
    }

    /// Whether the claim has its PersistentVolume.
    pub fn is_stored(&self) -> bool {
        matches!(self.phase, Phase::Stored { .. })
    }
}
