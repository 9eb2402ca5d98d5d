//! How far a claim is, and what belongs to each phase. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use crate::roles::kit::secrets::Secret;

use super::error::AttemptError;
use super::intent::Intent;
use super::request::Request;
use super::volume::Created;

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
            Self::Marked { .. } => "request saved, not sent",
            Self::Creating { .. } => "in background",
            Self::Created(_) => "created, not stored",
            Self::Discarding(_) => "unusable, to be deleted",
            Self::Finished { .. } => "ended, still marked",
            Self::Stored { .. } => "stored, still marked",
        }
    }
}
