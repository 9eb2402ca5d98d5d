//! Invalid objects, and the server's error messages.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, LEASES, VOLUMES, attachment, config_map, volume, with};

pub(crate) async fn names_are_dns_names(server: &Server) {
    let mut case = Case::begin(server).await;
    for name in ["CASE_a", "CASE-A", "-CASE", "CASE-", "CASE..a"] {
        assert_eq!(case.post(ATTACHMENTS, attachment(name)).await.code, 422, "{name}");
    }
    assert_eq!(case.post(ATTACHMENTS, attachment(&format!("CASE-{}", "a".repeat(250)))).await.code, 422);
    // One at a time: the server's maps have no order.
    for labels in [json!({"bad key": "x"}), json!({"ok": "bad value!"}), json!({"/": "x"})] {
        assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "labels", labels)).await.code, 422);
    }
    let annotations = json!({"Bad Key": "x"});
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "annotations", annotations)).await.code, 422);
    let finalizers = json!(["unqualified"]);
    case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "finalizers", finalizers)).await;
    case.post(CONFIG_MAPS, with(config_map("b"), "/metadata", "finalizers", json!(["bad one/x y"]))).await;
    case.end("names_are_dns_names");
}

pub(crate) async fn an_attachment_names_one_source(server: &Server) {
    let mut case = Case::begin(server).await;
    let spec = |spec: Value| with(attachment("CASE-a"), "", "spec", spec);
    let inline =
        json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "demo.csi.example.com", "volumeHandle": "v"}});
    for bad in [
        json!({}),
        json!({"attacher": "a", "nodeName": "n", "source": {}}),
        json!({"attacher": "", "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
        json!({"attacher": "bad name", "nodeName": "Bad_Node", "source": {"persistentVolumeName": "Bad_Volume"}}),
        json!({"attacher": "a", "nodeName": "", "source": {"persistentVolumeName": ""}}),
        json!({"attacher": "a".repeat(64), "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
        json!({"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p", "inlineVolumeSpec": inline}}),
    ] {
        assert_eq!(case.post(ATTACHMENTS, spec(bad)).await.code, 422);
    }
    assert_eq!(
        case.post(ATTACHMENTS, spec(json!({"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec": inline}})))
            .await
            .code,
        201
    );
    case.end("an_attachment_names_one_source");
}

pub(crate) async fn an_attachments_spec_never_changes(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{ATTACHMENTS}/CASE-a");
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"nodeName": "node-2"}})).await.code, 422);
    let renamed = json!({"metadata": {"name": "CASE-b"}});
    case.patch(PatchType::Merge, &path, renamed).await;
    case.end("an_attachments_spec_never_changes");
}

