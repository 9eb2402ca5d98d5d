//! Kinds that a cluster has only if they are installed: snapshots and grants.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::forms::TABLE;
use super::objects::with;

const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/CASE/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const GROUPS: &str = "/apis/groupsnapshot.storage.k8s.io/v1/namespaces/CASE/volumegroupsnapshots";
const GROUP_CONTENTS: &str = "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents";
const GROUP_CLASSES: &str = "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotclasses";
const GRANTS: &str = "/apis/gateway.networking.k8s.io/v1beta1/namespaces/CASE/referencegrants";

fn snapshot(name: &str) -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name},
        "spec": {"volumeSnapshotClassName": "c", "source": {"persistentVolumeClaimName": "a"}}})
}

fn content(name: &str) -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": name},
        "spec": {"driver": "demo.csi.example.com", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
            "volumeSnapshotRef": {"namespace": "CASE", "name": "a"}}})
}

pub(crate) async fn snapshots_are_there_once_installed(server: &Server) {
    let mut case = Case::begin(server).await;
    for path in [GROUP, SNAPSHOTS, CONTENTS, GRANTS] {
        assert_eq!(super::fetch(&case, path).await.code, 404, "{path}");
    }
    assert_eq!(case.post(SNAPSHOTS, snapshot("a")).await.code, 404);
    server.install().await;
    assert!(case.get(SNAPSHOTS).await.names().is_empty());
    let made = case.post(SNAPSHOTS, with(snapshot("a"), "", "status", json!({"readyToUse": true}))).await;
    assert_eq!((made.code, made.body.get("status")), (201, None));
    let path = format!("{SNAPSHOTS}/a");
    let status = json!({"metadata": {"annotations": {"lost": "x"}}, "spec": {"lost": "x"},
        "status": {"boundVolumeSnapshotContentName": "CASE-a", "readyToUse": true, "restoreSize": "1Gi"}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/status"), status).await.code, 200);
    // A change of the spec is a new generation, one of the metadata isn't.
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeSnapshotClassName": "d"}})).await.code, 200);
    let hold = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/one"]}]);
    assert_eq!(case.patch(PatchType::Json, &path, hold).await.code, 200);
    for path in [&path, &format!("{path}/status")] {
        assert_eq!(case.patch(PatchType::Strategic, path, json!({"spec": {}})).await.code, 415);
    }
    assert_eq!(case.put(&path, snapshot("a")).await.code, 422);
    let deleted = case.delete(&path).await;
    assert!(!deleted.text("/metadata/deletionTimestamp").is_empty());
    let more = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/two"}]);
    assert_eq!(case.patch(PatchType::Json, &path, more).await.code, 422);
    let away = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    assert_eq!(case.patch(PatchType::Json, &path, away).await.code, 200);
    assert_eq!(case.get(&path).await.code, 404);
    assert_eq!(case.post(CONTENTS, content("CASE-a")).await.code, 201);
    let handle = json!({"status": {"snapshotHandle": "h", "readyToUse": true}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{CONTENTS}/CASE-a/status"), handle).await.code, 200);
    assert_eq!(case.delete(&format!("{CONTENTS}/CASE-a")).await.code, 200);
    let grant = json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": {"name": "a"},
        "spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "CASE"}],
            "to": [{"group": "", "kind": "PersistentVolumeClaim"}]}});
    assert_eq!(case.post(GRANTS, grant).await.code, 201);
    assert_eq!(case.get(GRANTS).await.names(), ["a"]);
    case.end("snapshots_are_there_once_installed");
}

/// The columns are those of the published definitions, and a cell whose value is not there is empty.
pub(crate) async fn kubectl_gets_tables_of_installed_kinds(server: &Server) {
    let mut case = Case::begin(server).await;
    server.install().await;
    let class = |group: &str, kind: &str| {
        json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "CASE-a"},
            "driver": "demo.csi.example.com", "deletionPolicy": "Delete"})
    };
    let group = json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot", "metadata": {"name": "a"},
        "spec": {"volumeGroupSnapshotClassName": "c", "source": {"selector": {"matchLabels": {"a": "b"}}}}});
    let group_content = json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": "CASE-a"},
        "spec": {"driver": "demo.csi.example.com", "deletionPolicy": "Delete", "source": {"volumeHandles": ["v"]},
            "volumeGroupSnapshotRef": {"namespace": "CASE", "name": "a"}}});
    for (path, name, object) in [
        (CLASSES, "CASE-a", class("snapshot.storage.k8s.io", "VolumeSnapshotClass")),
        (CONTENTS, "CASE-a", content("CASE-a")),
        (SNAPSHOTS, "a", snapshot("a")),
        (GROUP_CLASSES, "CASE-a", class("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotClass")),
        (GROUP_CONTENTS, "CASE-a", group_content),
        (GROUPS, "a", group),
    ] {
        assert_eq!(case.post(path, object).await.code, 201, "{path}");
        assert_eq!(case.get_as(&format!("{path}/{name}"), TABLE).await.text("/kind"), "Table", "{path}");
    }
    for (path, status) in [
        (
            format!("{SNAPSHOTS}/a"),
            json!({"boundVolumeSnapshotContentName": "CASE-a", "readyToUse": true, "restoreSize": "1Gi"}),
        ),
        (
            format!("{CONTENTS}/CASE-a"),
            json!({"snapshotHandle": "h", "readyToUse": false, "restoreSize": 1_073_741_824}),
        ),
        (format!("{GROUPS}/a"), json!({"boundVolumeGroupSnapshotContentName": "CASE-a"})),
    ] {
        let written = case.patch(PatchType::Merge, &format!("{path}/status"), json!({ "status": status })).await;
        assert_eq!(written.code, 200, "{path}");
        assert_eq!(case.get_as(&path, TABLE).await.text("/kind"), "Table", "{path}");
    }
    case.end("kubectl_gets_tables_of_installed_kinds");
}
