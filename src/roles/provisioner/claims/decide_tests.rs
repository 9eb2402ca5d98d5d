use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cluster::names;
use crate::roles::provisioner::claims::error::InvalidClaim;
use crate::roles::provisioner::claims::state::ClaimState;
use crate::roles::provisioner::claims::state::Made;
use crate::roles::provisioner::claims::volume::Created;
use crate::roles::provisioner::fixtures::{self, DRIVER};

const MARK: &str = "provisioning.csi-control-plane.io/disk-example-com";
const INTENT: &str = "what was written";

/// A world of one claim, all set for its volume.
struct World {
    claim: Claim,
    present: bool,
    class: Option<StorageClass>,
    volume: NameStatus,
    source: SourceStatus,
    attributes_class: Option<&'static str>,
    ownership: Ownership,
    given_away: bool,
    state: ClaimState,
    attempt: AttemptFacts,
    rules: Rules,
}

fn claim(patch: Value) -> Claim {
    let base = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } } });
    Claim::parse(Arc::new(fixtures::claim(fixtures::merged(base, patch))), DRIVER, MARK)
}

fn marked() -> Value {
    json!({ "metadata": { "finalizers": [MARK], "annotations": { names::ANNOTATION_PROVISIONING: INTENT } } })
}

fn deleting() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })
}

fn both(one: Value, other: Value) -> Value {
    fixtures::merged(one, other)
}

fn created(may_be_stored: bool) -> Phase {
    let volume = Created {
        volume_id: "vol-1".into(),
        capacity_bytes: 1,
        context: std::collections::BTreeMap::new(),
        affinity: None,
    };
    Phase::Created(Box::new(Made { volume, may_be_stored }))
}

impl World {
    /// Nothing was begun.
    fn fresh() -> Self {
        Self::of(claim(json!({})))
    }

    fn of(claim: Claim) -> Self {
        Self {
            state: ClaimState::at_first_sight(claim.clone()),
            claim,
            present: true,
            class: Some(fixtures::class(json!({}))),
            volume: NameStatus::Free,
            source: SourceStatus::Stores,
            attributes_class: None,
            ownership: Ownership::Here,
            given_away: false,
            attempt: AttemptFacts::default(),
            rules: Rules { driver: DRIVER.into(), mark: MARK.into(), durable: true },
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// All that the driver is to be asked is known.
    fn planned(self) -> Self {
        self.planned_for(json!({}))
    }

    fn planned_for(mut self, class: Value) -> Self {
        self.state.request = Some(Arc::new(fixtures::request(json!({}), class)));
        self.state.written = Some(INTENT.into());
        self
    }

    fn in_phase(mut self, phase: Phase) -> Self {
        self.state.phase = phase;
        self.state.confirmed = true;
        self
    }

    fn claimed(mut self, patch: Value) -> Self {
        self.claim = claim(patch);
        self
    }

    fn next(&self) -> Step {
        next_step(&View {
            claim: &self.claim,
            present: self.present,
            class: self.class.as_ref(),
            volume: &self.volume,
            source: &self.source,
            attributes_class: self.attributes_class,
            ownership: self.ownership,
            given_away: self.given_away,
            state: &self.state,
            attempt: self.attempt,
            rules: &self.rules,
        })
    }
}

#[test]
fn a_fresh_claim_is_planned_marked_and_only_then_asked_for() {
    assert_eq!(World::fresh().next(), Step::Plan);
    assert_eq!(World::fresh().planned().next(), Step::SaveIntent);
    assert_eq!(World::fresh().planned().claimed(marked()).in_phase(Phase::Marked).next(), Step::Create);
    let other =
        json!({ "metadata": { "finalizers": [MARK], "annotations": { names::ANNOTATION_PROVISIONING: "old" } } });
    assert_eq!(
        World::fresh().planned().claimed(other).in_phase(Phase::Marked).next(),
        Step::SaveIntent,
        "what is written is not what is asked"
    );
    let unmarked = World::fresh().planned().in_phase(Phase::Marked);
    assert_eq!(unmarked.next(), Step::SaveIntent, "somebody took the mark off");
}

#[test]
fn without_durable_intent_nothing_is_written_before_the_driver_is_asked() {
    let world = World::fresh().planned().with(|w| w.rules.durable = false);
    assert_eq!(world.next(), Step::Create);
    assert_eq!(World::fresh().in_phase(Phase::Stored).next(), Step::Settled);
}

#[test]
fn what_is_not_ours_to_provision_is_ignored_and_costs_nothing() {
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let cases = [
        (json!({ "spec": { "volumeName": "pv-1" } }), Ignored::Bound),
        (annotated(names::ANNOTATION_STORAGE_PROVISIONER, "other.csi"), Ignored::Foreign),
        (json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: null } } }), Ignored::Foreign),
        (
            json!({ "metadata": { "annotations": {
                names::ANNOTATION_STORAGE_PROVISIONER: "kubernetes.io/aws-ebs",
                names::ANNOTATION_MIGRATED_TO: DRIVER,
            } } }),
            Ignored::InTree,
        ),
        (deleting(), Ignored::Deleting),
    ];
    for (patch, why) in cases {
        assert_eq!(World::of(claim(patch.clone())).next(), Step::Ignore(why), "{patch}");
    }
    assert_eq!(World::fresh().with(|w| w.present = false).next(), Step::Ignore(Ignored::Gone));
    let foreign = World::fresh().with(|w| w.class = Some(fixtures::class(json!({ "provisioner": "other.csi" }))));
    assert_eq!(foreign.next(), Step::Ignore(Ignored::ForeignClass));
    let populated = World::fresh().with(|w| w.source = SourceStatus::Populator("Sample \"x\"".into()));
    assert_eq!(populated.next(), Step::Ignore(Ignored::Populator), "47: an unknown data source makes no empty volume");
}

