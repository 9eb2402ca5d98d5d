use serde_json::json;

use super::*;
use crate::roles::provisioner::claims::request::ProvisionRules;
use crate::roles::provisioner::fixtures::{self, DRIVER, map, request};
use crate::roles::provisioner::names;

fn term(pairs: &[(&str, &str)]) -> Segment {
    Segment::new(pairs.iter().copied())
}

fn created() -> Created {
    Created {
        volume_id: "vol-1".into(),
        capacity_bytes: 5_970_004_541,
        context: map(&[("shard", "7")]),
        affinity: None,
    }
}

#[test]
fn the_plainest_volume_has_what_it_must_and_nothing_else() {
    let plan = request(json!({"spec": {"volumeMode": null}}), json!({})).plan;
    assert_eq!(
        persistent_volume(&plan, &created(), "1-2-disk", &[names::FINALIZER_PROVISIONER]).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": "pvc-6f1a-02",
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": DRIVER,
                    "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
                },
                "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "5970004541"},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": "shop", "name": "data", "uid": "6f1a-02", "resourceVersion": "77",
                },
                "csi": {
                    "driver": DRIVER,
                    "volumeHandle": "vol-1",
                    "volumeAttributes": {"shard": "7", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-disk"},
                },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "gold",
            },
        })
    );
}

#[test]
fn row_28_a_full_volume_has_every_field_of_the_table() {
    let prefix = "csi.storage.k8s.io";
    let mut parameters = serde_json::Map::new();
    for secret in [
        "provisioner",
        "controller-publish",
        "node-stage",
        "node-publish",
        "controller-expand",
        "node-expand",
        "controller-modify",
    ] {
        parameters.insert(format!("{prefix}/{secret}-secret-name"), json!(secret));
        parameters.insert(format!("{prefix}/{secret}-secret-namespace"), json!("ns"));
    }
    parameters.insert(format!("{prefix}/fstype"), json!("xfs"));
    let mut plan = request(
        json!({"spec": {"accessModes": ["ReadOnlyMany"], "volumeMode": "Filesystem"}}),
        json!({"parameters": parameters, "reclaimPolicy": "Retain", "mountOptions": ["noatime"]}),
    )
    .plan;
    plan.attributes_class = Some("fast".into());
    plan.read_only = true;
    assert!(plan.is_retained());
    let made = Created {
        affinity: Some(vec![term(&[("zone", "z1"), ("rack", "a")]), term(&[("zone", "z2")])]),
        context: map(&[("storage.kubernetes.io/csiProvisionerIdentity", "the driver's own")]),
        capacity_bytes: 1 << 30,
        ..created()
    };
    let finalizers = [names::FINALIZER_PROVISIONER, "external-attacher/disk-example-com"];
    let object = persistent_volume(&plan, &made, "identity", &finalizers).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(finalizers));
    let secret = |name: &str| json!({"name": name, "namespace": "ns"});
    assert_eq!(
        object["spec"]["csi"],
        json!({
            "driver": DRIVER,
            "volumeHandle": "vol-1",
            "fsType": "xfs",
            "readOnly": true,
            "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "the driver's own"},
            "controllerPublishSecretRef": secret("controller-publish"),
            "nodeStageSecretRef": secret("node-stage"),
            "nodePublishSecretRef": secret("node-publish"),
            "controllerExpandSecretRef": secret("controller-expand"),
            "nodeExpandSecretRef": secret("node-expand"),
        })
    );
    assert_eq!(
        object["metadata"]["annotations"],
        json!({
            "pv.kubernetes.io/provisioned-by": DRIVER,
            "volume.kubernetes.io/provisioner-deletion-secret-name": "provisioner",
            "volume.kubernetes.io/provisioner-deletion-secret-namespace": "ns",
            "volume.kubernetes.io/controller-modify-secret-name": "controller-modify",
            "volume.kubernetes.io/controller-modify-secret-namespace": "ns",
        })
    );
    let spec = &object["spec"];
    for (field, expected) in [
        ("persistentVolumeReclaimPolicy", json!("Retain")),
        ("mountOptions", json!(["noatime"])),
        ("volumeMode", json!("Filesystem")),
        ("accessModes", json!(["ReadOnlyMany"])),
        ("volumeAttributesClassName", json!("fast")),
        ("capacity", json!({"storage": "1Gi"})),
    ] {
        assert_eq!(spec[field], expected, "{field}");
    }
    let within = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    assert_eq!(
        spec["nodeAffinity"],
        json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [within("rack", "a"), within("zone", "z1")]},
            {"matchExpressions": [within("zone", "z2")]},
        ]}})
    );
}

