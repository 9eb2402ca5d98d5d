use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cluster::StorageClass;
use crate::roles::provisioner::claims::error::InvalidClaim;
use crate::roles::provisioner::claims::error::{AttemptError, ClaimReason};
use crate::roles::provisioner::claims::phase::{Asker, Made, Plan, Unusable};
use crate::roles::provisioner::claims::state::ClaimState;
use crate::roles::provisioner::claims::transition::Change;
use crate::roles::provisioner::claims::volume::Created;
use crate::roles::provisioner::fixtures::{self, DRIVER};
use crate::roles::provisioner::names;

/// A world of one claim, all set for its volume.
struct World {
    claim: Claim,
    present: bool,
    class: Option<StorageClass>,
    volume: NameStatus,
    source: Result<SourceStatus, InvalidClaim>,
    attributes_class: Option<&'static str>,
    whose: Whose,
    state: ClaimState,
    attempt: AttemptFacts,
    rules: Rules,
    has_volume: bool,
    listed: bool,
}

fn claim(patch: Value) -> Claim {
    let base = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } } });
    Claim::parse(Arc::new(fixtures::claim(fixtures::merged(base, patch))), DRIVER)
}

fn deleting() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })
}

fn both(one: Value, other: Value) -> Value {
    fixtures::merged(one, other)
}

/// A phase, of what is planned.
#[derive(Debug, Clone)]
enum At {
    Idle,
    Creating(Asker),
    Created { may_be_stored: bool },
    Discarding,
    Finished { reschedule: bool },
    Stored,
}

const CREATING: At = At::Creating(Asker::ThisTerm);

fn created(may_be_stored: bool) -> At {
    At::Created { may_be_stored }
}

fn plan(class: Value) -> Plan {
    let request = Arc::new(fixtures::request(json!({}), class));
    Plan { request, source: None, node: None, no_error_is_final: false, unproven: None }
}

fn volume() -> Created {
    let context = std::collections::BTreeMap::new();
    Created { volume_id: "vol-1".into(), capacity_bytes: 1, context, affinity: None }
}

fn unfit() -> AttemptError {
    ClaimReason::Unfit("vol-1".into()).into()
}

impl At {
    fn of(self, plan: Option<&Plan>) -> Phase {
        let sure = || plan.cloned().unwrap_or_else(|| self::plan(json!({})));
        let (kept, by, boxed) = (None, Asker::ThisTerm, plan.cloned().map(Box::new));
        match self {
            Self::Idle => Phase::Idle { plan: boxed },
            Self::Creating(by) => Phase::Creating { plan: Box::new(sure()), by, confirmed: true, kept },
            Self::Created { may_be_stored } => {
                let begun = crate::process::Clock::system().now();
                let (plan, volume) = (sure(), volume());
                Phase::Created(Box::new(Made { plan, by, kept, volume, may_be_stored, begun }))
            }
            Self::Discarding => {
                let (plan, volume_id, why) = (sure(), "vol-1".into(), unfit());
                Phase::Discarding(Box::new(Unusable { plan, by, kept, volume_id, why }))
            }
            Self::Finished { reschedule } => Phase::Finished { reschedule, node: Some("node-1".into()), failure: None },
            Self::Stored => Phase::Stored { plan: boxed, by, version: None, success: None },
        }
    }
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
            source: Ok(SourceStatus::Stores),
            attributes_class: None,
            whose: Whose::Ours,
            attempt: AttemptFacts::default(),
            rules: Rules { driver: DRIVER.into(), durable: true, per_node: false },
            has_volume: false,
            listed: true,
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
        self.state.apply(Change::Planned(Box::new(plan(class))));
        self
    }

    fn in_phase(mut self, at: At) -> Self {
        let phase = at.of(self.state.plan());
        self.state = ClaimState::at(self.state.claim.clone(), phase);
        self
    }

    /// The journal has confirmed the request in this attempt.
    fn recorded(mut self) -> Self {
        self.attempt.has_recorded = true;
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
            has_volume: self.has_volume,
            listed: self.listed,
            source: &self.source,
            attributes_class: self.attributes_class,
            whose: self.whose,
            state: &self.state,
            attempt: self.attempt,
            rules: &self.rules,
        })
    }
}

#[test]
fn j1_the_driver_is_called_only_for_a_recorded_request() {
    assert_eq!(World::fresh().next(), Step::Plan);
    assert_eq!(World::fresh().planned().next(), Step::Record);
    assert_eq!(World::fresh().planned().recorded().next(), Step::Begin);
    for by in [Asker::ThisTerm, Asker::EarlierTerm, Asker::BothTerms] {
        let creating = World::fresh().planned().in_phase(At::Creating(by));
        assert_eq!(creating.next(), Step::Record, "{by:?}: in each attempt, because the journal may have lost it");
        let called = if by == Asker::EarlierTerm { Step::Begin } else { Step::Create };
        assert_eq!(creating.recorded().next(), called, "{by:?}");
    }
}