#[test]
fn a_claim_of_an_in_tree_class_that_kubernetes_has_given_to_our_driver_is_told_why_it_waits() {
    // kube-controller-manager 1.36 names the successor as the provisioner, and writes no annotation migrated-to.
    let at = |driver: &str, plugin: &str| {
        let annotations = json!({ names::ANNOTATION_STORAGE_PROVISIONER: driver });
        let object = fixtures::claim(json!({ "metadata": { "annotations": annotations } }));
        let world = World::of(Claim::parse(Arc::new(object), driver, MARK));
        let class = fixtures::class(json!({ "provisioner": plugin, "volumeBindingMode": "WaitForFirstConsumer" }));
        world.with(|w| (w.class, w.rules.driver) = (Some(class), driver.to_owned())).next()
    };
    assert_eq!(at("ebs.csi.aws.com", "kubernetes.io/aws-ebs"), Step::Ignore(Ignored::InTree));
    assert_eq!(at("ebs.csi.aws.com", "kubernetes.io/gce-pd"), Step::Ignore(Ignored::ForeignClass));
    assert_eq!(at(DRIVER, "kubernetes.io/aws-ebs"), Step::Ignore(Ignored::ForeignClass));
}

#[test]
fn a_claim_for_a_first_consumer_waits_for_its_node() {
    let class = fixtures::class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
    let world = World::fresh().with(|w| w.class = Some(class));
    assert_eq!(world.next(), Step::Ignore(Ignored::NoNode));
    let selected = json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: "node-1" } } });
    assert_eq!(world.claimed(selected).next(), Step::Plan);
}

#[test]
fn a_class_that_is_not_there_is_told_and_waited_for() {
    let world = World::fresh().with(|w| w.class = None);
    assert_eq!(world.next(), Step::Refuse(InvalidClaim::ClassMissing("gold".into())));
    let none = json!({ "spec": { "storageClassName": null } });
    assert_eq!(world.claimed(none).next(), Step::Refuse(InvalidClaim::NoClass));
}