#[test]
fn row_49_a_raw_device_or_an_unnamed_file_system_has_no_fs_type() {
    for (of, from) in
        [(json!({"spec": {"volumeMode": "Block"}}), json!({"parameters": {"fstype": "xfs"}})), (json!({}), json!({}))]
    {
        let plan = request(of, from).plan;
        assert!(persistent_volume(&plan, &created(), "i", &[]).unwrap()["spec"]["csi"].get("fsType").is_none());
    }
}

#[test]
fn what_is_written_is_what_kubernetes_reads() {
    use k8s_openapi::api::core::v1::PersistentVolume;
    let made = Created { affinity: Some(vec![term(&[("zone", "z1")])]), ..created() };
    let object = persistent_volume(&request(json!({}), json!({})).plan, &made, "i", &["more"]).unwrap();
    let read: PersistentVolume = serde_json::from_value(object.clone()).unwrap();
    let mut again = serde_json::to_value(read).unwrap();
    // The one field that the type keeps only when it is set elsewhere.
    again["apiVersion"] = json!("v1");
    assert_eq!(again, object, "a field that the type does not know is lost on the way");
}

/// The plan of a class of the plugin that `driver` has taken over, with these parameters.
fn plan_in_tree(driver: &str, plugin: &str, parameters: &serde_json::Value) -> VolumePlan {
    let class = json!({ "provisioner": plugin, "parameters": parameters });
    let rules = ProvisionRules { driver: driver.to_owned(), ..fixtures::rules() };
    fixtures::request_by(&rules, json!({}), class).plan
}

#[test]
fn m8_m14_m15_r39_the_volume_of_a_plugins_class_is_stored_as_the_plugin_would_have_stored_it() {
    let plan = plan_in_tree("ebs.csi.aws.com", "kubernetes.io/aws-ebs", &json!({ "fsType": "xfs" }));
    let affinity = Some(vec![term(&[("topology.ebs.csi.aws.com/zone", "us-east-1a")])]);
    let object = persistent_volume(&plan, &Created { affinity, ..created() }, "identity", &[]).unwrap();
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    assert_eq!(spec["awsElasticBlockStore"], json!({ "volumeID": "vol-1", "fsType": "xfs" }));
    assert_eq!((spec.get("csi"), &spec["storageClassName"]), (None, &json!("gold")));
    assert_eq!(meta["annotations"]["pv.kubernetes.io/provisioned-by"], "kubernetes.io/aws-ebs");
    assert_eq!(meta["annotations"].get("pv.kubernetes.io/migrated-to"), None, "that is Kubernetes' to write");
    let (zone, region) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
    assert_eq!((&meta["labels"][zone], &meta["labels"][region]), (&json!("us-east-1a"), &json!("us-east-1")));
    let expressions = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"].as_array().unwrap();
    let keys: Vec<_> = expressions.iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&zone) && !keys.iter().any(|key| key.contains("csi")), "{keys:?}");
}

#[test]
fn m27_without_what_the_plugins_source_needs_there_is_no_volume_to_store() {
    let plan = plan_in_tree("csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume", &json!({}));
    let error = persistent_volume(&plan, &created(), "identity", &[]).unwrap_err();
    assert_eq!(error, TranslationError::NoVolumePath);
    let made = Created { context: map(&[("initialvolumefilepath", "[store] disk.vmdk")]), ..created() };
    let object = persistent_volume(&plan, &made, "identity", &[]).unwrap();
    assert_eq!(object["spec"]["vsphereVolume"]["volumePath"], "[store] disk.vmdk");
}
