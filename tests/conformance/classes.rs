//! Storage classes, attributes classes, capacities, nodes.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTRIBUTES_CLASSES, CAPACITIES, CLASSES, CSI_NODES, attributes_class, capacity, class, with};

pub(crate) async fn a_class_has_what_it_must(server: &Server) {
    let mut case = Case::begin(server).await;
    let but = |key: &str, value: Value| with(class("CASE-a"), "", key, value);
    let topology = |expressions: Value| json!([{"matchLabelExpressions": expressions}]);
    for bad in [
        but("provisioner", json!("")),
        but("provisioner", json!("bad name")),
        but("reclaimPolicy", json!("Recycle")),
        but("volumeBindingMode", json!("Sometime")),
        but("allowedTopologies", topology(json!([{"key": "example.com/zone", "values": []}]))),
        but("allowedTopologies", topology(json!([{"key": "Bad Key", "values": ["z1"]}]))),
        but("allowedTopologies", topology(json!([{"key": "example.com/zone", "values": ["z1", "z1"]}]))),
        but(
            "allowedTopologies",
            topology(
                json!([{"key": "example.com/zone", "values": ["z1"]}, {"key": "example.com/zone", "values": ["z2"]}]),
            ),
        ),
        but(
            "allowedTopologies",
            json!([{"matchLabelExpressions": [{"key": "example.com/zone", "values": ["z1", "z2"]}]},
                {"matchLabelExpressions": [{"key": "example.com/zone", "values": ["z2", "z1"]}]}]),
        ),
        but("allowedTopologies", json!([{}])),
    ] {
        assert_eq!(case.post(CLASSES, bad).await.code, 422);
    }
    let full = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "CASE-b"},
        "provisioner": "Demo.csi.example.com", "parameters": {"csi.storage.k8s.io/fstype": "xfs"}, "reclaimPolicy": "Retain",
        "mountOptions": ["noatime"], "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "example.com/zone", "values": ["z1", "z2"]}]}]});
    assert_eq!(case.post(CLASSES, full).await.code, 201);
    case.end("a_class_has_what_it_must");
}

