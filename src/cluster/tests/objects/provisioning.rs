//! What is kept of the objects that provisioning reads.

use std::mem::size_of;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{full_meta, keys};
use crate::cluster::event_book::EventTarget;
use crate::cluster::objects::{
    BY_CLAIM, BY_CLASS, BY_HANDLE, BY_SELECTED_NODE, BY_SOURCE, Cached, ConfigMap, ConfigMapMeta, CsiNode,
    CsiStorageCapacity, DataSource, Fields, Node, Object, PersistentVolume, PersistentVolumeClaim, Reach,
    ReferenceGrant, StorageClass, VolumeAttributesClass, VolumeSnapshot, VolumeSnapshotContent,
};

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn trimmed<K: Cached>(object: Value) -> K {
    trimmed_to(object, Fields::NONE)
}

fn trimmed_to<K: Cached>(object: Value, fields: Fields) -> K {
    let mut object: K = read(object);
    object.trim("demo", fields);
    object
}

/// A claim in `shop` with an annotation of its user's, made by `provisioner`.
fn claim(provisioner: &str, finalizers: &[&str], volume: &str) -> PersistentVolumeClaim {
    trimmed(full_claim(provisioner, finalizers, volume))
}

fn full_claim(provisioner: &str, finalizers: &[&str], volume: &str) -> Value {
    json!({
        "metadata": { "name": "data", "namespace": "shop", "uid": "c1", "resourceVersion": "7", "labels": { "a": "b" },
            "finalizers": finalizers, "annotations": { "volume.kubernetes.io/storage-provisioner": provisioner,
            "volume.kubernetes.io/selected-node": "node-1", "team": "blue" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block", "volumeName": volume,
            "resources": { "requests": { "storage": "5Gi" } }, "volumeAttributesClassName": "gold",
            "dataSource": { "kind": "PersistentVolumeClaim", "name": "old" },
            "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "old" } },
        "status": { "phase": "Pending", "accessModes": ["ReadWriteOnce"] },
    })
}

fn url<K: Object>(namespace: Option<&str>) -> String {
    K::Kind::url_path(&(), namespace)
}

#[test]
fn our_claim_without_a_volume_keeps_every_annotation_since_a_class_may_ask_for_any() {
    let own = claim("demo", &[], "");
    assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 3);
    assert!(own.metadata.labels.is_none());
    assert_eq!(
        (own.class_name(), own.provisioner(), own.selected_node()),
        (Some("fast"), Some("demo"), Some("node-1"))
    );
    assert_eq!((own.spec.volume_name.as_deref(), own.spec.storage.as_deref()), (None, Some("5Gi")));
    assert_eq!(own.status.phase.as_deref(), Some("Pending"));
    assert!(!own.spec.has_selector);
    assert_eq!(
        keys(&own),
        [
            (BY_SOURCE.0, "shop/PersistentVolumeClaim/old".into()),
            (BY_CLASS.0, "fast".into()),
            (BY_SELECTED_NODE.0, "node-1".into())
        ]
    );
}

#[test]
fn our_claim_with_a_volume_loses_what_only_making_one_needs() {
    let own = claim("demo", &[], "pvc-1");
    assert_eq!(
        own.metadata.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(),
        ["volume.kubernetes.io/storage-provisioner"]
    );
    assert_eq!((own.spec.data_source.as_ref(), own.spec.volume_name.as_deref()), (None, Some("pvc-1")));
    assert_eq!(*own.spec.access_modes, ["ReadWriteOnce"]);
    assert_eq!(keys(&own), []);
}

#[test]
fn our_claim_with_a_volume_keeps_its_node_where_each_node_has_a_provisioner() {
    for (provisioner, volume, fields, node) in [
        ("demo", "pvc-1", Fields::SELECTED_NODE, Some("node-1")),
        ("demo", "pvc-1", Fields::NONE, None),
        ("other", "pvc-1", Fields::SELECTED_NODE, None),
    ] {
        let claim: PersistentVolumeClaim = trimmed_to(full_claim(provisioner, &[], volume), fields);
        assert_eq!(claim.selected_node(), node, "{provisioner} {fields:?}");
        assert_eq!(claim.metadata.annotation("team"), None);
    }
}

#[test]
fn a_foreign_claim_keeps_what_a_clone_of_it_must_know() {
    let foreign = claim("other", &["kubernetes.io/pvc-protection"], "");
    assert_eq!(foreign.metadata.annotations.as_ref().unwrap().len(), 1);
    assert_eq!((foreign.spec.storage.as_deref(), foreign.spec.volume_mode.as_deref()), (Some("5Gi"), Some("Block")));
    assert_eq!((foreign.class_name(), foreign.provisioner()), (Some("fast"), Some("other")));
    assert_eq!(foreign.metadata.finalizers.as_ref().unwrap().len(), 1, "our protection may be among them");
    assert!(foreign.spec.data_source.is_none() && foreign.spec.data_source_ref.is_none());
    assert!(foreign.spec.access_modes.is_empty() && foreign.spec.volume_attributes_class_name.is_none());
}

#[test]
fn s0_old_annotations_are_read_as_kubernetes_reads_them() {
    let of = |annotations: Value| -> PersistentVolumeClaim {
        read(
            json!({ "metadata": { "name": "c", "annotations": annotations }, "spec": { "storageClassName": "field" } }),
        )
    };
    let both = of(json!({ "volume.beta.kubernetes.io/storage-class": "old",
        "volume.beta.kubernetes.io/storage-provisioner": "beta", "volume.alpha.kubernetes.io/selected-node": "n1" }));
    assert_eq!((both.class_name(), both.provisioner(), both.selected_node()), (Some("old"), Some("beta"), Some("n1")));
    let new = of(json!({ "volume.kubernetes.io/storage-provisioner": "", "pv.kubernetes.io/migrated-to": "demo",
        "volume.beta.kubernetes.io/storage-provisioner": "beta", "volume.kubernetes.io/selected-node": "" }));
    assert_eq!((new.provisioner(), new.selected_node(), new.migrated_to()), (Some(""), None, Some("demo")));
    assert_eq!(new.class_name(), Some("field"));
}

#[test]
fn a_source_of_another_namespace_is_found_under_that() {
    let mut own = claim("demo", &[], "");
    own.spec.data_source = None;
    own.spec.data_source_ref = Some(Box::new(DataSource {
        api_group: Some("snapshot.storage.k8s.io".into()),
        kind: "VolumeSnapshot".into(),
        name: "s".into(),
        namespace: Some("backup".into()),
    }));
    assert_eq!(keys(&own)[0], (BY_SOURCE.0, "backup/VolumeSnapshot/s".into()));
}

#[test]
fn a_foreign_class_is_known_by_its_driver_alone() {
    let class = |provisioner: &str| -> StorageClass {
        trimmed(json!({
            "metadata": full_meta("fast"), "provisioner": provisioner, "parameters": { "tier": "gold" }, "reclaimPolicy": "Retain",
            "mountOptions": ["noatime"], "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
            "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "zone", "values": ["a", "b"] }] }],
        }))
    };
    let own = class("demo");
    assert!(own.waits_for_consumer() && !own.metadata.uid.is_empty());
    assert_eq!((own.parameters["tier"].as_str(), own.reclaim_policy.as_deref()), ("gold", Some("Retain")));
    assert_eq!(own.allowed_topologies[0].match_label_expressions[0].values, ["a", "b"]);
    let foreign = class("other");
    let metadata = foreign.metadata.clone();
    assert_eq!(&*metadata.uid, "u1");
    assert_eq!(foreign, StorageClass { metadata, provisioner: "other".into(), ..StorageClass::default() });
}

#[test]
fn our_volume_keeps_what_deleting_needs_and_a_foreign_one_does_not() {
    let volume = |driver: &str| -> PersistentVolume {
        trimmed(json!({
            "metadata": { "name": "pv", "uid": "u1", "annotations": { "pv.kubernetes.io/provisioned-by": "demo", "x": "y",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "s",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "ns" } },
            "spec": { "csi": { "driver": driver, "volumeHandle": "v" }, "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast", "claimRef": { "uid": "c1", "name": "data", "namespace": "shop" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "zone", "operator": "In", "values": ["a"] }, { "key": "old", "operator": "DoesNotExist" }],
                    "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }] } } },
            "status": { "phase": "Released" },
        }))
    };
    let own = volume("demo");
    assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 3);
    assert_eq!((own.phase.as_deref(), own.spec.reclaim_policy.as_deref()), (Some("Released"), Some("Delete")));
    assert_eq!(own.spec.storage_class_name.as_deref(), Some("fast"));
    let [Reach { match_expressions, match_fields }] = &*own.spec.node_affinity else { panic!("one term: {own:?}") };
    let written: Vec<_> = match_expressions.iter().map(|one| (&*one.key, &*one.operator, one.values.len())).collect();
    assert_eq!(written, [("zone", "In", 1), ("old", "DoesNotExist", 0)]);
    assert_eq!((&*match_fields[0].key, &*match_fields[0].values[0]), ("metadata.name", "n1"));
    assert_eq!(keys(&own), [(BY_CLAIM.0, "c1".into()), (BY_HANDLE.0, "v".into())]);
    let foreign = volume("other");
    assert_eq!((foreign.phase.as_ref(), keys(&foreign)), (None, vec![]));
    assert_eq!(foreign.spec.foreign_driver.as_deref(), Some("other"));
}

