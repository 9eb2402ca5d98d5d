use serde_json::json;
use tonic::Code;

use super::*;
use crate::cluster::{ObjectName, PersistentVolume, SecretNotText};
use crate::roles::kit::secrets::SecretFailure;
use crate::roles::provisioner::fixtures::{DRIVER, claim};
use crate::roles::provisioner::sources::source::{Source, Wanted, check_clone, check_grants, check_snapshot};

fn answered(code: Code) -> RpcError {
    RpcError { method: "/x/Y", code, message: "no".into() }
}

fn secret() -> AttemptError {
    let cause = SecretNotText { secret: ObjectName::namespaced("shop", "s"), key: "k".into() };
    READ_SECRET.failed(SecretFailure::from(cause)).into()
}

fn discard(unfit: Option<AttemptError>) -> AttemptError {
    let (handle, unfit) = ("v".into(), unfit.map(Box::new));
    ClaimReason::Discard { handle, unfit, source: answered(Code::Internal) }.into()
}

fn too_small(id: &str, created: i64) -> AttemptError {
    ResponseError::TooSmall { id: id.into(), created, requested: 10 }.into()
}

#[test]
fn the_same_failure_with_another_handle_is_no_news_and_another_failure_is() {
    let undeleted = |id: &str, said: &str| -> AttemptError {
        let source = RpcError { message: format!("{said} {id}"), ..answered(Code::Internal) };
        ClaimReason::Discard { handle: id.into(), unfit: Some(Box::new(too_small(id, 5))), source }.into()
    };
    let taken = |handle: &str, other: &str| -> AttemptError {
        ClaimReason::SaveTaken { handle: handle.into(), other: other.into() }.into()
    };
    for (one, again, other) in [
        (too_small("vol-3-pvc-1", 9), too_small("vol-4-pvc-1", 8), ResponseError::SourceIgnored("vol-3".into()).into()),
        (ClaimReason::Unfit("vol-3".into()).into(), ClaimReason::Unfit("vol-4".into()).into(), too_small("vol-3", 9)),
        (undeleted("vol-3", "stuck:"), undeleted("vol-4", "stuck:"), undeleted("vol-3", "shut:")),
        (undeleted("vol-3", "stuck:"), undeleted("vol-4", "stuck:"), discard(None)),
        (taken("vol-3", "pv-1"), taken("vol-4", "pv-1"), taken("vol-3", "pv-2")),
    ] {
        assert_eq!(one.gist(), again.gist());
        assert_ne!(one.gist(), other.gist());
    }
}

#[test]
fn a_class_that_is_missing_is_told_with_what_to_do() {
    for (refusal, expected) in [
        (InvalidClaim::NoClass, "the claim names no StorageClass: name one"),
        (InvalidClaim::ClassMissing("gold".into()), "StorageClass \"gold\" not found: create it"),
    ] {
        assert!(refusal.to_string().starts_with(expected), "{refusal}");
    }
}

#[test]
fn a_volume_that_is_not_deleted_is_told_with_what_is_wrong_with_it() {
    let small = too_small("v", 5);
    for (error, expected) in [
        (discard(None), "volume v, which no claim wants any more, could not be deleted: "),
        (
            discard(Some(small)),
            "volume v, which cannot be used (the driver created volume v with 5 bytes: at least 10 were \
             requested), could not be deleted: ",
        ),
    ] {
        let text = error.message();
        assert_eq!(text, format!("{expected}{}", answered(Code::Internal)));
    }
}

#[test]
fn whoever_brings_what_nobody_watches_waits_half_a_minute_at_the_most() {
    let unwatched = Some(UNWATCHED);
    let (clone, source) =
        (claim(json!({})), claim(json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}})));
    let wanted = Wanted { claim: &clone, driver: DRIVER, prevent_mode_conversion: true };
    let snapshot = json!({"metadata": {"name": "s"}, "status": {"boundVolumeSnapshotContentName": "content-1"}});
    let snapshot = serde_json::from_value(snapshot).unwrap();
    let (missing, at) = (None::<&PersistentVolume>, ("shop", "s"));
    let foreign = Source::Claim { namespace: "far".into(), name: "c".into() };
    let class = RequestError::AttributesClassDriver { name: "a".into(), found: "b".into(), driver: DRIVER.into() };
    for (error, cap) in [
        (check_grants(&[], "shop", &foreign).unwrap_err().into(), unwatched),
        (check_snapshot(&wanted, at, Some(&snapshot), None).unwrap_err().into(), unwatched),
        (check_clone(&wanted, at, Some(&source), missing).unwrap_err().into(), unwatched),
        (RequestError::AttributesClassMissing("a".into()).into(), unwatched),
        (class.into(), unwatched),
        (secret(), unwatched),
        // What wakes the claim when it comes.
        (check_snapshot(&wanted, at, None, None).unwrap_err().into(), None),
        (check_clone(&wanted, at, None, missing).unwrap_err().into(), None),
        (RequestError::Selector.into(), None),
        (InvalidClaim::ClassMissing("gold".into()).into(), None),
        (AttemptError::Driver(answered(Code::Internal)), None),
        (AttemptError::Driver(answered(Code::Aborted)), answered(Code::Aborted).retry_cap()),
    ] {
        assert_eq!(error.retry(true), Outcome::Retry { cap }, "{}", error.message());
    }
    let unseen: AttemptError = check_snapshot(&wanted, at, None, None).unwrap_err().into();
    assert_eq!(
        unseen.retry(false),
        Outcome::Retry { cap: unwatched },
        "nothing wakes it while snapshots cannot be watched"
    );
    assert!(UNWATCHED > answered(Code::Aborted).retry_cap().unwrap());
}

#[test]
fn what_the_driver_was_asked_for_in_vain_may_have_changed_its_room() {
    for (error, expected) in [
        (answered(Code::Internal).into(), true),
        (ResponseError::NoVolume.into(), true),
        (ClaimReason::Unfit("v".into()).into(), true),
        (discard(None), true),
        (InvalidClaim::NoClass.into(), false),
        (RequestError::Selector.into(), false),
        (secret(), false),
        (AttemptError::Endless(1), false),
    ] {
        assert_eq!(AttemptError::is_of_the_driver(&error), expected, "{}", error.message());
    }
}
