//! Whose claim it is, where each node has a daemon of its own.

use super::*;
use crate::roles::provisioner::claims::request::RequestError;

#[test]
fn a_claim_of_no_node_is_taken_after_its_turn_and_only_where_there_is_room() {
    let free = |wait, has_room| Ownership::Free { wait: Duration::from_secs(wait), has_room };
    let at = |ownership| World::fresh().planned().with(|w| w.ownership = ownership).next();
    assert_eq!(at(free(5, false)), Step::WaitTurn(Duration::from_secs(5)));
    assert_eq!(at(free(0, false)), Step::AskCapacity);
    assert_eq!(at(free(0, true)), Step::BecomeOwner);
    assert_eq!(at(Ownership::Elsewhere { look_again: None }), Step::Ignore(Ignored::Elsewhere));
    let later = Duration::from_secs(9);
    assert_eq!(at(Ownership::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later));
}

#[test]
fn a_claim_of_no_node_that_cannot_be_asked_for_is_taken_and_refused_by_its_node_alone() {
    let refusal = InvalidClaim::Request(RequestError::Selector);
    let refused = |w: &mut World| w.source = SourceStatus::Refused(InvalidClaim::Request(RequestError::Selector));
    let named = |w: &mut World| w.volume = NameStatus::Conflict("another's".into());
    let free = |wait, has_room| Ownership::Free { wait: Duration::from_secs(wait), has_room };
    let later = Duration::from_secs(9);
    for (what, world, refusal) in [
        ("refused", World::fresh().with(refused), refusal),
        ("its name is taken", World::fresh().with(named), InvalidClaim::NameTaken("another's".into())),
    ] {
        let mut world = world;
        let mut at = |ownership| {
            world.ownership = ownership;
            world.next()
        };
        assert_eq!(at(free(5, false)), Step::WaitTurn(Duration::from_secs(5)), "{what}");
        assert_eq!(at(free(0, false)), Step::BecomeOwner, "{what}");
        assert_eq!(at(Ownership::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later), "{what}");
        assert_eq!(at(Ownership::Here), Step::Refuse(refusal), "{what}");
    }
    // What failed when it was looked for is not looked for again before the claim is ours.
    let unread = World::fresh().with(|w| w.attributes_class = Some("fast"));
    assert_eq!(unread.with(|w| w.ownership = free(0, true)).next(), Step::BecomeOwner);
}

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_one_node() {
    let in_tree = json!({ "metadata": { "annotations": {
        names::ANNOTATION_STORAGE_PROVISIONER: "kubernetes.io/aws-ebs", names::ANNOTATION_MIGRATED_TO: DRIVER } } });
    let populated = World::fresh().with(|w| w.source = SourceStatus::Populator("Sample \"x\"".into()));
    let later = Duration::from_secs(9);
    for (mut world, why) in [(World::of(claim(in_tree)), Ignored::InTree), (populated, Ignored::Populator)] {
        let mut at = |ownership| {
            world.ownership = ownership;
            world.next()
        };
        assert_eq!(at(Ownership::Here), Step::Ignore(why));
        assert_eq!(at(Ownership::Free { wait: later, has_room: false }), Step::WaitTurn(later), "{why:?}");
        assert_eq!(at(Ownership::Free { wait: Duration::ZERO, has_room: false }), Step::BecomeOwner, "{why:?}");
        for look_again in [None, Some(later)] {
            assert_eq!(at(Ownership::Elsewhere { look_again }), Step::Ignore(Ignored::Elsewhere), "{why:?}");
        }
        for ownership in [Ownership::Held, Ownership::Abandoned] {
            assert_eq!(at(ownership), Step::Ignore(Ignored::Elsewhere), "{why:?}: nothing of it is ours to free");
        }
    }
    let foreign = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: "other.csi" } } });
    let foreign =
        World::of(claim(foreign)).with(|w| w.ownership = Ownership::Free { wait: Duration::ZERO, has_room: false });
    assert_eq!(foreign.next(), Step::Ignore(Ignored::Foreign), "nobody is told, and nothing is written");
}

#[test]
fn what_another_node_has_begun_is_left_to_it_and_taken_off_the_claim_only_where_the_node_is_gone() {
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    let (later, free) = (Duration::from_secs(9), Ownership::Free { wait: Duration::ZERO, has_room: false });
    let bound = json!({ "spec": { "volumeName": "pv-9" } });
    for (what, edit) in [("wanted", json!({})), ("deleted", deleting()), ("bound", bound)] {
        let world = |ownership| {
            World::of(claim(both(marked(), both(on_node.clone(), edit.clone())))).with(|w| w.ownership = ownership)
        };
        let at = |ownership| world(ownership).next();
        assert_eq!(at(Ownership::Elsewhere { look_again: Some(later) }), Step::WaitTurn(later), "{what}");
        assert_eq!(at(Ownership::Elsewhere { look_again: None }), Step::Ignore(Ignored::Elsewhere), "{what}");
        assert_eq!(at(Ownership::Held), Step::AskForHolder("node-2".into()), "{what}");
        assert_eq!(at(Ownership::Abandoned), Step::ReleaseOwnership, "{what}");
        assert_eq!(at(free), Step::BecomeOwner, "{what}");
        assert_eq!(at(Ownership::Here), Step::ConfirmVolume, "{what}");
        let gone = world(Ownership::Abandoned).with(|w| w.present = false);
        assert_eq!(gone.next(), Step::Ignore(Ignored::Gone), "{what}: by force");
    }
    let unmarked = World::of(claim(marked())).claimed(on_node.clone()).with(|w| w.ownership = free);
    assert_eq!(unmarked.next(), Step::LetGo, "whoever had it has ended it");
    let fresh = World::of(claim(on_node)).with(|w| w.ownership = Ownership::Abandoned);
    assert_eq!(fresh.next(), Step::ReleaseOwnership, "r22: begun or not, the scheduler looks at no other node");
}

