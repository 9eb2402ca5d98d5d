//! Tables of the decision on expansions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::policy::step;
use super::writes;
use crate::cluster::{Cached as _, Fields, Patch, PersistentVolume, PersistentVolumeClaim, SecretRef};
use crate::csi::RpcError;
use crate::proto::volume_capability::AccessType;
use crate::roles::kit::Secret;
use crate::roles::resizer::error::{InvalidChange, Wait};
use crate::roles::resizer::fixtures::{DRIVER, claim, progress, rules, view, volume, volume_value};
use crate::roles::resizer::job::Job;
use crate::roles::resizer::names;
use crate::roles::resizer::progress::{Expanded, LastCall, Progress, Refused};
use crate::roles::resizer::step::{NodeRetries, Step, Write};
use crate::roles::resizer::view::{Expansion, Pods, Rules};

#[path = "refusal_tests.rs"]
mod refusals;

const GIB: i64 = 1 << 30;

/// What one decision is made from, and changed by a test.
struct Case {
    claim: PersistentVolumeClaim,
    volume: Option<PersistentVolume>,
    expansion: Expansion,
    pods: Pods,
    node_retries: Option<(u32, Duration)>,
    last_call: LastCall,
    is_confirmed: bool,
    rules: Rules,
    progress: Progress,
}

impl Case {
    /// A claim of 1Gi that wants 2Gi.
    fn new(claim_patch: Value, volume_patch: Value) -> Self {
        let wants = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
        let patch = crate::roles::kit::fixtures::merged(wants, claim_patch);
        Self {
            claim: claim(patch),
            volume: Some(volume(volume_patch)),
            expansion: Expansion::Controller,
            pods: Pods::None,
            node_retries: None,
            last_call: LastCall::Earlier,
            is_confirmed: true,
            rules: rules(),
            progress: progress(Job::Expand),
        }
    }

    /// The same after its begin mark.
    fn begun(claim_patch: Value) -> Self {
        let begun = json!({ "status": {
            "allocatedResources": { "storage": "2Gi" },
            "allocatedResourceStatuses": { "storage": names::CONTROLLER_RESIZE_IN_PROGRESS },
            "conditions": [{ "type": "Resizing", "status": "True" }] } });
        Self::new(crate::roles::kit::fixtures::merged(begun, claim_patch), json!({}))
    }

    fn step(&self) -> Step {
        let mut view = view(Job::Expand, self.claim.clone(), self.volume.clone());
        view.rules = Arc::new(self.rules.clone());
        (view.expansion, view.pods, view.is_confirmed) = (self.expansion, self.pods, self.is_confirmed);
        view.memory.last_call = self.last_call;
        let asked = |(count, ago)| NodeRetries { requested: 2 * GIB, capacity: GIB, count, last: view.at - ago };
        view.memory.node_retries = self.node_retries.map(asked);
        step(&view, &self.progress).unwrap_or_else(Step::Refuse)
    }
}

#[test]
fn what_is_not_ours_or_not_bound_or_large_enough_is_settled() {
    let same = json!({ "spec": { "resources": { "requests": { "storage": "1073741824" } } } });
    assert_eq!(Case::new(same, json!({})).step(), Step::Settled, "sizes are numbers, not texts");
    let pending = json!({ "status": { "phase": "Pending" } });
    assert_eq!(Case::new(pending, json!({})).step(), Step::Settled);
    let foreign = json!({ "spec": { "csi": { "driver": "other.csi" } } });
    assert_eq!(Case::new(json!({}), foreign).step(), Step::Settled);
    let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    assert_eq!(Case::new(json!({}), deleting).step(), Step::Settled, "nothing begins for a volume that goes");
    let unseen = Case { volume: None, ..Case::new(json!({}), json!({})) };
    assert_eq!(unseen.step(), Step::Wait(Wait::Volume), "Z1");
}

/// A case whose volume is an in-tree one, beside this driver, and whose claim says that the driver resizes it.
fn in_tree(driver: &str, source: Value) -> Case {
    let annotation = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_RESIZER: driver } } });
    let mut case = Case::new(annotation, json!({}));
    let spec = crate::roles::kit::fixtures::merged(json!({ "spec": { "csi": null } }), source);
    let mut volume: PersistentVolume = serde_json::from_value(volume_value(spec)).unwrap();
    volume.trim(driver, Fields::RESIZE | Fields::MIGRATION);
    case.volume = Some(volume);
    driver.clone_into(&mut case.rules.driver);
    case
}

