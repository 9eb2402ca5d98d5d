//! The tables of snapshotter spec 4, row by row.

use serde_json::{Value, json};
use tonic::Code;

use super::super::progress::Failure;
use super::super::progress::Left;
use super::super::tables::{Case, rules};
use super::super::view::{Doomed, Kept};
use super::*;
use crate::cluster::{Moment, VolumeSnapshotContent};
use crate::csi::RpcError;
use crate::roles::kit::fixtures::merged;
use crate::roles::snapshotter::content::record::fixtures::{
    BDEL, CLASSES, DRIVER, FIN, INTENT, MARK, asked, class, content, cut, given, marked, ready,
};
use crate::roles::snapshotter::names::{
    ANNOTATION_GROUP_HANDLE, ANNOTATION_SNAPSHOT_SECRET_NAME, ANNOTATION_SNAPSHOT_SECRET_NAMESPACE,
};

const GONE: &str = "2026-01-01T00:00:00Z";

fn dt(patch: Value) -> Value {
    merged(json!({ "metadata": { "deletionTimestamp": GONE } }), patch)
}

fn dt_bdel(patch: Value) -> Value {
    dt(merged(json!({ "metadata": { "annotations": { BDEL: "yes" } } }), patch))
}

fn found(is_ready: bool) -> Found {
    let found = Found { handle: "snap-1".into(), creation_time: 5, is_dated: true, ..Found::default() };
    Found { restore_size: Some(7), is_ready, ..found }
}

fn row(content: &VolumeSnapshotContent) -> Phase {
    let class = class(json!({}));
    phase(content, ClassView::of(content, Some(&class), DRIVER), &rules(), false)
}

fn create() -> Step {
    Step::Create(Box::new(asked()))
}

#[test]
fn each_row_of_the_table_of_next_steps() {
    let member = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: "g" } } });
    let grouped = json!({ "status": { "volumeGroupSnapshotHandle": "g" } });
    let unbound = json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } });
    let without_source = json!({ "spec": { "source": { "volumeHandle": null } } });
    for (name, content, expected) in [
        ("1, another driver", content(json!({ "spec": { "driver": "other" } })), Phase::Ignored),
        ("1, no source", content(without_source), Phase::Ignored),
        ("2", given(dt(unbound.clone())), Phase::Delete),
        (
            "2, whatever the annotations",
            given(dt(merged(unbound, json!({ "metadata": { "annotations": { MARK: "yes" } } })))),
            Phase::Delete,
        ),
        ("3 (S1)", marked(dt_bdel(json!({}))), Phase::Create),
        (
            "3, ready is row 7 (S42)",
            ready(dt_bdel(json!({ "metadata": { "annotations": { MARK: "yes" } } }))),
            Phase::Finish,
        ),
        ("4", cut(dt_bdel(json!({}))), Phase::Delete),
        ("4, never begun", content(dt_bdel(json!({}))), Phase::Delete),
        ("4, given and bound (S33)", given(dt_bdel(json!({}))), Phase::Delete),
        ("5 (S30)", cut(dt(json!({}))), Phase::ReadyCheck),
        ("5, never begun", content(dt(json!({}))), Phase::Create),
        ("5, ready (S27)", ready(dt(json!({}))), Phase::Finish),
        ("6", content(json!({})), Phase::Create),
        ("7", ready(json!({})), Phase::Finish),
        ("8, given", given(json!({})), Phase::LookUp),
        ("8, member", cut(merged(member.clone(), grouped)), Phase::LookUp),
        ("9", content(member), Phase::Member),
        ("10, failed before", content(json!({ "status": { "readyToUse": false } })), Phase::Create),
        ("10, cut", cut(json!({})), Phase::ReadyCheck),
    ] {
        assert_eq!(row(&content), expected, "row {name}");
    }
}

