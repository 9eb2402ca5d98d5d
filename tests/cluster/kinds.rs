//! CRDs of snapshots and grants for an API server: of snapshots those that their project publishes, which `build.sh` puts beside
//! csi-snapshotter; of grants a minimal one, whose objects may have any member.

use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::programs;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The group of snapshots.
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// The group of groups of snapshots.
const GROUPS: &str = "groupsnapshot.storage.k8s.io";

/// Installs the kinds of snapshots and grants, if they are not there yet, and waits until the server serves them.
pub(crate) async fn install(client: &Client) {
    let mut definitions = published(SNAPSHOTS);
    definitions.push(grants());
    install_all(client, &definitions).await;
}

/// The same for the kinds of groups of snapshots, in all the versions that are published.
pub(crate) async fn install_groups(client: &Client) {
    install_all(client, &published(GROUPS)).await;
}

/// The same, in this version alone: as a server has them that another release of external-snapshotter was made for.
pub(crate) async fn install_groups_as(client: &Client, version: &str) {
    let mut definitions = published(GROUPS);
    for known in definitions.iter_mut().flat_map(|it| it["spec"]["versions"].as_array_mut().unwrap()) {
        known["served"] = (known["name"] == version).into();
        // A server drops what the stored version does not have.
        known["storage"] = known["served"].clone();
    }
    install_all(client, &definitions).await;
}

async fn install_all(client: &Client, definitions: &[Value]) {
    for definition in definitions {
        create(client, definition).await;
    }
    for definition in definitions {
        until_served(client, definition).await;
    }
}

/// The definitions of a group as external-snapshotter publishes them.
fn published(group: &str) -> Vec<Value> {
    let folder: PathBuf = programs::find("csi-snapshotter").with_file_name("crds");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let is_of_group = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(&format!("{group}_"));
    let read = |file: PathBuf| serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let definitions: Vec<Value> = files.into_iter().filter(is_of_group).map(read).collect();
    assert_eq!(definitions.len(), 3, "{group}");
    definitions
}

fn grants() -> Value {
    let (group, plural, kind) = ("gateway.networking.k8s.io", "referencegrants", "ReferenceGrant");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/891"}},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

async fn create(client: &Client, definition: &Value) {
    let request = Request::post(DEFINITIONS).header("content-type", "application/json");
    let made = client.request::<Value>(request.body(definition.to_string().into_bytes()).unwrap()).await;
    let is_there = matches!(&made, Err(kube::Error::Api(status)) if status.code == 409);
    assert!(made.is_ok() || is_there, "{made:?}");
}

/// Serves a kind in a second version of the same form, in which its objects are stored from now on.
pub(crate) async fn store_in_another_version(client: &Client, definition: &str) {
    let path = format!("{DEFINITIONS}/{definition}");
    let found: Value = client.request(Request::get(&path).body(Vec::new()).unwrap()).await.unwrap();
    let mut versions: Vec<Value> = found["spec"]["versions"].as_array().unwrap().clone();
    versions.retain(|version| version["name"] == "v1");
    let mut other = versions[0].clone();
    versions[0]["storage"] = false.into();
    other["name"] = "v1beta1".into();
    versions.push(other);
    patch(client, definition, &json!({ "spec": { "versions": versions } })).await;
    let mut served = found;
    served["spec"]["versions"] = versions.into();
    until_served(client, &served).await;
}

/// Has the versions of a kind converted by a webhook that nobody serves, or again by the server itself.
pub(crate) async fn convert_by_nobody(client: &Client, definition: &str, by_nobody: bool) {
    let nobody = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/convert"}}});
    let server = json!({"strategy": "None", "webhook": null});
    let conversion = if by_nobody { nobody } else { server };
    patch(client, definition, &json!({ "spec": { "conversion": conversion } })).await;
}

async fn patch(client: &Client, definition: &str, change: &Value) {
    let request = Request::patch(format!("{DEFINITIONS}/{definition}"));
    let request = request.header("content-type", "application/merge-patch+json");
    client.request::<Value>(request.body(change.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// Waits until each version that a definition serves can be listed.
async fn until_served(client: &Client, definition: &Value) {
    let spec = &definition["spec"];
    let (group, plural) = (spec["group"].as_str().unwrap(), spec["names"]["plural"].as_str().unwrap());
    let versions = spec["versions"].as_array().unwrap().iter().filter(|version| version["served"] == true);
    let served = async {
        for version in versions {
            let path = format!("/apis/{group}/{}/{plural}", version["name"].as_str().unwrap());
            while client.request_text(Request::get(&path).body(Vec::new()).unwrap()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("the kinds are served in time");
}
