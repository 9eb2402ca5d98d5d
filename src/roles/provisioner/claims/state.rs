//! What a term knows of a claim beyond what the API shows: what the driver was asked, and what it has answered. Pure.
//!
//! ```text
//!        mark          Create                 OK                    PV stored            mark removed
//!   Idle ────> Marked ────────> Creating ───────> Created ───────────────> Saved ───────────────> (forgotten)
//!    ▲ │         (no mark: Idle)  ▲ │ ▲  │             │ wanted by nobody
//!    │ └── somebody else's mark ──┘ │ │  │ unfit        ▼
//!    │         no final answer ─────┼─┘  └────────> Rejected ── DeleteVolume ─┐
//!    │                              │ final: nothing exists                   │
//!    └──────── mark removed ────── Ended <────────────────────────────────────┘
//! ```
//!
//! Whose mark is on a claim decides what may be done about it: `Marked` is left without a word to the driver only because we
//! put the mark there in this term and have not asked since. A mark that is met in any other way is another's, who may have.
//!
//! A phase is left on a final answer only. What happens to the claim meanwhile (its node is taken away, it is bound to
//! something else, deleted, or gone by force) never clears it: that is how the Go sidecar leaks (spec 2.4).

use std::sync::Arc;

use tokio::time::Instant;

use crate::roles::kit::secrets::Secret;

use super::claim::Claim;
use super::error::AttemptError;
use super::request::Request;
use super::volume::Created;
use crate::roles::provisioner::topology::Segment;

/// What the term knows of one claim.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself, and most may hold in any phase")]
pub struct ClaimState {
    /// The claim as it was last seen: all that is left of it once it is gone by force.
    pub claim: Claim,
    /// How far it is.
    pub phase: Phase,
    /// What the driver is asked: the same, byte by byte, until it has answered for good.
    pub request: Option<Arc<Request>>,
    /// What is to stand on the claim while the driver is asked.
    pub written: Option<Arc<str>>,
    /// What the request was made from, as far as it may change under it.
    pub made_from: Option<MadeFrom>,
    /// The secret that the driver was asked with: its namespace may go before the driver has answered.
    pub kept: Option<Secret>,
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
    /// The API itself has said, in this term, that no volume of the claim's name exists and that the claim carries our mark.
    pub confirmed: bool,
    /// It was found marked: another process, or an earlier term, has begun it.
    pub resumed: bool,
    /// Our own driver was asked in this term, whoever has begun it.
    pub asked: bool,
    /// Why what was begun is over, or has to be: told once the claim is released.
    pub failure: Option<AttemptError>,
    /// The driver has made the volume in this term, and the success is still to be told.
    pub success: Option<Success>,
    /// What people were told.
    pub reported: Reported,
}

/// What tells whether a request would be another if it were worked out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeFrom {
    /// The uid of the class: another one of its name may have other parameters.
    pub class: String,
    /// The class of changeable attributes that the claim names.
    pub attributes_class: Option<String>,
}

/// What is to be told of a claim that gets its volume, in whatever attempt that is stored.
#[derive(Debug, Clone)]
pub struct Success {
    /// When the attempt began that made the volume.
    pub begun: Instant,
    /// The driver's id of the volume.
    pub handle: String,
    /// Where the volume can be reached.
    pub affinity: Option<Vec<Segment>>,
}

/// How far a claim is.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// The driver has not been asked in this term, or has answered for good and nothing came of it. No mark on the claim is
    /// ours.
    Idle,
    /// The claim carries our mark since a moment ago, and the driver was not asked yet.
    Marked,
    /// The driver may be at it: asked without a final answer, or asked by somebody before us.
    Creating,
    /// The volume exists, and no PersistentVolume tells of it yet.
    Created(Box<Made>),
    /// The volume exists and cannot be used: it has to go.
    Discarding(String),
    /// The driver's answer was final, and nothing exists. The mark is still to be removed.
    Finished {
        /// And so is the node that the scheduler chose.
        reschedule: bool,
        /// A mark on the claim is the one of what ended. Else it was put there since, by somebody else.
        marked: bool,
    },
    /// The PersistentVolume exists. The mark is still to be removed.
    Stored,
}