#[test]
fn a_claim_that_has_lost_its_node_is_still_the_node_s_that_was_written_down() {
    let intent = json!({ "v": 1, "driver": DRIVER, "class": { "name": "gold", "uid": "1" }, "node": "node-3",
        "digest": "0" });
    let written = json!({ "metadata": { "annotations": { names::ANNOTATION_PROVISIONING: intent.to_string() } } });
    let world = World::of(claim(both(marked(), written.clone()))).with(|w| w.ownership = Ownership::Held);
    assert_eq!(world.next(), Step::AskForHolder("node-3".into()));
    assert_eq!(claim(written).holder(), None, "without the mark anybody may have written it");
}

#[test]
fn the_mark_on_a_claim_with_a_volume_is_taken_off_by_its_own_node_while_there_is_one() {
    let later = Duration::from_secs(9);
    let at = |ownership| {
        let world = World::of(claim(marked())).with(|w| (w.ownership, w.volume) = (ownership, NameStatus::Ours));
        world.with(|w| w.state.apply(Change::Found)).next()
    };
    let release = Step::Release { reschedule: false };
    assert_eq!(at(Ownership::Here), release);
    assert_eq!(
        at(Ownership::Elsewhere { look_again: Some(later) }),
        Step::WaitTurn(later),
        "not by every node at once"
    );
    assert_eq!(at(Ownership::Abandoned), release);
    assert_eq!(at(Ownership::Elsewhere { look_again: None }), release, "nobody knows whose it is");
    let released = World::of(claim(marked())).claimed(json!({})).with(|w| w.state.apply(Change::Found));
    let released = released
        .with(|w| (w.ownership, w.volume) = (Ownership::Elsewhere { look_again: Some(later) }, NameStatus::Ours));
    assert_eq!(released.next(), Step::LetGo);
}

#[test]
fn what_our_driver_makes_for_a_claim_that_is_another_nodes_by_now_is_deleted_and_nothing_else_of_it_touched() {
    let elsewhere = Ownership::Elsewhere { look_again: Some(Duration::from_secs(9)) };
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    for ownership in
        [elsewhere, Ownership::Held, Ownership::Abandoned, Ownership::Free { wait: Duration::ZERO, has_room: false }]
    {
        let given_away = |class: Value, claim: Value, phase: At| {
            let world = World::fresh().planned_for(class).claimed(claim).in_phase(phase);
            world.with(|w| (w.ownership, w.given_away) = (ownership, true))
        };
        let at = |phase: At| given_away(json!({}), both(marked(), on_node.clone()), phase);
        assert_eq!(at(CREATING).next(), Step::Create, "{ownership:?}");
        let doubtful = at(CREATING).replanned(|plan| (plan.doubtful, plan.written) = (true, "news".into()));
        assert_eq!(doubtful.next(), Step::Create, "{ownership:?}");
        let deletion = Step::DeleteCreated("vol-1".into());
        assert_eq!(at(created(false)).next(), deletion, "{ownership:?}");
        let retained = json!({ "reclaimPolicy": "Retain" });
        assert_eq!(
            given_away(retained, on_node.clone(), created(false)).next(),
            deletion,
            "{ownership:?}: nobody's to keep"
        );
        assert_eq!(
            at(created(true)).next(),
            Step::CheckHandle,
            "{ownership:?}: it may be stored, and then it is the claim's"
        );
        assert_eq!(at(At::Discarding).next(), deletion, "{ownership:?}");
        assert_eq!(at(At::Finished { reschedule: true, marked: true }).next(), Step::Conclude, "{ownership:?}");
        let saved = World::fresh().claimed(both(marked(), on_node.clone())).in_phase(At::Stored);
        assert_eq!(
            saved.with(|w| w.ownership = ownership).next(),
            Step::Settled,
            "{ownership:?}: the mark is not ours"
        );
    }
    // What was begun before this daemon is another's, until our own driver was asked for it, too.
    for (asked, by, expected) in
        [(false, Asker::Another, Step::AskForHolder("node-2".into())), (true, Asker::AnotherAndUs, Step::Create)]
    {
        let world = World::fresh().planned().claimed(both(marked(), on_node.clone())).in_phase(At::Creating(by));
        assert_eq!(
            world.with(|w| (w.ownership, w.given_away) = (Ownership::Held, asked)).next(),
            expected,
            "asked: {asked}"
        );
    }
    // The object that stands for the claim is of the other node.
    let at = |phase: At| World::fresh().planned().claimed(marked()).in_phase(phase);
    let anothers = |phase: At| at(phase).with(|w| (w.volume, w.given_away) = (NameStatus::OtherNode, true));
    assert_eq!(anothers(CREATING).next(), Step::Create);
    assert_eq!(anothers(created(false)).next(), Step::DeleteCreated("vol-1".into()));
}
