//! Whether a PersistentVolume was ever stored for a request of an earlier term, or by a write of this term whose answer was lost (J10).
//! Pure.
//!
//! An entry of the journal says that the driver may have been asked. It does not say what came after: the volume may have got its
//! PersistentVolume, a user may have kept its data by `Retain`, and claim and PersistentVolume may be gone, all before the entry left the
//! journal. To ask the driver again and to delete the volume would then destroy what the user has kept. So a missing claim is no proof.
//! These are:
//!
//! - The claim exists, and was never bound. `volumeName` never changes, so no pod has used the volume through this claim.
//! - The API's own history since the entry was recorded has no PersistentVolume of the volume's name ([`Api::history`](crate::cluster::Api::history)).
//!
//! The history is short: five minutes by default. That is more than a crash and a take-over take, and less than a backup is old. Without
//! proof the volume is kept and reported: a leak that is reported is cheap, and data is not.

use super::view::{Evidence, NameStatus, View};

/// What is to be done for a request for which there is no proof yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// List claims and PersistentVolumes once: the watches of a new leader may be behind.
    List,
    /// Read the API's history.
    ReadHistory,
    /// No PersistentVolume was ever stored: its work goes on.
    GoOn,
    /// A PersistentVolume was stored: nothing is left to do.
    Drop,
    /// Nobody can say: the volume is kept and reported.
    LeaveAlone,
}

/// Judges the request in `view`.
pub fn judge(view: &View<'_>, volume_name: &str) -> Judgement {
    if !view.listed {
        return Judgement::List;
    }
    if view.has_volume {
        return Judgement::Drop;
    }
    let bound = view.claim.volume_name.as_deref().filter(|_| view.present);
    if view.present && bound.is_none() {
        return Judgement::GoOn;
    }
    // Its own PersistentVolume was stored, and is gone. On a node, the one of that name may have been another node's.
    if bound == Some(volume_name) && !view.rules.per_node {
        return Judgement::Drop;
    }
    // The claim had another node's volume, which is gone: it gets no other one in its place, and no known claim wants ours.
    let had_anothers = bound == Some(volume_name) && *view.volume != NameStatus::OtherNode;
    match view.attempt.history {
        None => Judgement::ReadHistory,
        Some(Evidence::NeverStored) if had_anothers => Judgement::LeaveAlone,
        Some(Evidence::NeverStored) => Judgement::GoOn,
        Some(Evidence::Stored) => Judgement::Drop,
        Some(Evidence::Unknown) => Judgement::LeaveAlone,
    }
}
