//! A content that was removed by force while the driver was called for it (snapshotter L9). The driver is asked until its answer is
//! final. Then the snapshot is deleted, if the policy of the content was `Delete` and no other content has the snapshot. Pure.
//!
//! A content may be a copy from a backup, and its request then finds a snapshot that people have kept on purpose. So a snapshot is deleted
//! only if it was taken after the content was made. All others are kept, and reported.

use crate::cluster::Moment;
use crate::roles::snapshotter::content::record::{Content, Found, InvalidSnapshot, Operation, facts};

use super::progress::{ContentEnd, Left};
use super::view::{Doomed, Refusal, Step, View};
use super::{create, delete};

/// The API stamps a content with the beginning of a second, and a driver may round the time of its snapshot down to one.
const ROUNDING: i128 = 1_000_000_000;

/// What to do for a content that is gone.
pub(super) fn step<K: Content>(view: &View<'_, K>) -> Result<Step, Refusal> {
    let known = view.known;
    let Some(asked) = &known.unanswered else { return Ok(Step::Settled) };
    if known.is_kind_absent {
        return Ok(Step::Settled);
    }
    if view.progress.is_others {
        return Ok(Step::Abandon(Left::ToOtherNode));
    }
    // The watch has lost it; the API itself must say so.
    if !view.progress.is_gone {
        return Ok(Step::Confirm);
    }
    if known.is_deleted {
        return Ok(Step::Abandon(Left::Deleted));
    }
    // One with the same name gets the same snapshot, and keeps it.
    if known.has_heir || view.progress.named_elsewhere.is_some() {
        return Ok(Step::Abandon(Left::ToHeir));
    }
    if let Some(found) = &view.progress.found {
        if !facts::is_policy_delete(view.content) || known.is_of_group {
            return Ok(Step::Abandon(Left::Retained));
        }
        if known.has_copy || !is_younger(found, known.asked_since) {
            return Ok(Step::Abandon(Left::MaybeKept));
        }
        // A user may have changed the policy while no watch told of it, and removed the content then.
        if view.progress.is_listed && known.is_end_unseen {
            match view.progress.end {
                None => return Ok(Step::ReadEnd),
                Some(ContentEnd::Delete) => {}
                Some(ContentEnd::Retain) => return Ok(Step::Abandon(Left::Retained)),
                Some(ContentEnd::Unknown) => return Ok(Step::Abandon(Left::EndUnknown)),
            }
        }
        if known.needed_member.is_some() {
            return Ok(Step::Abandon(Left::MemberNeeded));
        }
        if known.are_members_unseen {
            return Err((Operation::Delete, InvalidSnapshot::MembersUnseen));
        }
        return delete::ask(view, Doomed { handle: found.handle.clone(), members: found.member_ids() });
    }
    let place = view.secret_place().map_err(|reason| (Operation::Create, reason))?;
    if let Some(read) = view.read(place, Operation::Create, false) {
        return Ok(read);
    }
    if !create::has_turn(view, asked) {
        return Ok(Step::TakeTurn(asked.request.turns()));
    }
    Ok(Step::Create(Box::new(asked.clone())))
}

/// Whether the snapshot was taken after the content was made that asked for it first, as far as both times are known.
pub(super) fn is_younger(found: &Found, asked_since: Option<Moment>) -> bool {
    let earliest = |made: Moment| made.timestamp().as_nanosecond() - ROUNDING;
    found.is_dated && asked_since.is_some_and(|made| i128::from(found.creation_time) >= earliest(made))
}
