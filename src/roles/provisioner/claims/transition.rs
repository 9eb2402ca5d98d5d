//! The only function that changes the phase of a claim. Pure.
//!
//! A claim leaves a phase in which a volume may exist only on a final answer, a deletion or a stored PersistentVolume.

use tokio::time::Instant;

use crate::roles::kit::secrets::Secret;

use super::error::AttemptError;
use super::phase::{Asker, Made, Phase, Plan, Success, Unusable};
use super::volume::Created;

/// What changes the phase of a claim.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new attempt begins, or the claim was read again. A request that was not sent is made again, because claim and class may
    /// have changed.
    Renewed,
    /// The request is made.
    Planned(Box<Plan>),
    /// The driver is about to be called.
    Asking {
        /// The secret of the call.
        secret: Option<Secret>,
    },
    /// The API has no PersistentVolume of the volume's name.
    Confirmed,
    /// There is proof that no PersistentVolume was stored for a request of an earlier term.
    Proven,
    /// The daemon does nothing more for the request: its PersistentVolume was stored, or may have been.
    LeftAlone,
    /// The volume may exist whatever error the driver returns.
    NoErrorIsFinal,
    /// The driver has created the volume.
    Made {
        /// The driver's answer.
        volume: Created,
        /// When the attempt began.
        begun: Instant,
    },
    /// The driver has created a volume that cannot be used.
    Unusable {
        /// The driver's id of it.
        volume_id: String,
        /// Why.
        why: AttemptError,
    },
    /// The driver's final answer is that nothing exists.
    Refused {
        /// Another node may be able to serve the claim.
        reschedule: bool,
        /// Its answer.
        failure: AttemptError,
    },
    /// No request can be made for the claim, and the driver was not called.
    Hopeless {
        /// Another node may be able to serve the claim.
        reschedule: bool,
        /// The node that the scheduler has selected.
        node: Option<String>,
        /// Why.
        failure: AttemptError,
    },
    /// Whether a PersistentVolume may have been stored for the volume.
    MayBeStored(bool),
    /// Another PersistentVolume has the volume, and the claim still waits: the driver's next answer may be another volume.
    AskAgain,
    /// The driver has deleted the volume.
    Discarded,
    /// Another PersistentVolume has the volume, and the daemon leaves the volume to it.
    Abandoned {
        /// The error of a claim that still waits.
        failure: Option<AttemptError>,
    },
    /// The PersistentVolume is stored.
    Stored {
        /// The version of it that the API has answered with.
        version: Option<u128>,
    },
    /// The claim's PersistentVolume was found.
    Found {
        /// Its version, if the API has shown it and not the watch.
        version: Option<u128>,
    },
    /// The watch of PersistentVolumes has got as far as the stored one: from now on the cache says whether the claim has a volume.
    Seen,
    /// The success was reported.
    SuccessTold,
    /// The end of the request was handled, and the failure is now the attempt's.
    Concluded,
}

/// The phase after a change. A change that has no meaning in a phase leaves it as it is.
pub fn transition(phase: Phase, change: Change) -> Phase {
    match (phase, change) {
        (Phase::Idle { .. }, Change::Renewed)
        | (Phase::Finished { .. }, Change::Concluded)
        | (Phase::Stored { .. }, Change::Seen) => Phase::default(),
        (Phase::Idle { .. }, Change::Planned(plan)) => Phase::Idle { plan: Some(plan) },
        (Phase::Idle { plan: Some(plan) }, Change::Asking { secret }) => {
            Phase::Creating { plan, by: Asker::ThisTerm, confirmed: true, kept: secret }
        }
        (Phase::Idle { plan }, Change::Hopeless { reschedule, node, failure }) => {
            let node = node.or_else(|| plan.and_then(|plan| plan.node));
            Phase::Finished { reschedule, node, failure: Some(failure) }
        }
        (Phase::Idle { plan }, Change::Found { version }) => {
            stored(plan.map(|plan| *plan), Asker::ThisTerm, version, None)
        }
        (Phase::Stored { plan, version, .. }, Change::SuccessTold) => {
            Phase::Stored { plan, by: Asker::ThisTerm, version, success: None }
        }
        (Phase::Creating { plan, by, confirmed, kept }, change) => creating(plan, by, confirmed, kept, change),
        (Phase::Created(made), change) => created(made, change),
        (Phase::Discarding(unusable), change) => discarding(unusable, change),
        (phase, _) => phase,
    }
}

