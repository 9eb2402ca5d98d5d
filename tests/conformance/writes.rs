//! Creating and replacing.

use serde_json::json;

use super::dialogue::{Case, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, VOLUMES, attachment, config_map, volume, with};

pub(crate) async fn what_exists_is_not_created_again(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.post(VOLUMES, volume("CASE-a")).await.code, 201);
    assert_eq!(case.post(VOLUMES, volume("CASE-a")).await.code, 409);
    assert_eq!(case.get(&format!("{VOLUMES}/CASE-b")).await.code, 404);
    assert_eq!(case.post(CONFIG_MAPS, config_map("a")).await.code, 201);
    assert_eq!(case.post(CONFIG_MAPS, config_map("a")).await.code, 409);
    let elsewhere = "/api/v1/namespaces/CASE-nowhere/configmaps";
    assert_eq!(case.post(elsewhere, config_map("a")).await.code, 404);
    case.end("what_exists_is_not_created_again");
}

pub(crate) async fn a_write_with_an_old_version_conflicts(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(CONFIG_MAPS, config_map("a")).await;
    let changed = with(made.body.clone(), "", "data", json!({"key": "second"}));
    let second = case.put(&format!("{CONFIG_MAPS}/a"), changed).await;
    assert_eq!(second.code, 200);
    assert_ne!(second.version(), made.version());
    assert_eq!(case.put(&format!("{CONFIG_MAPS}/a"), made.body.clone()).await.code, 409);
    // Without a version the last writer wins.
    assert_eq!(case.put(&format!("{CONFIG_MAPS}/a"), config_map("a")).await.code, 200);
    case.end("a_write_with_an_old_version_conflicts");
}

pub(crate) async fn a_write_that_changes_nothing_keeps_the_version(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(CONFIG_MAPS, config_map("a")).await;
    let again = case.put(&format!("{CONFIG_MAPS}/a"), made.body.clone()).await;
    assert_eq!((again.code, again.version()), (200, made.version()));
    case.end("a_write_that_changes_nothing_keeps_the_version");
}

pub(crate) async fn a_write_to_a_namesake_conflicts_by_uid(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, config_map("a")).await;
    case.delete(&format!("{CONFIG_MAPS}/a")).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    let mut old = first.body.clone();
    old["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    assert_eq!(case.put(&format!("{CONFIG_MAPS}/a"), old).await.code, 409);
    case.end("a_write_to_a_namesake_conflicts_by_uid");
}

pub(crate) async fn names_in_path_and_body_must_agree(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(case.put(&format!("{CONFIG_MAPS}/a"), config_map("b")).await.code, 400);
    let astray = with(config_map("c"), "/metadata", "namespace", "default".into());
    assert_eq!(case.post(CONFIG_MAPS, astray).await.code, 400);
    assert_eq!(case.post(CONFIG_MAPS, volume("CASE-d")).await.code, 400);
    let versioned = with(config_map("e"), "/metadata", "resourceVersion", "5".into());
    assert_eq!(case.post(CONFIG_MAPS, versioned).await.code, 500);
    case.end("names_in_path_and_body_must_agree");
}

pub(crate) async fn what_is_not_there_is_not_written_to(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.put(&format!("{VOLUMES}/CASE-a"), volume("CASE-a")).await.code, 404);
    assert_eq!(case.put(&format!("{ATTACHMENTS}/CASE-a"), attachment("CASE-a")).await.code, 404);
    assert_eq!(case.put(&format!("{ATTACHMENTS}/CASE-a/status"), attachment("CASE-a")).await.code, 404);
    assert_eq!(case.delete(&format!("{ATTACHMENTS}/CASE-a")).await.code, 404);
    assert_eq!(case.get("/apis/storage.k8s.io/v1/nothings").await.code, 404);
    assert_eq!(super::fetch(&case, "/apis/nothing.example.com/v1/things").await.code, 404);
    case.end("what_is_not_there_is_not_written_to");
}

pub(crate) async fn defaults_are_filled_in(server: &Server) {
    let mut case = Case::begin(server).await;
    let made = case.post(VOLUMES, volume("CASE-a")).await;
    assert_eq!(made.text("/spec/volumeMode"), "Filesystem");
    assert_eq!(made.text("/status/phase"), "Pending");
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    let driver =
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "CASE.example.com"}});
    case.post("/apis/storage.k8s.io/v1/csidrivers", with(driver, "", "spec", json!({}))).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "CASE"},
        "provisioner": "demo.csi.example.com"});
    case.post("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "CASE"}});
    case.post("/api/v1/namespaces/CASE/persistentvolumeclaims", claim).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"key": "value"}});
    assert_eq!(case.post("/api/v1/namespaces/CASE/secrets", secret).await.text("/data/key"), "dmFsdWU=");
    case.end("defaults_are_filled_in");
}

pub(crate) async fn a_generated_name_begins_as_asked(server: &Server) {
    let mut case = Case::begin(server).await;
    let mut map = config_map("x");
    map["metadata"] = json!({"generateName": "prefix-"});
    let made = super::untold(&case, CONFIG_MAPS, map).await;
    let name = made.text("/metadata/name");
    assert!(name.starts_with("prefix-") && name.len() == "prefix-".len() + 5, "{name}");
    assert_eq!(made.text("/metadata/generateName"), "prefix-");
    case.post(CONFIG_MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})).await;
    case.end("a_generated_name_begins_as_asked");
}

pub(crate) async fn a_dry_run_writes_nothing(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(super::untold(&case, &format!("{CONFIG_MAPS}?dryRun=All"), config_map("a")).await.code, 201);
    assert_eq!(case.get(&format!("{CONFIG_MAPS}/a")).await.code, 404);
    assert_eq!(case.post(&format!("{CONFIG_MAPS}?dryRun=Some"), config_map("a")).await.code, 422);
    case.end("a_dry_run_writes_nothing");
}
