//! What to do next for a content: the tables of snapshotter spec 4. Pure, total, and asserted without a server.
//!
//! ```text
//! failed ─> record it        gone ─> orphan.rs        answered ─> status ─> mark off
//! phase ──┬─> Create, ReadyCheck: create.rs     secret ─> turn ─> P1 ─> CreateSnapshot
//!         ├─> LookUp: look_up.rs                secret ─> ListSnapshots, GetVolumeGroupSnapshot
//!         ├─> Finish                            mark off ─> look again
//!         └─> Delete: delete.rs                 secret ─> turn ─> confirm ─> DeleteSnapshot ─> P5 ─> P4
//! ```
//!
//! Three rules carry the safety. The driver is asked for a snapshot only once a server's answer has shown finalizer and mark on the
//! content (I1). The finalizer leaves it only without an unanswered call, and without a snapshot that the driver should have deleted
//! (I2). A call that the process remembers as unanswered counts more than a mark that another writer has wiped.

use crate::roles::snapshotter::content::record::{
    Class, ClassView, Content, Found, InvalidSnapshot, Operation, Wait, facts, intent, status, writes,
};
use crate::roles::snapshotter::names::LABEL_MANAGED_BY;

use super::view::{Kept, Rules, Step, View};
use super::{create, delete, look_up, look_up::LookUp, orphan};

/// The row of spec 4.1 that a content is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not ours.
    Ignored,
    /// Ours, and its class is another driver's.
    ForeignClass,
    /// A copy of another content, which nobody deletes.
    Copied,
    /// Rows 2 and 4.
    Delete,
    /// Row 7.
    Finish,
    /// Row 8.
    LookUp,
    /// Row 9.
    Member,
    /// Rows 6 and 10 without a handle.
    Create,
    /// Row 10 with a handle.
    ReadyCheck,
}

impl Phase {
    /// What is done in this phase.
    pub fn operation(self) -> Operation {
        match self {
            Self::Delete => Operation::Delete,
            Self::LookUp | Self::ReadyCheck | Self::Finish | Self::Member => Operation::Ready,
            Self::Create | Self::Ignored | Self::ForeignClass | Self::Copied => Operation::Create,
        }
    }
}

/// The row of a content. `is_unanswered`: the process remembers a call, whatever the mark says.
pub fn phase<K: Content>(content: &K, class: ClassView<'_, K::Class>, rules: &Rules, is_unanswered: bool) -> Phase {
    if !is_ours(content, rules) {
        return Phase::Ignored;
    }
    if matches!(class, ClassView::Foreign(_)) {
        return Phase::ForeignClass;
    }
    // The process has asked for this content itself, so it is no copy: a person has put another content's request on it meanwhile.
    if !is_unanswered && intent::is_copied(content) {
        return if facts::is_deleting(content) { Phase::Delete } else { Phase::Copied };
    }
    if facts::is_deleting(content) {
        let is_given_and_unbound = facts::given_handle(content).is_some() && facts::is_unbound(content);
        let is_marked = facts::has_mark(content) || is_unanswered;
        if is_given_and_unbound || (facts::has_lost_owner(content) && !is_marked) {
            return Phase::Delete;
        }
    }
    if facts::is_ready(content) {
        return Phase::Finish;
    }
    let (stored, group) = (facts::stored_handle(content), facts::group_handle(content));
    if facts::given_handle(content).is_some() || (stored.is_some() && (group.is_some() || K::IS_ASKED_BY_ID)) {
        return Phase::LookUp;
    }
    match stored {
        _ if content.is_member() => Phase::Member,
        Some(_) => Phase::ReadyCheck,
        None => Phase::Create,
    }
}

/// Whether the content is for this daemon: it has a source, and driver and node are ours (row 1).
pub fn is_ours<K: Content>(content: &K, rules: &Rules) -> bool {
    let has_source = facts::has_sources(content) || facts::given_handle(content).is_some();
    let label = content.meta().labels.as_ref().and_then(|labels| labels.get(LABEL_MANAGED_BY));
    let is_here = rules.node.as_ref().is_none_or(|node| label == Some(node));
    has_source && content.driver() == rules.request.driver && is_here
}

/// What to do next for the content of `view`.
pub fn next_step<K: LookUp>(view: &View<'_, K>) -> Step {
    if view.progress.failure.is_some() {
        return after_failure(view);
    }
    if !view.exists {
        return orphan::step(view).unwrap_or_else(|(operation, reason)| Step::Fail(operation, reason));
    }
    if let Some(found) = &view.progress.found
        && let Some(step) = earlier(view, found).or_else(|| record(view, found))
    {
        return step;
    }
    let step = match phase(view.content, view.class, view.rules, view.known.unanswered.is_some()) {
        Phase::Ignored => Ok(Step::Settled),
        Phase::ForeignClass => Ok(Step::Wait(Wait::ForeignClass(foreign(view.class)))),
        Phase::Copied => Ok(Step::Wait(Wait::Copied)),
        Phase::Delete => delete::step(view),
        Phase::Finish => Ok(finish(view)),
        Phase::LookUp => look_up::step(view),
        Phase::Member => Ok(Step::Wait(Wait::Member)),
        Phase::Create => create::step(view),
        Phase::ReadyCheck => create::ready_check(view),
    };
    step.unwrap_or_else(|(operation, reason)| Step::Fail(operation, reason))
}

