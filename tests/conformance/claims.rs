//! Claims: which fields the server sets, what it refuses, and which fields may change before and after binding.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{CLAIMS, CLASSES, claim, class, with};

pub(crate) async fn a_claim_begins_pending_with_defaults(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(CLAIMS, claim("a")).await;
    assert_eq!((made.text("/spec/volumeMode"), made.text("/status/phase")), ("Filesystem", "Pending"));
    let classless = with(claim("b"), "/spec", "storageClassName", json!(""));
    assert_eq!(case.post(CLAIMS, classless).await.text("/status/phase"), "Pending");
    let with_status = with(claim("c"), "", "status", json!({"phase": "Bound"}));
    assert_eq!(case.post(CLAIMS, with_status).await.text("/status/phase"), "Pending");
    let block = with(claim("d"), "/spec", "volumeMode", json!("Block"));
    assert_eq!(case.post(CLAIMS, block).await.text("/spec/volumeMode"), "Block");
    case.end("a_claim_begins_pending_with_defaults");
}

pub(crate) async fn a_claim_without_a_class_stays_without_while_there_is_no_default(server: &Server) {
    let mut case = Case::begin(server).await;
    let mut bare = claim("a");
    bare["spec"].as_object_mut().expect("a spec").remove("storageClassName");
    let made = case.post(CLAIMS, bare).await;
    assert_eq!(made.body["spec"].get("storageClassName"), None);
    let late = json!({"spec": {"storageClassName": "CASE-late"}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{CLAIMS}/a"), late).await.code, 200);
    let later = json!({"spec": {"storageClassName": "CASE-later"}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{CLAIMS}/a"), later).await.code, 422);
    case.end("a_claim_without_a_class_stays_without_while_there_is_no_default");
}

pub(crate) async fn a_claim_has_what_it_must(server: &Server) {
    let mut case = Case::begin(server).await;
    let good = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let but = |key: &str, value: Value| with(claim("a"), "", "spec", with(good.clone(), "", key, value));
    for bad in [
        with(claim("a"), "", "spec", json!({})),
        but("accessModes", json!([])),
        but("accessModes", json!(["ReadSometimes"])),
        but("accessModes", json!(["ReadWriteOncePod", "ReadWriteOnce"])),
        but("resources", json!({})),
        but("resources", json!({"requests": {"storage": "0"}})),
        but("resources", json!({"requests": {"storage": "-1Gi"}})),
        but("volumeMode", json!("Tape")),
        but("storageClassName", json!("Bad_Class")),
        but("volumeAttributesClassName", json!("Bad_Class")),
    ] {
        assert_eq!(case.post(CLAIMS, bad).await.code, 422);
    }
    assert_eq!(case.post(CLAIMS, but("resources", json!({"requests": {"storage": "much"}}))).await.code, 400);
    let name = with(claim("a"), "/metadata", "name", json!("Upper"));
    assert_eq!(case.post(CLAIMS, name).await.code, 422);
    case.end("a_claim_has_what_it_must");
}

pub(crate) async fn a_data_source_is_told_twice(server: &Server) {
    let mut case = Case::begin(server).await;
    let but = |name: &str, key: &str, value: Value| with(claim(name), "/spec", key, value);
    let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let made = case.post(CLAIMS, but("a", "dataSource", snapshot.clone())).await;
    assert_eq!(made.body["spec"]["dataSourceRef"], snapshot);
    let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
    let made = case.post(CLAIMS, but("b", "dataSourceRef", source.clone())).await;
    assert_eq!(made.text("/spec/dataSource/name"), "a");
    case.post(CLAIMS, but("c", "dataSource", json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "a"})))
        .await;
    // A populator's kind is dropped from the one and kept in the other.
    let other = json!({"apiGroup": "example.com", "kind": "Thing", "name": "t"});
    let made = case.post(CLAIMS, but("d", "dataSource", other.clone())).await;
    assert_eq!((made.body["spec"].get("dataSource"), made.body["spec"].get("dataSourceRef")), (None, None));
    case.post(CLAIMS, but("e", "dataSourceRef", other)).await;
    // Without the feature gate there are no sources in other namespaces.
    let away = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "elsewhere"});
    case.post(CLAIMS, but("f", "dataSourceRef", away)).await;
    let nowhere = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": ""});
    case.post(CLAIMS, but("g", "dataSourceRef", nowhere)).await;
    let both = but("h", "dataSource", snapshot.clone());
    assert_eq!(case.post(CLAIMS, with(both, "/spec", "dataSourceRef", source)).await.code, 422);
    for bad in [
        json!({"kind": "PersistentVolumeClaim", "name": ""}),
        json!({"kind": "Secret", "name": "s"}),
        json!({"apiGroup": "Bad Group", "kind": "Thing", "name": "s"}),
        json!({"apiGroup": "example.com", "kind": "", "name": "s"}),
    ] {
        assert_eq!(case.post(CLAIMS, but("i", "dataSourceRef", bad)).await.code, 422);
    }
    case.end("a_data_source_is_told_twice");
}

