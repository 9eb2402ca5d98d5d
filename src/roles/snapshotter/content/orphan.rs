//! A content that somebody has removed by force while the driver was called for it (snapshotter L9): the driver is asked until its
//! answer is final, and the snapshot is then deleted, if the content said so and no other content has it. Pure.

use super::attempt::Operation;
use super::facts;
use super::kind::Content;
use super::view::{Doomed, Left, Refusal, Step, View};
use super::{create, delete};

/// What to do for a content that is gone.
pub(super) fn step<K: Content>(view: &View<'_, K>) -> Result<Step, Refusal> {
    let known = view.known;
    let Some(asked) = &known.unanswered else { return Ok(Step::Settled) };
    if known.is_kind_absent {
        return Ok(Step::Settled);
    }
    // The watch has lost it; the API itself must say so.
    if !view.progress.is_gone {
        return Ok(Step::Confirm);
    }
    if known.is_deleted {
        return Ok(Step::Abandon(Left::Deleted));
    }
    // One with the same name gets the same snapshot, and keeps it.
    if known.has_heir {
        return Ok(Step::Abandon(Left::ToHeir));
    }
    if let Some(found) = &view.progress.found {
        if !facts::is_policy_delete(view.content) || known.is_of_group {
            return Ok(Step::Abandon(Left::Retained));
        }
        let members = found.members.iter().map(|member| member.snapshot_handle.clone()).collect();
        return delete::ask(view, Doomed { handle: found.handle.clone(), members });
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
