//! What becomes of a request of an earlier term (J10).

use super::*;
use crate::roles::provisioner::claims::view::Evidence;

/// A claim whose request an earlier term has recorded.
fn resumed(at: At) -> World {
    let plan = Plan { unproven: Some("5".into()), ..plan(json!({})) };
    let mut world = World::fresh();
    world.state.apply(Change::Planned(Box::new(plan)));
    world.in_phase(at)
}

const EARLIER: At = At::Creating(Asker::EarlierTerm);

#[test]
fn j10_nothing_is_done_for_an_earlier_term_before_claims_and_volumes_were_listed() {
    for at in [EARLIER, At::Discarding] {
        assert_eq!(resumed(at).with(|w| w.listed = false).next(), Step::Relist);
    }
}

#[test]
fn j10_a_missing_claim_is_no_proof() {
    let own = fixtures::request(json!({}), json!({})).volume_name;
    let bound = |name: &str| claim(json!({ "spec": { "volumeName": name } }));
    for at in [EARLIER, At::Discarding] {
        let after = |history, change: &dyn Fn(&mut World)| {
            let mut world = resumed(at.clone()).with(|w| change(w));
            world.attempt.history = history;
            world.next()
        };
        let waits = |_: &mut World| {};
        let deleted = |w: &mut World| w.claim = claim(deleting());
        let gone = |w: &mut World| w.present = false;
        let elsewhere = |w: &mut World| w.claim = bound("other");
        let was_bound = |w: &mut World| w.claim = bound(&own);
        let on_another_node = |w: &mut World| {
            w.rules.per_node = true;
            w.claim = bound(&own);
            w.volume = NameStatus::OtherNode;
        };
        let on_a_node = |w: &mut World| {
            w.rules.per_node = true;
            w.claim = bound(&own);
        };
        // Another volume in its place would be an empty one.
        assert_eq!(after(None, &on_a_node), Step::ReadHistory, "{at:?}");
        assert_eq!(after(Some(Evidence::NeverStored), &on_a_node), Step::LeaveAlone, "{at:?}");
        assert_eq!(after(Some(Evidence::Stored), &on_a_node), Step::Drop, "{at:?}");
        let handed_on = |w: &mut World| {
            w.present = false;
            w.has_volume = true;
        };
        for (what, change, expected) in [
            ("it waits", &waits as &dyn Fn(&mut World), Step::Prove),
            ("it is deleted, and was never bound", &deleted, Step::Prove),
            ("it is gone", &gone, Step::ReadHistory),
            ("it is bound to another volume", &elsewhere, Step::ReadHistory),
            ("it was bound to this volume, which is gone", &was_bound, Step::Drop),
            ("its volume is another node's", &on_another_node, Step::ReadHistory),
            ("it is gone, and another claim has its PersistentVolume", &handed_on, Step::Drop),
        ] {
            assert_eq!(after(None, change), expected, "{at:?}: {what}");
            if expected == Step::ReadHistory {
                assert_eq!(after(Some(Evidence::NeverStored), change), Step::Prove, "{at:?}: {what}");
                assert_eq!(after(Some(Evidence::Stored), change), Step::Drop, "{at:?}: {what}");
                assert_eq!(after(Some(Evidence::Unknown), change), Step::LeaveAlone, "{at:?}: {what}");
            }
        }
    }
}

#[test]
fn j10_the_proof_is_needed_once() {
    for at in [EARLIER, At::Discarding] {
        let mut world = resumed(at).with(|w| w.present = false);
        world.state.apply(Change::Proven);
        assert!(!matches!(world.next(), Step::Prove | Step::LeaveAlone | Step::ReadHistory), "{:?}", world.next());
    }
}

#[test]
fn j10_a_volume_that_the_claim_has_needs_no_proof() {
    for at in [EARLIER, At::Discarding] {
        let mut world = resumed(at).with(|w| (w.volume, w.has_volume) = (NameStatus::Ours, true));
        assert_eq!(world.next(), Step::Found);
        world.state.apply(Change::Found { version: None });
        assert_eq!(world.next(), Step::Settled);
    }
}

