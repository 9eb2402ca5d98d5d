//! The patch of each write. Pure.

use crate::cluster::Patch;

use super::expand::writes as expand;
use super::job::Job;
use super::modify::writes as modify;
use super::progress::Progress;
use super::step::Write;
use super::view::View;

/// The patch. `None`: the object says so already.
pub(super) fn patch(view: &View, progress: &Progress, write: &Write) -> Option<Patch> {
    let (claim, volume, now) = (view.claim.as_ref(), view.volume.as_deref(), view.now);
    match write {
        Write::BeginExpansion(begin) => expand::begun(claim, begin, now),
        Write::Size { size, before } => expand::size(volume?, *size, *before),
        Write::LeftToNode { begun, .. } => expand::left_to_node(claim, *begun, now),
        Write::Expanded(size) => expand::done(claim, *size),
        Write::RemoveNote => expand::note_removed(volume?),
        Write::BeginModification(class) => modify::begun(claim, class, now),
        Write::Class(class) => modify::class(volume?, class),
        Write::Modified(class) => modify::done(claim, class),
        Write::Pending => modify::pending(claim),
        Write::Foreign(class, reason) => modify::foreign(claim, class, &reason.to_string(), now),
        Write::Cancel => modify::cancelled(claim),
        Write::Refusal => match view.job {
            Job::Expand => expand::refused(claim, progress.refused.as_ref()?, now),
            Job::Modify => modify::refused(claim, progress.refused.as_ref()?, now),
        },
    }
}