#[test]
fn s39_what_the_process_remembers_counts_more_than_a_wiped_mark() {
    let wiped = content(dt_bdel(json!({})));
    assert_eq!(row(&wiped), Phase::Delete);
    assert_eq!(phase(&wiped, ClassView::Missing("fast"), &rules(), true), Phase::Create);
    assert_eq!(Case::of(wiped).unanswered().next(), Step::Begin(Box::new(asked())), "mark and intent come back");
    let place = json!({ "metadata": { "annotations": { ANNOTATION_SNAPSHOT_SECRET_NAME: "s",
        ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: "n" } } });
    let waits = Case::of(content(dt_bdel(place))).unanswered().with(|case| case.progress.volume_turn = None);
    assert_eq!(waits.next(), Step::Begin(Box::new(asked())), "before secret and turn, which may be long in coming");
}

#[test]
fn a_content_of_another_node_or_of_a_foreign_class_is_left_alone() {
    let here = Rules { node: Some("n1".into()), ..rules() };
    let of = |node: &str| content(json!({ "metadata": { "labels": { LABEL_MANAGED_BY: node } } }));
    assert!(is_ours(&of("n1"), &here) && !is_ours(&of("n2"), &here) && !is_ours(&content(json!({})), &here));
    let foreign = Case::of(content(json!({}))).with(|case| case.class = Some(class(json!({ "driver": "other" }))));
    assert_eq!(foreign.next(), Step::Wait(Wait::ForeignClass("other".into())));
}

#[test]
fn s29_a_snapshot_is_taken_in_the_order_that_leaks_nothing() {
    let bare = content(json!({ "metadata": { "finalizers": null, "annotations": null } }));
    let fresh = || Case::of(bare.clone());
    let waiting = fresh().with(|case| case.progress.volume_turn = None);
    assert_eq!(waiting.next(), Step::TakeTurn(vec!["vol-1".into()]));
    assert_eq!(fresh().next(), Step::Begin(Box::new(asked())), "the finalizer, the mark and the intent");
    let begun = || Case::of(marked(json!({})));
    assert_eq!(begun().with(|case| case.known.is_confirmed = false).next(), Step::Confirm);
    assert_eq!(begun().next(), create());
}

#[test]
fn s37_what_is_wrong_here_leaves_no_mark() {
    let refused = |case: Case| match case.next() {
        Step::Fail(operation, reason) => (operation, reason),
        step => panic!("{step:?}"),
    };
    let fresh = || Case::of(content(json!({}))).with(|case| case.progress.volume_turn = None);
    let missing = refused(fresh().with(|case| case.class = None));
    assert_eq!(missing, (Operation::Create, InvalidSnapshot::ClassMissing(CLASSES, "fast".into())));
    let odd = json!({ "parameters": { "csi.storage.k8s.io/odd": "x" } });
    let key = InvalidSnapshot::UnknownParameter("csi.storage.k8s.io/odd".into());
    assert_eq!(refused(fresh().with(|case| case.class = Some(class(odd)))).1, key);
    let half = json!({ "metadata": { "annotations": { crate::roles::snapshotter::names::ANNOTATION_SNAPSHOT_SECRET_NAME: "s" } } });
    let case = Case::of(content(half)).with(|case| case.progress.volume_turn = None);
    assert!(matches!(refused(case).1, InvalidSnapshot::Secret { .. }));
    let unable = refused(fresh().with(|case| case.rules.takes = false));
    assert_eq!(unable.1, InvalidSnapshot::Unsupported { driver: DRIVER.into(), capability: "CREATE_DELETE_SNAPSHOT" });
}

#[test]
fn s41_a_begun_request_is_asked_again_without_its_class() {
    for case in [Case::of(marked(json!({}))), Case::of(marked(dt_bdel(json!({}))))] {
        assert_eq!(case.with(|case| case.class = None).next(), create());
    }
}

