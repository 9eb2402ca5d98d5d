//! Tables of the decision on modifications.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::policy::step;
use super::writes;
use crate::cluster::{Patch, VolumeAttributesClass};
use crate::csi::RpcError;
use crate::roles::kit::fixtures::merged;
use crate::roles::resizer::error::{InvalidChange, Wait};
use crate::roles::resizer::fixtures::{DRIVER, claim, progress, rules, view, volume};
use crate::roles::resizer::job::Job;
use crate::roles::resizer::names;
use crate::roles::resizer::progress::{LastCall, Progress, Refused};
use crate::roles::resizer::step::{Step, Write};
use crate::roles::resizer::view::{Class, Rules};

/// What one decision is made from, and changed by a test.
struct Case {
    claim: Value,
    volume: Value,
    classes: Vec<VolumeAttributesClass>,
    is_hidden: bool,
    last_call: LastCall,
    gives_up_begun: bool,
    is_confirmed: bool,
    rules: Rules,
    progress: Progress,
}

fn class(name: &str, driver: &str) -> VolumeAttributesClass {
    serde_json::from_value(
        json!({ "metadata": { "name": name }, "driverName": driver, "parameters": { "iops": name } }),
    )
    .unwrap()
}

/// A claim whose volume has class `a`: S, M and T.
fn case(wanted: Option<&str>, state: Option<&str>, target: Option<&str>) -> Case {
    let modify = state.map(|state| json!({ "status": state, "targetVolumeAttributesClassName": target }));
    Case {
        claim: json!({ "spec": { "volumeAttributesClassName": wanted },
            "status": { "currentVolumeAttributesClassName": "a", "modifyVolumeStatus": modify } }),
        volume: json!({}),
        classes: ["a", "b", "c"].map(|name| class(name, DRIVER)).into(),
        is_hidden: false,
        last_call: LastCall::Earlier,
        gives_up_begun: false,
        is_confirmed: true,
        rules: rules(),
        progress: progress(Job::Modify),
    }
}

impl Case {
    fn with(mut self, patch: Value) -> Self {
        self.claim = merged(self.claim, patch);
        self
    }

    fn step(&self) -> Step {
        let find = |name: Option<&str>| match self.classes.iter().find(|it| Some(&*it.metadata.name) == name) {
            _ if self.is_hidden => Class::Unknown,
            Some(class) => Class::Known(Arc::new(class.clone())),
            None => Class::Missing,
        };
        let mut view = view(Job::Modify, claim(self.claim.clone()), Some(volume(self.volume.clone())));
        view.rules = Arc::new(self.rules.clone());
        view.wanted = find(view.claim.spec.volume_attributes_class_name.as_deref());
        view.begun = find(view.begun_name());
        view.is_confirmed = self.is_confirmed;
        view.memory.last_call = self.last_call;
        let missing = view.begun_name().filter(|_| self.gives_up_begun).map(str::to_owned);
        view.memory.missing = missing.map(|class| (class, view.at - self.rules.section.retry.max));
        step(&view, &self.progress).unwrap_or_else(Step::Refuse)
    }
}

const MODIFYING: &str = "ModifyingVolume";

fn told() -> Value {
    json!({ "status": { "conditions": [{ "type": MODIFYING, "status": "True" }] } })
}

/// What a claim says of the call for `b`, and of the last error.
fn ended(word: &str, reason: &str) -> Value {
    let message = match word {
        "failed" => "Modifying volume to \"b\" failed. Waiting for retry.",
        "still" => "Modifying volume to \"b\" is still in progress.",
        _ => "Modifying volume to \"b\" is in progress.",
    };
    json!({ "status": { "conditions": [{ "type": MODIFYING, "status": "True", "message": message },
        { "type": "ModifyVolumeError", "status": "True", "reason": reason }] } })
}

