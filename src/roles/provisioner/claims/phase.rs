//! How far a claim is, and what belongs to each phase. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::SmolStr;
use crate::roles::kit::secrets::Secret;
use crate::roles::provisioner::sources::protection::SourceKey;

use super::error::AttemptError;
use super::request::Request;
use super::volume::Created;

/// How far a claim is.
#[derive(Debug, Clone)]
pub enum Phase {
    /// The driver has not been called for the claim, or its final answer was that nothing exists.
    Idle {
        /// The next request.
        plan: Option<Box<Plan>>,
    },
    /// The driver may be creating the volume: it was called, and has not given its final answer.
    Creating {
        /// The request: the same, byte by byte, until the driver's final answer.
        plan: Box<Plan>,
        /// Which term has called the driver.
        by: Asker,
        /// The API has said in this term that no PersistentVolume of the volume's name exists.
        confirmed: bool,
        /// The secret of the first call: its namespace may be deleted before the driver has answered.
        kept: Option<Secret>,
    },
    /// The volume exists, and no PersistentVolume names it yet.
    Created(Box<Made>),
    /// The volume exists, cannot be used, and must be deleted.
    Discarding(Box<Unusable>),
    /// The driver's answer was final, and no volume exists. The end is still to be reported.
    Finished {
        /// The selected node must be removed from the claim.
        reschedule: bool,
        /// The node that was selected when the request was made.
        node: Option<String>,
        /// Why the attempt failed.
        failure: Option<AttemptError>,
    },
    /// The PersistentVolume exists.
    Stored {
        /// The request.
        plan: Option<Box<Plan>>,
        /// Which term has called the driver.
        by: Asker,
        /// Its version in an answer of the API. Until the cache has got as far, only this phase says that the volume is stored.
        version: Option<u128>,
        /// The driver has created the volume in this term, and the success is still to be reported.
        success: Option<Box<Success>>,
    },
}

/// The request to the driver, and what it depends on.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The request.
    pub request: Arc<Request>,
    /// The data source of the volume. When the driver answers, the claim may name another source.
    pub source: Option<SourceKey>,
    /// The node that the scheduler had selected when the request was made.
    pub node: Option<String>,
    /// A volume may exist whatever error the driver returns: the driver has answered with success and without a volume, or it is
    /// called without the secret of the first call. Only an answer with a volume ends this.
    pub no_error_is_final: bool,
    /// An earlier term has recorded the request, and this term has no proof yet that no PersistentVolume was stored for it: a version of
    /// the API from before the record.
    pub unproven: Option<SmolStr>,
}

/// Which term has called the driver for the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Only this term.
    ThisTerm,
    /// Only an earlier term: the journal had the entry when this term began.
    EarlierTerm,
    /// An earlier term, and then this one.
    BothTerms,
}

/// A volume without a PersistentVolume.
#[derive(Debug, Clone)]
pub struct Made {
    /// The request.
    pub plan: Plan,
    /// Which term has called the driver.
    pub by: Asker,
    /// The secret of the call.
    pub kept: Option<Secret>,
    /// The driver's answer.
    pub volume: Created,
    /// A PersistentVolume may have been stored for it: then only the PersistentVolume's own life cycle may delete the volume.
    pub may_be_stored: bool,
    /// When the attempt began that created the volume.
    pub begun: Instant,
}

/// A volume that cannot be used.
#[derive(Debug, Clone)]
pub struct Unusable {
    /// The request.
    pub plan: Plan,
    /// Which term has called the driver.
    pub by: Asker,
    /// The secret of the call.
    pub kept: Option<Secret>,
    /// The driver's id of the volume.
    pub volume_id: String,
    /// Why it cannot be used.
    pub why: AttemptError,
}

/// The report of a created volume. The attempt that stores the PersistentVolume may be another one than the attempt that
/// created the volume.
#[derive(Debug, Clone)]
pub struct Success {
    /// When the attempt began that created the volume.
    pub begun: Instant,
    /// The driver's answer.
    pub volume: Created,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Idle { plan: None }
    }
}

impl Phase {
    /// The text for the status page; `None`: the driver has no request of this claim.
    pub fn label(&self) -> Option<&'static str> {
        Some(match self {
            Self::Idle { .. } => return None,
            Self::Creating { .. } => "in background",
            Self::Created(_) => "created, not stored",
            Self::Discarding(_) => "unusable, to be deleted",
            Self::Finished { .. } => "ended, to be reported",
            Self::Stored { .. } => "stored",
        })
    }
}