pub(crate) async fn a_class_never_changes_what_made_volumes(server: &Server) {
    let (mut case, path, _) =
        Case::with(server, CLASSES, with(class("CASE-a"), "", "parameters", json!({"a": "b"}))).await;
    for change in [
        json!({"provisioner": "other.csi.example.com"}),
        json!({"parameters": {"a": "c"}}),
        json!({"parameters": null}),
        json!({"reclaimPolicy": "Retain"}),
        json!({"volumeBindingMode": "WaitForFirstConsumer"}),
    ] {
        assert_eq!(case.patch(PatchType::Merge, &path, change).await.code, 422);
    }
    let topologies = json!([{"matchLabelExpressions": [{"key": "example.com/zone", "values": ["z1"]}]}]);
    for change in [
        json!({"allowedTopologies": topologies}),
        json!({"mountOptions": ["noatime"]}),
        json!({"allowVolumeExpansion": true}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
    ] {
        assert_eq!(case.patch(PatchType::Merge, &path, change).await.code, 200);
    }
    case.delete(&path).await;
    case.end("a_class_never_changes_what_made_volumes");
}

pub(crate) async fn an_attributes_class_never_changes(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{ATTRIBUTES_CLASSES}/CASE-a");
    for (key, value) in [("parameters", json!({})), ("driverName", json!("")), ("driverName", json!("bad name"))] {
        assert_eq!(case.post(ATTRIBUTES_CLASSES, with(attributes_class("CASE-a"), "", key, value)).await.code, 422);
    }
    assert_eq!(case.post(ATTRIBUTES_CLASSES, attributes_class("CASE-a")).await.code, 201);
    for change in [json!({"driverName": "other.csi.example.com"}), json!({"parameters": {"iops": "2"}})] {
        assert_eq!(case.patch(PatchType::Merge, &path, change).await.code, 422);
    }
    case.delete(&path).await;
    case.end("an_attributes_class_never_changes");
}

pub(crate) async fn a_capacity_belongs_to_a_segment_and_a_class(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{CAPACITIES}/a");
    let but = |key: &str, value: Value| with(capacity("a"), "", key, value);
    for bad in [
        but("storageClassName", json!("")),
        but("storageClassName", json!("Bad_Class")),
        but("nodeTopology", json!({"matchLabels": {"Bad Key": "z1"}})),
        but("nodeTopology", json!({"matchLabels": {"example.com/zone": "bad value!"}})),
        but("nodeTopology", json!({"matchExpressions": [{"key": "example.com/zone", "operator": "In", "values": []}]})),
        but("nodeTopology", json!({"matchExpressions": [{"key": "example.com/zone", "operator": "Near"}]})),
        but("capacity", json!("-1")),
        with(capacity("a"), "/metadata", "name", json!("Bad_Name")),
    ] {
        assert_eq!(case.post(CAPACITIES, bad).await.code, 422);
    }
    let made = case.post(CAPACITIES, capacity("a")).await;
    assert_eq!(made.code, 201);
    for change in [
        json!({"storageClassName": "other"}),
        json!({"nodeTopology": {"matchLabels": {"example.com/zone": "z2"}}}),
        json!({"nodeTopology": null}),
    ] {
        assert_eq!(case.patch(PatchType::Merge, &path, change).await.code, 422);
    }
    let room = json!({"capacity": "2Gi", "maximumVolumeSize": "1Gi"});
    assert_eq!(case.patch(PatchType::Merge, &path, room).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"maximumVolumeSize": null})).await.code, 200);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u", "controller": true}]);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"metadata": {"ownerReferences": owner}})).await.code, 200);
    // A write without a version.
    let unversioned = capacity("a");
    assert_eq!(case.put(&path, unversioned).await.code, 422);
    let other = json!({"preconditions": {"uid": "another"}});
    assert_eq!(case.delete_with(&path, other).await.code, 409);
    assert_eq!(case.delete_with(&path, json!({"preconditions": {"uid": made.uid()}})).await.code, 200);
    let mut bare = capacity("b");
    bare.as_object_mut().expect("an object").remove("nodeTopology");
    assert_eq!(case.post(CAPACITIES, bare).await.code, 201);
    let selected = format!("{CAPACITIES}?labelSelector=csi.storage.k8s.io%2Fdrivername%3Ddemo.csi.example.com");
    assert_eq!(case.get(&selected).await.names(), ["b"]);
    case.end("a_capacity_belongs_to_a_segment_and_a_class");
}

pub(crate) async fn a_csi_nodes_topology_keys_are_labels(server: &Server) {
    let mut case = Case::begin(server).await;
    let node = |keys: Value| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "CASE-n"},
            "spec": {"drivers": [{"name": "demo.csi.example.com", "nodeID": "id", "topologyKeys": keys}]}})
    };
    for bad in [json!([""]), json!(["Bad Key"]), json!(["a", "a"])] {
        assert_eq!(case.post(CSI_NODES, node(bad)).await.code, 422);
    }
    assert_eq!(case.post(CSI_NODES, node(json!(["example.com/zone", "hostname"]))).await.code, 201);
    let keys = json!({"spec": {"drivers": [{"name": "demo.csi.example.com", "nodeID": "id", "topologyKeys": ["a"]}]}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{CSI_NODES}/CASE-n"), keys).await.code, 422);
    case.end("a_csi_nodes_topology_keys_are_labels");
}

pub(crate) async fn a_node_has_labels(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = "/api/v1/nodes/CASE-n";
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "CASE-n", "labels": {"example.com/zone": "z1"}}});
    let made = case.post("/api/v1/nodes", node).await;
    assert_eq!(made.text("/metadata/labels/example.com~1zone"), "z1");
    let moved = json!({"metadata": {"labels": {"example.com/zone": "z2"}}});
    assert_eq!(case.patch(PatchType::Merge, path, moved).await.code, 200);
    case.delete(path).await;
    case.end("a_node_has_labels");
}
