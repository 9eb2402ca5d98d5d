//! Minimal CRDs of snapshots and grants for an API server: their own projects document the fields.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

/// Group, version, plural, kind, scope, and whether the status is apart.
const KINDS: [(&str, &str, &str, &str, &str, bool); 4] = [
    ("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", "Namespaced", true),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "VolumeSnapshotContent", "Cluster", true),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", "Cluster", false),
    ("gateway.networking.k8s.io", "v1beta1", "referencegrants", "ReferenceGrant", "Namespaced", false),
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Installs the kinds, if they are not there yet, and waits until the server serves them.
pub(crate) async fn install(client: &Client) {
    for (group, version, plural, kind, scope, has_status) in KINDS {
        let subresources = if has_status { json!({"status": {}}) } else { json!({}) };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}},
            "spec": {"group": group, "scope": scope,
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": version, "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        });
        let request = Request::post(DEFINITIONS).header("content-type", "application/json");
        let made = client.request::<Value>(request.body(definition.to_string().into_bytes()).unwrap()).await;
        let is_there = matches!(&made, Err(kube::Error::Api(status)) if status.code == 409);
        assert!(made.is_ok() || is_there, "{made:?}");
    }
    let served = async {
        for (group, version, plural, ..) in KINDS {
            let path = format!("/apis/{group}/{version}/{plural}");
            loop {
                let asked = Request::get(&path).body(Vec::new()).unwrap();
                if client.request_text(asked).await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("the kinds are served in time");
}
