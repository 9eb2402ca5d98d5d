use super::*;
use crate::api::pure::patch::{PatchKind, apply};
use crate::api::pure::resources::find;

fn apply_as(manager: &str, live: Option<&Value>, body: &Value, force: bool) -> Result<Value, Rejection> {
    let kind = PatchKind::Apply { manager: manager.to_owned(), force };
    apply(&kind, find("storage.k8s.io", "v1", "csinodes").unwrap(), live, body.to_string().as_bytes())
}

fn csi_node(labels: &Value, drivers: &Value) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "n1", "labels": labels },
            "spec": { "drivers": drivers } })
}

fn fields_of(object: &Value, manager: &str) -> Option<Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    Some(entries.iter().find(|entry| entry["manager"] == manager)?["fieldsV1"].clone())
}

#[test]
fn an_intent_with_fields_that_the_kind_does_not_have_is_refused() {
    let pod = find("", "v1", "pods").unwrap();
    let ask = |intent: Value| {
        let who = Managed { manager: "m", subresource: "", time: None };
        apply_configuration(pod, None, intent.to_string().as_bytes(), who, false).unwrap_err()
    };
    let intent =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"odd": 1}});
    let refused = ask(intent.clone());
    let says = "failed to create typed patch object (n/p; /v1, Kind=Pod): .spec.odd: field not declared in schema";
    assert_eq!((refused.code, refused.reason, refused.message.as_str()), (500, "", says));
    let mut several = intent;
    several["spec"]["containers"] = json!([{"name": "a", "volumeMounts": [{"mountPath": "/x", "path": 1}]}]);
    let says = "errors:\n  .spec.containers[name=\"a\"].volumeMounts[mountPath=\"/x\"].path: field not declared in schema\n  \
                .spec.odd: field not declared in schema";
    let message = ask(several).message;
    assert!(message.ends_with(says), "{message}");
}

#[test]
fn the_first_apply_creates_the_object_and_owns_its_fields() {
    let body = csi_node(&json!({ "a": "1" }), &json!([{ "name": "d", "nodeID": "i", "topologyKeys": ["z"] }]));
    let object = apply_as("me", None, &body, false).unwrap();
    assert_eq!(object["spec"], body["spec"]);
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "storage.k8s.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": { "f:labels": { "f:a": {} } },
                "f:spec": { "f:drivers": { "k:{\"name\":\"d\"}": { ".": {}, "f:name": {}, "f:nodeID": {}, "f:topologyKeys": {} } } },
            },
        }])
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let body = csi_node(&json!({ "a": "1" }), &json!([{ "name": "d", "nodeID": "i" }]));
    let who = |time| Managed { manager: "me", subresource: "", time: Some(time) };
    let resource = find("storage.k8s.io", "v1", "csinodes").unwrap();
    let bytes = body.to_string();
    let first = apply_configuration(resource, None, bytes.as_bytes(), who("2026-01-01T00:00:00Z"), false).unwrap();
    let second =
        apply_configuration(resource, Some(&first), bytes.as_bytes(), who("2026-01-02T00:00:00Z"), false).unwrap();
    assert_eq!(first, second);
}

#[test]
fn fields_no_longer_applied_go_unless_another_manager_owns_them() {
    let drivers = json!([{ "name": "d", "nodeID": "i" }]);
    let both = json!([{ "name": "d", "nodeID": "i" }, { "name": "e", "nodeID": "j" }]);
    let first = apply_as("me", None, &csi_node(&json!({ "a": "1", "b": "2" }), &both), false).unwrap();
    let second = apply_as("you", Some(&first), &csi_node(&json!({ "b": "2" }), &json!([])), false).unwrap();
    let third = apply_as("me", Some(&second), &csi_node(&json!({}), &drivers), false).unwrap();
    assert_eq!(third["metadata"]["labels"], json!({ "b": "2" }));
    assert_eq!(third["spec"]["drivers"], drivers);
    assert_eq!(fields_of(&third, "you").unwrap()["f:metadata"], json!({ "f:labels": { "f:b": {} } }));
}

