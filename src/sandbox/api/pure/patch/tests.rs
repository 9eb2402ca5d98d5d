use super::*;
use crate::sandbox::api::pure::resources::find;
use serde_json::json;

fn nodes() -> &'static Resource {
    find("", "v1", "nodes").unwrap()
}

fn patched(kind: &PatchKind, current: &Value, patch: &Value) -> Result<Value, Rejection> {
    apply(kind, nodes(), Some(current), patch.to_string().as_bytes())
}

/// Current, patch, result; no result is 422.
type Case = (Value, Value, Option<Value>);

#[test]
fn json_patches_do_what_the_servers_library_does() {
    let fin = json!({ "metadata": { "finalizers": ["a", "b"] } });
    let bare = json!({ "metadata": {} });
    let cases: Vec<Case> = vec![
        // The first finalizer: a test of null passes on a missing member.
        (
            bare.clone(),
            json!([{ "op": "test", "path": "/metadata/finalizers", "value": null },
                   { "op": "add", "path": "/metadata/finalizers", "value": ["x"] }]),
            Some(json!({ "metadata": { "finalizers": ["x"] } })),
        ),
        (bare.clone(), json!([{ "op": "test", "path": "/metadata/finalizers" }]), Some(bare.clone())),
        (fin.clone(), json!([{ "op": "test", "path": "/metadata/finalizers", "value": null }]), None),
        (bare.clone(), json!([{ "op": "test", "path": "/metadata/finalizers", "value": [] }]), None),
        (bare.clone(), json!([{ "op": "test", "path": "/spec/deep", "value": null }]), None),
        (fin.clone(), json!([{ "op": "test", "path": "/metadata/finalizers/2", "value": null }]), None),
        (
            fin.clone(),
            json!([{ "op": "test", "path": "/metadata/finalizers/1", "value": "b" },
                   { "op": "remove", "path": "/metadata/finalizers/1" }]),
            Some(json!({ "metadata": { "finalizers": ["a"] } })),
        ),
        (fin.clone(), json!([{ "op": "test", "path": "/metadata/finalizers/1", "value": "x" }]), None),
        (
            fin.clone(),
            json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "c" }]),
            Some(json!({ "metadata": { "finalizers": ["a", "b", "c"] } })),
        ),
        (
            fin.clone(),
            json!([{ "op": "add", "path": "/metadata/finalizers/0", "value": "c" }]),
            Some(json!({ "metadata": { "finalizers": ["c", "a", "b"] } })),
        ),
        (
            fin.clone(),
            json!([{ "op": "add", "path": "/metadata/finalizers/2", "value": "c" }]),
            Some(json!({ "metadata": { "finalizers": ["a", "b", "c"] } })),
        ),
        (fin.clone(), json!([{ "op": "add", "path": "/metadata/finalizers/3", "value": "c" }]), None),
        (bare.clone(), json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "c" }]), None),
        (bare.clone(), json!([{ "op": "remove", "path": "/metadata/finalizers" }]), None),
        (
            bare.clone(),
            json!([{ "op": "replace", "path": "/metadata/x", "value": 1 }]),
            Some(json!({ "metadata": { "x": 1 } })),
        ),
        (bare.clone(), json!([{ "op": "replace", "path": "/spec/x", "value": 1 }]), None),
        (fin.clone(), json!([{ "op": "replace", "path": "/metadata/finalizers/2", "value": "c" }]), None),
        (
            fin.clone(),
            json!([{ "op": "replace", "path": "/metadata/finalizers/-1", "value": "c" }]),
            Some(json!({ "metadata": { "finalizers": ["a", "c"] } })),
        ),
        (bare.clone(), json!([{ "op": "replace", "path": "", "value": "text" }]), None),
        (bare.clone(), json!([{ "op": "frobnicate", "path": "/metadata" }]), None),
        (
            json!({ "metadata": { "annotations": { "a/b~c": "1" } } }),
            json!([{ "op": "replace", "path": "/metadata/annotations/a~1b~0c", "value": "2" }]),
            Some(json!({ "metadata": { "annotations": { "a/b~c": "2" } } })),
        ),
        (
            json!({ "a": 1 }),
            json!([{ "op": "copy", "from": "/a", "path": "/b" }, { "op": "move", "from": "/a", "path": "/c" }]),
            Some(json!({ "b": 1, "c": 1 })),
        ),
        // All or nothing: the first operation alone would have worked.
        (json!({ "a": 1 }), json!([{ "op": "remove", "path": "/a" }, { "op": "remove", "path": "/a" }]), None),
    ];
    for (current, patch, expected) in cases {
        let result = patched(&PatchKind::Json, &current, &patch);
        if let Some(expected) = expected {
            assert_eq!(result.unwrap(), expected, "{patch}");
        } else {
            let rejection = result.unwrap_err();
            assert_eq!((rejection.code, rejection.reason), (422, "Invalid"), "{patch}");
            assert_eq!(rejection.message, "the server rejected our request due to an error in our request");
        }
    }
}