#[test]
fn an_in_tree_volume_grows_by_its_translated_handle_and_secret() {
    let annotations = json!({ "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "ns" });
    let source =
        json!({ "metadata": { "annotations": annotations }, "spec": { "portworxVolume": { "volumeID": "v" } } });
    let secret = SecretRef { name: "s".into(), namespace: "ns".into() };
    assert_eq!(in_tree("pxd.portworx.com", source).step(), Step::ReadSecret(secret));
    let source = json!({ "spec": { "awsElasticBlockStore": { "volumeID": "aws:///vol-1" } } });
    let mut case = in_tree("ebs.csi.aws.com", source);
    assert!(matches!(case.step(), Step::Write(Write::BeginExpansion(_))));
    case.expansion = Expansion::Node;
    assert_eq!(case.step(), Step::LeaveToNode(2 * GIB));
    let Step::Refuse(why) =
        in_tree("disk.csi.azure.com", json!({ "spec": { "azureDisk": { "kind": "Shared" } } })).step()
    else {
        panic!("it has no CSI form")
    };
    assert!(why.to_string().starts_with("failed to translate persistent volume: "), "{why}");
}

#[test]
fn m22_a_claim_that_names_our_driver_as_its_resizer_does_not_give_us_another_drivers_volume() {
    let annotation = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_RESIZER: DRIVER } } });
    let foreign = json!({ "spec": { "csi": { "driver": "other.csi" } } });
    assert_eq!(Case::new(annotation, foreign).step(), Step::Settled);
    let cinder = json!({ "spec": { "cinder": { "volumeID": "v" } } });
    assert_eq!(in_tree(DRIVER, cinder.clone()).step(), Step::Settled);
    assert_eq!(in_tree("ebs.csi.aws.com", cinder).step(), Step::Settled);
}

#[test]
fn what_cannot_be_asked_for_is_told_before_anything_is_marked_as_begun() {
    let refusal = |case: &Case| match case.step() {
        Step::Refuse(reason) => reason,
        step => panic!("{step:?}"),
    };
    let no_handle = Case::new(json!({}), json!({ "spec": { "csi": { "volumeHandle": "" } } }));
    assert_eq!(refusal(&no_handle), InvalidChange::NoHandle);
    let modes = Case::new(json!({}), json!({ "spec": { "accessModes": ["ReadWriteOncePod", "ReadWriteMany"] } }));
    assert!(matches!(refusal(&modes), InvalidChange::AccessModes { .. }));
    let huge = json!({ "spec": { "resources": { "requests": { "storage": "9Ei" } } } });
    assert!(matches!(refusal(&Case::new(huge, json!({}))), InvalidChange::Size(_)));
    let none = Case { expansion: Expansion::None, ..Case::new(json!({}), json!({})) };
    assert_eq!(refusal(&none).to_string(), format!("CSI driver {DRIVER} does not support volume expansion"));
    let unknown = Case { expansion: Expansion::Unknown, ..Case::new(json!({}), json!({})) };
    assert_eq!(unknown.step(), Step::Wait(Wait::Driver));
}

#[test]
fn z8_z9_an_expansion_is_prepared_in_order_and_says_how_the_volume_is_used() {
    let secret = json!({ "spec": { "csi": { "controllerExpandSecretRef": { "name": "s", "namespace": "kube" } } } });
    let mut case = Case::new(json!({}), secret);
    assert!(matches!(case.step(), Step::ReadSecret(place) if (&*place.name, &*place.namespace) == ("s", "kube")));
    case.progress.secret = Some(Secret::default());
    case.pods = Pods::Some;
    assert_eq!(case.step(), Step::Wait(Wait::Pods), "Z21");
    case.pods = Pods::Unknown;
    assert_eq!(case.step(), Step::Wait(Wait::PodList));
    case.pods = Pods::None;
    let Step::Write(Write::BeginExpansion(begin)) = case.step() else { panic!("{:?}", case.step()) };
    assert_eq!(begin.allocated.as_deref(), Some("2Gi"));
    assert!(begin.sets_state && begin.sets_resizing && begin.is_fresh);

    let mut marked = Case::begun(json!({}));
    marked.is_confirmed = false;
    assert_eq!(marked.step(), Step::Confirm);
    marked.is_confirmed = true;
    let Step::Expand(expand) = marked.step() else { panic!("{:?}", marked.step()) };
    assert_eq!((expand.volume_id.as_str(), expand.size), ("handle-1", 2 * GIB));
    let Some(AccessType::Mount(mount)) = expand.capability.access_type else { panic!("not mounted") };
    assert_eq!(mount.fs_type, "ext4");
}