#[test]
fn every_row_of_the_table() {
    let begin = |class: &str| Step::Write(Write::BeginModification(class.to_owned()));
    let in_progress = Some(names::IN_PROGRESS);
    let infeasible = Some(names::INFEASIBLE);
    let refused = LastCall::Refused("2026-01-01T00:00:00Z".parse().unwrap());
    for (row, case, expected) in [
        ("2", case(Some("a"), None, None), Step::Settled),
        ("3", case(None, Some(names::PENDING), None), Step::Settled),
        ("3 (Z42)", case(None, Some(names::INFEASIBLE), Some("b")).with(told()), Step::Write(Write::Cancel)),
        ("4 uncertain (Z43, Z44)", case(Some("c"), in_progress, Some("b")), begin("b")),
        ("4 rolled back", Case { last_call: refused, ..case(None, in_progress, Some("b")) }, begin("b")),
        ("6", case(Some("b"), None, None), begin("b")),
        ("6 after Pending", case(Some("b"), Some(names::PENDING), None), begin("b")),
        ("6 back again (Z41)", case(Some("a"), Some(names::INFEASIBLE), Some("b")), begin("a")),
        ("6 another (Z40)", case(Some("c"), Some(names::INFEASIBLE), Some("b")), begin("c")),
        ("6 after a refusal", Case { last_call: refused, ..case(Some("c"), in_progress, Some("b")) }, begin("c")),
        ("6 after a refusal", Case { last_call: refused, ..case(Some("c"), infeasible, Some("b")) }, begin("c")),
        (
            "6 refused, says the claim",
            case(Some("c"), in_progress, Some("b")).with(ended("failed", "Internal")),
            begin("c"),
        ),
        ("4 a retry is open", Case { last_call: LastCall::Open, ..case(Some("c"), infeasible, Some("b")) }, begin("b")),
    ] {
        assert_eq!(case.step(), expected, "row {row}");
    }
    for (word, reason) in [("is", "Internal"), ("still", "Aborted"), ("failed", "Aborted")] {
        let runs = case(Some("c"), in_progress, Some("b")).with(ended(word, reason));
        assert!(matches!(runs.step(), Step::Modify(modify) if modify.class == "b"), "4, {word}: nobody knows");
    }
    let first = case(Some("b"), None, None).with(json!({ "status": { "currentVolumeAttributesClassName": null } }));
    assert_eq!(first.step(), begin("b"), "Z35");
}

#[test]
fn a_modify_state_that_is_not_known_begins_the_modification_anew_or_ends_if_nothing_is_wanted() {
    for state in ["Failed", "inprogress", ""] {
        assert_eq!(
            case(Some("b"), Some(state), Some("b")).step(),
            Step::Write(Write::BeginModification("b".to_owned())),
            "{state:?}"
        );
        assert_eq!(case(None, Some(state), Some("b")).step(), Step::Settled, "{state:?}");
        assert_eq!(case(None, Some(state), Some("b")).with(told()).step(), Step::Write(Write::Cancel), "{state:?}");
    }
}

#[test]
fn z38_a_class_that_is_missing_is_looked_up_once_and_then_waited_for() {
    let mut missing = case(Some("gold"), None, None);
    assert_eq!(missing.step(), Step::LookUp("gold".to_owned()));
    missing.progress.is_looked_up = true;
    let reason = InvalidChange::NoClass("gold".to_owned());
    assert_eq!(missing.step(), Step::Write(Write::Pending));
    let mut pending = case(Some("gold"), Some(names::PENDING), None);
    pending.progress.is_looked_up = true;
    assert_eq!(pending.step(), Step::Wait(Wait::Class(Box::new(reason))), "no second write");
    let hidden = Case { is_hidden: true, ..case(Some("b"), None, None) };
    assert_eq!(hidden.step(), Step::Wait(Wait::Classes), "Z47");
}

/// A case in which the class `b` is another driver's, and our sentence about it.
fn with_foreign_b(mut case: Case) -> (Case, String) {
    case.classes = vec![class("a", DRIVER), class("b", "other.csi"), class("c", DRIVER)];
    (case, format!("VAC \"b\" is for driver \"other.csi\", not \"{DRIVER}\"."))
}

