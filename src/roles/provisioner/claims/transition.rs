//! From one phase of a claim to the next: the one function that may do so. Pure.
//!
//! A phase in which a volume may exist is left on a final answer, a deletion or a stored PersistentVolume only.

use tokio::time::Instant;

use crate::roles::kit::secrets::Secret;

use super::error::AttemptError;
use super::phase::{Asker, Made, Phase, Plan, Success, Unusable};
use super::volume::Created;

/// What changes the phase of a claim.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new attempt begins, or the claim was read again. What was worked out and not asked is worked out again, because claim
    /// and class may have changed.
    Renewed,
    /// What was worked out is not asked any more, and worked out anew.
    Replanned,
    /// The claim carries a mark that is not ours: its author may have asked the driver, and nothing of what we know holds for
    /// that.
    Resumed,
    /// What to ask is worked out.
    Planned(Box<Plan>),
    /// Our mark is on the claim.
    Marked,
    /// The driver is about to be asked.
    Asking {
        /// The secret that goes with the request.
        secret: Option<Secret>,
    },
    /// The API has no PersistentVolume of the name, and the claim carries our mark.
    Confirmed,
    /// The claim carries no mark any more, or is gone: its author has brought it to an end.
    NothingBegun,
    /// A volume may exist whatever error the driver answers.
    Doubted,
    /// The driver has made the volume.
    Made {
        /// What it said of the volume.
        volume: Created,
        /// When the attempt began.
        begun: Instant,
    },
    /// The driver has made a volume that cannot be used.
    Unusable {
        /// The driver's id of it.
        volume_id: String,
        /// Why.
        why: AttemptError,
    },
    /// The driver's final answer is that nothing exists.
    Refused {
        /// Another node may do better.
        reschedule: bool,
        /// Its answer.
        failure: AttemptError,
    },
    /// The claim cannot be provisioned, and the driver was not asked.
    Hopeless {
        /// Another node may do better.
        reschedule: bool,
        /// The node that the scheduler had chosen.
        node: Option<String>,
        /// Why.
        failure: AttemptError,
    },
    /// Whether a PersistentVolume may have been stored for the volume.
    MayBeStored(bool),
    /// The volume is another PersistentVolume's, and the claim waits on: the driver's next answer may be another.
    AskAgain,
    /// The driver has deleted the volume.
    Discarded,
    /// The volume is another PersistentVolume's, and nothing of it is the claim's any more.
    Abandoned {
        /// What a claim that waits on is told.
        failure: Option<AttemptError>,
    },
    /// The PersistentVolume is stored.
    Stored,
    /// The claim's PersistentVolume was found.
    Found,
    /// The success was told.
    SuccessTold,
    /// The claim is released, and the failure goes to the attempt.
    Concluded,
    /// What another node's daemon had begun is over.
    LetGo,
}

/// The phase after a change. A change that has no meaning in a phase leaves it as it is.
pub fn transition(phase: Phase, change: Change) -> Phase {
    match (phase, change) {
        (Phase::Idle { .. }, Change::Renewed | Change::Replanned)
        | (Phase::Idle { .. } | Phase::Marked { .. } | Phase::Stored { by: Asker::Another, .. }, Change::LetGo)
        | (Phase::Finished { .. }, Change::Concluded) => Phase::default(),
        (Phase::Marked { .. }, Change::Renewed | Change::Replanned) => Phase::Marked { plan: None },
        (Phase::Idle { .. } | Phase::Marked { .. }, Change::Resumed) => Phase::resumed(),
        (Phase::Idle { .. }, Change::Planned(plan)) => Phase::Idle { plan: Some(plan) },
        (Phase::Marked { .. }, Change::Planned(plan)) => Phase::Marked { plan: Some(plan) },
        (Phase::Idle { plan }, Change::Marked) => Phase::Marked { plan },
        (Phase::Idle { plan: Some(plan) } | Phase::Marked { plan: Some(plan) }, Change::Asking { secret }) => {
            Phase::Creating { plan: Some(plan), by: Asker::Us, confirmed: true, kept: secret }
        }
        (Phase::Idle { plan }, Change::Hopeless { reschedule, node, failure }) => {
            hopeless(plan, false, reschedule, node, failure)
        }
        (Phase::Marked { plan }, Change::Hopeless { reschedule, node, failure }) => {
            hopeless(plan, true, reschedule, node, failure)
        }
        (Phase::Idle { plan } | Phase::Marked { plan }, Change::Found) => {
            Phase::Stored { plan, by: Asker::Us, success: None }
        }
        (Phase::Creating { plan, by, confirmed, kept }, change) => creating(plan, by, confirmed, kept, change),
        (Phase::Created(made), change) => created(made, change),
        (Phase::Discarding(unusable), change) => discarding(unusable, change),
        (Phase::Stored { plan, .. }, Change::SuccessTold) => Phase::Stored { plan, by: Asker::Us, success: None },
        (phase, _) => phase,
    }
}