#[test]
fn a_node_keeps_its_labels_and_tells_our_topology() {
    let node: Node = trimmed(json!({ "metadata": full_meta("n"), "status": { "images": [{}] } }));
    let labels = node.metadata.labels.as_ref().unwrap();
    assert_eq!((labels["a"].as_str(), labels.len()), ("b", 1));
    assert!(node.metadata.annotations.is_none() && node.metadata.owner_references.is_none());
    assert!(<Node as Object>::Kind::metadata_api() && !<CsiNode as Object>::Kind::metadata_api());
    assert_eq!(url::<Node>(None), "/api/v1/nodes");

    let drivers =
        json!([{ "name": "demo", "nodeID": "i", "topologyKeys": ["zone"] }, { "name": "other", "nodeID": "o" }]);
    let csi: CsiNode = trimmed(json!({ "metadata": full_meta("n"), "spec": { "drivers": drivers } }));
    assert_eq!((csi.topology_keys("demo"), csi.topology_keys("other")), (Some(&["zone".to_owned()][..]), None));
    let without = json!([{ "name": "demo", "nodeID": "i", "topologyKeys": null }]);
    let csi: CsiNode = trimmed(json!({ "metadata": full_meta("n"), "spec": { "drivers": without } }));
    assert_eq!(csi.topology_keys("demo"), Some(&[][..]), "it runs there, without a topology");
}

