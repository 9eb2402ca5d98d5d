//! Tables of the decision on expansions that the driver has refused.

use super::*;
use crate::roles::resizer::expand::policy::waits_after;

fn refused(error: RpcError, is_recorded: bool) -> Refused {
    Refused { asked: "2147483648".to_owned(), error, is_infeasible: false, is_recorded }
}

/// While a call runs, the claim does not say that it was refused: the next leader would believe that.
#[test]
fn z14_only_a_call_that_repeats_a_refused_one_is_marked_again_and_the_mark_ends_the_word() {
    let (in_progress, infeasible) = (names::CONTROLLER_RESIZE_IN_PROGRESS, names::CONTROLLER_RESIZE_INFEASIBLE);
    let failed = |state: &str, reason: &str, begun: &str, ended: &str| {
        let at = |time: &str| (!time.is_empty()).then(|| format!("2026-01-01T00:10:{time}Z"));
        json!({ "status": {
            "allocatedResourceStatuses": { "storage": state },
            "conditions": [
                { "type": "Resizing", "status": "True", "lastTransitionTime": at(begun) },
                { "type": "ControllerResizeError", "status": "True", "reason": reason, "message": "no",
                    "lastTransitionTime": at(ended) }] } })
    };
    // The refusal may be of this very second, or of a clock that is ahead.
    for (now, begun, ended, expected) in
        [("20.9", "01", "07", "20"), ("07.9", "07", "07", "08"), ("07.1", "01", "30", "31"), ("07.1", "", "", "07")]
    {
        for (state, reason) in [(in_progress, "Internal"), (infeasible, "OutOfRange"), (infeasible, "")] {
            let claim_patch = failed(state, reason, begun, ended);
            let mut case = Case::begun(claim_patch.clone());
            // Otherwise it waits out its pause.
            case.rules.section.retry.infeasible = Duration::ZERO;
            let what = format!("{state} {reason} at {now}, refused at {ended}");
            let Step::Write(Write::BeginExpansion(begin)) = case.step() else { panic!("{what}: {:?}", case.step()) };
            assert_eq!((begin.is_fresh, begin.sets_state), (false, state == infeasible), "{what}");
            assert!(begin.removes.is_empty(), "{what}: why it was refused stays until the next answer");
            let at = format!("2026-01-01T00:10:{now}Z").parse().unwrap();
            let Some(Patch::Strategic(body)) = writes::begun(&case.claim, &begin, at) else { panic!("{what}") };
            let marked = &body["status"]["conditions"][0]["lastTransitionTime"];
            assert_eq!(*marked, format!("2026-01-01T00:10:{expected}Z"), "{what}");
            let mut called = Case::begun(failed(in_progress, reason, expected, ended));
            assert!(matches!(called.step(), Step::Expand(_)), "{what}: {:?}", called.step());
            // And it is known again how the call has ended, though the clock of this leader be behind.
            let error = RpcError { method: "/x/Y", code: Code::Internal, message: "no".to_owned() };
            let refused = refused(error, false);
            let Some(Patch::Strategic(body)) = writes::refused(&called.claim, &refused, at) else { panic!("{what}") };
            let ended = body["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap().to_owned();
            called = Case::begun(failed(in_progress, "Internal", expected, &ended[17..19]));
            assert!(matches!(called.step(), Step::Write(Write::BeginExpansion(_))), "{what}: {:?}", called.step());
        }
    }
    for reason in ["DeadlineExceeded", ""] {
        let open = Case::begun(failed(in_progress, reason, "01", "07"));
        assert!(matches!(open.step(), Step::Expand(_)), "{reason}: {:?}", open.step());
    }
    let since = Case::begun(failed(infeasible, "", "07", "01"));
    let Step::Write(Write::BeginExpansion(begin)) = since.step() else { panic!("{:?}", since.step()) };
    assert!(begin.sets_state && !begin.sets_resizing, "no call runs while the claim says infeasible");
    assert!(matches!(Case::begun(json!({})).step(), Step::Expand(_)), "a mark that changes nothing is none");
    let not_required = json!({ "metadata": { "annotations": { names::ANNOTATION_EXPANSION_NOT_REQUIRED: "true" } } });
    assert!(
        matches!(Case::begun(not_required).step(), Step::Write(Write::BeginExpansion(begin)) if begin.drops_not_required),
        "Z11"
    );
}

/// What is known of the last call to 9Gi, when the user has come down to 2Gi, and the size that the driver is asked for.
#[test]
fn i4_less_is_asked_for_only_when_the_last_call_has_certainly_ended() {
    let refused = LastCall::Refused("2026-01-01T00:09:59Z".parse().unwrap());
    let (earlier, open) = (LastCall::Earlier, LastCall::Open);
    let (in_progress, infeasible) = (names::CONTROLLER_RESIZE_IN_PROGRESS, names::CONTROLLER_RESIZE_INFEASIBLE);
    for (state, reason, last_call, expected) in [
        (in_progress, "Internal", refused, 2),
        (in_progress, "Internal", earlier, 2),
        (in_progress, "Internal", open, 9),
        (in_progress, "DeadlineExceeded", refused, 2),
        (in_progress, "DeadlineExceeded", earlier, 9),
        (in_progress, "", earlier, 9),
        (infeasible, "OutOfRange", refused, 2),
        (infeasible, "OutOfRange", earlier, 2),
        (infeasible, "OutOfRange", open, 9),
    ] {
        let mut case = Case::begun(json!({ "status": {
            "allocatedResources": { "storage": "9Gi" },
            "allocatedResourceStatuses": { "storage": state },
            "conditions": [
                { "type": "Resizing", "status": "True" },
                { "type": "ControllerResizeError", "status": "True", "reason": reason, "message": "no",
                    "lastTransitionTime": "2026-01-01T00:09:59Z" }] } }));
        case.last_call = last_call;
        let size = match case.step() {
            Step::Write(Write::BeginExpansion(begin)) => begin.allocated.as_deref() == Some("2Gi"),
            Step::Expand(expand) => expand.size == 2 * GIB,
            step => panic!("{state} {reason} {last_call:?}: {step:?}"),
        };
        assert_eq!(if size { 2 } else { 9 }, expected, "{state} {reason} {last_call:?}");
    }
}

/// What a claim says of the end of the last call, how the next one ends, and the new state and reason, if anything is written.
#[test]
fn how_an_expansion_has_ended_is_written_once() {
    let at = "2026-01-01T00:10:00Z".parse().unwrap();
    let said = |state: &str, reason: &str, message: &str| {
        claim(json!({ "status": {
            "allocatedResourceStatuses": { "storage": state },
            "conditions": [{ "type": "ControllerResizeError", "status": "True", "reason": reason,
                "message": format!("failed to expand pvc with rpc error: code = {reason} desc = {message}") }] } }))
    };
    let (in_progress, infeasible) = (names::CONTROLLER_RESIZE_IN_PROGRESS, names::CONTROLLER_RESIZE_INFEASIBLE);
    let same = json!(null);
    for (state, reason, code, message, expected) in [
        (in_progress, "Internal", Code::Internal, "id 0a1b2c3d", None),
        (in_progress, "Internal", Code::Internal, "id 99999999", None),
        (in_progress, "Internal", Code::Internal, "another text", Some((&same, "Internal"))),
        (in_progress, "Internal", Code::Aborted, "id 0a1b2c3d", Some((&same, "Aborted"))),
        (in_progress, "", Code::Internal, "id 0a1b2c3d", Some((&same, "Internal"))),
        (in_progress, "Internal", Code::OutOfRange, "id 0a1b2c3d", Some((&json!(infeasible), "OutOfRange"))),
        (infeasible, "OutOfRange", Code::OutOfRange, "id 99999999", None),
        (infeasible, "", Code::OutOfRange, "id 99999999", Some((&same, "OutOfRange"))),
        (infeasible, "OutOfRange", Code::Internal, "id 0a1b2c3d", Some((&json!(in_progress), "Internal"))),
        (infeasible, "OutOfRange", Code::Aborted, "id 0a1b2c3d", Some((&json!(in_progress), "Aborted"))),
    ] {
        let error = RpcError { method: "/x/Y", code, message: message.to_owned() };
        let refused = refused(error, false);
        let patch = writes::refused(&said(state, reason, "id 0a1b2c3d"), &refused, at);
        let found = patch.map(|patch| match patch {
            Patch::Strategic(body) => {
                let status = &body["status"];
                let reason = status["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned();
                (status["allocatedResourceStatuses"]["storage"].clone(), reason)
            }
            patch => (json!(format!("{patch:?}")), String::new()),
        });
        let expected = expected.map(|(state, reason)| (state.clone(), reason.to_owned()));
        assert_eq!(found, expected, "{state} {reason}, then {code:?} {message}");
    }
}

#[test]
fn a_refusal_for_good_is_recorded_and_one_that_leaves_all_open_is_not() {
    for number in 1..17 {
        let code = Code::from_i32(number);
        let error = RpcError { method: "/csi.v1.Controller/ControllerExpandVolume", code, message: "no".to_owned() };
        let mut case = Case::begun(json!({}));
        case.progress.refused = Some(refused(error.clone(), false));
        let is_open = [1, 4, 8, 10, 14].contains(&number);
        let expected = if is_open { Step::Fail(error.clone()) } else { Step::Write(Write::Refusal) };
        assert_eq!(case.step(), expected, "{code:?}");
        case.progress.refused = Some(refused(error.clone(), true));
        assert_eq!(case.step(), Step::Fail(error.clone()), "{code:?}");
        // Otherwise the next leader would take the outcome for known.
        let says_final = json!({ "type": "ControllerResizeError", "status": "True", "reason": "Internal" });
        let mut after = Case::begun(json!({ "status": { "conditions": [says_final] } }));
        after.progress.refused = Some(refused(error, false));
        assert_eq!(after.step(), Step::Write(Write::Refusal), "{code:?}");
    }
}

/// What is asked for, and what the user wants by then.
#[test]
fn only_the_size_that_is_still_wanted_waits_out_its_pause() {
    for (begun, wanted, code, expected) in [
        ("2Gi", "2Gi", Code::OutOfRange, true),
        ("9Gi", "2Gi", Code::OutOfRange, false),
        ("2Gi", "2Gi", Code::Internal, false),
    ] {
        let asked = json!({ "spec": { "resources": { "requests": { "storage": wanted } } },
            "status": { "allocatedResources": { "storage": begun } } });
        let case = Case::begun(asked);
        let view = view(Job::Expand, case.claim.clone(), case.volume.clone());
        assert_eq!(waits_after(&view, code), expected, "{begun}, {wanted} is wanted, {code:?}");
    }
}
