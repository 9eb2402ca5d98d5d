//! Strategic merge patches as a role writes them: a status that several controllers write, and what guards a patch.

use http::Method;
use serde_json::{Value, json};

use super::dialogue::{Answer, Case, PatchType, Server};
use super::objects::{CLAIMS, CONFIG_MAPS, CSI_NODES, VOLUMES, claim, config_map, volume, with};

const CLAIM: &str = "/api/v1/namespaces/CASE/persistentvolumeclaims/a";
const STATUS: &str = "/api/v1/namespaces/CASE/persistentvolumeclaims/a/status";
const NODES: &str = "/api/v1/nodes";

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": "m",
        "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// Types and reasons of a status' conditions, in their order.
fn conditions<'a>(answer: &'a Answer) -> Vec<(&'a str, &'a str)> {
    let list = answer.body.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |condition: &'a Value, member: &str| condition[member].as_str().unwrap_or_default();
    list.iter().map(|condition| (text(condition, "type"), text(condition, "reason"))).collect()
}

/// Merges conditions into the claim's status.
async fn merge(case: &mut Case, conditions: Value) -> Answer {
    case.patch(PatchType::Strategic, STATUS, json!({"status": {"conditions": conditions}})).await
}

pub(crate) async fn a_condition_is_merged_by_its_type(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CLAIMS, claim("a")).await;
    let delete = |kind: &str| json!({"$patch": "delete", "type": kind});
    let written = case.patch(PatchType::Strategic, STATUS, json!({"status": {"accessModes": ["ReadWriteOnce"]}})).await;
    // There is no list yet, so nothing is to be removed.
    let none = merge(&mut case, json!([delete("Resizing")])).await;
    assert_eq!((none.version(), none.body.pointer("/status/conditions")), (written.version(), None));
    let one = merge(&mut case, json!([delete("Resizing"), condition("Theirs", "One")])).await;
    assert_eq!(conditions(&one), [("Theirs", "One")]);
    let two = merge(&mut case, json!([condition("Resizing", "Two")])).await;
    assert_eq!(two.body["status"]["conditions"].as_array().map(Vec::len), Some(2));
    // Members that a patch does not name stay; null removes.
    merge(&mut case, json!([{"type": "Theirs", "message": "changed"}])).await;
    let bare =
        merge(&mut case, json!([{"type": "Theirs", "reason": null, "message": null, "lastProbeTime": null}])).await;
    assert!(conditions(&bare).contains(&("Theirs", "")));
    let fresh =
        json!({"type": "Fresh", "status": "True", "reason": null, "lastTransitionTime": "2026-01-02T00:00:00Z"});
    merge(&mut case, json!([fresh, delete("Resizing"), delete("Unheard")])).await;
    let ordered = json!({"status": {"$setElementOrder/conditions": [{"type": "Theirs"}, {"type": "Fresh"}],
        "conditions": [condition("Fresh", "Last")]}});
    let ordered = case.patch(PatchType::Strategic, STATUS, ordered).await;
    assert_eq!(conditions(&ordered), [("Theirs", ""), ("Fresh", "Last")]);
    let replaced = merge(&mut case, json!([{"$patch": "replace"}, condition("Only", "One")])).await;
    assert_eq!(conditions(&replaced), [("Only", "One")]);
    // A list that this empties is gone.
    let gone = merge(&mut case, json!([delete("Only")])).await;
    assert_eq!(gone.body.pointer("/status/conditions"), None);
    // The object's own path does not write the status.
    let elsewhere = json!({"status": {"conditions": [condition("Resizing", "x")]}});
    let unchanged = case.patch(PatchType::Strategic, CLAIM, elsewhere).await;
    assert_eq!((unchanged.code, unchanged.version()), (200, gone.version()));
    case.end("a_condition_is_merged_by_its_type");
}

