//! The other forms that a client asks for: tables, metadata alone, discovery.

use serde_json::json;

use super::dialogue::{Case, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, VOLUMES, attachment, config_map, volume};

pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

pub(crate) async fn kubectl_gets_tables(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    let table = case.get_as(&format!("{ATTACHMENTS}/CASE-a"), TABLE).await;
    assert_eq!(table.text("/kind"), "Table");
    let selected = format!("{ATTACHMENTS}?fieldSelector=metadata.name%3DCASE-a&includeObject=None");
    case.get_as(&selected, TABLE).await;
    case.post(VOLUMES, volume("CASE-a")).await;
    case.get_as(&format!("{VOLUMES}/CASE-a?includeObject=Object"), TABLE).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    case.get_as(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da"), TABLE).await;
    for path in [
        "/api/v1/nodes?fieldSelector=metadata.name%3DCASE",
        "/api/v1/namespaces/CASE/pods",
        "/api/v1/namespaces/CASE/secrets",
        "/api/v1/namespaces/CASE/events",
        "/api/v1/namespaces/CASE/persistentvolumeclaims",
        "/apis/coordination.k8s.io/v1/namespaces/CASE/leases",
        "/apis/storage.k8s.io/v1/csinodes?fieldSelector=metadata.name%3DCASE",
        "/apis/storage.k8s.io/v1/csidrivers?fieldSelector=metadata.name%3DCASE",
        "/apis/storage.k8s.io/v1/storageclasses?fieldSelector=metadata.name%3DCASE",
    ] {
        assert_eq!(case.get_as(path, TABLE).await.text("/kind"), "Table", "{path}");
    }
    case.end("kubectl_gets_tables");
}

pub(crate) async fn metadata_alone_is_told(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    let one = case.get_as(&format!("{CONFIG_MAPS}/a"), METADATA).await;
    assert_eq!(one.text("/kind"), "PartialObjectMetadata");
    let many = case.get_as(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da"), METADATA_LIST).await;
    assert_eq!(many.text("/kind"), "PartialObjectMetadataList");
    assert_eq!(case.get_as(&format!("{CONFIG_MAPS}/a"), "text/plain").await.code, 406);
    case.end("metadata_alone_is_told");
}

pub(crate) async fn a_page_of_a_table_goes_on(server: &Server) {
    let mut case = Case::begin(server).await;
    for name in ["a", "b", "c"] {
        case.post(CONFIG_MAPS, config_map(name)).await;
    }
    let page = case.get_as(&format!("{CONFIG_MAPS}?limit=2"), TABLE).await;
    assert_eq!(page.body["metadata"]["remainingItemCount"], json!(1));
    case.end("a_page_of_a_table_goes_on");
}

/// What the sandbox has must be in the real server's discovery as it tells it: the reverse need not be.
pub(crate) async fn discovery_tells_of_each_kind(server: &Server) {
    let mut case = Case::begin(server).await;
    for (path, kinds) in [
        (
            "/api/v1",
            &[
                "persistentvolumes",
                "persistentvolumes/status",
                "persistentvolumeclaims",
                "configmaps",
                "events",
                "secrets",
            ][..],
        ),
        (
            "/apis/storage.k8s.io/v1",
            &["volumeattachments", "volumeattachments/status", "csinodes", "csidrivers", "storageclasses"],
        ),
        ("/apis/coordination.k8s.io/v1", &["leases"]),
    ] {
        let told = super::fetch(&case, path).await;
        for kind in kinds {
            let resources = told.body["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut resource = resources.iter().find(|it| it["name"] == *kind).cloned().unwrap_or_default();
            // Of the storage, not of the API.
            resource.as_object_mut().map(|it| it.remove("storageVersionHash"));
            case.note(&format!("{path} {kind}"), &resource);
        }
    }
    case.end("discovery_tells_of_each_kind");
}