#[test]
fn a_capacity_object_tells_nowhere_from_everywhere() {
    let with = |topology: Value| -> CsiStorageCapacity {
        trimmed(json!({ "metadata": full_meta("csisc-1"), "storageClassName": "fast", "nodeTopology": topology,
            "capacity": "1Gi", "maximumVolumeSize": 5 }))
    };
    let nowhere = with(Value::Null);
    assert_eq!((nowhere.node_topology.as_ref(), nowhere.node_topology_odd), (None, false));
    assert_eq!((nowhere.capacity.as_deref(), nowhere.maximum_volume_size.as_deref()), (Some("1Gi"), Some("5")));
    assert!(nowhere.metadata.labels.is_some() && nowhere.metadata.owner_references.is_some());
    assert_eq!(with(json!({})).node_topology, Some([].into()));
    let zone = with(json!({ "matchLabels": { "zone": "a" }, "matchExpressions": null }));
    assert_eq!((zone.node_topology.unwrap()["zone"].as_str(), zone.node_topology_odd), ("a", false));
    assert!(with(json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] })).node_topology_odd);
}

#[test]
fn snapshots_and_grants_are_read_at_any_stage() {
    let bare: VolumeSnapshot = trimmed(json!({ "metadata": { "name": "s" }, "spec": {} }));
    assert_eq!(bare.status.bound_content, None);
    let ready: VolumeSnapshot = trimmed(json!({ "metadata": full_meta("s"), "status": {
        "boundVolumeSnapshotContentName": "sc", "readyToUse": true, "restoreSize": "1Gi" } }));
    assert_eq!((ready.status.bound_content.as_deref(), ready.status.ready_to_use), (Some("sc"), Some(true)));
    assert_eq!(ready.status.restore_size.as_deref(), Some("1Gi"));
    assert!(VolumeSnapshot::OPTIONAL && ready.metadata.finalizers.is_some());

    let content: VolumeSnapshotContent = read(
        json!({ "metadata": full_meta("sc"), "status": { "snapshotHandle": "h" },
        "spec": { "driver": "demo", "sourceVolumeMode": "Block", "volumeSnapshotRef": { "namespace": "shop", "name": "s", "uid": "u" } } }),
    );
    assert_eq!((content.driver.as_str(), content.snapshot_ref.uid.as_str()), ("demo", "u"));
    assert_eq!((content.snapshot_handle.as_deref(), content.source_volume_mode.as_deref()), (Some("h"), Some("Block")));
    assert_eq!(content.metadata.annotations.unwrap().len(), 3);

    let grant: ReferenceGrant = read(json!({ "metadata": { "name": "g", "namespace": "backup" }, "spec": {
        "from": [{ "group": "", "kind": "PersistentVolumeClaim", "namespace": "shop" }],
        "to": [{ "group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" }, { "group": "", "kind": "X" }] } }));
    assert_eq!((grant.from[0].namespace.as_str(), grant.to[0].name.as_deref()), ("shop", Some("s")));
    assert_eq!(grant.to[1].name, None);

    let class: VolumeAttributesClass =
        read(json!({ "metadata": { "name": "gold" }, "driverName": "demo", "parameters": { "iops": "9" } }));
    assert_eq!((class.driver.as_str(), class.parameters["iops"].as_str()), ("demo", "9"));
}

