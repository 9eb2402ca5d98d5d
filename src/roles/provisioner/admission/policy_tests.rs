use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::process::Clock;
use crate::roles::provisioner::admission::progress::{NodeError, Refused};
use crate::roles::provisioner::claims::state::ClaimState;
use crate::roles::provisioner::fixtures::{self, DRIVER};
use crate::roles::provisioner::names;
use crate::roles::provisioner::node::contention::{Holder, Manners};

const LATER: Duration = Duration::from_secs(9);

fn claim(edit: Value) -> Claim {
    Claim::parse(Arc::new(fixtures::claim(edit)), DRIVER)
}

fn on_node(node: &str) -> Value {
    json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } })
}

/// A claim that binds at once. Nothing else is known about it.
fn view(claim: &Claim) -> View {
    View {
        own: "node-1".to_owned(),
        claim: claim.clone(),
        class: None,
        beginning: Beginning {
            known: Arc::new(ClaimState::at_first_sight(claim.clone())),
            is_without_volume: false,
            releases: 0,
            at: Clock::system().now(),
        },
        has_to_end: false,
        ignored: None,
        race: Race::default(),
        immediate: true,
        competes: true,
        in_reach: true,
        now: Duration::ZERO,
        has_events: true,
    }
}

const MINE: Next<Step> = Next::Done;
const NOT_MINE: Next<Step> = Next::Do(Step::Leave(None));
const RETRY_LATER: Next<Step> = Next::Do(Step::Leave(Some(LATER)));
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
        (Verdict::Compete { delay: LATER }, false, RETRY_LATER),
        (Verdict::Claim, false, Next::Do(Step::AskCapacity)),
        (Verdict::Claim, true, Next::Do(Step::BecomeOwner)),
        (Verdict::Ignore, false, NOT_MINE),
        (Verdict::Mine, false, MINE),
    ] {
        assert_eq!(decide(&view(&fresh), verdict, has_room), expected, "{verdict:?}");
    }
}

#[test]
fn a_claim_of_another_node_is_left_to_it_as_long_as_there_is_that_node() {
    let held = claim(on_node("node-2"));
    for (verdict, expected) in [
        (Verdict::Begin, Next::Do(Step::BeginWait)),
        (Verdict::Other { look_again: LATER }, RETRY_LATER),
        (Verdict::AskForHolder, Next::Do(Step::AskForHolder("node-2".into()))),
        // r22: the scheduler looks at no other node.
        (Verdict::Free, Next::Do(Step::ReleaseOwnership)),
    ] {
        assert_eq!(decide(&view(&held), verdict, false), expected, "{verdict:?}");
    }
}

#[test]
fn what_our_driver_owes_and_what_is_gone_is_dealt_with_here_whoever_has_the_claim() {
    for edit in [on_node("node-2"), json!({})] {
        let claim = claim(edit);
        for verdict in ALL {
            assert_eq!(decide(&View { has_to_end: true, ..view(&claim) }, verdict, false), MINE, "{verdict:?}");
        }
    }
}

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_one_node() {
    let (nobodys, held) = (claim(json!({})), claim(on_node("node-2")));
    for why in [Ignored::Populator] {
        let at = |verdict| decide(&View { ignored: Some(why), ..view(&nobodys) }, verdict, false);
        assert_eq!(at(Verdict::Mine), MINE, "{why:?}");
        assert_eq!(at(Verdict::Begin), Next::Do(Step::BeginWait), "{why:?}");
        assert_eq!(at(Verdict::Compete { delay: LATER }), RETRY_LATER, "{why:?}");
        assert_eq!(at(Verdict::Claim), Next::Do(Step::BecomeOwner), "{why:?}: nobody asks how much room there is");
        assert_eq!(at(Verdict::Ignore), NOT_MINE, "{why:?}");
        for verdict in [Verdict::Begin, Verdict::Other { look_again: LATER }, Verdict::AskForHolder, Verdict::Free] {
            let told = View { ignored: Some(why), ..view(&held) };
            assert_eq!(decide(&told, verdict, false), NOT_MINE, "{why:?} {verdict:?}: it is that node's to tell");
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
                let ignored = View { ignored: Some(why), ..view(&claim) };
                assert_eq!(decide(&ignored, verdict, false), expected, "{why:?} {verdict:?} {what}");
            }
        }
    }
}

#[test]
fn what_the_attempt_has_found_out_comes_before_the_next_look() {
    let seen = |node: &str| claim(on_node(node));
    let manners = Manners { base: LATER, max: LATER, poll: LATER };
    let waits = |claim: &Claim| {
        let mut race = Race::default();
        race.begin(&claim.key, claim.selected_node.as_deref(), &manners, Duration::ZERO, 0.0);
        race
    };
    let (nobodys, others) = (claim(json!({})), seen("node-2"));
    let at = |claim: &Claim, now, progress: Progress| {
        next_step(&View { race: waits(claim), now: Duration::from_secs(now), ..view(claim) }, &progress)
    };
    let nothing = Progress::default;
    let holder = |node: &str, holder| Progress { holder: Some((node.to_owned(), holder)), ..Progress::default() };
    assert_eq!(at(&nobodys, 0, nothing()), RETRY_LATER);
    assert_eq!(at(&nobodys, 9, nothing()), Next::Do(Step::AskCapacity));
    assert_eq!(at(&nobodys, 9, Progress { has_room: true, ..nothing() }), Next::Do(Step::BecomeOwner));
    assert_eq!(at(&others, 0, nothing()), RETRY_LATER);
    assert_eq!(at(&others, 9, nothing()), Next::Do(Step::AskForHolder("node-2".into())));
    assert_eq!(at(&others, 9, holder("node-2", Holder::There)), Next::Do(Step::BeginWait));
    assert_eq!(at(&others, 9, holder("node-2", Holder::Gone)), Next::Do(Step::ReleaseOwnership));
    let of_another = holder("node-3", Holder::Gone);
    assert_eq!(at(&others, 9, of_another), Next::Do(Step::AskForHolder("node-2".into())), "it has another node now");
    assert_eq!(at(&seen("node-1"), 0, nothing()), MINE);
    let freed = Progress { freed: Some("node-2".to_owned()), ..nothing() };
    assert_eq!(at(&nobodys, 9, freed), Next::Do(Step::ClearJournal("node-2".into())));
    let refused = |version: Option<&str>| {
        let error = NodeError::Endless(0);
        Progress { refused: Some(Refused { version: version.map(Into::into), error }), ..nothing() }
    };
    let version = nobodys.object.metadata.resource_version.clone();
    assert_eq!(at(&nobodys, 9, refused(version.as_deref())), Next::Do(Step::ReadAgain));
    assert_eq!(at(&nobodys, 9, refused(Some("another"))), Next::Do(Step::AskCapacity), "it was read again");
    assert_eq!(at(&nobodys, 9, Progress { is_left: true, ..nothing() }), Next::Done);
}
