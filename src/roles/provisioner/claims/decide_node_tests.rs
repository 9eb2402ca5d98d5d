//! A claim that is another node's, where each node has a daemon of its own. Whose it is, is decided before
//! ([`crate::roles::provisioner::node::admission`]).

use super::*;

#[test]
fn what_is_told_of_a_claim_that_is_ignored_is_told_by_the_daemon_of_its_node() {
    let populated = World::fresh().with(|w| w.source = Ok(SourceStatus::Populator("Sample \"x\"".into())));
    assert_eq!(populated.next(), Step::Ignore(Ignored::Populator));
    assert_eq!(populated.with(|w| w.whose = Whose::Anothers).next(), Step::Ignore(Ignored::Elsewhere));
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
        ("refused", World::fresh().with(|w| w.source = Err(InvalidClaim::NoClass))),
        ("its name is taken", World::fresh().with(|w| w.volume = NameStatus::Conflict("another's".into()))),
    ] {
        assert_eq!(world.with(elsewhere).next(), Step::Ignore(Ignored::Elsewhere), "{what}");
    }
}

#[test]
fn what_our_driver_makes_for_a_claim_that_is_another_nodes_by_now_is_deleted_and_nothing_else_of_it_touched() {
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-2" } } });
    let given_away = |class: Value, phase: At| {
        let world = World::fresh().planned_for(class).claimed(on_node.clone()).in_phase(phase);
        world.with(|w| w.whose = Whose::GivenAway).recorded()
    };
    let at = |phase: At| given_away(json!({}), phase);
    assert_eq!(at(CREATING).next(), Step::Create);
    assert_eq!(
        at(At::Creating(Asker::EarlierTerm)).next(),
        Step::Begin,
        "our own driver was called, by an earlier term"
    );
    let deletion = Step::DeleteCreated("vol-1".into());
    assert_eq!(at(created(false)).next(), deletion);
    let retained = json!({ "reclaimPolicy": "Retain" });
    assert_eq!(given_away(retained, created(false)).next(), deletion, "the claim gets another volume");
    assert_eq!(at(created(true)).next(), Step::CheckHandle, "it may be stored, and then it is the claim's");
    assert_eq!(at(At::Discarding).next(), deletion);
    assert_eq!(at(At::Finished { reschedule: true }).next(), Step::Conclude);
    assert_eq!(at(At::Stored).next(), Step::Settled);
    // The PersistentVolume of the claim is of the other node.
    let at = |phase: At| World::fresh().planned().in_phase(phase).recorded();
    let anothers = |phase: At| at(phase).with(|w| (w.volume, w.whose) = (NameStatus::OtherNode, Whose::GivenAway));
    assert_eq!(anothers(CREATING).next(), Step::Create);
    assert_eq!(anothers(created(false)).next(), Step::DeleteCreated("vol-1".into()));
}