#[test]
fn z48_the_class_of_another_driver_is_never_sent_to_ours_and_the_claim_says_so() {
    let (in_progress, infeasible) = (Some(names::IN_PROGRESS), Some(names::INFEASIBLE));
    let refused = LastCall::Refused("2026-01-01T00:09:59Z".parse().unwrap());
    let said = |reason: &str, message: &str| {
        json!({ "status": { "conditions": [{ "type": "ModifyVolumeError", "status": "True", "reason": reason,
            "message": message, "lastProbeTime": "2026-01-01T00:09:59Z" }] } })
    };
    let theirs = || said("InvalidArgument", "no such parameter");
    // As csi-resizer leaves a claim, too: it sends the class to its driver.
    for (what, of) in [
        ("nothing has begun", case(Some("b"), None, None)),
        ("its class was missing", case(Some("b"), Some(names::PENDING), None)),
        ("another was refused", Case { last_call: refused, ..case(Some("b"), infeasible, Some("c")) }),
        ("it may be running", case(Some("b"), in_progress, Some("b"))),
        ("the driver has refused it", case(Some("b"), infeasible, Some("b")).with(theirs())),
        ("it may be running, and nothing is wanted", case(None, in_progress, Some("b"))),
    ] {
        let (case, text) = with_foreign_b(of);
        assert!(
            matches!(case.step(), Step::Write(Write::Foreign(class, why)) if class == "b" && why.to_string() == text),
            "{what}"
        );
    }
    let told = |wanted| {
        let (case, text) = with_foreign_b(case(wanted, infeasible, Some("b")));
        Case { last_call: refused, ..case.with(said("ForeignClass", &text)) }
    };
    assert!(matches!(told(Some("b")).step(), Step::Wait(Wait::Class(_))), "once");
    assert_eq!(told(Some("c")).step(), Step::Write(Write::BeginModification("c".to_owned())), "a good one, at once");
    assert_eq!(told(None).step(), Step::Write(Write::Cancel), "a first class that is taken back");
    let anew = Case { classes: vec![class("b", DRIVER)], ..told(Some("b")) };
    assert_eq!(
        anew.step(),
        Step::Write(Write::BeginModification("b".to_owned())),
        "a class of ours under that name, at once"
    );
    let gone = Case { classes: Vec::new(), ..told(Some("b")) };
    assert_eq!(gone.step(), Step::LookUp("b".to_owned()));
    let (left, _) = with_foreign_b(case(Some("c"), in_progress, Some("b")));
    assert_eq!(
        left.step(),
        Step::Write(Write::BeginModification("c".to_owned())),
        "it can't be repeated, so it is not waited for"
    );
    let (open, _) = with_foreign_b(case(Some("b"), in_progress, Some("c")));
    assert_eq!(open.step(), Step::Write(Write::BeginModification("c".to_owned())), "what may be running comes first");
}

/// Which conditions a write leaves, removes or sets.
#[test]
fn z48_what_is_said_of_another_drivers_class_goes_with_the_class() {
    let at = "2026-01-01T00:10:00Z".parse().unwrap();
    let conditions = |patch: Option<Patch>| match patch {
        Some(Patch::Strategic(body)) => body["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| {
                format!(
                    "{} {}",
                    it["$patch"].as_str().or_else(|| it["reason"].as_str()).unwrap_or("-"),
                    it["type"].as_str().unwrap()
                )
            })
            .collect::<Vec<_>>(),
        patch => vec![format!("{patch:?}")],
    };
    let begun = claim(case(Some("b"), Some(names::IN_PROGRESS), Some("c")).with(told()).claim);
    let set = conditions(writes::foreign(&begun, "b", "not ours", at));
    assert_eq!(set, ["ForeignClass ModifyVolumeError", "delete ModifyingVolume"], "nothing is being modified");
    let said = json!({ "status": { "conditions": [{ "type": "ModifyVolumeError", "status": "True", "reason": "ForeignClass" }] } });
    let foreign = claim(case(Some("b"), Some(names::INFEASIBLE), Some("b")).with(said).claim);
    assert_eq!(conditions(writes::begun(&foreign, "b", at)), ["- ModifyingVolume", "delete ModifyVolumeError"]);
    assert_eq!(conditions(writes::cancelled(&foreign)), ["delete ModifyingVolume", "delete ModifyVolumeError"]);
}

#[test]
fn a_class_that_was_begun_and_is_gone_is_given_up_only_after_long() {
    let mut gone = case(Some("c"), Some(names::IN_PROGRESS), Some("x"));
    assert_eq!(gone.step(), Step::LookUp("x".to_owned()));
    gone.progress.is_looked_up = true;
    assert_eq!(gone.step(), Step::Refuse(InvalidChange::NoClass("x".to_owned())));
    gone.gives_up_begun = true;
    assert_eq!(gone.step(), Step::Write(Write::BeginModification("c".to_owned())));
    let mut unwanted = case(None, Some(names::IN_PROGRESS), Some("x"));
    unwanted.progress.is_looked_up = true;
    unwanted.gives_up_begun = true;
    assert_eq!(unwanted.step(), Step::Refuse(InvalidChange::NoClass("x".to_owned())), "there is no other wish");
}