#[test]
fn everything_is_found_out_before_anything_is_written() {
    let step = SourceStep::GetSnapshot;
    let world = World::fresh().with(|w| w.source = SourceStatus::Step(step.clone()));
    assert_eq!(world.next(), Step::Source(step));
    let world = world.with(|w| w.attributes_class = Some("fast"));
    assert_eq!(world.next(), Step::GetAttributesClass("fast".into()), "before the source is protected");
    let grants = SourceStep::ListGrants("far".into());
    let world = world.with(|w| w.source = SourceStatus::Step(grants.clone()));
    assert_eq!(world.next(), Step::Source(grants), "before the class: once it is granted, a populator may serve it");
    let refusal = InvalidClaim::NoClass;
    let refused = World::fresh().with(|w| w.source = SourceStatus::Refused(refusal.clone()));
    assert_eq!(refused.next(), Step::Refuse(refusal));
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "s",
        "csi.storage.k8s.io/provisioner-secret-namespace": "ns" } });
    let world = World::fresh().planned_for(secret);
    assert!(matches!(world.next(), Step::ReadSecret(_)));
    assert_eq!(world.with(|w| w.attempt.has_secret = true).next(), Step::SaveIntent);
}

#[test]
fn a_volume_that_exists_ends_the_work_and_a_strangers_stops_it() {
    assert_eq!(
        World::fresh().with(|w| w.volume = NameStatus::Ours).next(),
        Step::Settled,
        "59: never a second CreateVolume"
    );
    let taken = NameStatus::Conflict("pv of another".into());
    let world = World::fresh().with(|w| w.volume = taken);
    assert_eq!(world.next(), Step::Refuse(InvalidClaim::NameTaken("pv of another".into())));
    let marked = World::of(claim(marked())).with(|w| w.volume = NameStatus::Ours);
    assert_eq!(marked.next(), Step::Release { reschedule: false });
}

#[test]
fn a_claim_found_marked_is_resumed_whatever_it_says_now() {
    let edits = [
        ("as it was", json!({})),
        ("deleted", deleting()),
        ("bound elsewhere", json!({ "spec": { "volumeName": "pv-9" } })),
        (
            "another provisioner's",
            json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: "x" } } }),
        ),
    ];
    for (what, edit) in edits {
        let world = World::of(claim(both(marked(), edit)));
        assert_eq!(world.next(), Step::ConfirmVolume, "{what}: once a term its volume is looked for");
        let world = world.with(|w| w.state.confirmed = true);
        assert_eq!(world.next(), Step::Plan, "{what}");
        assert_eq!(world.planned().next(), Step::Create, "{what}: nothing is written a second time");
    }
}

#[test]
fn an_answer_is_outstanding_until_it_is_final() {
    let waiting = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
    let world = World::fresh().planned_for(waiting.clone()).claimed(marked()).in_phase(Phase::Creating);
    assert_eq!(world.next(), Step::Create, "the selected node was taken away: spec 2.4");
    let gone = world.with(|w| (w.present, w.claim) = (false, claim(json!({}))));
    assert_eq!(gone.next(), Step::Create, "6 and 56: the claim was deleted by force");
    let classless = World::fresh().claimed(marked()).in_phase(Phase::Creating).with(|w| w.class = None);
    assert_eq!(classless.next(), Step::Refuse(InvalidClaim::ClassMissing("gold".into())), "kept, and told");
}

#[test]
fn a_mark_that_was_taken_off_is_put_back_before_the_driver_is_asked_again() {
    let stripped = || World::fresh().planned().in_phase(Phase::Creating);
    let rejected = || World::fresh().planned().in_phase(Phase::Discarding("vol-1".into()));
    assert_eq!(stripped().next(), Step::SaveIntent);
    assert_eq!(rejected().next(), Step::SaveIntent);
    let bound = json!({ "spec": { "volumeName": "pv-9" } });
    for (what, takes_none) in [
        ("deleted", stripped().claimed(deleting())),
        ("bound", stripped().claimed(bound)),
        ("gone", stripped().with(|w| w.present = false)),
        ("nothing is written", stripped().with(|w| w.rules.durable = false)),
        ("another node's", stripped().with(|w| (w.ownership, w.given_away) = (Ownership::Held, true))),
    ] {
        assert_eq!(takes_none.next(), Step::Create, "{what}");
    }
}