/// A volume without a PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// What the driver said of it.
    pub volume: Created,
    /// A PersistentVolume may have been stored for it: nobody but the volume's own life cycle may delete it now.
    pub may_be_stored: bool,
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

impl Phase {
    /// A word for the status page.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Idle => "not asked for",
            Self::Marked => "marked, not asked for",
            Self::Creating => "in background",
            Self::Created(_) => "created, not stored",
            Self::Discarding(_) => "unusable, to be deleted",
            Self::Finished { .. } => "ended, still marked",
            Self::Stored => "stored, still marked",
        }
    }
}

impl ClaimState {
    /// A claim at first sight. One that is marked was begun by somebody who is not here to tell how far it got.
    pub fn at_first_sight(claim: Claim) -> Self {
        let guarded = claim.guarded;
        let mut state = Self {
            resumed: false,
            asked: false,
            claim,
            phase: Phase::Idle,
            request: None,
            written: None,
            made_from: None,
            kept: None,
            node: None,
            doubtful: false,
            unfit: false,
            untrusted: false,
            confirmed: false,
            failure: None,
            success: None,
            reported: Reported::default(),
        };
        if guarded {
            state.resume();
        }
        state
    }

    /// The claim carries a mark that is not ours: whoever put it there may have asked the driver, and nothing of what we
    /// know holds for that.
    pub fn resume(&mut self) {
        self.let_go();
        (self.phase, self.resumed) = (Phase::Creating, true);
    }

    /// What another node's daemon had begun is over.
    pub fn let_go(&mut self) {
        self.phase = Phase::Idle;
        self.unpin();
        (self.node, self.kept) = (None, None);
        (self.doubtful, self.unfit, self.untrusted) = (false, false, false);
        (self.confirmed, self.resumed, self.asked) = (false, false, false);
        (self.failure, self.success) = (None, None);
    }

    /// Whether a volume may exist at the driver that only this entry, or the claim's mark, tells of.
    pub fn is_begun(&self) -> bool {
        matches!(self.phase, Phase::Creating | Phase::Created(_) | Phase::Discarding(_))
    }

    /// Whether the driver has answered, and not all of what that means is recorded: also that a volume can't be used, or
    /// whoever comes next would store it.
    pub fn has_answer(&self) -> bool {
        matches!(self.phase, Phase::Created(_) | Phase::Discarding(_) | Phase::Finished { .. } | Phase::Stored)
    }

    /// A new attempt begins. What was worked out and not asked is worked out again: claim and class may have changed.
    pub fn begin(&mut self) {
        if self.is_unasked() {
            self.unpin();
        }
    }

    /// What was worked out is not asked any more.
    pub fn unpin(&mut self) {
        (self.request, self.written, self.made_from) = (None, None, None);
    }

    /// Whether another's driver owes the answer, not ours.
    pub fn is_anothers(&self) -> bool {
        self.resumed && !self.asked
    }

    /// Whether our own driver was asked in this term, and what has come of it is still to be dealt with.
    pub fn is_owed_here(&self) -> bool {
        self.is_begun() && self.asked
    }

    /// What is asked is known to be other than what was asked first, and its class has changed since: what was asked first may
    /// have come back with it, and is worked out again.
    pub fn reconsider(&mut self, made_from: &MadeFrom) -> bool {
        let is_pinned = self.phase == Phase::Creating && self.doubtful && self.request.is_some();
        let is_other = is_pinned && self.made_from.as_ref() != Some(made_from);
        if is_other {
            self.unpin();
        }
        is_other
    }

    /// Whether the driver owes no answer and has given none that is still to be acted on.
    pub fn is_unasked(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Marked)
    }

    /// The driver's answer was final: nothing exists.
    pub fn end(&mut self, reschedule: bool) {
        let marked = self.phase != Phase::Idle;
        self.phase = Phase::Finished { reschedule, marked };
        self.unpin();
        (self.success, self.kept, self.asked) = (None, None, false);
        (self.doubtful, self.unfit, self.untrusted) = (false, false, false);
    }
}