#[test]
fn z40_an_infeasible_class_waits_out_its_pause() {
    let error = json!({ "status": { "conditions": [{ "type": "ModifyVolumeError", "status": "True",
        "lastProbeTime": "2026-01-01T00:09:00Z", "lastTransitionTime": "2025-12-31T00:00:00Z" }] } });
    let infeasible = case(Some("b"), Some(names::INFEASIBLE), Some("b"));
    assert_eq!(infeasible.step(), Step::Write(Write::BeginModification("b".to_owned())), "nothing says since when");
    let waits = case(Some("b"), Some(names::INFEASIBLE), Some("b")).with(error);
    assert_eq!(waits.step(), Step::Wait(Wait::Infeasible(Duration::from_secs(240))));
    let again = Case { last_call: LastCall::Refused("2026-01-01T00:09:30Z".parse().unwrap()), ..waits };
    assert_eq!(again.step(), Step::Wait(Wait::Infeasible(Duration::from_secs(270))), "counted from the last refusal");
}

/// While a call runs, the claim does not say that it was refused: the next leader would believe that.
#[test]
fn z14_a_class_that_was_refused_is_marked_again_before_the_driver_is_asked_again() {
    let told =
        |state: &str, word: &str, reason: &str| case(Some("b"), Some(state), Some("b")).with(ended(word, reason));
    let is_marked = |case: &Case| case.step() == Step::Write(Write::BeginModification("b".to_owned()));
    assert!(is_marked(&told(names::INFEASIBLE, "failed", "InvalidArgument")));
    assert!(is_marked(&told(names::IN_PROGRESS, "failed", "Internal")));
    assert!(is_marked(&told(names::PENDING, "is", "")));
    for (word, reason) in [("is", "Internal"), ("is", ""), ("still", "Aborted")] {
        assert!(matches!(told(names::IN_PROGRESS, word, reason).step(), Step::Modify(_)), "{word} {reason}: no write");
    }
    // The mark is what lets the call through.
    let at = "2026-01-01T00:10:00Z".parse().unwrap();
    let refused = claim(told(names::INFEASIBLE, "failed", "InvalidArgument").claim);
    let Some(Patch::Strategic(body)) = writes::begun(&refused, "b", at) else { panic!("no mark") };
    let status = &body["status"];
    assert_eq!(status["modifyVolumeStatus"], json!({ "status": "InProgress", "targetVolumeAttributesClassName": "b" }));
    assert_eq!(status["conditions"][0]["message"], "Modifying volume to \"b\" is in progress.");
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1, "why it was refused stays until the next answer");
}

/// What a claim says of the end of the last call, how the next one ends, and the new state, if anything is written.
#[test]
fn how_a_modification_has_ended_is_written_once() {
    let at = "2026-01-01T00:10:00Z".parse().unwrap();
    let refused = |code: Code, message: &str| Refused {
        asked: "b".to_owned(),
        error: RpcError { method: "/x/Y", code, message: message.to_owned() },
        is_infeasible: false,
        is_recorded: false,
    };
    let said = |state: &str, ended: &str, reason: &str| {
        let modifying = format!("Modifying volume to \"b\" {ended}");
        claim(json!({ "status": { "modifyVolumeStatus": { "status": state, "targetVolumeAttributesClassName": "b" },
            "conditions": [
                { "type": MODIFYING, "status": "True", "message": modifying },
                { "type": "ModifyVolumeError", "status": "True", "reason": reason, "message": "id 0a1b2c3d" }] } }))
    };
    let (failed, open) = ("failed. Waiting for retry.", "is still in progress.");
    let (in_progress, infeasible) = (names::IN_PROGRESS, names::INFEASIBLE);
    for (held, code, message, expected) in [
        (said(in_progress, failed, "Internal"), Code::Internal, "id 99999999", None),
        (said(in_progress, failed, "Internal"), Code::Internal, "another text", Some(in_progress)),
        (said(in_progress, failed, "Internal"), Code::Aborted, "id 0a1b2c3d", Some(in_progress)),
        (said(in_progress, open, "Aborted"), Code::Aborted, "id 0a1b2c3d", None),
        (said(in_progress, open, "Aborted"), Code::InvalidArgument, "id 0a1b2c3d", Some(infeasible)),
        (said(infeasible, failed, "InvalidArgument"), Code::InvalidArgument, "id 99999999", None),
        (said(infeasible, failed, "InvalidArgument"), Code::Aborted, "id 0a1b2c3d", Some(in_progress)),
    ] {
        let patch = writes::refused(&held, &refused(code, message), at);
        let state = patch.map(|patch| match patch {
            Patch::Strategic(body) => body["status"]["modifyVolumeStatus"]["status"].clone(),
            patch => json!(format!("{patch:?}")),
        });
        assert_eq!(state, expected.map(|state| json!(state)), "{code:?} {message}");
    }
}