#[test]
fn a_created_volume_is_stored_for_whoever_wants_it_and_deleted_if_nobody_does() {
    // Bound to its claim in any case: an object without a claim is anybody's, and never released.
    let keep = || Step::SaveVolume;
    let delete = || Step::DeleteCreated("vol-1".into());
    let elsewhere = json!({ "spec": { "volumeName": "pv-9" } });
    let by_its_name = json!({ "spec": { "volumeName": "pvc-6f1a-02" } });
    let cases = [
        ("wanted", json!({}), "Delete", false, keep()),
        ("named in advance", by_its_name, "Delete", false, keep()),
        ("deleted", deleting(), "Delete", false, delete()),
        ("deleted, kept by its class", deleting(), "Retain", false, keep()),
        ("deleted, perhaps stored already", deleting(), "Delete", true, keep()),
        ("bound elsewhere", elsewhere.clone(), "Delete", false, delete()),
        ("bound elsewhere, kept by its class", elsewhere.clone(), "Retain", false, keep()),
        ("bound elsewhere, perhaps stored already", elsewhere, "Delete", true, keep()),
    ];
    for (what, edit, policy, may_be_stored, expected) in cases {
        let world = World::fresh()
            .planned_for(json!({ "reclaimPolicy": policy }))
            .claimed(both(marked(), edit))
            .in_phase(created(may_be_stored));
        assert_eq!(world.next(), expected, "{what}");
    }
    let gone = World::fresh().planned().in_phase(created(false)).with(|w| w.present = false);
    assert_eq!(gone.next(), delete());
    let stored =
        World::fresh().planned().claimed(marked()).in_phase(created(true)).with(|w| w.volume = NameStatus::Ours);
    assert_eq!(stored.next(), Step::Release { reschedule: false }, "the store's answer was lost");
}

#[test]
fn a_volume_that_cannot_be_used_is_deleted_with_its_secret() {
    let world = World::fresh().planned().claimed(marked()).in_phase(Phase::Discarding("vol-1".into()));
    assert_eq!(world.next(), Step::DeleteCreated("vol-1".into()));
    let world = world.with(|w| w.state.written = Some("what was written, unfit".into()));
    assert_eq!(world.next(), Step::SaveIntent, "a successor must know before it is deleted");
    assert_eq!(world.with(|w| w.rules.durable = false).next(), Step::DeleteCreated("vol-1".into()));
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "s",
        "csi.storage.k8s.io/provisioner-secret-namespace": "ns" } });
    let world = World::fresh().planned_for(secret).claimed(marked()).in_phase(Phase::Discarding("vol-1".into()));
    assert!(matches!(world.next(), Step::ReadSecret(_)));
}

#[test]
fn a_doubt_is_written_down_before_the_driver_is_asked_again() {
    let doubting = |edit| {
        World::fresh().planned().claimed(edit).in_phase(Phase::Creating).with(|w| {
            w.state.doubtful = true;
            w.state.written = Some("what was written, doubtful".into());
        })
    };
    assert_eq!(doubting(marked()).next(), Step::SaveIntent);
    assert_eq!(doubting(both(marked(), deleting())).next(), Step::SaveIntent, "its volume may exist all the same");
    assert_eq!(doubting(marked()).with(|w| w.state.doubtful = false).next(), Step::Create, "asked as it was before");
    assert_eq!(doubting(marked()).with(|w| w.rules.durable = false).next(), Step::Create);
    assert_eq!(doubting(marked()).with(|w| w.present = false).next(), Step::Create, "there is nothing to write on");
    let told =
        json!({ "metadata": { "annotations": { names::ANNOTATION_PROVISIONING: "what was written, doubtful" } } });
    assert_eq!(doubting(both(marked(), told)).next(), Step::Create);
}

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
        let world = World::fresh().claimed(edit.clone()).in_phase(Phase::Finished { reschedule, marked });
        world.with(|w| w.state.node = Some("node-1".into()))
    };
    for (edit, reschedule, expected) in cases {
        assert_eq!(ended(&edit, reschedule, true).next(), expected, "{edit} {reschedule}");
    }
    let gone = ended(&marked(), true, true).with(|w| w.present = false);
    assert_eq!(gone.next(), Step::Conclude, "nothing is written on what is gone");
}