#[test]
fn the_answer_is_recorded_before_the_mark_leaves() {
    let answered = |content, is_ready| {
        Case::of(content).unanswered().with(|case| case.progress.found = Some(found(is_ready))).next()
    };
    assert_eq!(answered(marked(json!({})), true), Step::Save(found(true)));
    let stored = json!({ "metadata": { "annotations": { MARK: "yes", INTENT: "I" } } });
    assert_eq!(answered(ready(stored.clone()), true), Step::Unmark { keep_intent: false });
    assert_eq!(answered(cut(stored), false), Step::Unmark { keep_intent: true }, "the next look needs the request");
    let over = |content, is_ready| Case::of(content).with(|case| case.progress.found = Some(found(is_ready))).next();
    assert_eq!(over(cut(json!({})), false), Step::Wait(Wait::NotReady));
    assert_eq!(over(ready(json!({})), true), Step::Settled);
}

#[test]
fn s3_s42_a_deletion_that_waited_for_the_answer_goes_on_at_once() {
    let stored = ready(dt_bdel(json!({ "metadata": { "annotations": { MARK: "yes" } } })));
    assert_eq!(Case::of(stored).next(), Step::Unmark { keep_intent: false });
    let unmarked = ready(dt_bdel(json!({})));
    assert_eq!(Case::of(unmarked).next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
    let unready = Case::of(cut(dt_bdel(json!({})))).with(|case| case.progress.found = Some(found(false)));
    assert_eq!(unready.next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]), "without waiting for readiness");
}

#[test]
fn s49_another_id_is_told_and_the_stored_one_kept() {
    let case = Case::of(cut(json!({})))
        .with(|case| case.progress.found = Some(Found { handle: "snap-2".into(), ..found(true) }));
    let reason = InvalidSnapshot::OtherSnapshot { stored: "snap-1".into(), answered: "snap-2".into() };
    assert_eq!(case.next(), Step::Fail(Operation::Ready, reason));
}

#[test]
fn s8_s9_a_snapshot_that_is_not_ready_is_asked_for_at_its_own_pace_until_it_is() {
    let unready = || Case::of(cut(json!({ "metadata": { "annotations": { INTENT: asked().intent } } })));
    assert_eq!(unready().next(), create(), "nothing is marked or written");
    let pause = std::time::Duration::from_secs(3);
    assert_eq!(unready().with(|case| case.known.pause_left = Some(pause)).next(), Step::Wait(Wait::NotDue(pause)));
    let without_turn = unready().with(|case| case.progress.volume_turn = None);
    assert_eq!(without_turn.next(), Step::TryTurn(vec!["vol-1".into()]));
    let overdue = without_turn.with(|case| case.known.is_overdue = true);
    assert_eq!(overdue.next(), Step::AwaitTurn(vec!["vol-1".into()]), "it gives way no longer");
    let sourceless = unready().with(|case| case.progress.must_look_up = true);
    assert_eq!(sourceless.next(), Step::LookUp("snap-1".into()));
    let finished = ready(json!({ "metadata": { "annotations": { INTENT: "I" } } }));
    assert_eq!(Case::of(finished).next(), Step::Unmark { keep_intent: false });
    assert_eq!(Case::of(ready(json!({}))).next(), Step::Settled);
}

#[test]
fn s11_s16_a_given_snapshot_is_looked_up_with_the_secret_of_its_class_or_believed() {
    let list = json!({ "parameters": {
        "csi.storage.k8s.io/snapshotter-list-secret-name": "s-${volumesnapshotcontent.name}",
        "csi.storage.k8s.io/snapshotter-list-secret-namespace": "kube-system" } });
    let case = || Case::of(given(json!({}))).with(|case| case.class = Some(class(list.clone())));
    let Step::ReadSecret(need) = case().next() else { panic!("no secret") };
    assert_eq!((need.place.name.as_str(), need.is_for_listing), ("s-content-1", true));
    assert_eq!(case().secret("s-content-1", "kube-system").next(), Step::LookUp("old-1".into()));
    let silent = case().with(|case| (case.rules.lists, case.class) = (false, None));
    assert_eq!(silent.next(), Step::Assume("old-1".into()), "neither class nor secret are needed");
    let asking = case().with(|case| (case.rules.lists, case.rules.gets) = (false, true));
    assert_eq!(asking.secret("s-content-1", "kube-system").next(), Step::LookUp("old-1".into()));
    let missing = case().with(|case| case.class = None);
    assert_eq!(missing.next(), Step::Fail(Operation::Ready, InvalidSnapshot::ListClassMissing(CLASSES, "fast".into())));
    let annotations = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: "g",
        crate::roles::snapshotter::names::ANNOTATION_SNAPSHOT_SECRET_NAME: "m",
        crate::roles::snapshotter::names::ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: "n" } },
        "status": { "volumeGroupSnapshotHandle": "g" } });
    let Step::ReadSecret(need) = Case::of(cut(annotations)).next() else { panic!("no secret") };
    assert_eq!((need.place.name.as_str(), need.is_for_listing), ("m", false), "a member's");
}