pub(crate) async fn a_volumes_source_never_changes(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{VOLUMES}/CASE-a");
    case.post(VOLUMES, volume("CASE-a")).await;
    let handle = json!({"spec": {"csi": {"volumeHandle": "other"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, handle).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"capacity": {"storage": "2Gi"}}})).await.code, 200);
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    assert_eq!(case.patch(PatchType::Merge, &path, policy).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeMode": "Block"}})).await.code, 422);
    case.patch(PatchType::Merge, &path, json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await;
    case.patch(PatchType::Merge, &path, json!({"spec": {"persistentVolumeReclaimPolicy": "Burn"}})).await;
    case.end("a_volumes_source_never_changes");
}

pub(crate) async fn a_volume_has_what_it_must(server: &Server) {
    let mut case = Case::begin(server).await;
    let spec = |spec: Value| with(volume("CASE-a"), "", "spec", spec);
    let csi = json!({"driver": "demo.csi.example.com", "volumeHandle": "v"});
    for bad in [
        json!({}),
        json!({"csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
        json!({"capacity": {"storage": "0"}, "accessModes": ["ReadWriteOnce"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadSometimes"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "", "volumeHandle": ""}}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, "volumeMode": "Tape"}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "v",
            "controllerPublishSecretRef": {"name": "", "namespace": "x"}}}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, "hostPath": {"path": "/x"}}),
    ] {
        assert_eq!(case.post(VOLUMES, spec(bad)).await.code, 422);
    }
    case.end("a_volume_has_what_it_must");
}

pub(crate) async fn a_csi_node_lists_each_driver_once(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = "/apis/storage.k8s.io/v1/csinodes";
    let node = |drivers: Value| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "CASE-n"}, "spec": {"drivers": drivers}});
    let driver = json!({"name": "demo.csi.example.com", "nodeID": "id-1", "topologyKeys": ["example.com/zone"]});
    assert_eq!(case.post(path, node(json!([driver, driver]))).await.code, 422);
    assert_eq!(case.post(path, node(json!([{"name": "demo.csi.example.com", "nodeID": ""}]))).await.code, 422);
    assert_eq!(case.post(path, node(json!([{"name": "d", "nodeID": "x".repeat(257)}]))).await.code, 422);
    assert_eq!(
        case.post(path, node(json!([{"name": "d", "nodeID": "x", "allocatable": {"count": -1}}]))).await.code,
        422
    );
    assert_eq!(case.post(path, node(json!([driver]))).await.code, 201);
    let moved = json!({"spec": {"drivers": [{"name": "demo.csi.example.com", "nodeID": "id-2", "topologyKeys": ["example.com/zone"]}]}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/CASE-n"), moved).await.code, 422);
    assert_eq!(
        case.patch(PatchType::Merge, &format!("{path}/CASE-n"), json!({"spec": {"drivers": []}})).await.code,
        200
    );
    case.end("a_csi_node_lists_each_driver_once");
}

pub(crate) async fn leases_are_checked(server: &Server) {
    let mut case = Case::begin(server).await;
    let lease = |spec: Value| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": spec});
    let good = json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.123456Z"});
    assert_eq!(case.post(LEASES, lease(good)).await.code, 201);
    for bad in [
        json!({"leaseDurationSeconds": 0}),
        json!({"leaseTransitions": -1}),
        json!({"holderIdentity": ""}),
        json!({"renewTime": "2026-01-01"}),
        json!({"renewTime": "2026-01-01T00:00:00Z"}),
        json!({"leaseDurationSeconds": "15"}),
    ] {
        case.put(&format!("{LEASES}/a"), lease(bad)).await;
    }
    case.end("leases_are_checked");
}

pub(crate) async fn events_belong_to_their_objects_namespace(server: &Server) {
    let mut case = Case::begin(server).await;
    let event = |name: &str, about: Value| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about,
            "reason": "FailedAttachVolume", "message": "no", "type": "Warning", "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "x"}})
    };
    let path = "/api/v1/namespaces/CASE/events";
    let here = json!({"kind": "PersistentVolumeClaim", "namespace": "CASE", "name": "c", "apiVersion": "v1"});
    assert_eq!(case.post(path, event("a", here.clone())).await.code, 201);
    let cluster = json!({"kind": "VolumeAttachment", "name": "v", "apiVersion": "storage.k8s.io/v1"});
    assert_eq!(case.post(path, event("b", cluster)).await.code, 422);
    let series = json!({"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/a"), series).await.code, 200);
    case.end("events_belong_to_their_objects_namespace");
}

pub(crate) async fn wrong_types_are_bad_requests(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "", "data", json!({"key": 1}))).await.code, 400);
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "labels", json!(["x"]))).await.code, 400);
    let number = with(attachment("CASE-a"), "/spec", "nodeName", json!(5));
    assert_eq!(case.post(ATTACHMENTS, number).await.code, 400);
    assert_eq!(case.post(CONFIG_MAPS, json!("text")).await.code, 400);
    assert_eq!(
        case.post(CONFIG_MAPS, json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}})).await.code,
        400
    );
    case.post(CONFIG_MAPS, json!({"metadata": {"name": "untyped"}})).await;
    case.post(CONFIG_MAPS, json!({"apiVersion": "v1", "metadata": {"name": "untyped-2"}})).await;
    case.end("wrong_types_are_bad_requests");
}

pub(crate) async fn immutable_maps_and_secrets_stay(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, with(config_map("a"), "", "immutable", json!(true))).await;
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"data": {"key": "2"}})).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"immutable": false})).await.code, 422);
    // One at a time: the server's maps have no order.
    for data in [json!({"bad key": "x"}), json!({"": "y"})] {
        case.post(CONFIG_MAPS, with(config_map("b"), "", "data", data)).await;
    }
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"key": "not base64!"}});
    case.post("/api/v1/namespaces/CASE/secrets", secret).await;
    case.end("immutable_maps_and_secrets_stay");
}