#[test]
fn without_durable_intent_nothing_is_recorded_before_the_driver_is_called() {
    let world = World::fresh().planned().with(|w| w.rules.durable = false);
    assert_eq!(world.next(), Step::Begin);
    for (at, expected) in [(CREATING, Step::Create), (At::Discarding, Step::DeleteCreated("vol-1".into()))] {
        let world = World::fresh().planned().in_phase(at).with(|w| w.rules.durable = false);
        assert_eq!(world.next(), expected);
    }
    assert_eq!(World::fresh().in_phase(At::Stored).next(), Step::Settled);
}

#[test]
fn what_is_not_ours_to_provision_is_ignored_and_costs_nothing() {
    let annotated = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let cases = [
        (json!({ "spec": { "volumeName": "pv-1" } }), Ignored::Bound),
        (annotated(names::ANNOTATION_STORAGE_PROVISIONER, "other.csi"), Ignored::Foreign),
        (json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: null } } }), Ignored::Foreign),
        // M13: until Kubernetes says who serves the plugin's claims, nobody does.
        (annotated(names::ANNOTATION_STORAGE_PROVISIONER, "kubernetes.io/aws-ebs"), Ignored::Foreign),
        (deleting(), Ignored::Deleting),
    ];
    for (patch, why) in cases {
        assert_eq!(World::of(claim(patch.clone())).next(), Step::Ignore(why), "{patch}");
    }
    assert_eq!(World::fresh().with(|w| w.present = false).next(), Step::Ignore(Ignored::Gone));
    let foreign = World::fresh().with(|w| w.class = Some(fixtures::class(json!({ "provisioner": "other.csi" }))));
    assert_eq!(foreign.next(), Step::Ignore(Ignored::ForeignClass));
    let populated = World::fresh().with(|w| w.source = Ok(SourceStatus::Populator("Sample \"x\"".into())));
    assert_eq!(populated.next(), Step::Ignore(Ignored::Populator), "47: an unknown data source makes no empty volume");
}

#[test]
fn a_claim_of_an_in_tree_class_is_served_once_kubernetes_has_given_it_to_our_driver() {
    // kube-controller-manager 1.36 names the successor as the provisioner; older ones name the plugin, and the successor in
    // migrated-to.
    let at = |driver: &str, plugin: &str, is_old: bool| {
        let provisioner = if is_old { plugin } else { driver };
        let mut annotations = json!({ names::ANNOTATION_STORAGE_PROVISIONER: provisioner });
        if is_old {
            annotations[names::ANNOTATION_MIGRATED_TO] = json!(driver);
        }
        let object = fixtures::claim(json!({ "metadata": { "annotations": annotations } }));
        let world = World::of(Claim::parse(Arc::new(object), driver));
        let class = fixtures::class(json!({ "provisioner": plugin, "volumeBindingMode": "WaitForFirstConsumer" }));
        world.with(|w| (w.class, w.rules.driver) = (Some(class), driver.to_owned())).next()
    };
    for is_old in [false, true] {
        assert_eq!(
            at("ebs.csi.aws.com", "kubernetes.io/aws-ebs", is_old),
            Step::Ignore(Ignored::NoNode),
            "as any other"
        );
        assert_eq!(at("ebs.csi.aws.com", "kubernetes.io/gce-pd", is_old), Step::Ignore(Ignored::ForeignClass));
        assert_eq!(at(DRIVER, "kubernetes.io/aws-ebs", is_old), Step::Ignore(Ignored::ForeignClass));
    }
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
    assert_eq!(world.next(), Step::GetClass("gold".into()), "the watch may be late");
    let world = world.with(|w| w.attempt.class = Lookup::Missing);
    assert_eq!(world.next(), Step::Refuse(InvalidClaim::ClassMissing("gold".into())));
    let none = json!({ "spec": { "storageClassName": null } });
    assert_eq!(world.claimed(none).next(), Step::Refuse(InvalidClaim::NoClass));
}

#[test]
fn everything_is_found_out_before_anything_is_written() {
    let step = SourceStep::GetSnapshot;
    let world = World::fresh().with(|w| w.source = Ok(SourceStatus::Step(step.clone())));
    assert_eq!(world.next(), Step::Source(step));
    let world = world.with(|w| w.attributes_class = Some("fast"));
    assert_eq!(world.next(), Step::GetAttributesClass("fast".into()), "before the source is protected");
    let grants = SourceStep::ListGrants("far".into());
    let world = world.with(|w| w.source = Ok(SourceStatus::Step(grants.clone())));
    assert_eq!(world.next(), Step::Source(grants), "before the class: once it is granted, a populator may serve it");
    let refusal = InvalidClaim::NoClass;
    let refused = World::fresh().with(|w| w.source = Err(refusal.clone()));
    assert_eq!(refused.next(), Step::Refuse(refusal));
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "s",
        "csi.storage.k8s.io/provisioner-secret-namespace": "ns" } });
    let world = World::fresh().planned_for(secret);
    assert!(matches!(world.next(), Step::ReadSecret(_)));
    assert_eq!(world.with(|w| w.attempt.has_secret = true).next(), Step::Record);
}