#[test]
fn s23_s27_s30_what_waits_for_others_waits() {
    let member = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: "g" } } });
    let waits = |content| match Case::of(content).next() {
        Step::Wait(wait) => wait,
        step => panic!("{step:?}"),
    };
    assert_eq!(waits(content(member)), Wait::Member);
    assert_eq!(waits(ready(dt(json!({})))), Wait::Snapshot, "deleted by hand: its snapshot lives");
    let unprotected = json!({ "metadata": { "finalizers": ["other"] } });
    assert_eq!(waits(content(dt(unprotected))), Wait::Unprotected, "nothing is begun that nothing would hold");
    assert_eq!(Case::of(content(dt(json!({})))).next(), Step::Begin(Box::new(asked())), "row 5: the snapshot wants it");
}

fn failed(case: Case, number: i32, is_final: bool) -> Case {
    let code = Code::from_i32(number);
    let error = RpcError { method: "/csi.v1.Controller/CreateSnapshot", code, message: "no".into() };
    let failure = Failure { operation: Operation::Create, error: error.into(), is_final, is_recorded: false };
    case.with(|case| case.progress.failure = Some(failure))
}

#[test]
fn s2_s31_only_a_final_answer_ends_the_mark() {
    let begun = || Case::of(marked(json!({}))).unanswered();
    assert_eq!(failed(begun(), 13, true).next(), Step::Unmark { keep_intent: false });
    let unmarked = failed(Case::of(content(json!({}))), 13, true);
    assert_eq!(unmarked.next(), Step::RecordError);
    assert_eq!(failed(begun(), 6, false).next(), Step::RecordError, "AlreadyExists: the mark stays");
    let recorded = failed(begun(), 6, false).with(|case| case.progress.failure.as_mut().unwrap().is_recorded = true);
    assert_eq!(recorded.next(), Step::Failed);
    let stored = cut(json!({ "metadata": { "annotations": { INTENT: "I" } } }));
    assert_eq!(failed(Case::of(stored), 13, true).next(), Step::RecordError, "the next look needs the request");
    let refused = begun().with(|case| case.known.is_refused = true);
    assert_eq!(refused.next(), Step::Unmark { keep_intent: false }, "its removal had failed");
}

#[test]
fn s54_a_ready_snapshot_is_never_taken_back() {
    assert_eq!(failed(Case::of(ready(json!({}))), 13, false).next(), Step::Failed);
}

#[test]
fn s1_s2_a_deleted_snapshot_is_asked_for_until_the_answer_is_final() {
    let deleting = || Case::of(marked(dt_bdel(json!({}))));
    assert_eq!(deleting().next(), create());
    assert_eq!(failed(deleting(), 4, false).next(), Step::RecordError);
    let refused = failed(deleting(), 13, true);
    assert_eq!(refused.next(), Step::Release, "the mark leaves with the finalizer");
    let doubtful = failed(deleting(), 13, true).with(|case| case.known.is_doubtful = true);
    let unlisted = failed(deleting(), 13, true).with(|case| (case.known.is_doubtful, case.rules.lists) = (true, false));
    assert_eq!([doubtful.next(), unlisted.next()], [Step::NameLeftovers, Step::NameLeftovers]);
    assert_eq!(Case::of(content(dt_bdel(json!({})))).next(), Step::Release, "gone without DeleteSnapshot");
}

