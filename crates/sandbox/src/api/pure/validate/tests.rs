use super::*;
use crate::api::pure::resources::find;
use proptest::prelude::*;
use serde_json::json;

/// Members to replace, by pointer.
type Changes = Vec<(&'static str, Value)>;

fn resource(plural: &str) -> &'static Resource {
    let groups = ["", "storage.k8s.io", "coordination.k8s.io"];
    groups.iter().find_map(|group| find(group, "v1", plural)).unwrap()
}

/// A valid object of this kind.
fn valid(plural: &str) -> Value {
    let metadata = json!({ "name": "x", "uid": "u", "resourceVersion": "1" });
    let namespaced = json!({ "name": "x", "uid": "u", "resourceVersion": "1", "namespace": "default" });
    let csi = json!({ "driver": "csi.example.com", "volumeHandle": "h" });
    match plural {
        "volumeattachments" => json!({ "metadata": metadata, "spec": { "attacher": "csi.example.com", "nodeName": "n1",
            "source": { "persistentVolumeName": "pv-1" } }, "status": { "attached": false } }),
        "persistentvolumes" => json!({ "metadata": metadata, "spec": { "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" }, "csi": csi } }),
        "persistentvolumeclaims" => json!({ "metadata": namespaced, "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }),
        "csinodes" => json!({ "metadata": metadata, "spec": { "drivers": [{ "name": "d", "nodeID": "i" }] } }),
        "leases" => json!({ "metadata": namespaced, "spec": { "leaseDurationSeconds": 15, "leaseTransitions": 0 } }),
        "events" => json!({ "metadata": namespaced, "involvedObject": { "kind": "PersistentVolume", "name": "pv-1" } }),
        "secrets" => json!({ "metadata": namespaced, "type": "Opaque", "data": { "a": "YQ==" } }),
        "storageclasses" => json!({ "metadata": metadata, "provisioner": "csi.example.com" }),
        "pods" => json!({ "metadata": namespaced, "spec": { "containers": [{ "name": "a", "image": "i" }] } }),
        _ => json!({ "metadata": metadata, "spec": {} }),
    }
}

/// The valid object, with these members replaced (null removes).
fn with(plural: &str, changes: &[(&str, Value)]) -> Value {
    let mut object = valid(plural);
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(key);
        } else {
            parent.insert(key.to_owned(), value.clone());
        }
    }
    object
}

