//! A claim that is another node's, where each node has a daemon of its own. Whose it is, is decided before
//! ([`crate::roles::provisioner::node::admission`]).

use super::*;

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_the_daemon_of_its_node() {
    let in_tree = json!({ "metadata": { "annotations": {
        names::ANNOTATION_STORAGE_PROVISIONER: "kubernetes.io/aws-ebs", names::ANNOTATION_MIGRATED_TO: DRIVER } } });
    let populated = World::fresh().with(|w| w.source = SourceStatus::Populator("Sample \"x\"".into()));
    for (world, why) in [(World::of(claim(in_tree)), Ignored::InTree), (populated, Ignored::Populator)] {
        assert_eq!(world.next(), Step::Ignore(why));
        assert_eq!(world.with(|w| w.whose = Whose::Anothers).next(), Step::Ignore(Ignored::Elsewhere), "{why:?}");
    }
    let foreign = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: "other.csi" } } });
    let foreign = World::of(claim(foreign)).with(|w| w.whose = Whose::Anothers);
    assert_eq!(foreign.next(), Step::Ignore(Ignored::Foreign), "nobody is told");
}

#[test]
fn nothing_is_asked_for_a_claim_that_is_another_nodes_by_now() {
    let elsewhere = |w: &mut World| w.whose = Whose::Anothers;
    for (what, world) in [
        ("unseen", World::fresh()),
        ("planned", World::fresh().planned()),
        ("refused", World::fresh().with(|w| w.source = SourceStatus::Refused(InvalidClaim::NoClass))),
        ("its name is taken", World::fresh().with(|w| w.volume = NameStatus::Conflict("another's".into()))),
    ] {
        assert_eq!(world.with(elsewhere).next(), Step::Ignore(Ignored::Elsewhere), "{what}");
    }
}

#[test]
fn what_another_node_has_begun_is_left_to_it() {
    let bound = json!({ "spec": { "volumeName": "pv-9" } });
    for (what, edit) in [("wanted", json!({})), ("deleted", deleting()), ("bound", bound)] {
        let world = |whose| World::of(claim(both(marked(), edit.clone()))).with(|w| w.whose = whose);
        assert_eq!(world(Whose::Anothers).next(), Step::Ignore(Ignored::Elsewhere), "{what}");
        assert_eq!(world(Whose::Ours).next(), Step::ConfirmVolume, "{what}");
        let gone = world(Whose::Anothers).with(|w| w.present = false);
        assert_eq!(gone.next(), Step::Ignore(Ignored::Gone), "{what}: by force");
    }
    let unmarked = World::of(claim(marked())).claimed(json!({})).with(|w| w.whose = Whose::Anothers);
    assert_eq!(unmarked.next(), Step::LetGo, "whoever had it has ended it");
}

#[test]
fn the_mark_on_a_claim_of_no_node_that_has_its_volume_is_removed() {
    let world = World::of(claim(marked())).with(|w| (w.whose, w.volume) = (Whose::Anothers, NameStatus::Ours));
    let found = world.with(|w| w.state.apply(Change::Found));
    assert_eq!(found.next(), Step::Release { reschedule: false });
    let released = World::of(claim(marked())).claimed(json!({})).with(|w| w.state.apply(Change::Found));
    assert_eq!(released.with(|w| (w.whose, w.volume) = (Whose::Anothers, NameStatus::Ours)).next(), Step::LetGo);
}

#[test]
fn what_our_driver_makes_for_a_claim_that_is_another_nodes_by_now_is_deleted_and_nothing_else_of_it_touched() {
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    let given_away = |class: Value, claim: Value, phase: At| {
        let world = World::fresh().planned_for(class).claimed(claim).in_phase(phase);
        world.with(|w| w.whose = Whose::GivenAway)
    };
    let at = |phase: At| given_away(json!({}), both(marked(), on_node.clone()), phase);
    assert_eq!(at(CREATING).next(), Step::Create);
    let doubtful = at(CREATING).replanned(|plan| (plan.doubtful, plan.written) = (true, "news".into()));
    assert_eq!(doubtful.next(), Step::Create);
    let deletion = Step::DeleteCreated("vol-1".into());
    assert_eq!(at(created(false)).next(), deletion);
    let retained = json!({ "reclaimPolicy": "Retain" });
    assert_eq!(given_away(retained, on_node.clone(), created(false)).next(), deletion, "nobody's to keep");
    assert_eq!(at(created(true)).next(), Step::CheckHandle, "it may be stored, and then it is the claim's");
    assert_eq!(at(At::Discarding).next(), deletion);
    assert_eq!(at(At::Finished { reschedule: true, marked: true }).next(), Step::Conclude);
    let saved = World::fresh().claimed(both(marked(), on_node.clone())).in_phase(At::Stored);
    assert_eq!(saved.with(|w| w.whose = Whose::Anothers).next(), Step::Settled, "the mark is not ours");
    // What was begun before this daemon is another's, until our own driver was asked for it, too.
    for (whose, by, expected) in [
        (Whose::Anothers, Asker::Another, Step::Ignore(Ignored::Elsewhere)),
        (Whose::GivenAway, Asker::AnotherAndUs, Step::Create),
    ] {
        let world = World::fresh().planned().claimed(both(marked(), on_node.clone())).in_phase(At::Creating(by));
        assert_eq!(world.with(|w| w.whose = whose).next(), expected, "{whose:?}");
    }
    // The object that stands for the claim is of the other node.
    let at = |phase: At| World::fresh().planned().claimed(marked()).in_phase(phase);
    let anothers = |phase: At| at(phase).with(|w| (w.volume, w.whose) = (NameStatus::OtherNode, Whose::GivenAway));
    assert_eq!(anothers(CREATING).next(), Step::Create);
    assert_eq!(anothers(created(false)).next(), Step::DeleteCreated("vol-1".into()));
}
