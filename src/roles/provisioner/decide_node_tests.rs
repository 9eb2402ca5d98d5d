//! Whose claim it is, where each node has a daemon of its own.

use super::*;
use crate::roles::provisioner::request::RequestError;

#[test]
fn a_claim_of_no_node_is_taken_after_its_turn_and_only_where_there_is_room() {
    let free = |wait, has_room| Site::Free { wait: Duration::from_secs(wait), has_room };
    let at = |site| World::fresh().planned().with(|w| w.site = site).next();
    assert_eq!(at(free(5, false)), Step::WaitTurn(Duration::from_secs(5)));
    assert_eq!(at(free(0, false)), Step::AskCapacity);
    assert_eq!(at(free(0, true)), Step::TakeClaim);
    assert_eq!(at(Site::Elsewhere { look_again: None }), Step::Ignore(Ignored::Elsewhere));
    let later = Duration::from_secs(9);
    assert_eq!(at(Site::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later));
}

#[test]
fn a_claim_of_no_node_that_cannot_be_asked_for_is_taken_and_refused_by_its_node_alone() {
    let refusal = Refusal::Request(RequestError::Selector);
    let refused = |w: &mut World| w.source = Origin::Refused(Refusal::Request(RequestError::Selector));
    let named = |w: &mut World| w.volume = Place::Taken("another's".into());
    let free = |wait, has_room| Site::Free { wait: Duration::from_secs(wait), has_room };
    let later = Duration::from_secs(9);
    for (what, world, refusal) in [
        ("refused", World::fresh().with(refused), refusal),
        ("its name is taken", World::fresh().with(named), Refusal::NameTaken("another's".into())),
    ] {
        let mut world = world;
        let mut at = |site| {
            world.site = site;
            world.next()
        };
        assert_eq!(at(free(5, false)), Step::WaitTurn(Duration::from_secs(5)), "{what}");
        assert_eq!(at(free(0, false)), Step::TakeClaim, "{what}");
        assert_eq!(at(Site::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later), "{what}");
        assert_eq!(at(Site::Here), Step::Refuse(refusal), "{what}");
    }
    // What failed when it was looked for is not looked for again before the claim is ours.
    let unread = World::fresh().with(|w| w.attributes_class = Some("fast"));
    assert_eq!(unread.with(|w| w.site = free(0, true)).next(), Step::TakeClaim);
}

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_one_node() {
    let in_tree = json!({ "metadata": { "annotations": {
        names::ANNOTATION_STORAGE_PROVISIONER: "kubernetes.io/aws-ebs", names::ANNOTATION_MIGRATED_TO: DRIVER } } });
    let populated = World::fresh().with(|w| w.source = Origin::Populator("Sample \"x\"".into()));
    let later = Duration::from_secs(9);
    for (mut world, why) in [(World::of(claim(in_tree)), Ignored::InTree), (populated, Ignored::Populator)] {
        let mut at = |site| {
            world.site = site;
            world.next()
        };
        assert_eq!(at(Site::Here), Step::Ignore(why));
        assert_eq!(at(Site::Free { wait: later, has_room: false }), Step::WaitTurn(later), "{why:?}");
        assert_eq!(at(Site::Free { wait: Duration::ZERO, has_room: false }), Step::TakeClaim, "{why:?}");
        for look_again in [None, Some(later)] {
            assert_eq!(at(Site::Elsewhere { look_again }), Step::Ignore(Ignored::Elsewhere), "{why:?}");
        }
        for site in [Site::Held, Site::Abandoned] {
            assert_eq!(at(site), Step::Ignore(Ignored::Elsewhere), "{why:?}: nothing of it is ours to free");
        }
    }
    let foreign = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: "other.csi" } } });
    let foreign = World::of(claim(foreign)).with(|w| w.site = Site::Free { wait: Duration::ZERO, has_room: false });
    assert_eq!(foreign.next(), Step::Ignore(Ignored::Foreign), "nobody is told, and nothing is written");
}

#[test]
fn what_another_node_has_begun_is_left_to_it_and_taken_off_the_claim_only_where_the_node_is_gone() {
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    let (later, free) = (Duration::from_secs(9), Site::Free { wait: Duration::ZERO, has_room: false });
    let bound = json!({ "spec": { "volumeName": "pv-9" } });
    for (what, edit) in [("wanted", json!({})), ("deleted", deleting()), ("bound", bound)] {
        let world =
            |site| World::of(claim(both(marked(), both(on_node.clone(), edit.clone())))).with(|w| w.site = site);
        let at = |site| world(site).next();
        assert_eq!(at(Site::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later), "{what}");
        assert_eq!(at(Site::Elsewhere { look_again: None }), Step::Ignore(Ignored::Elsewhere), "{what}");
        assert_eq!(at(Site::Held), Step::AskForHolder("node-2".into()), "{what}");
        assert_eq!(at(Site::Abandoned), Step::FreeClaim, "{what}");
        assert_eq!(at(free), Step::TakeClaim, "{what}");
        assert_eq!(at(Site::Here), Step::ConfirmVolume, "{what}");
        let gone = world(Site::Abandoned).with(|w| w.present = false);
        assert_eq!(gone.next(), Step::Ignore(Ignored::Gone), "{what}: by force");
    }
    let unmarked = World::of(claim(marked())).claimed(on_node.clone()).with(|w| w.site = free);
    assert_eq!(unmarked.next(), Step::LetGo, "whoever had it has ended it");
    let fresh = World::of(claim(on_node)).with(|w| w.site = Site::Abandoned);
    assert_eq!(fresh.next(), Step::FreeClaim, "r22: begun or not, the scheduler looks at no other node");
}

