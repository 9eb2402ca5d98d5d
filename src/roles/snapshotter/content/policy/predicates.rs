//! Which changes of a content or a class wake a content (snapshotter spec 3). Pure.
//!
//! A change wakes a content only if it is one that we never make ourselves. So our own marks and statuses wake nothing, whichever of
//! the write's answer and the watch's event arrives first, and back-off really backs off.

use crate::cluster::Change;
use crate::queue::epoch_of;
use crate::roles::snapshotter::content::record::{Class, ClassView, Content, facts, intent};
use crate::roles::snapshotter::names;

use super::decide::{Phase, phase};
use super::view::Rules;

/// The lane of takes and look-ups.
pub const CREATE_LANE: usize = 0;
/// The lane of deletions.
pub const DELETE_LANE: usize = 1;

/// The lane of a content.
pub fn lane(phase: Phase) -> usize {
    if phase == Phase::Delete { DELETE_LANE } else { CREATE_LANE }
}

/// Tells one piece of work on a content from the next. The next one begins without the failures of the last.
pub fn epoch<K: Content>(content: &K, phase: Phase) -> u64 {
    epoch_of((
        &*content.meta().uid,
        phase,
        facts::is_deleting(content),
        facts::has_lost_owner(content),
        content.policy(),
        content.class_name(),
        content.owner().uid.as_str(),
    ))
}

/// Whether there is something to do for the content, or to wait for.
pub fn wants<K: Content>(content: &K, class: ClassView<'_, K::Class>, rules: &Rules, is_unanswered: bool) -> bool {
    match phase(content, class, rules, is_unanswered) {
        Phase::Ignored => false,
        Phase::Finish => {
            let is_marked = facts::has_mark(content) || facts::has_intent(content) || is_unanswered;
            is_marked || facts::is_deleting(content)
        }
        Phase::Delete => facts::is_protected(content),
        Phase::ForeignClass | Phase::Copied | Phase::LookUp | Phase::Member | Phase::Create | Phase::ReadyCheck => true,
    }
}

/// Whether another writer has changed the content so that it must be looked at again.
pub fn is_turned<K: Content>(old: &K, new: &K) -> bool {
    let (was, is) = (old.meta(), new.meta());
    was.uid != is.uid
        || was.deletion_timestamp != is.deletion_timestamp
        || was.labels != is.labels
        || has_other_annotations(old, new)
        || intent::is_copied(old) != intent::is_copied(new)
        || has_other_spec(old, new)
        || is_status_turned(old, new)
}

/// Those that the snapshot-controller and people write.
fn has_other_annotations<K: Content>(old: &K, new: &K) -> bool {
    let (secret, namespace) = K::NAMES.secret;
    let read = [K::NAMES.lost, secret, namespace, names::ANNOTATION_GROUP_HANDLE];
    read.into_iter().any(|key| old.meta().annotation(key) != new.meta().annotation(key))
}

fn has_other_spec<K: Content>(old: &K, new: &K) -> bool {
    fn spec(content: &impl Content) -> impl PartialEq {
        (content.owner(), content.class_name(), content.policy(), content.sources(), content.given_handle())
    }
    spec(old) != spec(new)
}

/// We add a handle, and never to a member. We never take a handle away from a content that lives, nor its readiness.
fn is_status_turned<K: Content>(old: &K, new: &K) -> bool {
    let is_filled = |content: &K| {
        content.is_member() && facts::stored_handle(content).is_some() && facts::group_handle(content).is_some()
    };
    let handle = (facts::stored_handle(old), facts::stored_handle(new));
    let is_taken = handle.0.is_some() && handle.0 != handle.1;
    let is_unready = facts::is_ready(old) && !facts::is_ready(new);
    (!is_filled(old) && is_filled(new)) || ((is_taken || is_unready) && !facts::is_deleting(new))
}

/// Whether what an unanswered call needs was taken off the content: the request, with or without the mark, or the finalizer. The
/// snapshot-controller replaces all annotations at once, and so wipes mark and request together.
pub fn is_wiped<K: Content>(new: &K) -> bool {
    let is_unprotected = !facts::is_protected(new) && !facts::is_deleting(new);
    !facts::has_intent(new) || intent::is_copied(new) || is_unprotected
}

