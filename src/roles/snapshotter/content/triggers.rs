//! What feeds the queue of contents: changes of the cluster, and a look at everything now and then.

use std::sync::Arc;

use tracing::warn;

use crate::cluster::{BY_CLASS, Change, Origin};
use crate::queue::Cause;
use crate::roles::kit::Controllers;

use super::context::Context;
use super::facts;
use super::kind::Content;
use super::memory::ContentKey;
use super::predicates;

/// Feeds the queue from the caches. What an earlier term has left without an answer comes first.
pub(in crate::roles::snapshotter) fn follow<K: Content>(cx: &Arc<Context<K>>, controllers: &mut Controllers) {
    for content in cx.stores.contents.all() {
        if facts::has_mark(&*content) && facts::stored_handle(&*content).is_none() {
            cx.resume_call_of(&content);
            cx.wake(&content, Cause::Changed);
        }
    }
    controllers.on(&cx.stores.contents, {
        let cx = Arc::clone(cx);
        move |change| on_content(change, &cx)
    });
    controllers.on(&cx.stores.classes, {
        let cx = Arc::clone(cx);
        move |change| {
            let Some(class) = predicates::class_turns(change) else { return };
            for content in cx.stores.contents.find(BY_CLASS, class) {
                cx.wake(&content, Cause::Changed);
            }
        }
    });
}

/// Wakes groups whose deletion waits for a content that needs one of their snapshots.
pub(in crate::roles::snapshotter) fn follow_members<K: Content>(cx: &Arc<Context<K>>, controllers: &mut Controllers) {
    controllers.on(&cx.across.snapshots, {
        let cx = Arc::clone(cx);
        move |change| {
            let Some(content) = predicates::may_let_go(change) else { return };
            for group in cx.going_groups_of(content) {
                cx.wake(&group, Cause::Changed);
            }
        }
    });
}

/// Looks at every content, in case a wake-up was ever missed.
pub(in crate::roles::snapshotter) fn look_at_all<K: Content>(cx: &Context<K>) {
    for content in cx.stores.contents.all() {
        cx.wake(&content, Cause::Resync);
    }
}

fn on_content<K: Content>(change: &Change<K>, cx: &Context<K>) {
    if let Some(old) = &change.old
        && change.new.as_deref().is_none_or(|new| new.meta().uid != old.meta().uid)
    {
        if change.origin == Origin::Relist {
            cx.memory.end_unseen(&old.meta().uid);
        }
        gone(old, cx);
    }
    let Some(new) = &change.new else { return };
    // Our own removal of the mark comes after the answer, when nothing is unanswered any more.
    let is_given_up = change.old.as_deref().is_some_and(|old| predicates::is_given_up(old, &**new));
    if is_given_up && cx.memory.is_unanswered(&new.meta().uid) {
        warn!(content = &*new.meta().name, "somebody has removed the mark of an unanswered call: it is given up");
        cx.memory.settle(&new.meta().uid);
        cx.wake(new, Cause::Changed);
    }
    let is_wiped = change.origin != Origin::OwnWrite && predicates::is_wiped(&**new);
    cx.memory.see(new, is_wiped);
    let is_turned = change.old.as_deref().is_none_or(|old| {
        predicates::is_turned(old, &**new) || (change.origin != Origin::OwnWrite && predicates::is_freed(old, &**new))
    });
    if is_turned || (is_wiped && cx.memory.is_unanswered(&new.meta().uid)) {
        cx.wake(new, Cause::Changed);
    }
}

/// A content with an unanswered call is worked to its end. Of any other nothing is remembered.
fn gone<K: Content>(old: &Arc<K>, cx: &Context<K>) {
    if cx.memory.is_unanswered(&old.meta().uid) {
        cx.add(&cx.about(Arc::clone(old), false), Cause::Changed);
    } else {
        cx.forget(&ContentKey::of(&**old));
    }
}
