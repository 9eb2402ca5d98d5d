//! What the tables say of snapshots that somebody may need or have kept.

use serde_json::{Value, json};

use super::super::create::name_taken;
use super::super::progress::ContentEnd;
use super::super::progress::Left;
use super::super::tables::Case;
use super::*;
use crate::cluster::{Moment, VolumeSnapshotContent};
use crate::roles::kit::fixtures::merged;
use crate::roles::snapshotter::content::record::fixtures::{BDEL, INTENT, MARK, asked, content, cut, marked};
use crate::roles::snapshotter::content::record::intent::Intent;

fn dt(patch: Value) -> Value {
    merged(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), patch)
}

fn dt_bdel(patch: Value) -> Value {
    dt(merged(json!({ "metadata": { "annotations": { BDEL: "yes" } } }), patch))
}

fn moment(text: &str) -> Moment {
    serde_json::from_value(json!(text)).unwrap()
}

/// The driver's snapshot, cut in this second of 1970.
fn found(second: i64) -> Found {
    Found { handle: "snap-1".into(), creation_time: second * 1_000_000_000, is_dated: true, ..Found::default() }
}

fn turns() -> Step {
    Step::TakeSnapshotTurns(vec!["snap-1".into()])
}

#[test]
fn a_node_s_daemon_looks_through_all_contents_before_it_deletes() {
    let label = json!({ "metadata": { "labels": { LABEL_MANAGED_BY: "n1" } } });
    let here = || Case::of(cut(dt_bdel(label.clone()))).with(|case| case.rules.node = Some("n1".into()));
    assert_eq!(here().next(), Step::Seek("snap-1".into()));
    assert_eq!(here().with(|case| case.progress.is_sought = true).next(), turns());
    let named = || Some("VolumeSnapshotContent second".to_owned());
    let kept = here().with(|case| (case.progress.is_sought, case.progress.named_elsewhere) = (true, named()));
    assert_eq!(kept.next(), Step::ReleaseKept(Kept::NamedBy(named().unwrap())));
    assert_eq!(Case::of(cut(dt_bdel(json!({})))).next(), turns(), "one daemon has all contents in its cache");
}

/// A content with the mark of another program; our request, if it was written already, says so.
fn inherited(patch: Value, is_begun: bool) -> Case {
    let mark = json!({ "metadata": { "annotations": { MARK: "yes" } } });
    let fresh = Case::of(content(merged(mark, patch.clone())));
    let Step::Begin(asked) = fresh.next() else { panic!("{:?}", fresh.next()) };
    if !is_begun {
        return fresh;
    }
    let annotations = json!({ "metadata": { "annotations": { MARK: "yes", INTENT: asked.intent } } });
    Case::of(content(merged(annotations, patch))).with(|case| case.known.unanswered = Some(*asked))
}

#[test]
fn j9_an_older_snapshot_is_not_taken_over_by_a_content_with_the_bare_mark_of_another_program() {
    let Step::Begin(asked) = inherited(json!({}), false).next() else { panic!("nothing is begun") };
    assert!(asked.is_inherited);
    let intent: Intent = serde_json::from_str(&asked.intent).unwrap();
    assert!(intent.is_inherited, "also for a later leader");
    let answered = |patch: Value, second: i64| {
        inherited(patch, true).with(|case| {
            case.known.asked_since = Some(moment("1970-01-01T00:00:10Z"));
            case.progress.found = Some(found(second));
        })
    };
    assert_eq!(answered(json!({}), 10).next(), Step::Save(found(10)), "taken for this content");
    let wait = Step::Wait(Wait::Earlier("snap-1".into()));
    assert_eq!(answered(json!({}), 5).next(), wait);
    assert_eq!(answered(dt(json!({})), 5).next(), wait, "its snapshot lives");
    assert_eq!(answered(dt_bdel(json!({})), 5).next(), Step::ReleaseKept(Kept::Earlier("snap-1".into())));
    let own = Case::of(marked(json!({}))).unanswered().with(|case| {
        case.known.asked_since = Some(moment("1970-01-01T00:00:10Z"));
        case.progress.found = Some(found(5));
    });
    assert_eq!(own.next(), Step::Save(found(5)), "what we have begun by ourselves: the driver's clock may be late");
}

#[test]
fn l9_a_policy_that_no_watch_has_shown_counts_for_a_content_that_is_gone() {
    let gone = |is_unseen, end| {
        Case::of(marked(json!({}))).unanswered().with(|case| {
            (case.exists, case.progress.is_gone, case.progress.is_listed) = (false, true, true);
            (case.known.asked_since, case.progress.found) = (Some(moment("1970-01-01T00:00:00Z")), Some(found(5)));
            (case.known.is_end_unseen, case.progress.end) = (is_unseen, end);
        })
    };
    for (is_unseen, end, expected) in [
        (false, None, turns()),
        (true, None, Step::ReadEnd),
        (true, Some(ContentEnd::Delete), turns()),
        (true, Some(ContentEnd::Retain), Step::Abandon(Left::Retained)),
        (true, Some(ContentEnd::Unknown), Step::Abandon(Left::EndUnknown)),
    ] {
        assert_eq!(gone(is_unseen, end).next(), expected, "{is_unseen} {end:?}");
    }
    let unlisted = gone(false, None).with(|case| case.progress.is_listed = false);
    assert_eq!(unlisted.next(), Step::Relist, "the list may show that nobody has seen its end");
}

#[test]
fn a_name_that_another_snapshot_has_is_not_asked_for_unless_the_driver_was_asked_already() {
    let taken = |content: VolumeSnapshotContent| {
        Case::of(content).with(|case| case.known.namesake = Some("VolumeSnapshotContent other".into()))
    };
    let Step::Fail(Operation::Create, reason) = taken(content(json!({}))).next() else { panic!("it is asked for") };
    assert_eq!(reason, name_taken::<VolumeSnapshotContent>(&asked().request.name, "VolumeSnapshotContent other"));
    assert!(reason.to_string().contains("snapshotNameUuidLength"), "{reason}");
    assert_eq!(taken(marked(json!({}))).next(), Step::Create(Box::new(asked())));
    assert_eq!(taken(content(dt_bdel(json!({})))).next(), Step::Release, "nothing was asked");
}
