//! What feeds the queue of contents: changes of the cluster, and a look at everything now and then.

use std::sync::Arc;

use tracing::warn;

use crate::cluster::{BY_CLASS, Change, Origin, VolumeSnapshotContent};
use crate::queue::Cause;
use crate::roles::kit::{Controllers, look_at_each, with};
use crate::roles::snapshotter::content::policy::predicates;
use crate::roles::snapshotter::content::record::{Content, facts};

use super::{context::Context, memory::ContentKey};

/// Feeds the queue from the caches. What an earlier term has left without an answer comes first.
pub(in crate::roles::snapshotter) fn follow<K: Content>(cx: &Arc<Context<K>>, controllers: &mut Controllers) {
    for content in cx.stores.contents.own() {
        if facts::has_mark(&*content) && facts::stored_handle(&*content).is_none() {
            cx.resume_call_of(&content);
            cx.wake(&content, Cause::Changed);
        }
    }
    controllers.on_store(&cx.stores.contents, with(cx, content_changed));
    controllers.on(&cx.stores.caches.classes, with(cx, class_changed));
}

/// Wakes groups whose deletion waits for a content that needs one of their snapshots.
pub(in crate::roles::snapshotter) fn follow_members<K: Content>(cx: &Arc<Context<K>>, controllers: &mut Controllers) {
    controllers.on(&cx.stores.across.snapshots, with(cx, member_changed));
}

/// Looks at every content, in case a wake-up was ever missed.
pub(in crate::roles::snapshotter) async fn look_at_all<K: Content>(cx: &Context<K>) {
    look_at_each(cx.stores.contents.own(), |content| cx.wake(&content, Cause::Resync)).await;
}

fn class_changed<K: Content>(cx: &Context<K>, change: &Change<K::Class>) {
    let Some(class) = predicates::class_turns(change) else { return };
    for content in cx.stores.contents.find(BY_CLASS, class) {
        cx.wake(&content, Cause::Changed);
    }
}

fn member_changed<K: Content>(cx: &Context<K>, change: &Change<VolumeSnapshotContent>) {
    let Some(content) = predicates::may_let_go(change) else { return };
    for group in cx.going_groups_of(content) {
        cx.wake(&group, Cause::Changed);
    }
}

fn content_changed<K: Content>(cx: &Context<K>, change: &Change<K>) {
    if let Some(old) = change.gone() {
        gone(old, change.origin == Origin::Relist, cx);
    }
    let Some(new) = &change.new else { return };
    // Our own removal of the mark comes after the answer, when nothing is unanswered any more.
    let (uid, is_ours) = (&*new.meta().uid, change.origin == Origin::OwnWrite);
    let is_given_up = change.old.as_deref().is_some_and(|old| predicates::is_given_up(old, &**new));
    if is_given_up && cx.is_unanswered(uid) {
        warn!(content = &*new.meta().name, "somebody has removed the mark of an unanswered call: it is given up");
        cx.memory.change(uid, |memory| memory.unanswered = None);
        cx.wake(new, Cause::Changed);
    }
    let is_wiped = !is_ours && predicates::is_wiped(&**new);
    cx.memory.change(uid, |memory| memory.see(new, is_wiped));
    let is_turned = change
        .old
        .as_deref()
        .is_none_or(|old| predicates::is_turned(old, &**new) || (!is_ours && predicates::is_freed(old, &**new)));
    if is_turned || (is_wiped && cx.is_unanswered(uid)) {
        cx.wake(new, Cause::Changed);
    }
}

/// The work on a content with an unanswered call goes on to its end. Any other content is forgotten. `is_unseen`: only a list has shown
/// that it is gone, so its last version is not known.
fn gone<K: Content>(old: &Arc<K>, is_unseen: bool, cx: &Context<K>) {
    let is_unanswered = cx.memory.change(&old.meta().uid, |memory| {
        memory.unanswered.as_mut().map(|unanswered| unanswered.is_end_unseen |= is_unseen).is_some()
    });
    if is_unanswered {
        cx.add(&cx.about(Arc::clone(old), false), Cause::Changed);
    } else {
        cx.forget(&ContentKey::of(&**old));
    }
}
