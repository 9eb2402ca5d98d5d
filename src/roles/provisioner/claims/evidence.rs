//! What is known of a request of an earlier term: whether a PersistentVolume was ever stored for it (J10). Pure.
//!
//! An entry of the journal says that the driver may have been asked. It does not say what came after: the volume may have got its
//! PersistentVolume, a user may have kept its data by `Retain`, and claim and PersistentVolume may be gone, all before the entry left the
//! journal. To ask the driver again and to delete the volume would then destroy what the user has kept. So a missing claim is no proof.
//! These are:
//!
//! - The claim exists, and was never bound. `volumeName` never changes, so nobody has used the volume through this claim.
//! - The API's own history since the entry was recorded has no PersistentVolume of the volume's name ([`Api::history`](crate::cluster::Api::history)).
//!
//! The history is short: five minutes by default. That is more than a crash and a take-over take, and less than a backup is old. Without
//! proof the volume is kept and reported: a leak that is reported is cheap, and data is not.

use super::decide::{NameStatus, Step, View};

/// Whether a PersistentVolume was stored for a request of an earlier term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// None was ever stored.
    NeverStored,
    /// One was stored, though it may be gone.
    Stored,
    /// Nobody can say.
    Unknown,
}

/// What to do for the request of an earlier term in `view`, for which there is no proof yet.
pub(super) fn judge(view: &View<'_>, volume_name: &str) -> Step {
    // The watches of a new leader may be behind.
    if !view.listed {
        return Step::Relist;
    }
    if view.has_volume {
        return Step::Drop;
    }
    let bound = view.claim.volume_name.as_deref().filter(|_| view.present);
    if view.present && bound.is_none() {
        return Step::Prove;
    }
    // Its own PersistentVolume was stored, and is gone. On a node, the one of that name may be another node's.
    if bound == Some(volume_name) && *view.volume != NameStatus::OtherNode {
        return Step::Drop;
    }
    match view.attempt.history {
        None => Step::ReadHistory,
        Some(Evidence::NeverStored) => Step::Prove,
        Some(Evidence::Stored) => Step::Drop,
        Some(Evidence::Unknown) => Step::LeaveAlone,
    }
}
