use super::*;
use crate::api::pure::resources::find;
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
fn patches_that_cannot_be_read_are_refused() {
    let cases: [(PatchKind, u16, &[u8]); 17] = [
        (PatchKind::Json, 400, b"{}"),
        (PatchKind::Json, 400, b"[1]"),
        (PatchKind::Json, 400, b"[{"),
        (PatchKind::Merge, 400, b"[]"),
        (PatchKind::Merge, 400, b"{"),
        (PatchKind::Strategic, 400, b"1"),
        (PatchKind::Strategic, 400, br#"{"metadata":{"$retainKeys":["uid"],"finalizers":[]}}"#),
        (PatchKind::Strategic, 400, br#"{"metadata":{"$retainKeys":"uid"}}"#),
        // The server takes these for faults of its own.
        (PatchKind::Strategic, 500, br#"{"metadata":{"$patch":"explode"}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"$patch":"merge"}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"ownerReferences":[{"name":"no-uid"}]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"ownerReferences":[{"$patch":"delete"}]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"ownerReferences":["1"]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"ownerReferences":[{"uid":"1","$patch":"merge"}]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"ownerReferences":[{"uid":"1","$patch":"explode"}]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"$setElementOrder/finalizers":["b"],"finalizers":["c"]}}"#),
        (PatchKind::Strategic, 500, br#"{"metadata":{"$setElementOrder/finalizers":"b"}}"#),
    ];
    let current = json!({ "metadata": { "ownerReferences": [{ "uid": "1" }] } });
    for (kind, code, body) in cases {
        let rejection = apply(&kind, nodes(), Some(&current), body).unwrap_err();
        assert_eq!(rejection.code, code, "{kind:?} {}", String::from_utf8_lossy(body));
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
        // Deletions come first, wherever they stand.
        (
            owned.clone(),
            json!({ "metadata": { "ownerReferences": [{ "uid": "1", "kind": "K" }, { "uid": "1", "$patch": "delete" }] } }),
            json!({ "metadata": { "ownerReferences": [{ "uid": "1", "kind": "K" }, { "uid": "2", "name": "b" }] } }),
        ),
        (
            owned.clone(),
            json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": "a", "$unheard": 1, "$retainKeys": ["ownerReferences"] } }),
            owned.clone(),
        ),
        (
            owned.clone(),
            json!({ "metadata": { "ownerReferences": [{ "$patch": "replace" }, { "uid": "3" }] } }),
            json!({ "metadata": { "ownerReferences": [{ "uid": "3" }] } }),
        ),
        (
            fin.clone(),
            json!({ "metadata": { "finalizers": ["c"] } }),
            json!({ "metadata": { "finalizers": ["c", "a", "b"] } }),
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

/// Answers of `k8s.io/apimachinery` v0.36.3 for a Node, or for a Pod where there are containers or volumes.
#[test]
fn strategic_patches_answer_as_apimachinery_does() {
    let cases = [
        (
            r#"{"status":{"conditions":[{"type":"A"},{"type":"B"},{"type":"C"}]}}"#,
            r#"{"status":{"$setElementOrder/conditions":[{"type":"C"},{"type":"A"}]}}"#,
            r#"{"status":{"conditions":[{"type":"B"},{"type":"C"},{"type":"A"}]}}"#,
        ),
        (
            r#"{"status":{"conditions":[{"type":"A"},{"type":"B"},{"type":"C"}]}}"#,
            r#"{"status":{"$setElementOrder/conditions":[{"type":"C"},{"type":"A"},{"type":"D"}],"conditions":[{"type":"D","status":"x"}]}}"#,
            r#"{"status":{"conditions":[{"type":"B"},{"type":"C"},{"type":"A"},{"status":"x","type":"D"}]}}"#,
        ),
        (
            r#"{"status":{"conditions":[{"type":"A"},{"type":"B"},{"type":"C"},{"type":"D"}]}}"#,
            r#"{"status":{"$setElementOrder/conditions":[{"type":"D"},{"type":"B"}],"conditions":[{"type":"B","s":"1"},{"type":"C","$patch":"delete"}]}}"#,
            r#"{"status":{"conditions":[{"type":"A"},{"type":"D"},{"s":"1","type":"B"}]}}"#,
        ),
        (
            r#"{"metadata":{"finalizers":["a","b","x"]}}"#,
            r#"{"metadata":{"$setElementOrder/finalizers":["c","a"],"finalizers":["c"]}}"#,
            r#"{"metadata":{"finalizers":["c","a","b","x"]}}"#,
        ),
        (
            r#"{"metadata":{"finalizers":["a","b","c"]}}"#,
            r#"{"metadata":{"$setElementOrder/finalizers":["c","b","a"]}}"#,
            r#"{"metadata":{"finalizers":["c","b","a"]}}"#,
        ),
        (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"$patch":"replace","b":"2"}}}"#, r#"{"metadata":{}}"#),
        (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"b":null,"c":"1"}}}"#, r#"{"metadata":{"labels":{"c":"1"}}}"#),
        (
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"ownerReferences":[{"name":"no-uid"}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"name":"no-uid"}]}}"#,
        ),
        (
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"ownerReferences":[{"uid":"2","$patch":"delete"},{"uid":"3","x":null}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"uid":"3"}]}}"#,
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"uid":"1"}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"uid":"1","$patch":"replace","name":"z"},{"uid":"3"}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"uid":"3"}]}}"#,
        ),
        (
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            r#"{"$patch":"replace","metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x"}}"#,
        ),
        (
            r#"{"status":{"addresses":[{"type":"A","address":"1"},{"type":"A","address":"2"}]}}"#,
            r#"{"status":{"addresses":[{"type":"A","address":"3"}]}}"#,
            r#"{"status":{"addresses":[{"address":"3","type":"A"},{"address":"2","type":"A"}]}}"#,
        ),
        (
            r#"{"spec":{"containers":[{"name":"a","image":"1","env":[{"name":"X","value":"1"}]},{"name":"b"}]}}"#,
            r#"{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"2","env":[{"name":"Y","value":"2"}],"$setElementOrder/env":[{"name":"Y"},{"name":"X"}]}]}}"#,
            r#"{"spec":{"containers":[{"name":"b"},{"env":[{"name":"Y","value":"2"},{"name":"X","value":"1"}],"image":"2","name":"a"}]}}"#,
        ),
        (
            r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1,"protocol":"TCP"}]}]}}"#,
            r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1,"protocol":"UDP"}]}]}}"#,
            r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":1,"protocol":"UDP"}]}]}}"#,
        ),
    ];
    for (current, patch, expected) in cases {
        let current = serde_json::from_str(current).unwrap();
        let result = apply(&PatchKind::Strategic, nodes(), Some(&current), patch.as_bytes()).unwrap();
        assert_eq!(result, serde_json::from_str::<Value>(expected).unwrap(), "{patch}");
    }
}
