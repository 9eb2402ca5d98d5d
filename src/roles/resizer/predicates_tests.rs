//! Tables of what wakes which job.

use serde_json::{Value, json};

use super::*;
use crate::roles::kit::fixtures::{change, merged};
use crate::roles::resizer::fixtures::{DRIVER, claim, volume, volume_value};

/// A claim of 1Gi that wants 2Gi.
fn wanting(patch: Value) -> Value {
    merged(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }), patch)
}

fn state(state: &str) -> Value {
    wanting(
        json!({ "status": { "allocatedResources": { "storage": "2Gi" }, "allocatedResourceStatuses": { "storage": state } } }),
    )
}

#[test]
fn only_changes_that_we_never_make_wake_an_expansion() {
    let done =
        wanting(json!({ "status": { "capacity": { "storage": "2Gi" }, "allocatedResources": { "storage": "2Gi" } } }));
    let failed = merged(
        state(names::CONTROLLER_RESIZE_IN_PROGRESS),
        json!({ "status": { "conditions": [{ "type": "ControllerResizeError", "status": "True", "reason": "Internal" }] } }),
    );
    let undone = wanting(json!({ "status": { "allocatedResources": { "storage": "2Gi" } } }));
    for (old, new, expected, what) in [
        (wanting(json!({})), state(names::CONTROLLER_RESIZE_IN_PROGRESS), false, "our mark"),
        (state(names::CONTROLLER_RESIZE_IN_PROGRESS), failed.clone(), false, "Z19: our error"),
        (failed, state(names::CONTROLLER_RESIZE_INFEASIBLE), false, "our refusal"),
        (state(names::CONTROLLER_RESIZE_INFEASIBLE), state(names::CONTROLLER_RESIZE_IN_PROGRESS), false, "our retry"),
        (state(names::CONTROLLER_RESIZE_IN_PROGRESS), state(names::NODE_RESIZE_PENDING), false, "left to the node"),
        (state(names::CONTROLLER_RESIZE_IN_PROGRESS), done.clone(), false, "our success"),
        (state(names::NODE_RESIZE_PENDING), state(names::NODE_RESIZE_IN_PROGRESS), false, "the node begins (Z4)"),
        (state(names::NODE_RESIZE_IN_PROGRESS), done.clone(), true, "the node is done (Z16)"),
        (state(names::NODE_RESIZE_IN_PROGRESS), state(names::NODE_RESIZE_INFEASIBLE), true, "the node gives up"),
        (state(names::CONTROLLER_RESIZE_IN_PROGRESS), undone.clone(), true, "somebody took our mark away"),
        (undone, wanting(json!({})), true, "somebody took what was begun away"),
        (done, wanting(json!({})), true, "somebody made the claim smaller"),
        (json!({}), wanting(json!({})), true, "another wish"),
        (wanting(json!({ "status": { "phase": "Pending" } })), wanting(json!({})), true, "bound"),
        (wanting(json!({})), wanting(json!({ "metadata": { "labels": { "a": "b" } } })), false, "a label (Z7)"),
        (wanting(json!({})), wanting(json!({ "metadata": { "uid": "other" } })), true, "a namesake (Z53)"),
    ] {
        assert_eq!(is_turned(&claim(old), &claim(new), Job::Expand), expected, "{what}");
    }
}

#[test]
fn only_changes_that_we_never_make_wake_a_modification() {
    let status = |class: &str, modify: Value| {
        json!({ "spec": { "volumeAttributesClassName": "b" },
            "status": { "currentVolumeAttributesClassName": class, "modifyVolumeStatus": modify } })
    };
    let in_progress = json!({ "status": names::IN_PROGRESS, "targetVolumeAttributesClassName": "b" });
    let infeasible = json!({ "status": names::INFEASIBLE, "targetVolumeAttributesClassName": "b" });
    for (old, new, expected, what) in [
        (status("a", json!(null)), status("a", in_progress.clone()), false, "our mark"),
        (status("a", in_progress.clone()), status("a", infeasible), false, "our refusal"),
        (status("a", json!(null)), status("a", json!({ "status": names::PENDING })), false, "our wait"),
        (status("a", in_progress.clone()), status("b", json!(null)), false, "our success"),
        (status("a", in_progress.clone()), status("a", json!(null)), true, "somebody took our mark away"),
        (status("a", json!(null)), status("c", json!(null)), true, "somebody says that it has another class"),
        (json!({}), status("a", json!(null)), true, "another wish"),
    ] {
        assert_eq!(is_turned(&claim(old), &claim(new), Job::Modify), expected, "{what}");
    }
}