#[test]
fn z45_z46_a_modification_is_prepared_in_order() {
    let secrets = |name: &str, namespace: &str| {
        json!({
            "metadata": { "annotations": { names::ANNOTATION_MODIFY_SECRET_NAME: name, names::ANNOTATION_MODIFY_SECRET_NAMESPACE: namespace } },
            "spec": { "csi": { "controllerExpandSecretRef": { "name": "expand", "namespace": "kube" } } },
        })
    };
    let begun = || case(Some("b"), Some(names::IN_PROGRESS), Some("b")).with(told());
    for (name, namespace, expected) in [("own", "shop", "own"), ("own", "", "expand"), ("", "shop", "expand")] {
        let case = Case { volume: secrets(name, namespace), ..begun() };
        assert!(matches!(case.step(), Step::ReadSecret(place) if place.name == expected), "{name} {namespace}");
    }
    let unconfirmed = Case { is_confirmed: false, ..begun() };
    assert_eq!(unconfirmed.step(), Step::Confirm);
    let mut ready = begun();
    let parameters = |case: &Case| match case.step() {
        Step::Modify(modify) => modify.parameters.into_iter().map(|(key, value)| format!("{key}={value}")).collect(),
        step => vec![format!("{step:?}")],
    };
    assert_eq!(parameters(&ready), ["iops=b"]);
    ready.rules.section.extra_modify_metadata = true;
    assert_eq!(
        parameters(&ready),
        [
            "csi.storage.k8s.io/pv/name=pv-1",
            "csi.storage.k8s.io/pvc/name=data",
            "csi.storage.k8s.io/pvc/namespace=default",
            "iops=b"
        ]
    );
    let cannot = Case { rules: Rules { modifies: false, ..begun().rules }, ..begun() };
    assert_eq!(cannot.step(), Step::Refuse(InvalidChange::NoModification(DRIVER.to_owned())));
}

#[test]
fn i7_an_answer_is_recorded_on_the_volume_first_and_then_on_the_claim() {
    let answered = || {
        let mut case = case(Some("c"), Some(names::IN_PROGRESS), Some("b")).with(told());
        case.progress.modified = Some("b".to_owned());
        case
    };
    assert_eq!(answered().step(), Step::Write(Write::Class("b".to_owned())));
    let written = Case { volume: json!({ "spec": { "volumeAttributesClassName": "b" } }), ..answered() };
    assert_eq!(written.step(), Step::Write(Write::Modified("b".to_owned())));
    let other =
        answered().with(json!({ "status": { "modifyVolumeStatus": { "targetVolumeAttributesClassName": "c" } } }));
    assert_eq!(other.step(), Step::DropAnswer);
}

#[test]
fn every_refusal_is_recorded_before_it_is_told() {
    for number in 1..17 {
        let error = RpcError { method: "/x/Y", code: Code::from_i32(number), message: "no".to_owned() };
        let mut case = case(Some("b"), Some(names::IN_PROGRESS), Some("b")).with(told());
        let refused = Refused { asked: "b".to_owned(), error: error.clone(), is_infeasible: false, is_recorded: false };
        case.progress.refused = Some(refused.clone());
        assert_eq!(case.step(), Step::Write(Write::Refusal), "{number}");
        case.progress.refused = Some(Refused { is_recorded: true, ..refused });
        assert_eq!(case.step(), Step::Fail(error), "{number}");
    }
}

#[test]
fn z36_what_is_not_ours_is_left_alone() {
    let mut foreign = case(Some("b"), None, None);
    foreign.volume = json!({ "spec": { "csi": { "driver": "other.csi" } } });
    assert_eq!(foreign.step(), Step::Settled);
    let mut in_tree = case(Some("b"), None, None);
    in_tree.volume = json!({ "spec": { "csi": null, "hostPath": { "path": "/" } } });
    assert_eq!(in_tree.step(), Step::Settled);
}