/// As an older API has left it: nobody else would ever end such a state.
#[test]
fn a_resize_state_that_is_not_known_begins_the_expansion_anew() {
    for state in ["ControllerResizeFailed", "NodeExpansionFailed", "controllerresizeinprogress"] {
        let left = json!({ "status": { "allocatedResourceStatuses": { "storage": state } } });
        let Step::Write(Write::BeginExpansion(begin)) = Case::new(left, json!({})).step() else { panic!("{state}") };
        assert!(begin.sets_state && begin.is_fresh && begin.allocated.as_deref() == Some("2Gi"), "{state}: {begin:?}");
        let same = Case::begun(json!({ "status": { "allocatedResourceStatuses": { "storage": state } } }));
        assert!(
            matches!(same.step(), Step::Write(Write::BeginExpansion(begin)) if begin.sets_state && !begin.is_fresh),
            "{state}"
        );
    }
}

#[test]
fn z58_a_claim_that_comes_down_to_what_its_volume_has_asks_for_no_more_than_that() {
    let refused = json!({ "status": {
        "allocatedResources": { "storage": "9Gi" },
        "allocatedResourceStatuses": { "storage": names::CONTROLLER_RESIZE_INFEASIBLE },
        "conditions": [{ "type": "ControllerResizeError", "status": "True", "reason": "OutOfRange" }] } });
    let case = Case::new(refused, json!({ "spec": { "capacity": { "storage": "3Gi" } } }));
    let Step::Write(Write::BeginExpansion(begin)) = case.step() else { panic!("{:?}", case.step()) };
    assert_eq!((begin.allocated.as_deref(), begin.removes), (Some("3Gi"), vec![names::CONTROLLER_RESIZE_ERROR]));
}

#[test]
fn z18_an_infeasible_size_waits_out_its_pause_and_another_size_does_not() {
    let infeasible = |allocated: &str| {
        Case::new(
            json!({ "status": {
                "allocatedResources": { "storage": allocated },
                "allocatedResourceStatuses": { "storage": names::CONTROLLER_RESIZE_INFEASIBLE },
                "conditions": [{ "type": "ControllerResizeError", "status": "True", "reason": "OutOfRange",
                    "lastTransitionTime": "2026-01-01T00:08:00Z" }] } }),
            json!({}),
        )
    };
    assert_eq!(infeasible("2Gi").step(), Step::Wait(Wait::Infeasible(Duration::from_secs(180))));
    let Step::Write(Write::BeginExpansion(begin)) = infeasible("10Ti").step() else {
        panic!("Z12: lowered, and asked for at once")
    };
    assert_eq!((begin.allocated.as_deref(), begin.removes), (Some("2Gi"), vec![names::CONTROLLER_RESIZE_ERROR]));
    let mut over = infeasible("2Gi");
    over.rules.section.retry.infeasible = Duration::from_secs(120);
    assert!(matches!(over.step(), Step::Write(Write::BeginExpansion(_))));
    let again = Case { last_call: LastCall::Refused("2026-01-01T00:09:30Z".parse().unwrap()), ..infeasible("2Gi") };
    assert_eq!(again.step(), Step::Wait(Wait::Infeasible(Duration::from_secs(270))), "counted from the last refusal");
}

#[test]
fn an_answer_is_recorded_on_the_volume_first_and_then_on_the_claim() {
    for (needs_node, expected) in [
        (true, Step::Write(Write::LeftToNode { begun: None, retries: None })),
        (false, Step::Write(Write::Expanded(3 * GIB))),
    ] {
        let mut case = Case::begun(json!({}));
        case.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 3 * GIB, needs_node });
        let before = needs_node.then_some(GIB);
        assert_eq!(case.step(), Step::Write(Write::Size { size: 3 * GIB, before }));
        let noted = if needs_node { json!({ names::ANNOTATION_PRE_RESIZE_CAPACITY: "1Gi" }) } else { json!({}) };
        let written = json!({ "spec": { "capacity": { "storage": "3Gi" } }, "metadata": { "annotations": noted } });
        case.volume = Some(volume(written));
        assert_eq!(case.step(), expected);
        case.progress.expanded = Some(Expanded { asked: 4 * GIB, size: 4 * GIB, needs_node });
        assert_eq!(case.step(), Step::DropAnswer, "something else has begun meanwhile");
    }
    let mut larger = Case::begun(json!({}));
    larger.volume = Some(volume(json!({ "spec": { "capacity": { "storage": "8Gi" } } })));
    larger.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node: false });
    assert_eq!(larger.step(), Step::Write(Write::Expanded(2 * GIB)), "I5: the volume's size does not sink");
}