/// Whether another writer has removed the mark alone: people do so to give up a call that is never answered (spec 14.2).
pub fn is_given_up<K: Content>(old: &K, new: &K) -> bool {
    facts::has_mark(old) && !facts::has_mark(new) && facts::has_intent(new)
}

/// Whether a request beside another writer's mark was taken off the content: people do so to let it have an older snapshot.
pub fn is_freed<K: Content>(old: &K, new: &K) -> bool {
    intent::is_inherited(old) && !intent::is_inherited(new)
}

/// The content before a change after which it may keep its group no longer: the content is gone, or another writer has changed it.
pub fn may_let_go<K: Content>(change: &Change<K>) -> Option<&K> {
    let old = change.old.as_deref()?;
    // Our own look may just have found out which group the snapshot belongs to.
    let is_turned = |new: &K| is_turned(old, new) || facts::group_handle(old) != facts::group_handle(new);
    let is_same = change.new.as_deref().is_some_and(|new| !is_turned(new));
    Some(old).filter(|old| !is_same && facts::handle(*old).is_some())
}

/// The class whose contents must be looked at again: it is there now, or says something else.
pub fn class_turns<C: Class>(change: &Change<C>) -> Option<&str> {
    let new = change.new.as_deref()?;
    let said = |class: &C| (class.meta().uid.clone(), class.driver().to_owned(), class.parameters().clone());
    let is_same = change.old.as_deref().is_some_and(|old| said(old) == said(new));
    (!is_same).then_some(&*new.meta().name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tables::rules;
    use super::*;
    use crate::cluster::{VolumeSnapshotClass, VolumeSnapshotContent};
    use crate::roles::kit::fixtures::change;
    use crate::roles::snapshotter::content::record::fixtures::{
        BDEL, FIN, INTENT, MARK, class, content, cut, given, marked, ready,
    };

    #[test]
    fn s7_our_own_writes_wake_nothing() {
        let failing = json!({ "status": { "readyToUse": false, "error": { "message": "no" } } });
        let steps = [
            content(json!({ "metadata": { "finalizers": null, "annotations": null } })),
            marked(json!({})),
            marked(failing.clone()),
            content(failing),
            marked(json!({ "status": { "snapshotHandle": "snap-1", "readyToUse": false } })),
            cut(json!({ "metadata": { "annotations": { INTENT: "I" } } })),
            ready(json!({ "metadata": { "annotations": { INTENT: "I" } } })),
            ready(json!({})),
        ];
        for pair in steps.windows(2) {
            assert!(!is_turned(&pair[0], &pair[1]), "{:?} to {:?}", pair[0].metadata, pair[1].metadata);
        }
        let gone =
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": { BDEL: "yes" } } });
        let cleared = json!({ "status": { "snapshotHandle": null, "readyToUse": null } });
        let merged = crate::roles::kit::fixtures::merged(gone.clone(), cleared);
        assert!(!is_turned(&ready(gone), &ready(merged)), "P5");
    }

    #[test]
    fn what_others_write_wakes() {
        let turned = |patch: Value| is_turned(&cut(json!({})), &cut(patch));
        assert!(!turned(json!({})));
        for patch in [
            json!({ "metadata": { "uid": "other" } }),
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
            json!({ "metadata": { "annotations": { BDEL: "yes" } } }),
            json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOT_SECRET_NAME: "s" } } }),
            json!({ "metadata": { "labels": { names::LABEL_MANAGED_BY: "n" } } }),
            json!({ "spec": { "deletionPolicy": "Retain" } }),
            json!({ "spec": { "volumeSnapshotClassName": "slow" } }),
            json!({ "spec": { "volumeSnapshotRef": { "uid": "other" } } }),
            json!({ "status": { "snapshotHandle": null } }),
        ] {
            assert!(turned(patch.clone()), "{patch}");
        }
        assert!(is_turned(&ready(json!({})), &cut(json!({}))), "readiness taken back");
    }

    #[test]
    fn s50_a_member_that_is_filled_is_looked_at() {
        let member = json!({ "metadata": { "annotations": { names::ANNOTATION_GROUP_HANDLE: "g" } } });
        let status = json!({ "status": { "volumeGroupSnapshotHandle": "g" } });
        let filled = crate::roles::kit::fixtures::merged(member.clone(), status);
        assert!(is_turned(&content(member), &cut(filled)));
    }

    #[test]
    fn s39_what_an_unanswered_call_needs_is_missed() {
        assert!(!is_wiped(&marked(json!({}))));
        assert!(is_wiped(&marked(json!({ "metadata": { "annotations": { MARK: null, INTENT: null } } }))));
        assert!(is_wiped(&marked(json!({ "metadata": { "annotations": { INTENT: null } } }))));
        let given_up = marked(json!({ "metadata": { "annotations": { MARK: null } } }));
        assert!(!is_wiped(&given_up) && is_given_up(&marked(json!({})), &given_up));
        assert!(!is_given_up(&marked(json!({})), &content(json!({}))), "a wipe");
        assert!(is_wiped(&marked(json!({ "metadata": { "finalizers": ["other"] } }))));
    }

    #[test]
    fn s9_a_ready_content_wants_nothing() {
        let class = class(json!({}));
        let wants = |content: &VolumeSnapshotContent| {
            let class = ClassView::Ours(&class);
            super::wants(content, class, &rules(), false)
        };
        assert!(!wants(&ready(json!({}))));
        assert!(wants(&ready(json!({ "metadata": { "annotations": { MARK: "yes" } } }))));
        assert!(wants(&cut(json!({}))) && wants(&content(json!({}))) && wants(&given(json!({}))));
        assert!(!wants(&content(json!({ "spec": { "driver": "other" } }))));
        let gone = json!({ "metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": { BDEL: "yes" }, "finalizers": [FIN] } });
        assert!(wants(&ready(gone)));
        let released = json!({ "metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": { BDEL: "yes" }, "finalizers": ["other"] } });
        assert!(!wants(&ready(released)));
    }

    #[test]
    fn a_new_phase_and_another_wish_begin_without_the_failures_of_the_last() {
        let of = |content: &VolumeSnapshotContent, phase| epoch(content, phase);
        let first = of(&content(json!({})), Phase::Create);
        assert_eq!(first, of(&marked(json!({})), Phase::Create), "our own writes change nothing");
        assert_ne!(first, of(&cut(json!({})), Phase::ReadyCheck));
        for patch in [
            json!({ "metadata": { "uid": "other" } }),
            json!({ "metadata": { "annotations": { BDEL: "yes" } } }),
            json!({ "spec": { "volumeSnapshotClassName": "slow" } }),
        ] {
            assert_ne!(first, of(&content(patch.clone()), Phase::Create), "{patch}");
        }
    }

    #[test]
    fn a_content_that_goes_or_changes_may_let_the_group_of_its_snapshot_go() {
        let named = crate::roles::snapshotter::content::record::fixtures::content_value(
            json!({ "status": { "snapshotHandle": "snap-1" } }),
        );
        let mut touched = named.clone();
        touched["metadata"]["resourceVersion"] = json!("8");
        let mut going = named.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut grouped = named.clone();
        grouped["status"]["volumeGroupSnapshotHandle"] = json!("group-1");
        let of = |old: Option<&Value>, new: Option<&Value>| {
            let change = change::<VolumeSnapshotContent>(old, new);
            may_let_go(&change).and_then(facts::handle).map(str::to_owned)
        };
        assert_eq!(of(Some(&named), None).as_deref(), Some("snap-1"));
        assert_eq!(of(Some(&named), Some(&going)).as_deref(), Some("snap-1"));
        assert_eq!(of(Some(&named), Some(&grouped)).as_deref(), Some("snap-1"), "a look has said of which group it is");
        assert_eq!(of(Some(&named), Some(&touched)), None);
        assert_eq!(of(None, Some(&named)), None);
    }

    #[test]
    fn s48_a_class_that_comes_or_changes_wakes_its_contents() {
        let one = json!({ "metadata": { "name": "fast", "uid": "u" }, "driver": "demo", "parameters": { "a": "b" } });
        let mut other = one.clone();
        other["parameters"]["a"] = json!("c");
        let mut touched = one.clone();
        touched["metadata"]["resourceVersion"] = json!("8");
        let turns = |old: Option<&Value>, new: Option<&Value>| {
            class_turns::<VolumeSnapshotClass>(&change(old, new)).map(str::to_owned)
        };
        assert_eq!(turns(None, Some(&one)).as_deref(), Some("fast"));
        assert_eq!(turns(Some(&one), Some(&other)).as_deref(), Some("fast"));
        assert_eq!(turns(Some(&one), Some(&touched)), None);
        assert_eq!(turns(Some(&one), None), None);
    }
}