#[test]
fn what_was_left_alone_has_come_to_its_end() {
    for at in [EARLIER, At::Discarding] {
        let mut world = resumed(at).with(|w| w.present = false);
        world.state.apply(Change::LeftAlone);
        assert_eq!(world.next(), Step::Conclude);
        world.state.apply(Change::Concluded);
        assert_eq!(world.next(), Step::Ignore(Ignored::Gone));
    }
}

#[test]
fn a_claim_whose_volume_has_gone_is_read_before_the_driver_is_called() {
    let lost = |world: World| world.with(|w| w.attempt.is_without_volume = true).next();
    assert_eq!(lost(World::fresh().planned()), Step::ReadClaim);
    assert_eq!(lost(World::fresh()), Step::Plan, "what calls no driver needs no read");
    assert_eq!(lost(World::fresh().planned().in_phase(EARLIER)), World::fresh().planned().in_phase(EARLIER).next());
}

#[test]
fn before_the_first_request_of_a_term_claims_and_volumes_are_listed() {
    let late = |world: World| world.with(|w| w.listed = false).next();
    assert_eq!(late(World::fresh().planned()), Step::Relist);
    assert_eq!(late(World::fresh()), Step::Plan, "what calls no driver needs no list");
    assert_eq!(late(World::fresh().with(|w| w.claim = claim(deleting()))), Step::Ignore(Ignored::Deleting));
}

/// A request of this term: the answer to the write of its PersistentVolume was lost.
fn unanswered(change: &dyn Fn(&mut World)) -> World {
    World::fresh().planned().in_phase(created(true)).with(|w| change(w))
}

#[test]
fn j10_a_volume_whose_first_write_was_not_answered_is_not_stored_again_after_its_claim_without_proof() {
    let own = fixtures::request(json!({}), json!({})).volume_name;
    let bound = |name: &str| claim(json!({ "spec": { "volumeName": name } }));
    let waits = |_: &mut World| {};
    let deleted = |w: &mut World| w.claim = claim(deleting());
    let gone = |w: &mut World| w.present = false;
    let elsewhere = |w: &mut World| w.claim = bound("other");
    let was_bound = |w: &mut World| w.claim = bound(&own);
    let on_a_node = |w: &mut World| {
        w.rules.per_node = true;
        w.claim = bound(&own);
    };
    let another_has_it = |w: &mut World| {
        w.present = false;
        w.has_volume = true;
    };
    for (what, change, expected) in [
        ("it waits", &waits as &dyn Fn(&mut World), Step::CheckHandle),
        ("it is deleted, and was never bound", &deleted, Step::CheckHandle),
        ("the write finds the PersistentVolume", &another_has_it, Step::CheckHandle),
        ("it is gone", &gone, Step::ReadHistory),
        ("it is bound to another volume", &elsewhere, Step::ReadHistory),
        ("it was bound to this volume, which is gone", &was_bound, Step::Drop),
        ("it was bound on some node", &on_a_node, Step::ReadHistory),
    ] {
        assert_eq!(unanswered(change).next(), expected, "{what}");
        let first = |w: &mut World| w.attempt = AttemptFacts { checked: Some(false), ..w.attempt };
        assert_eq!(unanswered(change).with(first).next(), Step::SaveVolume, "{what}: nothing was sent before");
        if expected != Step::ReadHistory {
            continue;
        }
        let after = |history| unanswered(change).with(|w| w.attempt.history = Some(history)).next();
        let never = if what == "it was bound on some node" { Step::LeaveAlone } else { Step::CheckHandle };
        assert_eq!(after(Evidence::NeverStored), never, "{what}");
        assert_eq!(after(Evidence::Stored), Step::Drop, "{what}");
        assert_eq!(after(Evidence::Unknown), Step::LeaveAlone, "{what}");
    }
}