fn fields(rejection: &Rejection) -> Vec<String> {
    let causes = rejection.details.as_ref().unwrap()["causes"].as_array().unwrap().clone();
    causes.iter().map(|it| it["field"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn valid_objects_are_taken() {
    for plural in [
        "volumeattachments",
        "persistentvolumes",
        "persistentvolumeclaims",
        "csinodes",
        "leases",
        "events",
        "secrets",
        "storageclasses",
        "nodes",
        "namespaces",
        "csidrivers",
    ] {
        let object = valid(plural);
        assert_eq!(on_create(resource(plural), &object), Ok(()), "{plural}");
        assert_eq!(on_update(resource(plural), &object, &object, false), Ok(()), "{plural}");
    }
}

#[test]
fn new_objects_are_refused_for_each_of_their_faults() {
    let inline = |spec: Value| vec![("/spec/source", json!({ "inlineVolumeSpec": spec }))];
    let csi = json!({ "driver": "csi.example.com", "volumeHandle": "h" });
    let cases: Vec<(&str, Changes, Vec<&str>)> = vec![
        ("nodes", vec![("/metadata/name", json!("Bad_Name"))], vec!["metadata.name"]),
        ("nodes", vec![("/metadata/name", Value::Null)], vec!["metadata.name"]),
        ("namespaces", vec![("/metadata/name", json!("a.b"))], vec!["metadata.name"]),
        ("nodes", vec![("/metadata/namespace", json!("default"))], vec!["metadata.namespace"]),
        ("leases", vec![("/metadata/namespace", Value::Null)], vec!["metadata.namespace"]),
        ("nodes", vec![("/metadata/finalizers", json!(["plain"]))], vec!["metadata.finalizers[0]"]),
        ("nodes", vec![("/metadata/labels", json!({ "a b": "c d" }))], vec!["metadata.labels", "metadata.labels"]),
        (
            "volumeattachments",
            vec![("/spec/source", json!({})), ("/spec/attacher", Value::Null), ("/spec/nodeName", Value::Null)],
            vec!["spec.source", "spec.nodeName", "spec.attacher"],
        ),
        (
            "volumeattachments",
            vec![("/spec/source", json!({ "persistentVolumeName": "pv-1", "inlineVolumeSpec": {} }))],
            vec!["spec.source"],
        ),
        (
            "volumeattachments",
            inline(json!({ "accessModes": ["ReadWriteOnce"], "csi": csi, "capacity": { "storage": "1Gi" } })),
            vec!["spec.source.inlineVolumeSpec.capacity"],
        ),
        ("volumeattachments", inline(json!({ "accessModes": ["ReadWriteOnce"], "csi": csi })), vec![]),
        (
            "persistentvolumes",
            vec![("/spec", json!({}))],
            vec!["spec.accessModes", "spec.capacity", "spec.capacity", "spec"],
        ),
        (
            "persistentvolumes",
            vec![("/spec/accessModes", json!(["ReadWriteOncePod", "ReadWriteOnce", "Odd"]))],
            vec!["spec.accessModes", "spec.accessModes"],
        ),
        ("persistentvolumes", vec![("/spec/capacity", json!({ "storage": "0" }))], vec!["spec.capacity[storage]"]),
        ("persistentvolumes", vec![("/spec/hostPath", json!({ "path": "/x" }))], vec!["spec.csi"]),
        (
            "persistentvolumes",
            vec![("/spec/csi", json!({ "controllerPublishSecretRef": { "name": "s" } }))],
            vec!["spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.controllerPublishSecretRef.namespace"],
        ),
        ("persistentvolumeclaims", vec![("/spec", json!({}))], vec!["spec.accessModes", "spec.resources[storage]"]),
        (
            "csinodes",
            vec![("/spec/drivers", json!([{ "name": "d", "nodeID": "i" }, { "name": "d", "nodeID": "" }]))],
            vec!["spec.drivers[1].nodeID", "spec.drivers[1].name"],
        ),
        (
            "leases",
            vec![("/spec", json!({ "leaseDurationSeconds": 0, "leaseTransitions": -1 }))],
            vec!["spec.leaseDurationSeconds", "spec.leaseTransitions"],
        ),
        ("events", vec![("/metadata/namespace", json!("other"))], vec!["involvedObject.namespace"]),
        ("secrets", vec![("/type", json!("kubernetes.io/tls"))], vec!["data[tls.crt]", "data[tls.key]"]),
    ];
    for (plural, changes, expected) in cases {
        let object = with(plural, &changes);
        match on_create(resource(plural), &object) {
            Ok(()) => assert!(expected.is_empty(), "{object} was taken"),
            Err(rejection) => {
                assert_eq!(rejection.code, 422);
                assert_eq!(fields(&rejection), expected, "{}", rejection.message);
            }
        }
    }
}

#[test]
fn updates_are_refused_for_what_may_not_change() {
    let deleting = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let frozen = ("/immutable", json!(true));
    let bound = ("/status", json!({ "phase": "Bound" }));
    let larger = ("/spec/resources", json!({ "requests": { "storage": "2Gi" } }));
    let cases: Vec<(&str, Changes, Changes, Vec<&str>)> = vec![
        ("nodes", vec![], vec![("/metadata/uid", json!("other"))], vec!["metadata.uid"]),
        ("nodes", vec![], vec![("/metadata/resourceVersion", Value::Null)], vec!["metadata.resourceVersion"]),
        ("nodes", vec![], vec![("/metadata/finalizers", json!(["a/b"]))], vec![]),
        (
            "nodes",
            vec![deleting.clone()],
            vec![deleting.clone(), ("/metadata/finalizers", json!(["a/b"]))],
            vec!["metadata.finalizers"],
        ),
        (
            "nodes",
            vec![deleting.clone(), ("/metadata/finalizers", json!(["a/b", "c/d"]))],
            vec![deleting, ("/metadata/finalizers", json!(["c/d"]))],
            vec![],
        ),
        ("volumeattachments", vec![], vec![("/spec/nodeName", json!("n2"))], vec!["spec"]),
        (
            "persistentvolumes",
            vec![],
            vec![("/spec/csi", json!({ "driver": "csi.example.com", "volumeHandle": "other" }))],
            vec!["spec.persistentvolumesource"],
        ),
        ("persistentvolumes", vec![], vec![("/spec/capacity", json!({ "storage": "2Gi" }))], vec![]),
        ("persistentvolumes", vec![], vec![("/spec/volumeMode", json!("Block"))], vec!["volumeMode"]),
        ("persistentvolumeclaims", vec![], vec![("/spec/volumeName", json!("pv-1"))], vec![]),
        ("persistentvolumeclaims", vec![], vec![larger.clone()], vec!["spec"]),
        ("persistentvolumeclaims", vec![bound.clone()], vec![bound, larger], vec![]),
        ("csinodes", vec![], vec![("/spec/drivers", json!([{ "name": "d", "nodeID": "j" }]))], vec!["spec.drivers"]),
        ("csinodes", vec![], vec![("/spec/drivers", json!([]))], vec![]),
        (
            "csinodes",
            vec![],
            vec![("/spec/drivers", json!([{ "name": "d", "nodeID": "i", "allocatable": { "count": 3 } }]))],
            vec![],
        ),
        ("pods", vec![], vec![("/spec/nodeName", json!("n")), ("/spec/containers/0/image", json!("j"))], vec![]),
        ("pods", vec![("/spec/nodeName", json!("n"))], vec![("/spec/nodeName", json!("m"))], vec!["spec"]),
        ("pods", vec![], vec![("/spec/tolerations", json!([{ "key": "k" }]))], vec![]),
        ("pods", vec![("/spec/tolerations", json!([{ "key": "k" }]))], vec![], vec!["spec"]),
        ("pods", vec![], vec![("/spec/volumes", json!([{ "name": "v", "emptyDir": {} }]))], vec!["spec"]),
        (
            "pods",
            vec![],
            vec![("/spec/containers", json!([{ "name": "a", "image": "i" }, { "name": "b", "image": "i" }]))],
            vec!["spec.containers"],
        ),
        ("secrets", vec![], vec![("/type", json!("other"))], vec!["type"]),
        ("secrets", vec![frozen.clone()], vec![("/data", json!({ "b": "YQ==" }))], vec!["immutable", "data"]),
        ("storageclasses", vec![], vec![("/parameters", json!({ "a": "b" }))], vec!["parameters"]),
        ("storageclasses", vec![], vec![("/reclaimPolicy", json!("Delete"))], vec![]),
    ];
    for (plural, before, after, expected) in cases {
        let (old, new) = (with(plural, &before), with(plural, &after));
        match on_update(resource(plural), &old, &new, false) {
            Ok(()) => assert!(expected.is_empty(), "{new} was taken"),
            Err(rejection) => assert_eq!(fields(&rejection), expected, "{}", rejection.message),
        }
    }
}

#[test]
fn a_finalizer_added_while_deleting_is_refused_in_the_servers_words() {
    let deleting = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let old = with("persistentvolumes", std::slice::from_ref(&deleting));
    let new = with("persistentvolumes", &[deleting, ("/metadata/finalizers", json!(["a/b"]))]);
    let rejection = on_update(resource("persistentvolumes"), &old, &new, false).unwrap_err();
    assert_eq!(
        rejection.message,
        "PersistentVolume \"x\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
         being deleted, found new finalizers []string{\"a/b\"}"
    );
}

#[test]
fn an_attachments_error_message_has_at_most_1024_bytes() {
    let status =
        |bytes: usize| vec![("/status", json!({ "attached": false, "attachError": { "message": "x".repeat(bytes) } }))];
    let (va, old) = (resource("volumeattachments"), valid("volumeattachments"));
    assert_eq!(on_update(va, &old, &with("volumeattachments", &status(1024)), true), Ok(()));
    let rejection = on_update(va, &old, &with("volumeattachments", &status(1025)), true).unwrap_err();
    assert_eq!((rejection.code, fields(&rejection)), (422, vec!["status.attachError.message".to_owned()]));
    let big = json!({ "attached": true, "attachmentMetadata": { "k": "v".repeat(256 * 1024) } });
    let rejection = on_update(va, &old, &with("volumeattachments", &[("/status", big)]), true).unwrap_err();
    assert_eq!(fields(&rejection), ["status.attachmentMetadata"]);
}

#[test]
fn what_a_claim_says_of_its_volumes_health_is_refused_as_by_the_declared_rules_of_1_37() {
    let claims = resource("persistentvolumeclaims");
    let told = |conditions: Value| {
        let new = with(
            "persistentvolumeclaims",
            &[("/status", json!({ "healthStatus": { "healthConditions": conditions } }))],
        );
        on_update(claims, &valid("persistentvolumeclaims"), &new, true).map_err(|rejection| fields(&rejection))
    };
    let condition =
        |status: &str, reason: &str, message: &str| json!({ "status": status, "reason": reason, "message": message });
    let fine = |number: usize| condition("Degraded", &format!("Slow{number}"), &"m".repeat(1024));
    assert_eq!(told((0..16).map(fine).collect()), Ok(()));
    let of = |index: usize, member: &str| Err(vec![format!("status.healthStatus.healthConditions[{index}]{member}")]);
    for (conditions, fault) in [
        (json!([condition("Slow", "A", "")]), of(0, ".status")),
        (json!([condition("DataLoss", "", "")]), of(0, ".reason")),
        (json!([condition("DataLoss", "7 of 9", "")]), of(0, ".reason")),
        (json!([condition("DataLoss", &"R".repeat(257), "")]), of(0, ".reason")),
        (json!([condition("DataLoss", "A", &"m".repeat(1025))]), of(0, ".message")),
        (json!([condition("DataLoss", "A", ""), condition("DataLoss", "A", "again")]), of(1, "")),
        ((0..17).map(fine).collect(), Err(vec!["status.healthStatus.healthConditions".to_owned()])),
    ] {
        assert_eq!(told(conditions.clone()), fault, "{conditions}");
    }
}

#[test]
fn members_of_the_wrong_type_are_undecodable() {
    let cases = [
        (
            "volumeattachments",
            "/spec/attacher",
            json!(5),
            "json: cannot unmarshal number into Go struct field VolumeAttachmentSpec.spec.attacher of type string",
        ),
        (
            "volumeattachments",
            "/status",
            json!({ "attached": "yes" }),
            "json: cannot unmarshal string into Go struct field VolumeAttachmentStatus.status.attached of type bool",
        ),
        (
            "persistentvolumes",
            "/spec/csi",
            json!({ "volumeAttributes": { "a": true } }),
            "json: cannot unmarshal bool into Go struct field CSIPersistentVolumeSource.spec.csi.volumeAttributes of type string",
        ),
        (
            "csinodes",
            "/spec/drivers",
            json!([{ "nodeID": {} }]),
            "json: cannot unmarshal object into Go struct field CSINodeDriver.spec.drivers.nodeID of type string",
        ),
        (
            "nodes",
            "/metadata/finalizers",
            json!("a/b"),
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
        (
            "leases",
            "/spec/leaseDurationSeconds",
            json!(1.5),
            "json: cannot unmarshal number into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
        ),
    ];
    for (plural, pointer, value, message) in cases {
        let rejection = on_create(resource(plural), &with(plural, &[(pointer, value)])).unwrap_err();
        assert_eq!(rejection.code, 400);
        assert!(rejection.message.ends_with(message), "{}", rejection.message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any object gets a verdict and never a panic, and a check never changes an object.
    #[test]
    fn any_json_gets_a_verdict(text in "[a-zA-Z0-9/._ -]{0,80}", number in any::<i64>(), i in 0usize..11) {
        let plurals = ["volumeattachments", "persistentvolumes", "persistentvolumeclaims", "csinodes", "csidrivers", "leases",
            "events", "secrets", "configmaps", "pods", "storageclasses"];
        let resource = resource(plurals[i]);
        for odd in [json!(text), json!(number), json!([text]), json!({ text.clone(): number }), Value::Null] {
            let object = json!({ "metadata": { "name": text, "finalizers": [text], "labels": { text.clone(): text } },
                "spec": odd, "status": odd, "data": odd, "provisioner": odd, "involvedObject": odd });
            let verdict = on_create(resource, &object);
            prop_assert_eq!(&verdict, &on_create(resource, &object));
            let _ = on_update(resource, &object, &odd, false);
            let _ = on_update(resource, &odd, &object, true);
        }
    }
}
