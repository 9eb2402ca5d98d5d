//! What is done about a claim whose answer is final, and about a mark that is another's.

use super::*;

#[test]
fn a_final_answer_takes_the_mark_off_and_with_it_the_node_that_is_full() {
    let on_node = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-1" } } });
    let cases = [
        (both(marked(), on_node.clone()), false, Step::Release { reschedule: false }),
        (both(marked(), on_node.clone()), true, Step::Release { reschedule: true }),
        (on_node.clone(), true, Step::Release { reschedule: true }),
        (on_node.clone(), false, Step::Conclude),
        (json!({}), true, Step::Conclude),
        (both(on_node, json!({ "spec": { "volumeName": "pv-9" } })), true, Step::Conclude),
    ];
    let ended = |edit: &Value, reschedule, marked| {
        World::fresh().claimed(edit.clone()).in_phase(At::Finished { reschedule, marked })
    };
    for (edit, reschedule, expected) in cases {
        assert_eq!(ended(&edit, reschedule, true).next(), expected, "{edit} {reschedule}");
    }
    let gone = ended(&marked(), true, true).with(|w| w.present = false);
    assert_eq!(gone.next(), Step::Conclude, "nothing is written on what is gone");
}

#[test]
fn what_was_put_on_a_claim_after_its_end_stays() {
    let ended =
        |edit: Value, reschedule, marked| World::fresh().claimed(edit).in_phase(At::Finished { reschedule, marked });
    let on = |node: &str| json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } });
    assert_eq!(ended(on("node-2"), true, true).next(), Step::Conclude, "the scheduler has chosen again already");
    let newer = ended(both(marked(), on("node-2")), true, true);
    assert_eq!(newer.next(), Step::Release { reschedule: false }, "and our mark is still there");
    let elsewhere = newer.with(|w| w.whose = Whose::Anothers);
    assert_eq!(elsewhere.next(), Step::Conclude, "or the other node's is");
    for reschedule in [false, true] {
        let unmarked = ended(both(marked(), on("node-1")), reschedule, false);
        assert_eq!(unmarked.next(), Step::Conclude, "what ended had no mark: this is another's");
    }
    assert_eq!(ended(on("node-1"), true, false).next(), Step::Release { reschedule: true });
}

#[test]
fn a_mark_that_led_to_nothing_is_taken_off_once_the_claim_is_not_wanted() {
    let world = World::fresh().claimed(both(marked(), deleting())).in_phase(At::Marked);
    assert_eq!(world.next(), Step::Release { reschedule: false }, "marked by us, and never asked for");
    let gone = world.with(|w| w.present = false);
    assert_eq!(gone.next(), Step::Ignore(Ignored::Gone));
}

#[test]
fn a_mark_that_we_did_not_put_there_is_resumed_and_never_just_taken_off() {
    for (what, edit) in
        [("wanted", json!({})), ("deleted", deleting()), ("bound", json!({ "spec": { "volumeName": "x" } }))]
    {
        for whose in [Whose::Ours, Whose::Anothers] {
            // It was not there when the claim was planned: another node, or the leader before, was first.
            let world = World::fresh().planned().claimed(both(marked(), edit.clone())).with(|w| w.whose = whose);
            assert_eq!(world.next(), Step::Resume, "{what} {whose:?}");
        }
        let left = World::fresh().planned().claimed(both(marked(), edit)).in_phase(At::Marked);
        assert_eq!(
            left.with(|w| w.whose = Whose::Anothers).next(),
            Step::Resume,
            "{what}: ours, and another node's by now"
        );
    }
    let mut resumed = World::fresh().planned().claimed(both(marked(), deleting()));
    resumed.state.apply(Change::Resumed);
    assert_eq!(resumed.next(), Step::ConfirmVolume);
    assert_eq!(resumed.with(|w| w.whose = Whose::Anothers).next(), Step::Ignore(Ignored::Elsewhere));
}

#[test]
fn what_the_driver_has_answered_is_recorded_although_the_term_ends() {
    let answered = |phase: At| World::fresh().planned().in_phase(phase).state.has_answer();
    for phase in [created(false), At::Finished { reschedule: false, marked: true }, At::Stored] {
        assert!(answered(phase.clone()), "{phase:?}");
    }
    assert!(answered(At::Discarding), "that it can't be used must stand on the claim");
    for phase in [At::Idle, At::Marked, CREATING] {
        assert!(!answered(phase.clone()), "{phase:?}: nothing is begun any more");
    }
}

#[test]
fn what_is_in_doubt_is_worked_out_anew_when_its_class_has_changed() {
    let world = |at: At| World::fresh().planned().claimed(marked()).in_phase(at).with(|w| w.is_outdated = true);
    assert_eq!(world(CREATING).next(), Step::Replan);
    assert_eq!(world(created(false)).next(), Step::CheckHandle, "the answer has come");
}
