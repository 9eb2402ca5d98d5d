use serde_json::{Value, json};

use super::*;
use crate::roles::provisioner::claims::error::AttemptError;
use crate::roles::provisioner::claims::transition::Change;
use crate::roles::provisioner::fixtures::{self, DRIVER, merged};
use crate::roles::provisioner::names;
use crate::roles::provisioner::sources::source::ContentSource;
use crate::roles::provisioner::topology::{Requirement, Segment};

fn source() -> SourceKey {
    SourceKey { kind: SourceKind::Snapshot, name: ObjectName::namespaced("shop", "monday") }
}

/// A request with all that one may have.
fn plan() -> Plan {
    let secrets = json!({ "parameters": { "csi.storage.k8s.io/provisioner-secret-name": "key",
        "csi.storage.k8s.io/provisioner-secret-namespace": "safe", "type": "ssd" },
        "mountOptions": ["noatime"], "reclaimPolicy": "Retain" });
    let zones = [Segment::new([("zone", "a")]), Segment::new([("zone", "b")])];
    let requirement = Requirement { requisite: zones.to_vec(), preferred: zones.into_iter().rev().collect() };
    let request = Request {
        content_source: Some(ContentSource::Snapshot("snap-1".to_owned())),
        requirement: Some(requirement),
        mutable_parameters: fixtures::map(&[("iops", "3000")]),
        ..fixtures::request(json!({ "spec": { "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] } }), secrets)
    };
    Plan {
        request: request.into(),
        source: Some(source()),
        node: Some("n1".to_owned()),
        no_error_is_final: false,
        unproven: None,
    }
}

fn claim() -> Claim {
    let object = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } } });
    Claim::parse(fixtures::claim(object).into(), DRIVER)
}

/// The state of a claim for which the driver was called.
fn creating(plan: Plan) -> ClaimState {
    let phase = Phase::Creating { plan: Box::new(plan), by: Asker::ThisTerm, confirmed: true, kept: None };
    ClaimState::at(claim(), phase)
}

fn stored(state: &ClaimState) -> Value {
    serde_json::to_value(Entry::of(state).unwrap()).unwrap()
}

fn read(value: Value) -> Entry {
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_same_request_comes_back_byte_by_byte() {
    for plan in [plan(), Plan { request: fixtures::request(json!({}), json!({})).into(), source: None, ..plan() }] {
        let resumed = read(stored(&creating(plan.clone()))).resume("5");
        let (before, after) = (&plan.request, resumed.request().unwrap());
        assert_eq!(before, after);
        let secrets = || [("token".to_owned(), "s".to_owned())].into();
        assert_eq!(before.to_proto(secrets()), after.to_proto(secrets()));
        assert_eq!(resumed.plan().unwrap().source, plan.source, "it stays protected");
        assert_eq!(resumed.plan().unwrap().node.as_deref(), Some("n1"));
        assert!(resumed.is_creating() && resumed.is_of_earlier_term());
    }
}

#[test]
fn an_entry_is_read_without_the_code() {
    let state = creating(Plan { request: fixtures::request(json!({}), json!({})).into(), source: None, ..plan() });
    assert_eq!(
        stored(&state),
        json!({
            "node": "n1",
            "request": {
                "volumeName": "pvc-6f1a-02",
                "parameters": { "type": "ssd" },
                "requiredBytes": 10_737_418_240_i64,
                "modes": ["SINGLE_NODE_WRITER"],
                "persistentVolume": {
                    "driver": DRIVER,
                    "name": "pvc-6f1a-02",
                    "claim": { "namespace": "shop", "name": "data", "uid": "6f1a-02", "resourceVersion": "77" },
                    "accessModes": ["ReadWriteOnce"],
                    "volumeMode": "Filesystem",
                    "reclaimPolicy": "Delete",
                    "class": "gold",
                    "fsType": "",
                    "topology": true,
                },
            },
        })
    );
    let all = stored(&creating(plan()));
    assert_eq!(all["source"], json!({ "kind": "VolumeSnapshot", "namespace": "shop", "name": "monday" }));
    assert_eq!(all["request"]["secret"], json!({ "name": "key", "namespace": "safe" }));
    assert_eq!(all["request"]["requirement"]["preferred"], json!([1, 0]));
}

#[test]
fn the_history_begins_at_the_latest_version_from_before_the_record() {
    // The claim has version 77.
    for (segment, expected) in [("5", "77"), ("78", "78"), ("", "77"), ("no number", "77"), ("100", "100")] {
        let resumed = read(stored(&creating(plan()))).resume(segment);
        assert_eq!(resumed.plan().unwrap().unproven.as_deref(), Some(expected), "{segment}");
    }
}

#[test]
fn the_claim_may_be_gone() {
    let entry = read(stored(&creating(plan())));
    assert_eq!(entry.key(), claim().key);
    let state = entry.resume("5");
    assert_eq!((&state.claim.key, state.claim.owner), (&claim().key, Owner::Us));
    assert_eq!(state.claim.class.as_deref(), Some("gold"));
    assert_eq!(SourceKey::of(&state.claim.object), Some(source()), "figures are by the kind of the source");
}

#[test]
fn an_unusable_volume_is_deleted_by_its_id() {
    let mut state = creating(plan());
    state.apply(Change::Unusable { volume_id: "vol-1".to_owned(), why: AttemptError::Endless(1) });
    let entry = read(stored(&state));
    assert_eq!(entry.discarding.as_deref(), Some("vol-1"));
    let resumed = entry.resume("5");
    let Phase::Discarding(unusable) = resumed.phase() else { panic!("{resumed:?}") };
    assert_eq!((unusable.volume_id.as_str(), unusable.by), ("vol-1", Asker::EarlierTerm));
}

#[test]
fn that_no_error_is_final_outlives_the_term() {
    let mut state = creating(plan());
    state.apply(Change::NoErrorIsFinal);
    assert_eq!(stored(&state)["noErrorIsFinal"], json!(true));
    assert!(read(stored(&state)).resume("5").plan().unwrap().no_error_is_final);
}

#[test]
fn an_entry_that_was_edited_is_refused() {
    let good = stored(&creating(plan()));
    for (what, change) in [
        ("missing field `volumeName`", json!({ "request": { "volumeName": null } })),
        ("unknown field `size`", json!({ "request": { "size": 1 } })),
        ("unknown access mode ALL", json!({ "request": { "modes": ["ALL"] } })),
        ("preferred segment 7", json!({ "request": { "requirement": { "preferred": [7] } } })),
        ("unknown variant `Pod`", json!({ "source": { "kind": "Pod" } })),
    ] {
        let mut edited = merged(good.clone(), change);
        if what.starts_with("missing") {
            edited["request"].as_object_mut().unwrap().remove("volumeName");
        }
        let error = serde_json::from_value::<Entry>(edited).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn a_claim_without_a_request_has_no_entry() {
    assert_eq!(Entry::of(&ClaimState::at_first_sight(claim())), None);
}