/// Kubernetes 1.37 writes this condition when it comes, and with each first and last pod of a claim.
#[test]
fn a_claim_that_is_said_to_be_unused_wakes_no_job() {
    let told = |version: &str, status: &str, reason: &str| {
        let condition = json!({ "type": "Unused", "status": status, "reason": reason });
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": [condition] } });
        claim(wanting(patch))
    };
    let (plain, unused) = (claim(wanting(json!({}))), told("8", "True", "NoPodsUsingPVC"));
    let used = told("9", "False", "PodUsingPVC");
    for (old, new) in [(&plain, &unused), (&unused, &used), (&used, &unused)] {
        assert_eq!(old.status, new.status, "no cache holds it");
        for job in Job::ALL {
            assert!(!is_turned(old, new, job), "{job:?}");
        }
    }
}

#[test]
fn a_claim_without_a_need_never_enters_the_queue() {
    let wants = |claim_patch: Value, volume_patch: Value, job| {
        wants(&claim(claim_patch), Some(&volume(volume_patch)), job, DRIVER, Expansion::Controller)
    };
    assert!(!wants(json!({}), json!({}), Job::Expand) && wants(wanting(json!({})), json!({}), Job::Expand));
    let foreign = json!({ "spec": { "csi": { "driver": "other.csi" } } });
    assert!(!wants(wanting(json!({})), foreign, Job::Expand), "Z36");
    assert!(!super::wants(&claim(wanting(json!({}))), None, Job::Expand, DRIVER, Expansion::Controller), "Z1");
    let noted = json!({ "metadata": { "annotations": { names::ANNOTATION_PRE_RESIZE_CAPACITY: "1Gi" } } });
    assert!(wants(json!({}), noted, Job::Expand), "the note of the former size is to go");
    let class = |wanted: Value, current: Value, modify: Value, conditions: Value| {
        let claim = json!({ "spec": { "volumeAttributesClassName": wanted }, "status": {
            "currentVolumeAttributesClassName": current, "modifyVolumeStatus": modify, "conditions": conditions } });
        wants(claim, json!({}), Job::Modify)
    };
    let (none, pending) = (json!(null), json!({ "status": names::PENDING }));
    assert!(!class(none.clone(), none.clone(), none.clone(), json!([])));
    assert!(!class(json!("a"), json!("a"), none.clone(), json!([])));
    assert!(class(json!("b"), json!("a"), none.clone(), json!([])));
    assert!(class(json!("a"), json!("a"), pending.clone(), json!([])));
    assert!(!class(none.clone(), none.clone(), pending.clone(), json!([])), "rolled back");
    assert!(class(none.clone(), none, pending, json!([{ "type": "ModifyingVolume", "status": "True" }])));
}

#[test]
fn a_volume_wakes_its_claim_when_it_comes_or_becomes_anothers() {
    let plain = volume_value(json!({}));
    let turns = |old: Option<&Value>, new: Option<&Value>| volume_turns(&change(old, new));
    assert!(turns(None, Some(&plain)) && !turns(Some(&plain), None) && !turns(Some(&plain), Some(&plain)));
    for (patch, expected, what) in [
        (json!({ "metadata": { "uid": "other" } }), true, "a namesake"),
        (json!({ "spec": { "claimRef": { "uid": "other" } } }), true, "bound anew (Z30)"),
        (json!({ "spec": { "capacity": { "storage": "512Mi" } } }), true, "somebody made its record smaller"),
        (json!({ "spec": { "capacity": { "storage": "2Gi" } } }), false, "our own write"),
        (json!({ "spec": { "volumeAttributesClassName": "b" } }), false, "our own write"),
        (json!({ "metadata": { "annotations": { names::ANNOTATION_MODIFY_SECRET_NAME: "s" } } }), true, "a secret"),
    ] {
        assert_eq!(turns(Some(&plain), Some(&volume_value(patch))), expected, "{what}");
    }
}

#[test]
fn what_may_still_be_running_gets_its_turn_first() {
    let modifying = json!({ "status": { "modifyVolumeStatus": { "status": names::IN_PROGRESS } } });
    assert_eq!(order(&claim(json!({}))), [Job::Expand, Job::Modify]);
    assert_eq!(order(&claim(modifying.clone())), [Job::Modify, Job::Expand]);
    let both = merged(state(names::CONTROLLER_RESIZE_IN_PROGRESS), modifying);
    assert_eq!(order(&claim(both)), [Job::Expand, Job::Modify]);
}