#[test]
fn patches_that_cannot_be_read_are_bad_requests() {
    let cases: [(PatchKind, &[u8]); 8] = [
        (PatchKind::Json, b"{}"),
        (PatchKind::Json, b"[1]"),
        (PatchKind::Json, b"[{"),
        (PatchKind::Merge, b"[]"),
        (PatchKind::Merge, b"{"),
        (PatchKind::Strategic, b"1"),
        (PatchKind::Strategic, br#"{"metadata":{"$patch":"explode"}}"#),
        (PatchKind::Strategic, br#"{"metadata":{"ownerReferences":[{"name":"no-uid"}]}}"#),
    ];
    for (kind, body) in cases {
        let rejection = apply(&kind, nodes(), Some(&json!({ "metadata": {} })), body).unwrap_err();
        assert_eq!(rejection.code, 400, "{kind:?} {}", String::from_utf8_lossy(body));
    }
}

#[test]
fn merge_patches_replace_lists_and_remove_nulls() {
    let cases: Vec<(Value, Value, Value)> = vec![
        (json!({ "a": 1, "b": 2 }), json!({ "a": null, "c": 3 }), json!({ "b": 2, "c": 3 })),
        (json!({ "a": { "x": 1, "y": 2 } }), json!({ "a": { "x": null } }), json!({ "a": { "y": 2 } })),
        (json!({ "l": [1, 2] }), json!({ "l": [3] }), json!({ "l": [3] })),
        (json!({ "a": 1 }), json!({ "a": { "b": { "c": null, "d": 1 } } }), json!({ "a": { "b": { "d": 1 } } })),
    ];
    for (current, patch, expected) in cases {
        assert_eq!(patched(&PatchKind::Merge, &current, &patch).unwrap(), expected);
    }
}

#[test]
fn strategic_patches_merge_lists_by_key_and_obey_directives() {
    let owned =
        json!({ "metadata": { "ownerReferences": [{ "uid": "1", "name": "a" }, { "uid": "2", "name": "b" }] } });
    let conditions = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Disk", "status": "False" }] } });
    let fin = json!({ "metadata": { "finalizers": ["a", "b"] } });
    let cases: Vec<(Value, Value, Value)> = vec![
        (
            conditions.clone(),
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }, { "type": "Disk", "status": "False" }] } }),
        ),
        (
            conditions.clone(),
            json!({ "status": { "conditions": [{ "type": "New", "status": "True", "reason": null }],
                                "$setElementOrder/conditions": [{ "type": "New" }, { "type": "Ready" }] } }),
            json!({ "status": { "conditions": [{ "type": "New", "status": "True" }, { "type": "Ready", "status": "True" },
                                               { "type": "Disk", "status": "False" }] } }),
        ),
        (
            owned.clone(),
            json!({ "metadata": { "ownerReferences": [{ "uid": "1", "$patch": "delete" }] } }),
            json!({ "metadata": { "ownerReferences": [{ "uid": "2", "name": "b" }] } }),
        ),
        (
            owned.clone(),
            json!({ "metadata": { "ownerReferences": [{ "$patch": "replace" }, { "uid": "3" }] } }),
            json!({ "metadata": { "ownerReferences": [{ "uid": "3" }] } }),
        ),
        (
            fin.clone(),
            json!({ "metadata": { "finalizers": ["c"] } }),
            json!({ "metadata": { "finalizers": ["a", "b", "c"] } }),
        ),
        (
            fin.clone(),
            json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } }),
            json!({ "metadata": { "finalizers": ["b"] } }),
        ),
        (
            fin.clone(),
            json!({ "metadata": { "$setElementOrder/finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"],
                                  "finalizers": ["c"] } }),
            json!({ "metadata": { "finalizers": ["c", "a"] } }),
        ),
        (fin, json!({ "metadata": { "finalizers": null } }), json!({ "metadata": {} })),
        (
            json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } }),
            json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
            json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
        ),
        (
            json!({ "metadata": { "labels": { "a": "1", "b": "2" } } }),
            json!({ "metadata": { "labels": { "$patch": "replace", "c": "3" } } }),
            json!({ "metadata": { "labels": { "c": "3" } } }),
        ),
        (
            json!({ "metadata": { "labels": { "a": "1" }, "annotations": { "x": "y" } } }),
            json!({ "metadata": { "labels": { "$patch": "delete" }, "annotations": { "x": null } } }),
            json!({ "metadata": { "labels": {}, "annotations": {} } }),
        ),
        (
            json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }),
            json!({ "spec": { "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } }] } }),
            json!({ "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/x" } }] } }),
        ),
    ];
    for (current, patch, expected) in cases {
        assert_eq!(patched(&PatchKind::Strategic, &current, &patch).unwrap(), expected, "{patch}");
    }
}

mod server_side_apply {
    use super::*;

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
        // `me` keeps what it still owns: its empty list of drivers.
        assert_eq!(fields_of(&forced, "me").unwrap(), json!({ "f:spec": { "f:drivers": {} } }));
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
        assert_eq!(
            fields_of(&updated, "me").unwrap(),
            json!({ "f:metadata": { "f:finalizers": { "v:\"a/b\"": {} } } })
        );

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
        let resource = nodes();
        let mut first =
            json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "taints": [{ "key": "k" }] } });
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
}
