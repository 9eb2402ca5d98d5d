//! Protection of objects in use: the finalizers that admission adds to each new claim, volume and attributes class.

use serde_json::json;

use super::dialogue::{Answer, Case, PatchType, Server, asked};
use super::objects::{ATTRIBUTES_CLASSES, CLAIMS, VOLUMES, attributes_class, claim, volume, with};

pub(crate) async fn new_claims_volumes_and_attributes_classes_are_held(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(CLAIMS, claim("a")).await;
    assert_eq!(made.body["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let made = case.post(VOLUMES, with(volume("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"]))).await;
    assert_eq!(made.body["metadata"]["finalizers"], json!(["example.com/one", "kubernetes.io/pv-protection"]));
    let twice =
        with(volume("CASE-b"), "/metadata", "finalizers", json!(["kubernetes.io/pv-protection", "example.com/one"]));
    case.post(VOLUMES, twice).await;
    assert_eq!(case.delete(&format!("{CLAIMS}/a")).await.code, 200);
    assert_eq!(case.get(&format!("{CLAIMS}/a")).await.code, 200);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{CLAIMS}/a"), free).await.code, 200);
    assert_eq!(case.get(&format!("{CLAIMS}/a")).await.code, 404);
    let made = case.post(ATTRIBUTES_CLASSES, attributes_class("CASE-a")).await;
    assert_eq!(made.body["metadata"]["finalizers"], json!(["kubernetes.io/vac-protection"]));
    case.end("new_claims_volumes_and_attributes_classes_are_held");
}

pub(crate) async fn the_default_class_is_filled_in(server: &Server) {
    let mut case = Case::begin(server).await;
    let default = |name: &str| {
        with(
            super::objects::class(name),
            "/metadata",
            "annotations",
            json!({"storageclass.kubernetes.io/is-default-class": "true"}),
        )
    };
    let mut bare = claim("a");
    bare["spec"].as_object_mut().expect("a spec").remove("storageClassName");
    let named = |name: &str| with(bare.clone(), "/metadata", "name", json!(name));
    case.post(super::objects::CLASSES, default("CASE-b")).await;
    let path = |name: &str| format!("{CLAIMS}/{name}");
    // Admission learns of classes by a watch of its own: a dry run asks it without leaving a claim behind.
    let dry = format!("{CLAIMS}?dryRun=All");
    let is_filled = |claim: &Answer| !claim.text("/spec/storageClassName").is_empty();
    let known = async || is_filled(&super::untold(&case, &dry, named("a")).await).then_some(());
    asked("a default class that is filled in", known).await;
    let filled = super::untold(&case, CLAIMS, named("a")).await;
    assert!(filled.text("/spec/storageClassName").ends_with("-b"), "{filled:?}");
    case.get(&path("a")).await;
    assert_eq!(case.post(CLAIMS, with(named("b"), "/spec", "storageClassName", json!(""))).await.code, 201);
    let beta =
        with(named("c"), "/metadata", "annotations", json!({"volume.beta.kubernetes.io/storage-class": "CASE-x"}));
    assert_eq!(case.post(CLAIMS, beta).await.body["spec"].get("storageClassName"), None);
    for class in ["CASE-b"] {
        case.delete(&format!("{}/{class}", super::objects::CLASSES)).await;
    }
    case.end("the_default_class_is_filled_in");
}
