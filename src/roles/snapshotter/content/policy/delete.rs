//! Deletes the driver's snapshot with its content, or only releases the content (snapshotter spec 4.2). Pure.

use crate::cluster::SecretRef;
use crate::csi::SnapshotLock;
use crate::roles::snapshotter::content::record::{
    Class as _, ClassView, Content, InvalidSnapshot, Operation, facts, status,
};
use crate::roles::snapshotter::secrets::{SecretFault, for_listing};

use super::create;
use super::view::{Doomed, Kept, Refusal, Step, View};

/// Rows 2 and 4 of spec 4.1.
pub(super) fn step<K: Content>(view: &View<'_, K>) -> Result<Step, Refusal> {
    let content = view.content;
    // Another finalizer may still keep the content: our part was done before our own left.
    if !facts::is_protected(content) {
        return Ok(Step::Settled);
    }
    if view.known.is_deleted {
        let must_clear = status::must_clear(content) && !view.progress.is_cleared;
        return Ok(if must_clear { Step::Clear } else { Step::Release });
    }
    if view.is_copy() {
        return Ok(Step::ReleaseKept(Kept::OfAnother));
    }
    match handle_to_delete(view) {
        None if may_leave_one(view) => Ok(name_leftovers(view)),
        None => Ok(Step::Release),
        Some(handle) => match (named_by(view), &view.known.needed_member) {
            // The other content deletes the snapshot when it goes, if its policy says so.
            (Some(other), _) => Ok(Step::ReleaseKept(Kept::NamedBy(other.clone()))),
            // The driver deletes a group as a whole.
            (None, Some(needed)) => Err((Operation::Delete, InvalidSnapshot::MemberNeeded(needed.clone()))),
            (None, None) if view.known.are_members_unseen => Err((Operation::Delete, InvalidSnapshot::MembersUnseen)),
            (None, None) => ask(view, Doomed { handle: handle.to_owned(), members: view.content.members() }),
        },
    }
}

/// Another content that names the snapshot, in this node's cache or elsewhere.
fn named_by<'a, K: Content>(view: &View<'a, K>) -> Option<&'a String> {
    view.known.named_by.as_ref().or(view.progress.named_elsewhere.as_ref())
}

/// The snapshot that goes with the content.
fn handle_to_delete<'a, K: Content>(view: &View<'a, K>) -> Option<&'a str> {
    let content = view.content;
    facts::handle(content).filter(|_| facts::takes_snapshot_along(content) && !view.known.is_of_group)
}

/// Whether the driver may have a snapshot that nobody knows (L12).
fn may_leave_one<K: Content>(view: &View<'_, K>) -> bool {
    let is_known = facts::handle(view.content).is_some();
    view.known.is_doubtful && !is_known && !view.progress.is_searched
}

/// Asks the driver for what it may have left over, with the secret for lists if the class names one.
fn name_leftovers<K: Content>(view: &View<'_, K>) -> Step {
    let place = list_secret(view).unwrap_or_default().filter(|_| view.rules.lists);
    view.read(place, Operation::Delete, true).unwrap_or(Step::NameLeftovers)
}

/// Where the class says that the secret for lists is.
pub fn list_secret<K: Content>(view: &View<'_, K>) -> Result<Option<SecretRef>, SecretFault> {
    match view.class {
        ClassView::Ours(class) => for_listing(class.parameters(), &view.content.meta().name),
        _ => Ok(None),
    }
}

/// All that comes before the call, and the call. The content is read just before it, because a user may have changed the policy
/// meanwhile.
pub(super) fn ask<K: Content>(view: &View<'_, K>, doomed: Doomed) -> Result<Step, Refusal> {
    view.takes(Operation::Delete)?;
    // A content whose VolumeSnapshot the group owns does not keep the group.
    if let Some(need) = &view.known.unread_owner {
        return Ok(Step::ReadOwner(need.clone()));
    }
    let place = match view.secret_place() {
        Err(InvalidSnapshot::Secret { fault: SecretFault::Half, .. }) if view.rules.delete_without_secret => None,
        place => place.map_err(|reason| (Operation::Delete, reason))?,
    };
    if let Some(read) = view.read(place, Operation::Delete, false) {
        return Ok(read);
    }
    if let Some(look) = create::last_look(view) {
        return Ok(look);
    }
    // The watch of a new leader may be behind, and hide a content that needs the snapshot. If the content is gone, the list must be as new
    // as the deletion; for a group, too, because the contents of its members have a watch of their own.
    let is_listed = if view.exists && !K::NAMES.is_group { view.known.is_relisted } else { view.progress.is_listed };
    if !is_listed {
        return Ok(Step::Relist);
    }
    if view.known.is_ahead && !view.progress.is_caught_up {
        return Ok(Step::CatchUp);
    }
    // The cache of a node has the contents of that node alone.
    if view.rules.node.is_some() && !view.progress.is_sought {
        return Ok(Step::Seek(doomed.handle));
    }
    let turns = doomed.turns();
    if !view.progress.snapshot_turns.iter().map(SnapshotLock::snapshot_id).eq(turns.iter().map(String::as_str)) {
        return Ok(Step::TakeSnapshotTurns(turns));
    }
    if view.exists && !view.progress.is_confirmed {
        return Ok(Step::Confirm);
    }
    Ok(Step::Delete(doomed))
}