#[test]
fn a_field_of_another_manager_is_a_conflict_until_forced() {
    let none = json!([]);
    let live = apply_as("me", None, &csi_node(&json!({ "a": "1" }), &none), false).unwrap();
    let body = csi_node(&json!({ "a": "2" }), &none);
    let rejection = apply_as("you", Some(&live), &body, false).unwrap_err();
    assert_eq!((rejection.code, rejection.reason), (409, "Conflict"));
    assert_eq!(rejection.message, "Apply failed with 1 conflict: conflict with \"me\": .metadata.labels.a");
    assert_eq!(
        rejection.details.unwrap()["causes"],
        json!([{ "reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".metadata.labels.a" }])
    );
    let forced = apply_as("you", Some(&live), &body, true).unwrap();
    assert_eq!(forced["metadata"]["labels"]["a"], "2");
    assert_eq!(fields_of(&forced, "you").unwrap()["f:metadata"], json!({ "f:labels": { "f:a": {} } }));
    assert_eq!(fields_of(&forced, "me"), None, "an entry without fields goes");
}

#[test]
fn fields_from_before_tracking_have_an_owner() {
    let live = csi_node(&json!({ "a": "1" }), &json!([]));
    let same = apply_as("me", Some(&live), &csi_node(&json!({ "a": "1" }), &json!([])), false).unwrap();
    let fields = fields_of(&same, "before-first-apply").unwrap();
    assert_eq!(fields["f:metadata"], json!({ "f:labels": { ".": {}, "f:a": {} } }));
    let other = csi_node(&json!({ "a": "2" }), &json!([]));
    assert_eq!(
        apply_as("me", Some(&live), &other, false).unwrap_err().message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using storage.k8s.io/v1: .metadata.labels.a"
    );
}

#[test]
fn the_same_value_is_shared_without_conflict() {
    let body = csi_node(&json!({ "a": "1" }), &json!([]));
    let live = apply_as("me", None, &body, false).unwrap();
    let shared = apply_as("you", Some(&live), &body, false).unwrap();
    assert_eq!(fields_of(&shared, "me"), fields_of(&shared, "you"));
}

#[test]
fn an_update_takes_fields_and_an_apply_then_meets_them() {
    let resource = find("storage.k8s.io", "v1", "volumeattachments").unwrap();
    let intent = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": "x", "finalizers": ["a/b"], "labels": { "l": "1" } }, "status": { "attached": true } });
    let time = Some("2026-01-01T00:00:00Z");
    let who = Managed { manager: "me", subresource: "", time };
    let live = apply_configuration(resource, None, intent.to_string().as_bytes(), who, false).unwrap();
    assert_eq!(live.get("status"), None, "a status can't be applied to the object itself");

    let mut updated = live.clone();
    updated["metadata"]["labels"]["l"] = "2".into();
    updated["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    track_update(resource, Some(&live), &mut updated, Managed { manager: "you", subresource: "", time });
    assert_eq!(
        fields_of(&updated, "you").unwrap(),
        json!({ "f:metadata": { "f:finalizers": { "v:\"c/d\"": {} }, "f:labels": { "f:l": {} } } })
    );
    assert_eq!(fields_of(&updated, "me").unwrap(), json!({ "f:metadata": { "f:finalizers": { "v:\"a/b\"": {} } } }));

    let again = apply_configuration(resource, Some(&updated), intent.to_string().as_bytes(), who, false);
    assert_eq!(
        again.unwrap_err().message,
        "Apply failed with 1 conflict: conflict with \"you\" using storage.k8s.io/v1 at 2026-01-01T00:00:00Z: \
         .metadata.labels.l"
    );
    let yaml = b"apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nmetadata: {name: x}\n";
    let dropped = apply_configuration(resource, Some(&updated), yaml, who, false).unwrap();
    assert_eq!(dropped["metadata"]["finalizers"], json!(["c/d"]));
    assert_eq!(fields_of(&dropped, "me"), None);
}

#[test]
fn an_update_that_removes_a_field_leaves_it_to_nobody() {
    let resource = find("", "v1", "nodes").unwrap();
    let mut first = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "taints": [{ "key": "k" }] } });
    let me = Managed { manager: "me", subresource: "", time: None };
    track_update(resource, None, &mut first, me);
    assert_eq!(
        fields_of(&first, "me").unwrap(),
        json!({ "f:metadata": { "f:labels": { ".": {}, "f:a": {}, "f:b": {} } }, "f:spec": { "f:taints": {} } })
    );
    let mut second = first.clone();
    second["metadata"]["labels"] = json!({ "a": "1" });
    let mut unchanged = second.clone();
    track_update(resource, Some(&first), &mut second, Managed { manager: "you", ..me });
    assert_eq!(fields_of(&second, "you"), None);
    assert_eq!(fields_of(&second, "me").unwrap()["f:metadata"], json!({ "f:labels": { ".": {}, "f:a": {} } }));
    unchanged["metadata"]["managedFields"] = json!([{}]);
    track_update(resource, Some(&first), &mut unchanged, me);
    assert_eq!(unchanged["metadata"].get("managedFields"), None, "a client can reset them");
}

#[test]
fn an_intent_of_another_kind_is_refused() {
    let cases = [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } }),
        json!({ "metadata": { "name": "n1" } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "managedFields": [{ "manager": "x" }] } }),
    ];
    for body in cases {
        assert_eq!(apply_as("me", None, &body, false).unwrap_err().code, 400);
    }
}

/// Orders as structured-merge-diff v6 merges them.
#[test]
fn merged_sets_take_the_intents_order_and_keep_the_rest_in_place() {
    let cases = [
        ("xa", "za", "xza"),
        ("ab", "ba", "ba"),
        ("axb", "ba", "xba"),
        ("axb", "bza", "xbza"),
        ("xayb", "paqbr", "xpayqbr"),
        ("abc", "ca", "bca"),
        ("abc", "zc", "abzc"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("aax", "a", "ax"),
    ];
    let finalizers = |letters: &str| letters.chars().map(|c| Value::from(format!("k/{c}"))).collect::<Vec<_>>();
    for (live, intent, expected) in cases {
        let mut object = csi_node(&json!({}), &json!([]));
        let mut body = object.clone();
        object["metadata"]["finalizers"] = finalizers(live).into();
        body["metadata"]["finalizers"] = finalizers(intent).into();
        let merged = apply_as("me", Some(&object), &body, false).unwrap();
        assert_eq!(merged["metadata"]["finalizers"], Value::from(finalizers(expected)), "{live} + {intent}");
    }
}
