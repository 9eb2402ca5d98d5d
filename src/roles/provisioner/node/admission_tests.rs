use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::roles::provisioner::fixtures::{self, DRIVER};
use crate::roles::provisioner::names;

const LATER: Duration = Duration::from_secs(9);

fn claim(edit: Value) -> Claim {
    Claim::parse(Arc::new(fixtures::claim(edit)), DRIVER)
}

fn on_node(node: &str) -> Value {
    json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } })
}

/// A claim of which nothing else is known.
fn view(claim: &Claim, verdict: Verdict) -> View<'_> {
    View { claim, has_to_end: false, ignored: None, verdict, has_room: false }
}

const MINE: Next<Step, Admission> = Next::Done(Admission::Mine);
const NOT_MINE: Next<Step, Admission> = Next::Done(Admission::NotMine);
const ALL: [Verdict; 8] = [
    Verdict::Mine,
    Verdict::Other { look_again: LATER },
    Verdict::AskForHolder,
    Verdict::Free,
    Verdict::Compete { delay: LATER },
    Verdict::Claim,
    Verdict::Ignore,
    Verdict::Begin,
];

#[test]
fn a_claim_of_no_node_is_taken_after_its_turn_and_only_where_there_is_room() {
    let fresh = claim(json!({}));
    for (verdict, has_room, expected) in [
        (Verdict::Begin, false, Next::Do(Step::BeginWait)),
        (Verdict::Compete { delay: LATER }, false, Next::Done(Admission::RetryAfter(LATER))),
        (Verdict::Claim, false, Next::Do(Step::AskCapacity)),
        (Verdict::Claim, true, Next::Do(Step::BecomeOwner)),
        (Verdict::Ignore, false, NOT_MINE),
        (Verdict::Mine, false, MINE),
    ] {
        assert_eq!(next_step(&View { has_room, ..view(&fresh, verdict) }), expected, "{verdict:?}");
    }
}

#[test]
fn a_claim_of_another_node_is_left_to_it_as_long_as_there_is_that_node() {
    let held = claim(on_node("node-2"));
    for (verdict, expected) in [
        (Verdict::Begin, Next::Do(Step::BeginWait)),
        (Verdict::Other { look_again: LATER }, Next::Done(Admission::RetryAfter(LATER))),
        (Verdict::AskForHolder, Next::Do(Step::AskForHolder("node-2".into()))),
        // r22: the scheduler looks at no other node.
        (Verdict::Free, Next::Do(Step::ReleaseOwnership)),
    ] {
        assert_eq!(next_step(&view(&held, verdict)), expected, "{verdict:?}");
    }
}

#[test]
fn what_our_driver_owes_and_what_is_gone_is_dealt_with_here_whoever_has_the_claim() {
    for edit in [on_node("node-2"), json!({})] {
        let claim = claim(edit);
        for verdict in ALL {
            assert_eq!(next_step(&View { has_to_end: true, ..view(&claim, verdict) }), MINE, "{verdict:?}");
        }
    }
}

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_one_node() {
    let (nobodys, held) = (claim(json!({})), claim(on_node("node-2")));
    for why in [Ignored::Populator] {
        let at = |verdict| next_step(&View { ignored: Some(why), ..view(&nobodys, verdict) });
        assert_eq!(at(Verdict::Mine), MINE, "{why:?}");
        assert_eq!(at(Verdict::Begin), Next::Do(Step::BeginWait), "{why:?}");
        assert_eq!(at(Verdict::Compete { delay: LATER }), Next::Done(Admission::RetryAfter(LATER)), "{why:?}");
        assert_eq!(at(Verdict::Claim), Next::Do(Step::BecomeOwner), "{why:?}: nobody asks how much room there is");
        assert_eq!(at(Verdict::Ignore), NOT_MINE, "{why:?}");
        for verdict in [Verdict::Begin, Verdict::Other { look_again: LATER }, Verdict::AskForHolder, Verdict::Free] {
            let told = View { ignored: Some(why), ..view(&held, verdict) };
            assert_eq!(next_step(&told), NOT_MINE, "{why:?} {verdict:?}: it is that node's to tell");
        }
    }
}

#[test]
fn a_claim_that_nobody_provisions_is_neither_taken_nor_freed() {
    let others = [Ignored::Bound, Ignored::Foreign, Ignored::ForeignClass, Ignored::Deleting, Ignored::NoNode];
    for why in others {
        for (edit, what) in [(json!({}), "nobody's"), (on_node("node-2"), "another's")] {
            let claim = claim(edit);
            for verdict in ALL {
                let expected = if verdict == Verdict::Mine { MINE } else { NOT_MINE };
                let ignored = View { ignored: Some(why), ..view(&claim, verdict) };
                assert_eq!(next_step(&ignored), expected, "{why:?} {verdict:?} {what}");
            }
        }
    }
}
