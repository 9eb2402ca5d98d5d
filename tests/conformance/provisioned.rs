//! Volumes as a provisioner makes them.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{VOLUMES, volume, with};

/// A volume with all that a provisioner writes.
fn provisioned(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"], "annotations": {
            "pv.kubernetes.io/provisioned-by": "demo.csi.example.com",
            "volume.kubernetes.io/provisioner-deletion-secret-name": "s",
            "volume.kubernetes.io/provisioner-deletion-secret-namespace": "n"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1073741824"},
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "CASE", "name": "a",
                "uid": "11111111-2222-3333-4444-555555555555"},
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "CASE-class", "volumeMode": "Filesystem",
            "mountOptions": ["noatime"], "volumeAttributesClassName": "CASE-gold",
            "csi": {"driver": "demo.csi.example.com", "volumeHandle": name, "fsType": "ext4",
                "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"name": "s", "namespace": "n"}},
            "nodeAffinity": affinity(json!([{"matchExpressions": [
                {"key": "example.com/zone", "operator": "In", "values": ["z1"]}]}]))}})
}

fn affinity(terms: impl serde::Serialize) -> Value {
    json!({"required": {"nodeSelectorTerms": terms}})
}

pub(crate) async fn a_provisioned_volume_is_kept_as_it_is(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(VOLUMES, provisioned("CASE-a")).await;
    assert_eq!((made.code, made.text("/spec/claimRef/name")), (201, "a"));
    // A second one of the same name says nothing about the first.
    assert_eq!(case.post(VOLUMES, provisioned("CASE-a")).await.text("/reason"), "AlreadyExists");
    let bound = json!({"status": {"phase": "Bound"}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{VOLUMES}/CASE-a/status"), bound).await.code, 200);
    let namesake = json!({"preconditions": {"uid": "another"}});
    assert_eq!(case.delete_with(&format!("{VOLUMES}/CASE-a"), namesake).await.code, 409);
    let deleted = case.delete_with(&format!("{VOLUMES}/CASE-a"), json!({"preconditions": {"uid": made.uid()}})).await;
    assert!(!deleted.text("/metadata/deletionTimestamp").is_empty());
    let away = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    assert_eq!(case.patch(PatchType::Json, &format!("{VOLUMES}/CASE-a"), away).await.code, 200);
    assert_eq!(case.get(&format!("{VOLUMES}/CASE-a")).await.code, 404);
    case.end("a_provisioned_volume_is_kept_as_it_is");
}

pub(crate) async fn an_affinity_has_terms(server: &Server) {
    let mut case = Case::begin(server).await;
    let term = |expression: Value| affinity(json!([{"matchExpressions": [expression]}]));
    for bad in [
        json!({}),
        affinity(json!([])),
        affinity(json!(null)),
        term(json!({"key": "example.com/zone", "operator": "In", "values": []})),
        term(json!({"key": "example.com/zone", "operator": "Near", "values": ["z1"]})),
        term(json!({"key": "Bad Key", "operator": "In", "values": ["z1"]})),
        term(json!({"key": "example.com/zone", "operator": "In", "values": ["bad value!"]})),
        term(json!({"key": "example.com/zone", "operator": "Exists", "values": ["z1"]})),
        term(json!({"key": "", "operator": "In", "values": ["z1"]})),
    ] {
        assert_eq!(case.post(VOLUMES, with(volume("CASE-a"), "/spec", "nodeAffinity", bad)).await.code, 422);
    }
    // A term that matches nothing is a term.
    let nothing = with(volume("CASE-b"), "/spec", "nodeAffinity", affinity(json!([{}])));
    assert_eq!(case.post(VOLUMES, nothing).await.code, 201);
    case.end("an_affinity_has_terms");
}

pub(crate) async fn an_affinity_is_added_and_then_stays(server: &Server) {
    let (mut case, path, _) = Case::with(server, VOLUMES, volume("CASE-a")).await;
    let zone = |zone: &str| {
        let terms = json!([{"matchExpressions": [{"key": "example.com/zone", "operator": "In", "values": [zone]}]}]);
        json!({"spec": {"nodeAffinity": affinity(terms)}})
    };
    assert_eq!(case.patch(PatchType::Merge, &path, zone("z1")).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, zone("z2")).await.code, 422);
    case.patch(PatchType::Merge, &path, json!({"spec": {"nodeAffinity": null}})).await;
    case.end("an_affinity_is_added_and_then_stays");
}

pub(crate) async fn a_volumes_attributes_class_is_not_taken_away(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{VOLUMES}/CASE-a");
    let empty = with(volume("CASE-b"), "/spec", "volumeAttributesClassName", json!(""));
    assert_eq!(case.post(VOLUMES, empty).await.code, 422);
    let bad = with(volume("CASE-b"), "/spec", "volumeAttributesClassName", json!("Bad_Class"));
    assert_eq!(case.post(VOLUMES, bad).await.code, 422);
    case.post(VOLUMES, with(volume("CASE-a"), "/spec", "volumeAttributesClassName", json!("CASE-gold"))).await;
    let to = |class: Value| json!({"spec": {"volumeAttributesClassName": class}});
    assert_eq!(case.patch(PatchType::Merge, &path, to(json!("CASE-lead"))).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, to(json!(null))).await.code, 422);
    case.end("a_volumes_attributes_class_is_not_taken_away");
}