pub(crate) async fn a_claims_status_loses_single_keys(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CLAIMS, with(claim("a"), "/spec", "volumeName", json!("pv-1"))).await;
    let write = async |case: &mut Case, body: Value| case.patch(PatchType::Strategic, STATUS, body).await;
    let key = "volume.kubernetes.io/node-expansion-not-required";
    let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    assert_eq!(write(&mut case, bound).await.text("/status/phase"), "Bound");
    let begun = json!({"metadata": {"annotations": {key: null}, "labels": {"a": "b"}}, "spec": {"volumeName": "pv-2"},
        "status": {"allocatedResources": {"storage": "2Gi", "example.com/x": "1"},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress", "example.com/x": "NodeResizePending"},
            "modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": "gold"}}});
    let begun = write(&mut case, begun).await;
    assert_eq!((begun.text("/spec/volumeName"), begun.text("/metadata/labels/a")), ("pv-1", "b"));
    let done = json!({"metadata": {"annotations": {key: "true"}}, "status": {"capacity": {"storage": "2147483648"},
        "allocatedResourceStatuses": {"storage": null}, "modifyVolumeStatus": null,
        "currentVolumeAttributesClassName": "gold"}});
    let done = write(&mut case, done).await;
    assert_eq!(done.body["status"]["allocatedResourceStatuses"], json!({"example.com/x": "NodeResizePending"}));
    assert_eq!((done.body["status"].get("modifyVolumeStatus"), done.text("/metadata/annotations").len()), (None, 0));
    let last = json!({"metadata": {"annotations": {key: null}}, "status": {"allocatedResourceStatuses": {"example.com/x": null}}});
    let last = write(&mut case, last).await;
    assert_eq!(
        (last.body["status"].get("allocatedResourceStatuses"), last.body["metadata"].get("annotations")),
        (None, None)
    );
    write(&mut case, json!({"status": {"allocatedResources": {"storage": null}}})).await;
    write(&mut case, json!({"status": {"capacity": {"$patch": "replace", "storage": "3G"}}})).await;
    for bad in [
        json!({"allocatedResourceStatuses": {"storage": "Dreaming"}}),
        json!({"allocatedResourceStatuses": {"cpu": "NodeResizePending"}}),
        json!({"allocatedResources": {"cpu": "1"}}),
        json!({"allocatedResources": {"storage": "-1Gi"}}),
        json!({"capacity": {"storage": "-1Gi"}}),
    ] {
        assert_eq!(write(&mut case, json!({"status": bad})).await.code, 422);
    }
    case.end("a_claims_status_loses_single_keys");
}

pub(crate) async fn a_strategic_patch_spares_a_namesake(server: &Server) {
    let mut case = Case::begin(server).await;
    let volume_path = format!("{VOLUMES}/CASE-a");
    let made = case.post(CLAIMS, claim("a")).await;
    let made_volume = case.post(VOLUMES, volume("CASE-a")).await;
    let resizing = json!({"conditions": [condition("Resizing", "x")]});
    let capacity = json!({"capacity": {"storage": "2Gi"}});
    for (path, change) in
        [(STATUS, ("status", resizing)), (CLAIM, ("status", json!({}))), (&volume_path, ("spec", capacity))]
    {
        let (made, (member, change)) = (if path == volume_path { &made_volume } else { &made }, change);
        let body = |metadata: Value, change: &Value| json!({"metadata": metadata, member: change});
        let another = body(json!({"uid": "another"}), &change);
        assert_eq!(case.patch(PatchType::Strategic, path, another).await.code, 422);
        // Also where nothing else would change.
        assert_eq!(case.patch(PatchType::Strategic, path, json!({"metadata": {"uid": "another"}})).await.code, 422);
        let outdated = body(json!({"uid": made.uid(), "resourceVersion": "1"}), &change);
        assert_eq!(case.patch(PatchType::Strategic, path, outdated).await.code, 409);
        // The version is looked at first.
        let both = body(json!({"uid": "another", "resourceVersion": "1"}), &change);
        assert_eq!(case.patch(PatchType::Strategic, path, both).await.code, 409);
        let now = case.get(path.trim_end_matches("/status")).await.version();
        let good = body(json!({"uid": made.uid(), "resourceVersion": now}), &change);
        assert_eq!(case.patch(PatchType::Strategic, path, good).await.code, 200);
    }
    let nobody = format!("{CLAIMS}/b/status");
    assert_eq!(case.patch(PatchType::Strategic, &nobody, json!({"metadata": {"uid": "u"}})).await.code, 404);
    case.end("a_strategic_patch_spares_a_namesake");
}