#[test]
fn a_snapshot_of_a_policy_that_is_not_known_is_kept() {
    for policy in ["Retain", "delete", "New", ""] {
        let content = cut(dt_bdel(json!({ "spec": { "deletionPolicy": policy } })));
        assert_eq!(Case::of(content).with(|case| case.class = None).next(), Step::Release, "{policy:?}");
    }
}

#[test]
fn s4_s12_s13_s14_deletion_row_by_row() {
    let deletes = |content: VolumeSnapshotContent| Case::of(content).with(|case| case.class = None).next();
    let turn = |handle: &str| Step::TakeSnapshotTurns(vec![handle.to_owned()]);
    assert_eq!(deletes(cut(dt_bdel(json!({})))), turn("snap-1"), "a, also without its class");
    let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
    assert_eq!(deletes(cut(dt_bdel(retain.clone()))), Step::Release, "b, Retain");
    let unbound = json!({ "spec": { "volumeSnapshotRef": { "uid": "" } } });
    assert_eq!(deletes(given(dt(merged(unbound, retain)))), Step::Release, "b, unbound and Retain");
    let member = json!({ "metadata": { "annotations": { ANNOTATION_GROUP_HANDLE: "g" } } });
    assert_eq!(deletes(cut(dt_bdel(member))), Step::Release, "b, member (S23)");
    let grouped = json!({ "status": { "volumeGroupSnapshotHandle": "g" } });
    assert_eq!(deletes(cut(dt_bdel(grouped))), Step::Release, "b, of a group");
    let released = json!({ "metadata": { "finalizers": ["other"] } });
    assert_eq!(deletes(cut(dt_bdel(released))), Step::Settled, "our part is done");
    let refused = Case::of(cut(dt_bdel(json!({})))).with(|case| case.known.is_of_group = true);
    assert_eq!(refused.next(), Step::Release, "an answer has named its group");
}

#[test]
fn s33_a_given_snapshot_is_deleted_by_its_own_id() {
    let never_looked_up = Case::of(given(dt_bdel(json!({}))));
    assert_eq!(never_looked_up.next(), Step::TakeSnapshotTurns(vec!["old-1".into()]));
}

#[test]
fn a_snapshot_that_another_content_names_is_kept_when_the_first_one_goes() {
    let going = || Case::of(cut(dt_bdel(json!({}))));
    let named = going().with(|case| case.known.named_by = Some("second".into()));
    assert_eq!(named.next(), Step::ReleaseKept(Kept::NamedBy("second".into())));
    let unlisted = going().with(|case| case.known.is_relisted = false);
    assert_eq!(unlisted.next(), Step::Relist, "a new leader's watch may hide the other one");
    let retained = Case::of(cut(dt_bdel(json!({ "spec": { "deletionPolicy": "Retain" } }))));
    assert_eq!(retained.with(|case| case.known.named_by = Some("second".into())).next(), Step::Release);
}

