use super::super::fixtures::{BDEL, FIN, INTENT, MARK, content, marked};
use super::*;

const MARK_PATH: &str = "/metadata/annotations/snapshot.storage.kubernetes.io~1volumesnapshot-being-created";
const BDEL_PATH: &str = "/metadata/annotations/snapshot.storage.kubernetes.io~1volumesnapshot-being-deleted";
const UID_PATH: &str = "/metadata/annotations/csi-control-plane.io~1content-uid";
const INTENT_PATH: &str = "/metadata/annotations/csi-control-plane.io~1snapshotting";

fn operations(patch: Option<Patch>) -> Value {
    patch.map_or(Value::Null, |patch| serde_json::to_value(patch).unwrap())
}

fn tests(value: &Value, deletion: &Value) -> [Value; 3] {
    [
        json!({ "op": "test", "path": "/metadata/uid", "value": "content-uid" }),
        json!({ "op": "test", "path": "/metadata/finalizers", "value": value }),
        json!({ "op": "test", "path": "/metadata/deletionTimestamp", "value": deletion }),
    ]
}

fn of(parts: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(parts.into_iter().collect())
}

#[test]
fn s29_p1_puts_finalizer_mark_and_intent_in_one_patch() {
    let bare = content(json!({ "metadata": { "finalizers": null, "annotations": null } }));
    let expected = tests(&json!(null), &json!(null)).into_iter().chain([
        json!({ "op": "test", "path": "/metadata/annotations", "value": null }),
        json!({ "op": "add", "path": "/metadata/finalizers", "value": [FIN] }),
        json!({ "op": "add", "path": "/metadata/annotations", "value": {} }),
        json!({ "op": "add", "path": MARK_PATH, "value": "yes" }),
        json!({ "op": "add", "path": INTENT_PATH, "value": "I" }),
        json!({ "op": "add", "path": UID_PATH, "value": "content-uid" }),
    ]);
    assert_eq!(operations(begun(&bare, "I")), of(expected));
}

#[test]
fn s38_p1_leaves_what_is_others() {
    let other = content(json!({ "metadata": { "finalizers": ["other"], "annotations": { "foreign": "x" } } }));
    let expected = tests(&json!(["other"]), &json!(null)).into_iter().chain([
        json!({ "op": "test", "path": BDEL_PATH, "value": null }),
        json!({ "op": "add", "path": "/metadata/finalizers/-", "value": FIN }),
        json!({ "op": "add", "path": MARK_PATH, "value": "yes" }),
        json!({ "op": "add", "path": INTENT_PATH, "value": "I" }),
        json!({ "op": "add", "path": UID_PATH, "value": "content-uid" }),
    ]);
    assert_eq!(operations(begun(&other, "I")), of(expected));
}

#[test]
fn p1_adds_only_what_is_missing() {
    let begun_already = content(json!({ "metadata": { "annotations": { MARK: "yes", INTENT: "I" } } }));
    assert_eq!(begun(&begun_already, "I"), None);
    let annotated = |uid: &str| {
        let annotations = json!({ MARK: "yes", INTENT: "I", names::ANNOTATION_CONTENT_UID: uid });
        operations(begun(&content(json!({ "metadata": { "annotations": annotations } })), "I"))
    };
    assert_eq!(annotated("content-uid"), Value::Null);
    assert!(
        annotated("of a namesake").to_string().contains(UID_PATH),
        "somebody has put a namesake's annotations on it"
    );
    let by_the_sidecar = content(json!({ "metadata": { "annotations": { MARK: "yes" } } }));
    let expected = tests(&json!([FIN]), &json!(null)).into_iter().chain([
        json!({ "op": "test", "path": BDEL_PATH, "value": null }),
        json!({ "op": "add", "path": INTENT_PATH, "value": "I" }),
        json!({ "op": "add", "path": UID_PATH, "value": "content-uid" }),
    ]);
    assert_eq!(operations(begun(&by_the_sidecar, "I")), of(expected));
}

#[test]
fn s39_a_wiped_mark_comes_back_also_under_deletion() {
    let wiped = content(json!({ "metadata": {
        "deletionTimestamp": "2026-01-02T03:04:05Z", "annotations": { BDEL: "yes" } } }));
    let expected = tests(&json!([FIN]), &json!("2026-01-02T03:04:05Z")).into_iter().chain([
        json!({ "op": "test", "path": BDEL_PATH, "value": "yes" }),
        json!({ "op": "add", "path": MARK_PATH, "value": "yes" }),
        json!({ "op": "add", "path": INTENT_PATH, "value": "I" }),
        json!({ "op": "add", "path": UID_PATH, "value": "content-uid" }),
    ]);
    assert_eq!(operations(begun(&wiped, "I")), of(expected));
    let unprotected =
        content(json!({ "metadata": { "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["other"] } }));
    let patch = operations(begun(&unprotected, "I")).to_string();
    assert!(!patch.contains("/metadata/finalizers/-"), "no finalizer can be added while it is being deleted: {patch}");
}

#[test]
fn s55_p3_takes_off_what_is_there_and_nothing_of_others() {
    let uid = tests(&json!(null), &json!(null))[0].clone();
    let gone = |path: &str| json!({ "op": "remove", "path": path });
    assert_eq!(operations(unmarked(&marked(json!({})), false)), of([uid.clone(), gone(MARK_PATH), gone(INTENT_PATH)]));
    assert_eq!(operations(unmarked(&marked(json!({})), true)), of([uid.clone(), gone(MARK_PATH)]));
    let intent = content(json!({ "metadata": { "annotations": { INTENT: "I", "foreign": "x" } } }));
    assert_eq!(operations(unmarked(&intent, false)), of([uid, gone(INTENT_PATH)]));
    assert_eq!(unmarked(&intent, true), None);
    assert_eq!(unmarked(&content(json!({})), false), None);
}

#[test]
fn p4_removes_each_place_of_the_finalizer_and_the_marks_with_it() {
    let [uid, ..] = tests(&json!(null), &json!(null));
    let held = json!([FIN, "other", FIN]);
    let twice = content(json!({ "metadata": { "finalizers": held, "annotations": { MARK: "yes" } } }));
    assert_eq!(
        operations(released(&twice)),
        of([
            uid,
            json!({ "op": "test", "path": "/metadata/finalizers", "value": held }),
            json!({ "op": "test", "path": "/spec/deletionPolicy", "value": "Delete" }),
            json!({ "op": "remove", "path": "/metadata/finalizers/2" }),
            json!({ "op": "remove", "path": "/metadata/finalizers/0" }),
            json!({ "op": "remove", "path": MARK_PATH }),
        ])
    );
    assert_eq!(released(&content(json!({ "metadata": { "finalizers": ["other"] } }))), None);
}