pub(crate) async fn a_strategic_patch_directs_maps_and_lists(server: &Server) {
    let mut case = Case::begin(server).await;
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "CASE-n"}, "spec": {"drivers": [
        {"name": "one.example.com", "nodeID": "n1", "topologyKeys": ["example.com/zone"]},
        {"name": "two.example.com", "nodeID": "n2"}]}});
    case.post(CSI_NODES, node).await;
    let path = format!("{CSI_NODES}/CASE-n");
    let away = json!({"spec": {"drivers": [{"$patch": "delete", "name": "one.example.com"}]}});
    assert_eq!(case.patch(PatchType::Strategic, &path, away).await.code, 200);
    let more = json!({"spec": {"drivers": [{"name": "three.example.com", "nodeID": "n3"}]}});
    assert_eq!(case.patch(PatchType::Strategic, &path, more).await.code, 200);

    let bare = with(volume("CASE-b"), "/spec", "claimRef", json!({"namespace": "CASE", "name": "b"}));
    assert_eq!(case.post(VOLUMES, bare).await.body["spec"]["claimRef"].get("kind"), None);
    let path = format!("{VOLUMES}/CASE-a");
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "CASE", "name": "a", "uid": "1234-5678"});
    let mut held = with(volume("CASE-a"), "/metadata", "finalizers", json!(["example.com/one", "example.com/two"]));
    held = with(held, "/metadata", "annotations", json!({"example.com/a": "1", "example.com/b": "2"}));
    case.post(VOLUMES, with(held, "/spec", "claimRef", reference)).await;
    let kept = json!({"spec": {"claimRef": {"$retainKeys": ["name", "namespace"], "namespace": "CASE"}}});
    let kept = case.patch(PatchType::Strategic, &path, kept).await;
    assert_eq!(kept.body["spec"]["claimRef"].get("uid"), None);
    let modes = json!({"spec": {"accessModes": ["ReadWriteMany"], "claimRef": {"$patch": "delete"}}});
    case.patch(PatchType::Strategic, &path, modes).await;
    let notes = json!({"metadata": {"annotations": {"$patch": "replace", "example.com/c": "3"},
        "$setElementOrder/finalizers": ["example.com/two", "example.com/one"],
        "$deleteFromPrimitiveList/finalizers": ["example.com/none"]}});
    let notes = case.patch(PatchType::Strategic, &path, notes).await;
    assert_eq!(notes.body["metadata"]["finalizers"], json!(["example.com/two", "example.com/one"]));
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid});
    case.patch(
        PatchType::Strategic,
        &path,
        json!({"metadata": {"ownerReferences": [owner("uid-one"), owner("uid-two")]}}),
    )
    .await;
    let one = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "uid-one"}]}});
    case.patch(PatchType::Strategic, &path, one).await;
    let cleared = json!({"metadata": {"finalizers": null, "annotations": {"$patch": "delete"}}});
    case.patch(PatchType::Strategic, &path, cleared).await;

    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "r"}, {"type": "DiskPressure", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "volumesAttached": [{"name": "v1", "devicePath": "/dev/a"}]}});
    case.post(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "CASE-n"}})).await;
    let path = format!("{NODES}/CASE-n/status");
    case.patch(PatchType::Strategic, &path, status).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "$patch": "delete"}],
        "addresses": [{"type": "Hostname", "address": "n"}], "volumesAttached": [{"name": "v2", "devicePath": "/dev/b"}]}});
    case.patch(PatchType::Strategic, &path, status).await;
    case.end("a_strategic_patch_directs_maps_and_lists");
}

pub(crate) async fn a_malformed_strategic_patch_is_refused(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CLAIMS, claim("a")).await;
    merge(&mut case, json!([condition("Resizing", "x")])).await;
    for bad in [
        json!([1]),
        json!({"status": {"$patch": "explode"}}),
        json!({"status": {"conditions": [{"status": "True"}]}}),
        json!({"status": {"conditions": [{"type": "Resizing", "$patch": "merge"}]}}),
        json!({"status": {"conditions": [{"type": "Resizing", "$patch": "explode"}]}}),
        json!({"status": {"conditions": ["Resizing"]}}),
        json!({"status": {"$setElementOrder/conditions": [{"type": "Other"}], "conditions": [condition("Resizing", "y")]}}),
        json!({"status": {"$retainKeys": ["phase"], "conditions": []}}),
        json!({"status": {"$retainKeys": "phase"}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "example.com/one"}}),
    ] {
        case.patch(PatchType::Strategic, STATUS, bad).await;
    }
    // What a patch makes of the object must be an object of its kind. Go's converter says so in words of its own.
    for bad in [
        json!({"conditions": {"type": "Resizing"}}),
        json!({"conditions": [{"type": "Resizing", "lastTransitionTime": "yesterday"}]}),
        json!({"phase": 7}),
    ] {
        let media = "application/strategic-merge-patch+json";
        let answer = case.ask(&Method::PATCH, STATUS, media, &[], Some(&json!({"status": bad}))).await;
        assert_eq!((answer.code, answer.text("/reason")), (422, "Invalid"), "{answer:?}");
    }
    case.end("a_malformed_strategic_patch_is_refused");
}

pub(crate) async fn managed_fields_tell_whose_condition_it_is(server: &Server) {
    let mut case = Case::begin(server).await;
    case.tell_managed_fields();
    case.post(CLAIMS, claim("a")).await;
    for (manager, body) in [
        ("one", json!([condition("Theirs", "x")])),
        ("two", json!([condition("Resizing", "x")])),
        ("two", json!([{"type": "Theirs", "reason": "y"}])),
        ("one", json!([{"$patch": "delete", "type": "Resizing"}])),
    ] {
        let path = format!("{STATUS}?fieldManager={manager}");
        assert_eq!(case.patch(PatchType::Strategic, &path, json!({"status": {"conditions": body}})).await.code, 200);
    }
    case.post(CONFIG_MAPS, config_map("a")).await;
    let data = json!({"data": {"key": null, "other": "x"}});
    case.patch(PatchType::Strategic, &format!("{CONFIG_MAPS}/a?fieldManager=one"), data).await;
    case.end("managed_fields_tell_whose_condition_it_is");
}