#[test]
fn a_mark_beside_a_handle_holds_up_neither_the_deletion_nor_the_looks() {
    let mark = json!({ "metadata": { "annotations": { MARK: "yes", INTENT: "I" } } });
    for content in [cut(mark.clone()), cut(dt_bdel(mark.clone()))] {
        assert_eq!(Case::of(content).next(), Step::Unmark { keep_intent: true });
    }
    for content in [given(mark.clone()), given(dt_bdel(mark))] {
        assert_eq!(Case::of(content).next(), Step::Unmark { keep_intent: false });
    }
    let unmarked = Case::of(cut(dt_bdel(json!({ "metadata": { "annotations": { INTENT: "I" } } }))));
    assert_eq!(unmarked.next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
}

#[test]
fn i2_a_look_without_an_answer_is_repeated_before_the_deletion() {
    let going = |patch: Value| Case::of(cut(dt_bdel(patch))).with(|case| case.known.is_late = true);
    let asks = going(json!({}));
    assert_eq!(asks.next(), create());
    let waits = asks.with(|case| case.progress.volume_turn = None);
    assert_eq!(waits.next(), Step::TakeTurn(vec!["vol-1".into()]));
    let answered = waits.with(|case| case.known.is_late = false);
    assert_eq!(answered.next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
    // The request cannot be made again; then, the snapshot is kept.
    let classless = going(json!({})).with(|case| case.class = None);
    assert_eq!(classless.next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
    assert_eq!(going(json!({ "spec": { "deletionPolicy": "Retain" } })).next(), Step::Release);
}

#[test]
fn j9_a_copy_is_left_alone_and_released_without_a_call() {
    let copied = json!({ "metadata": { "uid": "restored" } });
    let status = json!({ "status": { "snapshotHandle": "snap-1", "readyToUse": true } });
    for content in [copied.clone(), merged(copied, status)] {
        assert_eq!(Case::of(marked(content.clone())).next(), Step::Wait(Wait::Copied));
        let kept = Step::ReleaseKept(Kept::OfAnother);
        assert_eq!(Case::of(marked(dt(content.clone()))).next(), kept);
        assert_eq!(Case::of(marked(dt_bdel(content.clone()))).next(), kept);
        let asked = Case::of(marked(content)).unanswered();
        assert_ne!(asked.next(), Step::Wait(Wait::Copied), "what the process has asked by itself is no copy");
    }
}

#[test]
fn i6_the_content_is_read_before_its_snapshot_is_deleted_and_the_status_is_cleared_before_others_see_it() {
    let locks = crate::csi::SnapshotLocks::new(crate::process::Clock::system());
    let at_turn = |content| {
        let turn = locks.clone();
        Case::of(content).with(|case| {
            case.progress.snapshot_turns = Vec::from_iter(futures::FutureExt::now_or_never(turn.exclusive("snap-1")));
        })
    };
    assert_eq!(at_turn(ready(dt_bdel(json!({})))).next(), Step::Confirm);
    let confirmed = at_turn(ready(dt_bdel(json!({})))).with(|case| case.progress.is_confirmed = true);
    assert_eq!(confirmed.next(), Step::Delete(Doomed { handle: "snap-1".into(), members: Vec::new() }));
    let deleted = |content| Case::of(content).with(|case| case.known.is_deleted = true);
    assert_eq!(deleted(ready(dt_bdel(json!({})))).next(), Step::Release, "the object goes with the finalizer");
    let kept = json!({ "metadata": { "finalizers": [FIN, "other"] } });
    assert_eq!(deleted(ready(dt_bdel(kept.clone()))).next(), Step::Clear);
    assert_eq!(deleted(content(dt_bdel(kept))).next(), Step::Release);
}

#[test]
fn s18_a_deletion_goes_without_its_secret_only_where_that_is_allowed() {
    use crate::roles::snapshotter::names::{ANNOTATION_SNAPSHOT_SECRET_NAME, ANNOTATION_SNAPSHOT_SECRET_NAMESPACE};
    let half = json!({ "metadata": { "annotations": { ANNOTATION_SNAPSHOT_SECRET_NAME: "s" } } });
    let case = Case::of(cut(dt_bdel(half.clone())));
    assert!(matches!(case.next(), Step::Fail(Operation::Delete, InvalidSnapshot::Secret { .. })));
    let allowed = Case::of(cut(dt_bdel(half))).with(|case| case.rules.delete_without_secret = true);
    assert_eq!(allowed.next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
    let both = json!({ "metadata": { "annotations": {
        ANNOTATION_SNAPSHOT_SECRET_NAME: "s", ANNOTATION_SNAPSHOT_SECRET_NAMESPACE: "n" } } });
    assert!(matches!(Case::of(cut(dt_bdel(both.clone()))).next(), Step::ReadSecret(_)));
    let elsewhere = Case::of(cut(dt_bdel(both))).with(|case| case.rules.secret_namespaces = vec!["m".into()]);
    assert!(matches!(elsewhere.next(), Step::Fail(Operation::Delete, InvalidSnapshot::Secret { .. })));
}

fn moment(text: &str) -> Moment {
    serde_json::from_value(json!(text)).unwrap()
}

#[test]
fn l9_a_snapshot_is_deleted_without_its_content_only_if_it_was_taken_after_that_was_made() {
    let made = moment("2026-01-01T00:00:10Z");
    let next = |taken: Option<&str>, made: Option<Moment>| {
        let time = taken.map(|text| i64::try_from(moment(text).timestamp().as_nanosecond()).unwrap());
        let found = Found { creation_time: time.unwrap_or(i64::MAX), is_dated: time.is_some(), ..found(true) };
        let case = Case::of(marked(json!({}))).unanswered().with(|case| {
            (case.exists, case.progress.is_gone, case.progress.found) = (false, true, Some(found));
            (case.known.asked_since, case.progress.is_listed) = (made, true);
        });
        case.next()
    };
    let deleted = || Step::TakeSnapshotTurns(vec!["snap-1".into()]);
    let kept = || Step::Abandon(Left::MaybeKept);
    for (taken, made, expected, what) in [
        (Some("2026-01-01T00:00:10Z"), Some(made), deleted(), "in the same second"),
        (Some("2026-01-01T00:00:11Z"), Some(made), deleted(), "later"),
        (Some("2026-01-01T00:00:09Z"), Some(made), deleted(), "a driver may round"),
        (Some("2026-01-01T00:00:08Z"), Some(made), kept(), "it was there before"),
        (None, Some(made), kept(), "the driver does not say how old it is"),
        (Some("2026-01-01T00:00:11Z"), None, kept(), "nobody knows how old the content is"),
    ] {
        assert_eq!(next(taken, made), expected, "{what}");
    }
}

#[test]
fn s52_what_was_removed_by_force_is_asked_to_the_end_and_deleted_unless_another_has_it() {
    let gone = |patch: Value| {
        Case::of(marked(patch)).unanswered().with(|case| (case.exists, case.progress.is_gone) = (false, true))
    };
    let left = |case: Case| match case.next() {
        Step::Abandon(left) => left,
        step => panic!("{step:?}"),
    };
    let fresh = gone(json!({})).with(|case| case.progress.is_gone = false);
    assert_eq!(fresh.next(), Step::Confirm, "the API itself must say so");
    assert_eq!(gone(json!({})).next(), create());
    let answered = |patch| {
        gone(patch).with(|case| {
            case.progress.found = Some(found(false));
            (case.known.asked_since, case.progress.is_listed) = (Some(moment("1970-01-01T00:00:00Z")), true);
        })
    };
    assert_eq!(answered(json!({})).next(), Step::TakeSnapshotTurns(vec!["snap-1".into()]));
    let given_away = answered(json!({})).with(|case| (case.progress.is_gone, case.progress.is_others) = (false, true));
    assert_eq!(left(given_away), Left::ToOtherNode, "nothing is asked or deleted for what is another node's");
    let unlisted = answered(json!({})).with(|case| case.progress.is_listed = false);
    assert_eq!(unlisted.next(), Step::Relist, "a content that has the snapshot may not be seen yet");
    assert_eq!(left(answered(json!({ "spec": { "deletionPolicy": "Retain" } }))), Left::Retained);
    assert_eq!(left(answered(json!({})).with(|case| case.known.has_heir = true)), Left::ToHeir, "S52");
    assert_eq!(left(answered(json!({})).with(|case| case.known.is_deleted = true)), Left::Deleted);
    let unknown = answered(json!({})).with(|case| case.known.is_kind_absent = true);
    assert_eq!(unknown.next(), Step::Settled, "nothing follows from a definition that was deleted");
    let answered_before = Case::of(cut(json!({}))).with(|case| case.exists = false);
    assert_eq!(answered_before.next(), Step::Settled);
}