fn foreign<C: Class>(class: ClassView<'_, C>) -> String {
    if let ClassView::Foreign(class) = class { class.driver().to_owned() } else { String::new() }
}

/// What to do with a snapshot that is older than its content, if the content bore the mark of another program and no request. Such a
/// content may be a copy, and people may have kept the snapshot. If the other program had called the driver for this very content, the
/// snapshot would be younger than it.
fn earlier<K: Content>(view: &View<'_, K>, found: &Found) -> Option<Step> {
    let content = view.content;
    let is_inherited = view.known.unanswered.as_ref().is_some_and(|asked| asked.is_inherited);
    if !is_inherited || facts::stored_handle(content).is_some() || orphan::is_younger(found, view.known.asked_since) {
        return None;
    }
    let is_over = facts::is_deleting(content) && (facts::has_lost_owner(content) || facts::is_unbound(content));
    Some(if is_over && facts::is_protected(content) {
        Step::ReleaseKept(Kept::Earlier(found.handle.clone()))
    } else {
        Step::Wait(Wait::Earlier(found.handle.clone()))
    })
}

/// What is still to be written of the driver's answer: the status, then the mark.
fn record<K: Content>(view: &View<'_, K>, found: &Found) -> Option<Step> {
    let content = view.content;
    if let Some(stored) = facts::stored_handle(content).filter(|stored| *stored != found.handle) {
        let (stored, answered) = (stored.to_owned(), found.handle.clone());
        let reason = InvalidSnapshot::OtherSnapshot { stored, answered };
        return Some(Step::Fail(Operation::Ready, reason));
    }
    // The status offers a group for deletion as soon as it has the id.
    let unlisted = found.odd.as_ref().filter(|odd| writes::listing(content, &odd.members).is_some());
    if let Some(odd) = unlisted {
        return Some(Step::ListMembers(odd.members.clone()));
    }
    if status::filled(content, found).is_some() {
        return Some(Step::Save(found.clone()));
    }
    let is_marked = facts::has_mark(content) || view.known.unanswered.is_some();
    // The request is what the next look asks, unless that asks by the id.
    let keep_intent = !found.is_ready && !K::IS_ASKED_BY_ID;
    let is_over = !keep_intent && facts::has_intent(content);
    if is_marked || is_over {
        return Some(Step::Unmark { keep_intent });
    }
    // The members of a group that is to be deleted are needed no more.
    let odd = found.odd.as_ref().filter(|_| !(facts::is_deleting(content) && facts::has_lost_owner(content)))?;
    Some(Step::Fail(Operation::Ready, InvalidSnapshot::OddMembers(odd.why.clone())))
}

/// Row 7: no call is ever made again until the deletion.
fn finish<K: Content>(view: &View<'_, K>) -> Step {
    let content = view.content;
    let is_marked = facts::has_mark(content) || facts::has_intent(content) || view.known.unanswered.is_some();
    if is_marked {
        Step::Unmark { keep_intent: false }
    } else if facts::is_deleting(content) {
        Step::Wait(Wait::Snapshot)
    } else {
        Step::Settled
    }
}

/// What is still to be written of a failure: the mark of a call with a final answer goes, and the status says why.
fn after_failure<K: Content>(view: &View<'_, K>) -> Step {
    let (content, Some(failure)) = (view.content, &view.progress.failure) else { return Step::Settled };
    if view.exists && !view.progress.is_unrecorded {
        // Nobody wants a snapshot, and there is none: the mark leaves with the finalizer, and nothing is asked any more.
        if failure.is_final
            && facts::is_deleting(content)
            && facts::has_lost_owner(content)
            && !facts::is_ready(content)
        {
            return delete::step(view).unwrap_or_else(|(operation, reason)| Step::Fail(operation, reason));
        }
        let is_marked = facts::has_mark(content) || facts::has_intent(content) || view.known.unanswered.is_some();
        if failure.is_final && is_marked && facts::stored_handle(content).is_none() {
            return Step::Unmark { keep_intent: false };
        }
        if !failure.is_recorded && failure.operation != Operation::Delete && !facts::is_ready(content) {
            return Step::RecordError;
        }
    }
    Step::Failed
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "decide_kept_tests.rs"]
mod kept_tests;