#[test]
fn a_volume_that_exists_ends_the_work_and_a_strangers_stops_it() {
    assert_eq!(
        World::fresh().with(|w| w.volume = NameStatus::Ours).next(),
        Step::Found,
        "59: never a second CreateVolume"
    );
    assert_eq!(World::fresh().in_phase(At::Stored).with(|w| w.volume = NameStatus::Ours).next(), Step::Settled);
    let taken = NameStatus::Conflict("pv of another".into());
    let world = World::fresh().with(|w| w.volume = taken);
    assert_eq!(world.next(), Step::Refuse(InvalidClaim::NameTaken("pv of another".into())));
    let creating = World::fresh().planned().in_phase(CREATING).with(|w| w.volume = NameStatus::Ours);
    assert_eq!(creating.next(), Step::Found);
    assert_eq!(creating.with(|w| w.state.apply(Change::Found { version: None })).next(), Step::Settled);
}

#[test]
fn what_an_earlier_term_has_begun_is_resumed_whatever_the_claim_says_now() {
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
        let (plan, by) = (Box::new(plan(json!({}))), Asker::EarlierTerm);
        let resumed = Phase::Creating { plan, by, confirmed: false, kept: None };
        let world = World::of(claim(edit)).with(|w| w.state = ClaimState::at(w.claim.clone(), resumed));
        assert_eq!(world.next(), Step::ConfirmVolume, "{what}: its PersistentVolume is looked for once a term");
        let world = world.with(|w| w.state.apply(Change::Confirmed));
        assert_eq!(world.next(), Step::Record, "{what}");
        assert_eq!(world.recorded().next(), Step::Begin, "{what}");
    }
}

#[test]
fn an_answer_is_outstanding_until_it_is_final() {
    let waiting = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
    let world = World::fresh().planned_for(waiting).in_phase(CREATING).recorded();
    assert_eq!(world.next(), Step::Create, "the selected node was removed: spec 2.4");
    let gone = world.with(|w| (w.present, w.class) = (false, None));
    assert_eq!(gone.next(), Step::Create, "6 and 56: the claim is gone, and its class");
    let taken = gone.with(|w| w.volume = NameStatus::Conflict("pv of another".into()));
    assert_eq!(taken.next(), Step::Refuse(InvalidClaim::NameTaken("pv of another".into())));
}

#[test]
fn a_created_volume_is_stored_for_whoever_wants_it_and_deleted_if_nobody_does() {
    // Bound to its claim in any case: an object without a claim is anybody's, and never released.
    let keep = || Step::CheckHandle;
    let delete = || Step::DeleteCreated("vol-1".into());
    let elsewhere = json!({ "spec": { "volumeName": "pv-9" } });
    let by_its_name = json!({ "spec": { "volumeName": "pvc-6f1a-02" } });
    let cases = [
        ("wanted", json!({}), "Delete", false, keep()),
        ("named in advance", by_its_name, "Delete", false, keep()),
        ("deleted", deleting(), "Delete", false, delete()),
        ("deleted, kept by its class", deleting(), "Retain", false, keep()),
        ("deleted, of a policy that is not known", deleting(), "Archive", false, keep()),
        ("deleted, perhaps stored already", deleting(), "Delete", true, keep()),
        ("bound elsewhere", elsewhere.clone(), "Delete", false, delete()),
        ("bound elsewhere, kept by its class", elsewhere, "Retain", false, keep()),
    ];
    for (what, edit, policy, may_be_stored, expected) in cases {
        let world = World::fresh()
            .planned_for(json!({ "reclaimPolicy": policy }))
            .claimed(edit)
            .in_phase(created(may_be_stored));
        assert_eq!(world.next(), expected, "{what}");
        if expected == keep() {
            assert_eq!(world.with(|w| w.attempt.checked = Some(may_be_stored)).next(), Step::SaveVolume, "{what}");
        }
    }
    let gone = World::fresh().planned().in_phase(created(false)).with(|w| w.present = false);
    assert_eq!(gone.next(), delete());
    let stored = World::fresh().planned().in_phase(created(true)).with(|w| w.volume = NameStatus::Ours);
    assert_eq!(stored.next(), Step::Found, "the store's answer was lost");
}

#[test]
fn a_volume_that_cannot_be_used_is_deleted_with_its_secret() {
    let world = World::fresh().planned().in_phase(At::Discarding);
    assert_eq!(world.next(), Step::Record, "the next leader must not store what is being deleted");
    assert_eq!(world.recorded().next(), Step::DeleteCreated("vol-1".into()));
    let secret = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "s",
        "csi.storage.k8s.io/provisioner-secret-namespace": "ns" } });
    let world = World::fresh().planned_for(secret).in_phase(At::Discarding).recorded();
    assert!(matches!(world.next(), Step::ReadSecret(_)));
}

#[path = "decide_end_tests.rs"]
mod ends;
#[path = "decide_node_tests.rs"]
mod nodes;

#[path = "decide_earlier_tests.rs"]
mod earlier;