#[test]
fn a_claim_that_has_lost_its_node_is_still_the_node_s_that_was_written_down() {
    let intent = json!({ "v": 1, "driver": DRIVER, "class": { "name": "gold", "uid": "1" }, "node": "node-3",
        "digest": "0" });
    let written = json!({ "metadata": { "annotations": { names::ANNOTATION_PROVISIONING: intent.to_string() } } });
    let world = World::of(claim(both(marked(), written.clone()))).with(|w| w.site = Site::Held);
    assert_eq!(world.next(), Step::AskForHolder("node-3".into()));
    assert_eq!(claim(written).holder(), None, "without the mark anybody may have written it");
}

#[test]
fn the_mark_on_a_claim_with_a_volume_is_taken_off_by_its_own_node_while_there_is_one() {
    let later = Duration::from_secs(9);
    let at = |site| {
        let world = World::of(claim(marked())).with(|w| (w.site, w.volume) = (site, Place::Ours));
        world.with(|w| w.progress.phase = Phase::Saved).next()
    };
    let release = Step::Release { reschedule: false };
    assert_eq!(at(Site::Here), release);
    assert_eq!(at(Site::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later), "not by every node at once");
    assert_eq!(at(Site::Abandoned), release);
    assert_eq!(at(Site::Elsewhere { look_again: None }), release, "nobody knows whose it is");
    let released = World::of(claim(marked())).claimed(json!({})).in_phase(Phase::Saved);
    let released = released.with(|w| (w.site, w.volume) = (Site::Elsewhere { look_again: Some(later) }, Place::Ours));
    assert_eq!(released.next(), Step::LetGo);
}

#[test]
fn what_our_driver_makes_for_a_claim_that_is_another_nodes_by_now_is_deleted_and_nothing_else_of_it_touched() {
    let elsewhere = Site::Elsewhere { look_again: Some(Duration::from_secs(9)) };
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    for site in [elsewhere, Site::Held, Site::Abandoned, Site::Free { wait: Duration::ZERO, has_room: false }] {
        let given_away = |class: Value, claim: Value, phase: Phase| {
            let world = World::fresh().planned_for(class).claimed(claim).in_phase(phase);
            world.with(|w| (w.site, w.given_away) = (site, true))
        };
        let at = |phase: Phase| given_away(json!({}), both(marked(), on_node.clone()), phase);
        assert_eq!(at(Phase::Outstanding).next(), Step::Create, "{site:?}");
        let doubtful = at(Phase::Outstanding).with(|w| w.progress.doubtful = true);
        assert_eq!(doubtful.with(|w| w.progress.written = Some("news".into())).next(), Step::Create, "{site:?}");
        let deletion = Step::DeleteCreated("vol-1".into());
        assert_eq!(at(created(false)).next(), deletion, "{site:?}");
        let retained = json!({ "reclaimPolicy": "Retain" });
        assert_eq!(
            given_away(retained, on_node.clone(), created(false)).next(),
            deletion,
            "{site:?}: nobody's to keep"
        );
        assert_eq!(
            at(created(true)).next(),
            Step::SaveVolume,
            "{site:?}: it may be stored, and then it is the claim's"
        );
        assert_eq!(at(Phase::Rejected("vol-1".into())).next(), deletion, "{site:?}");
        assert_eq!(at(Phase::Ended { reschedule: true, marked: true }).next(), Step::Conclude, "{site:?}");
        let saved = World::fresh().claimed(both(marked(), on_node.clone())).in_phase(Phase::Saved);
        assert_eq!(saved.with(|w| w.site = site).next(), Step::Settled, "{site:?}: the mark is not ours");
    }
    // What was begun before this daemon is another's, until our own driver was asked for it, too.
    for (asked, expected) in [(false, Step::AskForHolder("node-2".into())), (true, Step::Create)] {
        let world = World::fresh().planned().claimed(both(marked(), on_node.clone())).in_phase(Phase::Outstanding);
        let world = world.with(|w| (w.progress.resumed, w.progress.asked) = (true, asked));
        assert_eq!(world.with(|w| (w.site, w.given_away) = (Site::Held, asked)).next(), expected, "asked: {asked}");
    }
    // The object that stands for the claim is of the other node.
    let at = |phase: Phase| World::fresh().planned().claimed(marked()).in_phase(phase);
    let anothers = |phase: Phase| at(phase).with(|w| (w.volume, w.given_away) = (Place::Anothers, true));
    assert_eq!(anothers(Phase::Outstanding).next(), Step::Create);
    assert_eq!(anothers(created(false)).next(), Step::DeleteCreated("vol-1".into()));
}