fn hopeless(
    plan: Option<Box<Plan>>,
    marked: bool,
    reschedule: bool,
    node: Option<String>,
    failure: AttemptError,
) -> Phase {
    let node = node.or_else(|| plan.and_then(|plan| plan.node));
    Phase::Finished { reschedule, marked, node, failure: Some(failure) }
}

fn ended(plan: Option<Plan>, reschedule: bool, failure: Option<AttemptError>) -> Phase {
    Phase::Finished { reschedule, marked: true, node: plan.and_then(|plan| plan.node), failure }
}

fn creating(plan: Option<Box<Plan>>, by: Asker, confirmed: bool, kept: Option<Secret>, change: Change) -> Phase {
    match (plan, change) {
        (_, Change::Replanned) => Phase::Creating { plan: None, by, confirmed, kept },
        (_, Change::Planned(plan)) => Phase::Creating { plan: Some(plan), by, confirmed, kept },
        (Some(plan), Change::Asking { secret }) => {
            let by = if by == Asker::Another { Asker::AnotherAndUs } else { by };
            Phase::Creating { plan: Some(plan), by, confirmed: true, kept: secret.or(kept) }
        }
        (plan, Change::Confirmed) => Phase::Creating { plan, by, confirmed: true, kept },
        (Some(mut plan), Change::Doubted) => {
            plan.doubtful = true;
            plan.rewrite();
            Phase::Creating { plan: Some(plan), by, confirmed, kept }
        }
        // Only a driver that was asked in this term has answered.
        (Some(plan), Change::Made { volume, begun }) if by != Asker::Another => {
            let plan = *plan;
            Phase::Created(Box::new(Made { plan, by, kept, volume, may_be_stored: false, begun }))
        }
        (Some(plan), Change::Unusable { volume_id, why }) if by != Asker::Another => {
            let mut plan = *plan;
            plan.unfit = true;
            plan.rewrite();
            Phase::Discarding(Box::new(Unusable { plan, by, kept, volume_id, why }))
        }
        (plan, Change::Refused { reschedule, failure }) => ended(plan.map(|plan| *plan), reschedule, Some(failure)),
        (plan, Change::NothingBegun) => ended(plan.map(|plan| *plan), false, None),
        (plan, Change::Found | Change::Stored) => Phase::Stored { plan, by, success: None },
        (_, Change::LetGo) if by == Asker::Another => Phase::default(),
        (plan, _) => Phase::Creating { plan, by, confirmed, kept },
    }
}

fn created(mut made: Box<Made>, change: Change) -> Phase {
    match change {
        Change::MayBeStored(may_be_stored) => {
            made.may_be_stored = may_be_stored;
            Phase::Created(made)
        }
        Change::AskAgain => {
            Phase::Creating { plan: Some(Box::new(made.plan)), by: made.by, confirmed: true, kept: made.kept }
        }
        Change::Discarded => ended(Some(made.plan), false, None),
        Change::Abandoned { failure } => ended(Some(made.plan), false, failure),
        Change::Stored | Change::Found => {
            let by = if matches!(change, Change::Stored) { Asker::Us } else { made.by };
            let success = Some(Box::new(Success { begun: made.begun, volume: made.volume }));
            Phase::Stored { plan: Some(Box::new(made.plan)), by, success }
        }
        _ => Phase::Created(made),
    }
}

fn discarding(unusable: Box<Unusable>, change: Change) -> Phase {
    match change {
        Change::Discarded => ended(Some(unusable.plan), false, Some(unusable.why)),
        Change::Abandoned { failure } => ended(Some(unusable.plan), false, failure.or(Some(unusable.why))),
        Change::Found => Phase::Stored { plan: Some(Box::new(unusable.plan)), by: unusable.by, success: None },
        _ => Phase::Discarding(unusable),
    }
}

#[cfg(test)]
#[path = "transition_tests.rs"]
mod tests;
