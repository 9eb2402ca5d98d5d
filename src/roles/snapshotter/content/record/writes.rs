//! The patches of a content's metadata: P1, P3 and P4 of snapshotter spec 9. Pure.
//!
//! Each tests the uid. P1 tests all that the decision to begin rests on, so that a deletion which the cache has not seen prevents the
//! call. The snapshot-controller adds the finalizer at about the same time: a test that fails then costs one more look.

use serde_json::{Value, json};

use crate::cluster::patch::{add, escaped, remove, test};
use crate::cluster::{Meta, Patch};
use crate::roles::snapshotter::names;

use super::{facts, kind::Content};

const FINALIZERS: &str = "/metadata/finalizers";
const ANNOTATIONS: &str = "/metadata/annotations";
const POLICY: &str = "/spec/deletionPolicy";

/// P1: the content says that the driver is called, and what it is asked. `None`: it does.
///
/// While it is being deleted no finalizer can be added; one that is there still holds it.
pub fn begun<K: Content>(content: &K, intent: &str) -> Option<Patch> {
    let meta = content.meta();
    let add_finalizer = !facts::is_protected(content) && !facts::is_deleting(content);
    let add_intent = meta.annotation(names::ANNOTATION_SNAPSHOTTING) != Some(intent);
    let (uid, written) = (&*meta.uid, meta.annotation(names::ANNOTATION_CONTENT_UID));
    let is_anothers = written.is_some_and(|written| written != uid);
    if !add_finalizer && !add_intent && !is_anothers && facts::has_mark(content) {
        return None;
    }
    let mut operations = vec![test_finalizers(meta), test("/metadata/deletionTimestamp", &deletion_of(meta))];
    if meta.annotations.is_none() {
        operations.push(test(ANNOTATIONS, &Value::Null));
    } else {
        let lost = meta.annotation(K::NAMES.lost);
        operations.push(test(&annotation(K::NAMES.lost), &json!(lost)));
    }
    if add_finalizer {
        operations.push(match &meta.finalizers {
            Some(_) => add(&format!("{FINALIZERS}/-"), &json!(K::NAMES.finalizer)),
            None => add(FINALIZERS, &json!([K::NAMES.finalizer])),
        });
    }
    if meta.annotations.is_none() {
        operations.push(add(ANNOTATIONS, &json!({})));
    }
    if !facts::has_mark(content) {
        operations.push(add(&annotation(K::NAMES.mark), &json!(names::YES)));
    }
    if add_intent {
        operations.push(add(&annotation(names::ANNOTATION_SNAPSHOTTING), &json!(intent)));
    }
    if written != Some(uid) {
        operations.push(add(&annotation(names::ANNOTATION_CONTENT_UID), &json!(uid)));
    }
    guarded(meta, operations)
}

/// The content says which snapshots its group has, before the status has the group's id. `None`: it does.
pub fn listing<K: Content>(content: &K, members: &[String]) -> Option<Patch> {
    if members.is_empty() || content.unlisted_members().is_some_and(|listed| listed == members) {
        return None;
    }
    let map = content.meta().annotations.is_none().then(|| add(ANNOTATIONS, &json!({})));
    let list = add(&annotation(names::ANNOTATION_UNLISTED_MEMBERS), &json!(json!(members).to_string()));
    guarded(content.meta(), map.into_iter().chain([list]).collect())
}

/// P3: removes the mark and, unless `keep_intent`, the request. `None`: neither is there. The content's uid stays on it, so that a copy
/// of the content can always be told from it.
pub fn unmarked<K: Content>(content: &K, keep_intent: bool) -> Option<Patch> {
    guarded(content.meta(), unmarking(content, keep_intent))
}

/// P4: our finalizer leaves the content, and with it every mark of ours. `None`: it is not there.
///
/// It tests the policy as seen: after a switch to `Delete` that the watch has not shown yet, the driver must delete the snapshot first.
pub fn released<K: Content>(content: &K) -> Option<Patch> {
    let meta = content.meta();
    if !facts::is_protected(content) {
        return None;
    }
    let mut operations = vec![test_finalizers(meta), test(POLICY, &policy_of(content))];
    // From the end, so that one removal does not shift the next.
    for (index, _) in meta.finalizers().iter().enumerate().rev().filter(|(_, it)| **it == K::NAMES.finalizer) {
        operations.push(remove(&format!("{FINALIZERS}/{index}")));
    }
    operations.extend(unmarking(content, false));
    guarded(meta, operations)
}

fn unmarking<K: Content>(content: &K, keep_intent: bool) -> Vec<Value> {
    let mark = facts::has_mark(content).then_some(K::NAMES.mark);
    let intent = (facts::has_intent(content) && !keep_intent).then_some(names::ANNOTATION_SNAPSHOTTING);
    mark.into_iter().chain(intent).map(|key| remove(&annotation(key))).collect()
}

fn test_finalizers(meta: &Meta) -> Value {
    test(FINALIZERS, &json!(meta.finalizers))
}

fn policy_of<K: Content>(content: &K) -> Value {
    json!(Some(content.policy()).filter(|policy| !policy.is_empty()))
}

/// As the server writes it: to the second.
fn deletion_of(meta: &Meta) -> Value {
    json!(meta.deletion_timestamp.map(|moment| moment.timestamp().to_string()))
}

fn annotation(key: &str) -> String {
    format!("{ANNOTATIONS}/{}", escaped(key))
}

fn guarded(meta: &Meta, mut operations: Vec<Value>) -> Option<Patch> {
    if operations.is_empty() {
        return None;
    }
    operations.insert(0, test("/metadata/uid", &json!(meta.uid)));
    Some(Patch::Json(operations))
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