#[test]
fn z55_what_a_node_has_begun_or_ended_is_not_left_to_it_again() {
    let written = json!({ "spec": { "capacity": { "storage": "2Gi" } } });
    let step = |status: Value, needs_node| {
        let mut case = Case::begun(json!({ "status": status }));
        case.volume = Some(volume(written.clone()));
        case.rules.section.annotate_pre_resize = false;
        case.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node });
        case.step()
    };
    let in_state = |state: &str| json!({ "allocatedResourceStatuses": { "storage": state } });
    assert_eq!(
        step(in_state(names::NODE_RESIZE_PENDING), true),
        Step::Write(Write::LeftToNode { begun: None, retries: None }),
        "no harm"
    );
    assert_eq!(step(in_state(names::NODE_RESIZE_IN_PROGRESS), true), Step::NodeHasBegun);
    let ended = |size: &str| json!({ "allocatedResourceStatuses": null, "capacity": { "storage": size } });
    assert_eq!(step(ended("2Gi"), true), Step::NodeHasBegun);
    assert_eq!(step(ended("2Gi"), false), Step::Write(Write::Expanded(2 * GIB)), "no harm");
    let mut written_back = Case::begun(json!({ "status": in_state(names::NODE_RESIZE_IN_PROGRESS) }));
    written_back.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node: true });
    assert_eq!(
        written_back.step(),
        Step::Write(Write::Size { size: 2 * GIB, before: Some(GIB) }),
        "the kubelet goes by it"
    );
    for needs_node in [true, false] {
        assert_eq!(step(ended("3Gi"), needs_node), Step::DropAnswer, "I5: what the user has does not sink");
    }
}

#[test]
fn z31_the_size_before_is_noted_once_and_removed_when_the_claim_has_caught_up() {
    let noted = |capacity: &str| {
        json!({ "metadata": { "annotations": { names::ANNOTATION_PRE_RESIZE_CAPACITY: "512Mi" } },
            "spec": { "capacity": { "storage": capacity } } })
    };
    let mut again = Case::begun(json!({}));
    again.volume = Some(volume(noted("3Gi")));
    again.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 4 * GIB, needs_node: true });
    assert_eq!(again.step(), Step::Write(Write::Size { size: 4 * GIB, before: None }), "its first value stays");
    assert_eq!(Case::new(json!({}), noted("1Gi")).step(), Step::Write(Write::RemoveNote));
    assert!(matches!(Case::new(json!({}), noted("2Gi")).step(), Step::Write(Write::BeginExpansion(_))));
    let mut off = Case::begun(json!({}));
    off.rules.section.annotate_pre_resize = false;
    off.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node: true });
    assert_eq!(off.step(), Step::Write(Write::Size { size: 2 * GIB, before: None }));
}

#[test]
fn z10_z17_a_node_only_driver_is_asked_nothing_and_its_record_may_sink() {
    let mut case = Case { expansion: Expansion::Node, ..Case::new(json!({}), json!({})) };
    assert_eq!(case.step(), Step::LeaveToNode(2 * GIB));
    case.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node: true });
    assert_eq!(case.step(), Step::Write(Write::Size { size: 2 * GIB, before: Some(GIB) }));
    case.volume = Some(volume(json!({ "spec": { "capacity": { "storage": "8Gi" } } })));
    case.rules.section.annotate_pre_resize = false;
    assert_eq!(case.step(), Step::Write(Write::Size { size: 2 * GIB, before: None }), "the record sinks");
    case.volume = Some(volume(json!({ "spec": { "capacity": { "storage": "2Gi" } } })));
    assert_eq!(case.step(), Step::Write(Write::LeftToNode { begun: Some(2 * GIB), retries: None }));
}

#[test]
fn a_node_that_fails_again_and_again_is_told_ever_more_rarely() {
    let failed = json!({ "status": {
        "allocatedResources": { "storage": "2Gi" },
        "allocatedResourceStatuses": { "storage": names::NODE_RESIZE_INFEASIBLE } } });
    let mut case = Case::new(failed, json!({ "spec": { "capacity": { "storage": "2Gi" } } }));
    // The back-off after the third time is four seconds.
    for (asked, expected) in [((3, 1), Some(3)), ((3, 4), None), ((1, 0), Some(1))] {
        let (count, ago) = asked;
        case.node_retries = Some((count, Duration::from_secs(ago)));
        let waits = expected.map(|left| Step::Wait(Wait::NodeRetry(Duration::from_secs(left))));
        match (waits, case.step()) {
            (Some(waits), step) => assert_eq!(step, waits, "{asked:?}"),
            (None, Step::Write(Write::BeginExpansion(begin))) => {
                assert!(!begin.sets_state, "I8: the node's state is left until the size is verified");
            }
            (None, step) => panic!("{asked:?}: {step:?}"),
        }
    }
    case.progress.expanded = Some(Expanded { asked: 2 * GIB, size: 2 * GIB, needs_node: true });
    case.rules.section.annotate_pre_resize = false;
    let asked_again = |case: &Case| match case.step() {
        Step::Write(Write::LeftToNode { begun: None, retries: Some(retries) }) => retries.count,
        step => panic!("{step:?}"),
    };
    assert_eq!(asked_again(&case), 2);
    case.node_retries = None;
    assert_eq!(asked_again(&case), 1);
}