#[test]
fn what_was_put_on_a_claim_after_its_end_stays() {
    let ended = |edit: Value, reschedule, marked| {
        let world = World::fresh().claimed(edit).in_phase(Phase::Finished { reschedule, marked });
        world.with(|w| w.state.node = Some("node-1".into()))
    };
    let on = |node: &str| json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } });
    assert_eq!(ended(on("node-2"), true, true).next(), Step::Conclude, "the scheduler has chosen again already");
    let newer = ended(both(marked(), on("node-2")), true, true);
    assert_eq!(newer.next(), Step::Release { reschedule: false }, "and our mark is still there");
    let elsewhere = newer.with(|w| w.ownership = Ownership::Elsewhere { look_again: None });
    assert_eq!(elsewhere.next(), Step::Conclude, "or the other node's is");
    for reschedule in [false, true] {
        let unmarked = ended(both(marked(), on("node-1")), reschedule, false);
        assert_eq!(unmarked.next(), Step::Conclude, "what ended had no mark: this is another's");
    }
    assert_eq!(ended(on("node-1"), true, false).next(), Step::Release { reschedule: true });
}

#[test]
fn a_mark_that_led_to_nothing_is_taken_off_once_the_claim_is_not_wanted() {
    let world = World::fresh().claimed(both(marked(), deleting())).in_phase(Phase::Marked);
    assert_eq!(world.next(), Step::Release { reschedule: false }, "marked by us, and never asked for");
    let gone = world.with(|w| w.present = false);
    assert_eq!(gone.next(), Step::Ignore(Ignored::Gone));
}

#[test]
fn a_mark_that_we_did_not_put_there_is_resumed_and_never_just_taken_off() {
    let elsewhere = Ownership::Elsewhere { look_again: None };
    for (what, edit) in
        [("wanted", json!({})), ("deleted", deleting()), ("bound", json!({ "spec": { "volumeName": "x" } }))]
    {
        for ownership in [Ownership::Here, elsewhere, Ownership::Held] {
            // It was not there when the claim was planned: another node, or the leader before, was first.
            let world =
                World::fresh().planned().claimed(both(marked(), edit.clone())).with(|w| w.ownership = ownership);
            assert_eq!(world.next(), Step::Resume, "{what} {ownership:?}");
        }
        let left = World::fresh().planned().claimed(both(marked(), edit)).in_phase(Phase::Marked);
        assert_eq!(
            left.with(|w| w.ownership = elsewhere).next(),
            Step::Resume,
            "{what}: ours, and another node's by now"
        );
    }
    let mut resumed = World::fresh().planned().claimed(both(marked(), deleting()));
    resumed.state.resume();
    assert_eq!(resumed.next(), Step::ConfirmVolume);
    assert_eq!(resumed.with(|w| w.ownership = elsewhere).next(), Step::Ignore(Ignored::Elsewhere));
}

#[test]
fn what_the_driver_has_answered_is_recorded_although_the_term_ends() {
    let answered = |phase: Phase| World::fresh().planned().in_phase(phase).state.has_answer();
    for phase in [created(false), Phase::Finished { reschedule: false, marked: true }, Phase::Stored] {
        assert!(answered(phase.clone()), "{phase:?}");
    }
    assert!(answered(Phase::Discarding("vol-1".into())), "that it can't be used must stand on the claim");
    for phase in [Phase::Idle, Phase::Marked, Phase::Creating] {
        assert!(!answered(phase.clone()), "{phase:?}: nothing is begun any more");
    }
}

#[path = "decide_node_tests.rs"]
mod nodes;