#[test]
fn kinds_that_kubernetes_does_not_bring_along_have_the_urls_of_their_crds() {
    for (url, expected) in [
        (url::<VolumeSnapshot>(Some("shop")), "/apis/snapshot.storage.k8s.io/v1/namespaces/shop/volumesnapshots"),
        (url::<VolumeSnapshotContent>(None), "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"),
        (
            url::<ReferenceGrant>(Some("shop")),
            "/apis/gateway.networking.k8s.io/v1beta1/namespaces/shop/referencegrants",
        ),
        (url::<VolumeAttributesClass>(None), "/apis/storage.k8s.io/v1/volumeattributesclasses"),
        (url::<CsiStorageCapacity>(Some("kube")), "/apis/storage.k8s.io/v1/namespaces/kube/csistoragecapacities"),
    ] {
        assert_eq!(url, expected);
    }
}

#[test]
fn an_event_about_a_claim_goes_to_its_namespace_and_one_about_a_class_has_none() {
    let target = EventTarget::of(&claim("demo", &[], ""));
    let told = (target.api_version.as_str(), target.kind.as_str(), target.namespace.as_deref(), target.uid.as_str());
    assert_eq!(told, ("v1", "PersistentVolumeClaim", Some("shop"), "c1"));
    let class: StorageClass = trimmed(json!({ "metadata": full_meta("fast"), "provisioner": "demo" }));
    let target = EventTarget::of(&class);
    assert_eq!((target.api_version.as_str(), target.name.as_str()), ("storage.k8s.io/v1", "fast"));
    assert_eq!(target.namespace, None);
}

#[test]
fn what_is_held_of_every_claim_class_and_node_is_small() {
    let sizes = [
        size_of::<PersistentVolumeClaim>(),
        size_of::<StorageClass>(),
        size_of::<Node>(),
        size_of::<CsiStorageCapacity>(),
        size_of::<VolumeSnapshot>(),
    ];
    assert!(sizes[0] <= 560 && sizes[1] <= 560 && sizes[2] <= 400 && sizes[3] <= 520 && sizes[4] <= 480, "{sizes:?}");
}

#[test]
fn a_configmap_is_read_with_its_texts_and_the_keys_of_its_bytes() {
    let object = json!({
        "metadata": full_meta("settings"), "immutable": true,
        "data": { "a": "1" }, "binaryData": { "b": "AA==" },
    });
    let full: ConfigMap = read(object.clone());
    assert_eq!(
        (full.data["a"].as_str(), full.binary_keys.as_slice(), full.is_immutable),
        ("1", &["b".to_owned()][..], true)
    );
    assert_eq!(full.metadata.annotation("other"), Some("x"));
    assert_eq!(read::<ConfigMapMeta>(object).metadata, full.metadata);
    let bare: ConfigMap = read(json!({ "metadata": { "name": "settings" }, "data": null, "binaryData": null }));
    assert!(bare.data.is_empty() && bare.binary_keys.is_empty() && !bare.is_immutable);
    assert_eq!(url::<ConfigMap>(Some("kube")), "/api/v1/namespaces/kube/configmaps");
}
