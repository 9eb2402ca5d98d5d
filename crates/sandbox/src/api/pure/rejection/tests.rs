use super::*;
use crate::api::pure::resources::find;

fn pv() -> &'static Resource {
    find("", "v1", "persistentvolumes").unwrap()
}

fn va() -> &'static Resource {
    find("storage.k8s.io", "v1", "volumeattachments").unwrap()
}

#[test]
fn refusals_are_worded_as_the_real_server_words_them() {
    let cause = Cause::invalid("spec.a", &json!("x"), "field is immutable");
    let cases: Vec<(Rejection, u16, &str, &str)> = vec![
        (Rejection::not_found(pv(), "pv-1"), 404, "NotFound", "persistentvolumes \"pv-1\" not found"),
        (Rejection::not_found(va(), "x"), 404, "NotFound", "volumeattachments.storage.k8s.io \"x\" not found"),
        (Rejection::already_exists(pv(), "pv-1"), 409, "AlreadyExists", "persistentvolumes \"pv-1\" already exists"),
        (
            Rejection::conflict(va(), "x"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on volumeattachments.storage.k8s.io \"x\": the object has been modified; please \
             apply your changes to the latest version and try again",
        ),
        (
            Rejection::invalid(va(), "x", std::slice::from_ref(&cause)),
            422,
            "Invalid",
            "VolumeAttachment.storage.k8s.io \"x\" is invalid: spec.a: Invalid value: \"x\": field is immutable",
        ),
        (
            Rejection::invalid(pv(), "x", &[cause.clone(), Cause::required("spec.b", "")]),
            422,
            "Invalid",
            "PersistentVolume \"x\" is invalid: [spec.a: Invalid value: \"x\": field is immutable, spec.b: Required value]",
        ),
        (Rejection::too_old(5, 10), 410, "Expired", "too old resource version: 5 (10)"),
        (Rejection::unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (
            Rejection::forbidden("storage.k8s.io", "volumeattachments", "", "User \"bob\" cannot list"),
            403,
            "Forbidden",
            "volumeattachments.storage.k8s.io is forbidden: User \"bob\" cannot list",
        ),
        (
            Rejection::delete_uid_precondition(va(), "x", "a", "b"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on VolumeAttachment.storage.k8s.io \"x\": the UID in the precondition (a) does not \
             match the UID in record (b). The object might have been deleted and then recreated",
        ),
        (
            Rejection::too_large_resource_version(100, 50),
            504,
            "Timeout",
            "Timeout: Too large resource version: 100, current: 50",
        ),
    ];
    for (rejection, code, reason, message) in cases {
        assert_eq!((rejection.code, rejection.reason, rejection.message.as_str()), (code, reason, message));
    }
}

#[test]
fn a_status_carries_what_clients_match_on() {
    let status = Rejection::invalid(va(), "x", &[Cause::too_long("status.attachError.message", 1024)]).to_status();
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": "VolumeAttachment.storage.k8s.io \"x\" is invalid: status.attachError.message: Too long: may not be more than 1024 bytes",
            "details": { "name": "x", "group": "storage.k8s.io", "kind": "VolumeAttachment", "causes": [{
                "reason": "FieldValueTooLong", "field": "status.attachError.message",
                "message": "Too long: may not be more than 1024 bytes" }] },
        })
    );
}

#[test]
fn apply_conflicts_are_grouped_by_manager() {
    let one = Rejection::apply_conflict(vec![("\"a\" using v1".into(), ".spec.x".into())]);
    assert_eq!(one.message, "Apply failed with 1 conflict: conflict with \"a\" using v1: .spec.x");
    let two = Rejection::apply_conflict(vec![
        ("\"a\" using v1".into(), ".spec.x".into()),
        ("\"a\" using v1".into(), ".spec.y".into()),
    ]);
    assert_eq!(two.message, "Apply failed with 2 conflicts: conflicts with \"a\" using v1:\n- .spec.x\n- .spec.y");
    assert_eq!(two.details.unwrap()["causes"][1]["field"], ".spec.y");
}
