//! Looks a snapshot up: one that was there before its content, a member of a group (snapshotter spec 6.1), or a group that is cut and
//! not ready. Pure.

use super::facts;
use super::kind::Content;
use super::view::{Refusal, Step, View, Wait};

/// How a kind of contents is looked up.
pub trait LookUp: Content {
    /// Asks the driver, or says why it cannot be asked.
    fn ask(view: &View<'_, Self>) -> Result<Step, Refusal>;
}

/// Row 8.
pub(super) fn step<K: LookUp>(view: &View<'_, K>) -> Result<Step, Refusal> {
    // What has a handle is not being taken. The mark would hold up the deletion as long as the looks fail.
    if facts::has_mark(view.content) {
        return Ok(Step::Unmark { keep_intent: false });
    }
    if view.progress.found.is_some() {
        return Ok(Step::Wait(Wait::NotReady));
    }
    if let Some(left) = view.known.pause_left {
        return Ok(Step::Wait(Wait::NotDue(left)));
    }
    K::ask(view)
}
