//! Takes a snapshot, and asks again until it is ready to use (snapshotter spec 5.4, 6.2). Pure.

use crate::roles::snapshotter::content::record::{
    Asked, Content, InvalidSnapshot, Operation, Wait, facts, request::plan, writes,
};

use super::look_up::{self, LookUp};
use super::view::{Refusal, Step, View};

/// Rows 6 and 10: the content has no handle. What can fail without the driver comes before the mark, so that it leaves none.
pub(super) fn step<K: Content>(view: &View<'_, K>) -> Result<Step, Refusal> {
    let (content, known) = (view.content, view.known);
    let is_begun = facts::has_mark(content) || known.unanswered.is_some();
    if known.is_refused && is_begun {
        return Ok(Step::Unmark { keep_intent: false });
    }
    if !is_begun && facts::is_deleting(content) && !facts::is_protected(content) {
        return Ok(Step::Wait(Wait::Unprotected));
    }
    let asked = asked(view, Operation::Create)?;
    if let Some(other) = known.namesake.as_ref().filter(|_| !is_begun) {
        return Err((Operation::Create, name_taken::<K>(&asked.request.name, other)));
    }
    // Mark and request of a call without an answer were wiped. They come back before the secret and the turn, which may take long:
    // coming: until then nothing else on the content says that the driver may have a snapshot.
    if known.unanswered.is_some() && writes::begun(content, &asked.intent).is_some() {
        return Ok(Step::Begin(Box::new(asked)));
    }
    view.takes(Operation::Create)?;
    let place = view.secret_place().map_err(|reason| (Operation::Create, reason))?;
    if let Some(read) = view.read(place, Operation::Create, false) {
        return Ok(read);
    }
    if !has_turn(view, &asked) {
        return Ok(Step::TakeTurn(asked.request.turns()));
    }
    if writes::begun(content, &asked.intent).is_some() {
        return Ok(Step::Begin(Box::new(asked)));
    }
    if !view.is_confirmed() {
        return Ok(Step::Confirm);
    }
    // A content that asks at the same time was unknown when this one was marked. Whose turn it is has the name.
    Ok(match known.rival.clone().filter(|_| known.unanswered.is_none()) {
        Some(other) => Step::LeaveName(Box::new(asked), other),
        None => Step::Create(Box::new(asked)),
    })
}

/// Why the driver is not asked by a name that `other` has.
pub(in super::super) fn name_taken<K: Content>(name: &str, other: &str) -> InvalidSnapshot {
    let (owner, setting) = (K::NAMES.owner, K::NAMES.name_length);
    InvalidSnapshot::NameTaken { name: name.to_owned(), other: other.to_owned(), owner, setting }
}

/// Row 10: the snapshot is cut and not ready. Nothing is marked any more: a deletion has its handle.
pub(super) fn ready_check<K: LookUp>(view: &View<'_, K>) -> Result<Step, Refusal> {
    // The answer was recorded.
    if let Some(before) = look_up::before(view, true) {
        return Ok(before);
    }
    if let Some(pause) = view.progress.gives_way {
        return Ok(Step::GiveWay(pause));
    }
    if view.progress.must_look_up {
        return K::ask(view);
    }
    let asked = asked(view, Operation::Ready)?;
    view.takes(Operation::Ready)?;
    let place = view.secret_place().map_err(|reason| (Operation::Ready, reason))?;
    if let Some(read) = view.read(place, Operation::Ready, false) {
        return Ok(read);
    }
    if !has_turn(view, &asked) {
        let turns = asked.request.turns();
        return Ok(if view.known.is_overdue { Step::AwaitTurn(turns) } else { Step::TryTurn(turns) });
    }
    if !view.is_confirmed() {
        return Ok(Step::Confirm);
    }
    Ok(Step::Create(Box::new(asked)))
}

/// Repeats a look without an answer before the snapshot is deleted. A driver that still works on the look would take the snapshot anew
/// after the deletion. `None`: every look has an answer, or the request cannot be made again.
pub(super) fn last_look<K: Content>(view: &View<'_, K>) -> Option<Step> {
    let asked = asked(view, Operation::Delete).ok().filter(|_| view.known.is_late && view.exists)?;
    Some(if has_turn(view, &asked) { Step::Create(Box::new(asked)) } else { Step::TakeTurn(asked.request.turns()) })
}

/// What the driver was asked, or is to be asked.
fn asked<K: Content>(view: &View<'_, K>, operation: Operation) -> Result<Asked, Refusal> {
    let remembered = view.known.unanswered.as_ref();
    if let Some(asked) = remembered.filter(|asked| asked.is_as_recorded) {
        return Ok(asked.clone());
    }
    // One that was not as recorded is no guide: the class may say by now again what was asked first.
    match (plan(view.content, view.class, &view.rules.request), remembered) {
        (Ok(asked), _) => Ok(asked),
        (Err(_), Some(asked)) => Ok(asked.clone()),
        (Err(reason), None) => Err((operation, reason)),
    }
}

/// Whether it is the attempt's turn.
pub(super) fn has_turn<K: Content>(view: &View<'_, K>, asked: &Asked) -> bool {
    view.progress.volume_turn.as_ref() == Some(&asked.request.turns())
}
