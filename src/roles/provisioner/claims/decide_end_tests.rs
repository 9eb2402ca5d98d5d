//! The end of a claim whose answer is final.

use super::*;

#[test]
fn a_final_answer_removes_the_node_that_is_full() {
    let on = |node: &str| json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } });
    let bound = json!({ "spec": { "volumeName": "pv-9" } });
    let cases = [
        ("full", on("node-1"), true, Step::Reschedule),
        ("refused for another reason", on("node-1"), false, Step::Conclude),
        ("without a node", json!({}), true, Step::Conclude),
        ("the scheduler has selected another node already", on("node-2"), true, Step::Conclude),
        ("bound meanwhile", both(on("node-1"), bound), true, Step::Conclude),
    ];
    for (what, edit, reschedule, expected) in cases {
        let ended = World::fresh().claimed(edit).in_phase(At::Finished { reschedule });
        assert_eq!(ended.next(), expected, "{what}");
        assert_eq!(ended.with(|w| w.present = false).next(), Step::Conclude, "{what}: the claim is gone");
    }
}

#[test]
fn what_the_driver_has_answered_is_handled_although_the_term_ends() {
    let answered = |phase: At| World::fresh().planned().in_phase(phase).state.has_answer();
    for phase in [created(false), At::Finished { reschedule: false }, At::Stored] {
        assert!(answered(phase.clone()), "{phase:?}");
    }
    assert!(answered(At::Discarding), "the journal must say that the volume cannot be used");
    for phase in [At::Idle, CREATING] {
        assert!(!answered(phase.clone()), "{phase:?}: no new call begins");
    }
}