fn ended(plan: Plan, reschedule: bool, failure: Option<AttemptError>) -> Phase {
    Phase::Finished { reschedule, node: plan.node, failure }
}

/// With the PersistentVolume, it no longer matters whether an earlier term had stored it.
fn stored(plan: Option<Plan>, by: Asker, version: Option<u128>, success: Option<Success>) -> Phase {
    let plan = plan.map(|plan| Box::new(Plan { unproven: None, ..plan }));
    Phase::Stored { plan, by, version, success: success.map(Box::new) }
}

fn creating(mut plan: Box<Plan>, by: Asker, confirmed: bool, kept: Option<Secret>, change: Change) -> Phase {
    match change {
        Change::Asking { secret } => {
            let by = if by == Asker::EarlierTerm { Asker::BothTerms } else { by };
            Phase::Creating { plan, by, confirmed: true, kept: secret.or(kept) }
        }
        Change::Confirmed => Phase::Creating { plan, by, confirmed: true, kept },
        Change::Proven => {
            plan.unproven = None;
            Phase::Creating { plan, by, confirmed, kept }
        }
        Change::LeftAlone => ended(*plan, false, None),
        Change::NoErrorIsFinal => {
            plan.no_error_is_final = true;
            Phase::Creating { plan, by, confirmed, kept }
        }
        // Only a driver that was called in this term has answered.
        Change::Made { volume, begun } if by != Asker::EarlierTerm => {
            Phase::Created(Box::new(Made { plan: *plan, by, kept, volume, may_be_stored: false, begun }))
        }
        Change::Unusable { volume_id, why } if by != Asker::EarlierTerm => {
            Phase::Discarding(Box::new(Unusable { plan: *plan, by, kept, volume_id, why }))
        }
        Change::Refused { reschedule, failure } if by != Asker::EarlierTerm => ended(*plan, reschedule, Some(failure)),
        Change::Found { version } | Change::Stored { version } => stored(Some(*plan), by, version, None),
        _ => Phase::Creating { plan, by, confirmed, kept },
    }
}

fn created(mut made: Box<Made>, change: Change) -> Phase {
    match change {
        Change::MayBeStored(may_be_stored) => {
            made.may_be_stored = may_be_stored;
            Phase::Created(made)
        }
        Change::AskAgain => {
            Phase::Creating { plan: Box::new(made.plan), by: made.by, confirmed: true, kept: made.kept }
        }
        Change::Discarded | Change::LeftAlone => ended(made.plan, false, None),
        Change::Abandoned { failure } => ended(made.plan, false, failure),
        Change::Stored { version } | Change::Found { version } => {
            let by = if matches!(change, Change::Stored { .. }) { Asker::ThisTerm } else { made.by };
            let success = Success { begun: made.begun, volume: made.volume };
            stored(Some(made.plan), by, version, Some(success))
        }
        _ => Phase::Created(made),
    }
}

fn discarding(mut unusable: Box<Unusable>, change: Change) -> Phase {
    match change {
        Change::Proven => {
            unusable.plan.unproven = None;
            Phase::Discarding(unusable)
        }
        Change::LeftAlone => ended(unusable.plan, false, None),
        Change::Discarded => ended(unusable.plan, false, Some(unusable.why)),
        Change::Abandoned { failure } => ended(unusable.plan, false, failure.or(Some(unusable.why))),
        Change::Found { version } => stored(Some(unusable.plan), unusable.by, version, None),
        _ => Phase::Discarding(unusable),
    }
}

#[cfg(test)]
#[path = "transition_tests.rs"]
mod tests;
