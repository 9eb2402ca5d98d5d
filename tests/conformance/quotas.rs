//! Quotas of claims: what is counted, what is refused, and that no status is.
//!
//! What a quota's status says is the quota controller's to keep, which these servers may lack: the cases keep it themselves.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server, asked};
use super::objects::{CLAIMS, CLASSES, QUOTAS, claim, class, with};

/// A quota of this, of which nothing is used. The server goes by it from here on.
async fn limited(case: &mut Case, spec: Value, beyond: Value) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec});
    let hard = quota["spec"]["hard"].clone();
    assert_eq!(case.post(QUOTAS, quota).await.body["status"], json!({}));
    let used: Value = hard.as_object().expect("limits").keys().map(|name| (name.clone(), json!("0"))).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{QUOTAS}/q/status"), status).await.code, 200);
    // Admission learns of quotas by a watch of its own: a dry run asks it without leaving a claim behind.
    let dry = format!("{CLAIMS}?dryRun=All");
    let known = async || (super::untold(case, &dry, beyond.clone()).await.code == 403).then_some(());
    asked("admission that has heard of the quota", known).await;
}

fn of_size(name: &str, size: &str) -> Value {
    with(claim(name), "/spec", "resources", json!({"requests": {"storage": size}}))
}

pub(crate) async fn a_claim_counts_what_it_asks_for_and_for_its_class(server: &Server) {
    let mut case = Case::begin(server).await;
    let of_class = "CASE-class.storageclass.storage.k8s.io/requests.storage";
    let hard = json!({"requests.storage": "4Gi", "persistentvolumeclaims": "2", of_class: "3Gi"});
    limited(&mut case, json!({"hard": hard}), of_size("x", "9Gi")).await;
    assert_eq!(case.post(CLAIMS, of_size("a", "1Gi")).await.code, 201);
    assert_eq!(case.get(&format!("{QUOTAS}/q")).await.text("/status/used/requests.storage"), "1Gi");
    // Too much of one, too much of both.
    let refused = case.post(CLAIMS, of_size("b", "3Gi")).await;
    assert!(refused.text("/message").contains("exceeded quota: q, requested: "), "{refused:?}");
    assert_eq!((refused.code, case.post(CLAIMS, of_size("b", "5Gi")).await.code), (403, 403));
    assert_eq!(case.post(CLAIMS, of_size("b", "1Gi")).await.code, 201);
    assert_eq!(case.post(CLAIMS, of_size("c", "1Gi")).await.code, 403);
    case.end("a_claim_counts_what_it_asks_for_and_for_its_class");
}

pub(crate) async fn a_claim_beyond_its_quota_does_not_grow(server: &Server) {
    let mut case = Case::begin(server).await;
    let (path, status) = (format!("{CLAIMS}/a"), format!("{CLAIMS}/a/status"));
    let growing = with(class("CASE-class"), "", "allowVolumeExpansion", json!(true));
    case.post(CLASSES, growing).await;
    limited(&mut case, json!({"hard": {"requests.storage": "3Gi"}}), of_size("x", "9Gi")).await;
    case.post(CLAIMS, with(of_size("a", "1Gi"), "/spec", "volumeName", json!("pv-1"))).await;
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(case.patch(PatchType::Merge, &status, bound).await.code, 200);
    let wish = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    assert_eq!(case.patch_when_known(PatchType::Merge, &path, wish("2Gi")).await.code, 200);
    let refused = case.patch(PatchType::Merge, &path, wish("4Gi")).await;
    let text = "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: \
                requests.storage=3Gi";
    assert!(refused.code == 403 && refused.text("/message").ends_with(text), "{refused:?}");
    // A begun expansion counts, and no status is refused for it.
    let begun = |size: &str| json!({"status": {"allocatedResources": {"storage": size}}});
    assert_eq!(case.patch(PatchType::Merge, &status, begun("4Gi")).await.code, 200);
    let used = |answer: &super::dialogue::Answer| answer.text("/status/used/requests.storage").to_owned();
    assert_eq!(used(&case.get(&format!("{QUOTAS}/q")).await), "4Gi");
    // Less is always allowed, and what was begun counts until less is begun: the controller counts that, not admission.
    assert_eq!(case.patch(PatchType::Merge, &path, wish("1536Mi")).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &status, begun("1536Mi")).await.code, 200);
    assert_eq!(used(&case.get(&format!("{QUOTAS}/q")).await), "4Gi");
    case.delete(&format!("{CLASSES}/CASE-class")).await;
    case.end("a_claim_beyond_its_quota_does_not_grow");
}

pub(crate) async fn a_quota_of_attributes_classes_counts_who_names_one(server: &Server) {
    let mut case = Case::begin(server).await;
    let (path, status) = (format!("{CLAIMS}/a"), format!("{CLAIMS}/a/status"));
    let selector = json!({"matchExpressions": [
        {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]});
    let spec = json!({"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": selector});
    let golden = |name: &str| with(claim(name), "/spec", "volumeAttributesClassName", json!("gold"));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec});
    case.post(QUOTAS, quota).await;
    let full = json!({"status": {"hard": {"persistentvolumeclaims": "1"}, "used": {"persistentvolumeclaims": "1"}}});
    case.patch(PatchType::Merge, &format!("{QUOTAS}/q/status"), full).await;
    let dry = format!("{CLAIMS}?dryRun=All");
    let known = async || (super::untold(&case, &dry, golden("x")).await.code == 403).then_some(());
    asked("admission that has heard of the quota", known).await;
    assert_eq!(case.post(CLAIMS, golden("b")).await.code, 403);
    assert_eq!(case.post(CLAIMS, claim("a")).await.code, 201);
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    case.patch(PatchType::Merge, &status, bound).await;
    let wish = json!({"spec": {"volumeAttributesClassName": "gold"}});
    assert_eq!(case.patch(PatchType::Merge, &path, wish).await.code, 403);
    // A writer of the status may name it.
    let begun = json!({"status": {"modifyVolumeStatus": {"status": "InProgress",
        "targetVolumeAttributesClassName": "gold"}}});
    assert_eq!(case.patch(PatchType::Merge, &status, begun).await.code, 200);
    assert_eq!(case.get(&format!("{QUOTAS}/q")).await.text("/status/used/persistentvolumeclaims"), "2");
    case.end("a_quota_of_attributes_classes_counts_who_names_one");
}