pub(crate) async fn an_unbound_claim_changes_its_volume_once(server: &Server) {
    let (mut case, path, _) = Case::with(server, CLAIMS, claim("a")).await;
    for change in [
        json!({"storageClassName": "CASE-other"}),
        json!({"resources": {"requests": {"storage": "2Gi"}}}),
        json!({"accessModes": ["ReadWriteMany"]}),
        json!({"volumeMode": "Block"}),
        json!({"volumeAttributesClassName": "CASE-other"}),
        json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "b"}}),
    ] {
        let body = json!({"spec": change});
        assert_eq!(case.patch(PatchType::Merge, &path, body).await.code, 422);
    }
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeName": "pv-1"}})).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeName": "pv-2"}})).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeName": null}})).await.code, 422);
    case.end("an_unbound_claim_changes_its_volume_once");
}

pub(crate) async fn a_bound_claim_may_grow(server: &Server) {
    let (mut case, path, _) = Case::with(server, CLAIMS, with(claim("a"), "/spec", "volumeName", json!("pv-1"))).await;
    let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/status"), bound).await.text("/status/phase"), "Bound");
    // Only by a class that allows it: that is admission, which comes first.
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(case.patch(PatchType::Merge, &path, more.clone()).await.code, 403);
    let growing = with(class("CASE-class"), "", "allowVolumeExpansion", json!(true));
    case.post(CLASSES, growing).await;
    assert_eq!(case.patch_when_known(PatchType::Merge, &path, more).await.code, 200);
    let less = json!({"spec": {"resources": {"requests": {"storage": "512Mi"}}}});
    assert_eq!(case.patch(PatchType::Merge, &path, less).await.code, 422);
    let attributes = json!({"spec": {"volumeAttributesClassName": "CASE-gold"}});
    assert_eq!(case.patch(PatchType::Merge, &path, attributes).await.code, 200);
    let modes = json!({"spec": {"accessModes": ["ReadWriteMany"]}});
    assert_eq!(case.patch(PatchType::Merge, &path, modes).await.code, 422);
    case.end("a_bound_claim_may_grow");
}

pub(crate) async fn a_claims_old_class_annotation_stays(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{CLAIMS}/a");
    let key = "volume.beta.kubernetes.io/storage-class";
    let mut old = with(claim("a"), "/metadata", "annotations", json!({key: "CASE-old"}));
    old["spec"].as_object_mut().expect("a spec").remove("storageClassName");
    assert_eq!(case.post(CLAIMS, old).await.code, 201);
    let other = json!({"metadata": {"annotations": {key: "CASE-new"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, other).await.code, 422);
    let away = json!({"metadata": {"annotations": {key: null}}});
    assert_eq!(case.patch(PatchType::Merge, &path, away).await.code, 422);
    let differs = json!({"spec": {"storageClassName": "CASE-new"}});
    assert_eq!(case.patch(PatchType::Merge, &path, differs).await.code, 422);
    let same = json!({"spec": {"storageClassName": "CASE-old"}});
    assert_eq!(case.patch(PatchType::Merge, &path, same).await.code, 200);
    case.end("a_claims_old_class_annotation_stays");
}

pub(crate) async fn a_deleted_claim_takes_no_finalizer(server: &Server) {
    let (mut case, path, _) =
        Case::with(server, CLAIMS, with(claim("a"), "/metadata", "finalizers", json!(["example.com/held"]))).await;
    let deleted = case.delete(&path).await;
    assert!(!deleted.text("/metadata/deletionTimestamp").is_empty());
    let more = json!([
        {"op": "test", "path": "/spec/volumeName", "value": null},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/source"},
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/source": "yes"}},
    ]);
    assert_eq!(case.patch(PatchType::Json, &path, more).await.code, 422);
    // Everything but a finalizer may still change.
    let note = json!({"metadata": {"annotations": {"example.com/note": "late"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, note).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    case.end("a_deleted_claim_takes_no_finalizer");
}

pub(crate) async fn a_claims_status_is_apart(server: &Server) {
    let (mut case, path, made) = Case::with(server, CLAIMS, claim("a")).await;
    let both = json!({"metadata": {"annotations": {"example.com/a": "b"}}, "spec": {"volumeName": "pv-1"},
        "status": {"phase": "Lost"}});
    let written = case.patch(PatchType::Merge, &format!("{path}/status"), both.clone()).await;
    assert_eq!((written.text("/status/phase"), written.text("/spec/volumeName")), ("Lost", ""));
    let written = case.patch(PatchType::Merge, &path, json!({"status": {"phase": "Bound"}})).await;
    assert_eq!(written.text("/status/phase"), "Lost");
    let by_uid = json!({"preconditions": {"uid": "another"}});
    assert_eq!(case.delete_with(&path, by_uid).await.code, 409);
    let by_uid = json!({"preconditions": {"uid": made.uid()}});
    assert_eq!(case.delete_with(&path, by_uid).await.code, 200);
    case.end("a_claims_status_is_apart");
}
