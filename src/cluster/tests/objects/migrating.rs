//! What a translation of in-tree volumes reads, and that it costs nothing where there is none to translate.

use base::InTree;
use serde_json::{Value, json};

use super::keys;
use crate::cluster::objects::{
    AwsDisk, AzureDisk, AzureFile, BY_SUCCESSOR, Cached, Fields, GceDisk, InTreeSource, NodeRequirement,
    PersistentVolume, StorageClass, VolumeAttachment, VolumeById, VsphereVolume,
};

const ALL: [InTree; 7] = [
    InTree::GcePersistentDisk,
    InTree::AwsElasticBlockStore,
    InTree::AzureDisk,
    InTree::AzureFile,
    InTree::Cinder,
    InTree::VsphereVolume,
    InTree::PortworxVolume,
];

fn read<K: Cached>(object: &Value, driver: &str, fields: Fields) -> K {
    let mut object: K = serde_json::from_value(object.clone()).unwrap();
    object.trim(driver, fields);
    object
}

/// A source as the API server stores it, with all that its plugin knew.
fn full(kind: InTree) -> (Value, InTreeSource) {
    let text = |text: &str| Some(text.into());
    match kind {
        InTree::GcePersistentDisk => (
            json!({ "pdName": "disk-1", "fsType": "ext4", "partition": 3, "readOnly": true }),
            InTreeSource::GcePersistentDisk(GceDisk {
                pd_name: "disk-1".into(),
                fs_type: text("ext4"),
                partition: 3,
                read_only: true,
            }),
        ),
        InTree::AwsElasticBlockStore => (
            json!({ "volumeID": "aws://us-east-1a/vol-1", "fsType": "xfs", "partition": 1, "readOnly": true }),
            InTreeSource::AwsElasticBlockStore(AwsDisk {
                volume_id: "aws://us-east-1a/vol-1".into(),
                fs_type: text("xfs"),
                partition: 1,
                read_only: true,
            }),
        ),
        InTree::AzureDisk => (
            json!({ "diskName": "d", "diskURI": "/subscriptions/s/d", "kind": "Managed", "cachingMode": "", "fsType": "ext4", "readOnly": false }),
            InTreeSource::AzureDisk(AzureDisk {
                disk_uri: "/subscriptions/s/d".into(),
                kind: text("Managed"),
                caching_mode: text(""),
                fs_type: text("ext4"),
                read_only: Some(false),
            }),
        ),
        InTree::AzureFile => (
            json!({ "shareName": "share", "secretName": "azure-storage-account-a-secret", "secretNamespace": "", "readOnly": true }),
            InTreeSource::AzureFile(AzureFile {
                share_name: "share".into(),
                secret_name: "azure-storage-account-a-secret".into(),
                secret_namespace: Some("".into()),
                read_only: true,
            }),
        ),
        InTree::Cinder => (
            json!({ "volumeID": "vol-1", "fsType": "ext4", "readOnly": true, "secretRef": { "name": "s", "namespace": "ns" } }),
            InTreeSource::Cinder(VolumeById { volume_id: "vol-1".into(), fs_type: text("ext4"), read_only: true }),
        ),
        InTree::VsphereVolume => (
            json!({ "volumePath": "[store] a.vmdk", "fsType": "ext4", "storagePolicyName": "gold", "storagePolicyID": "7" }),
            InTreeSource::VsphereVolume(VsphereVolume {
                volume_path: "[store] a.vmdk".into(),
                fs_type: text("ext4"),
                storage_policy_name: Some("gold".into()),
            }),
        ),
        InTree::PortworxVolume => (
            json!({ "volumeID": "vol-1", "fsType": "ext4", "readOnly": true }),
            InTreeSource::PortworxVolume(VolumeById {
                volume_id: "vol-1".into(),
                fs_type: text("ext4"),
                read_only: true,
            }),
        ),
    }
}

fn volume(kind: InTree, source: &Value) -> Value {
    json!({
        "metadata": { "name": "pv", "labels": { "topology.kubernetes.io/zone": "a__b", "topology.kubernetes.io/region": "r",
                "failure-domain.beta.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/region": "br", "team": "blue" },
            "annotations": { "kubernetes.io/azure-file-resource-group": "rg", "openstorage.io/auth-secret-name": "s",
                "openstorage.io/auth-secret-namespace": "ns", "pv.kubernetes.io/migrated-to": kind.successor(), "other": "x" } },
        "spec": { kind.field(): source, "accessModes": ["ReadWriteOnce"], "nodeAffinity": { "required": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["c", "b"] },
                { "key": "topology.kubernetes.io/region", "operator": "In", "values": ["r"] }] },
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] },
            { "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }] }] } } },
    })
}

#[test]
fn a_volume_that_our_driver_has_taken_over_keeps_what_a_translation_reads() {
    for kind in ALL {
        let (source, expected) = full(kind);
        let own: PersistentVolume = read(&volume(kind, &source), kind.successor(), Fields::MIGRATION);
        let held = own.spec.migration.as_deref().unwrap();
        assert_eq!((&held.source, held.source.kind(), own.spec.in_tree), (&expected, kind, Some(kind)));
        let labels: Vec<_> = own.metadata.labels.as_ref().unwrap().values().map(String::as_str).collect();
        assert_eq!(labels, ["br", "a", "r", "a__b"], "both pairs, in the order of their keys");
        assert_eq!(own.metadata.annotations.as_ref().unwrap().len(), 4);
        assert_eq!(keys(&own), [(BY_SUCCESSOR.0, kind.successor().to_owned())]);
        assert_eq!(own.metadata.annotation("openstorage.io/auth-secret-name"), Some("s"));
        let requirement = |key: &str, operator: &str, values: &[&str]| NodeRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().copied().map(Into::into).collect(),
        };
        let [first, second, third] = &*held.node_affinity else { panic!("three terms: {held:?}") };
        assert_eq!(
            **first,
            [
                requirement("topology.kubernetes.io/zone", "NotIn", &["c", "b"]),
                requirement("topology.kubernetes.io/region", "In", &["r"])
            ]
        );
        assert_eq!((second.len(), &**third), (0, &[requirement("old", "DoesNotExist", &[])][..]));
        assert_eq!(own.spec.node_affinity.len(), 3);
        assert_eq!(own.spec.node_affinity[0].match_expressions, *first);
    }
}

#[test]
fn what_a_source_does_not_say_stays_apart_from_what_it_says_to_be_empty() {
    for kind in ALL {
        let (source, _) = full(kind);
        let nulls: serde_json::Map<_, _> =
            source.as_object().unwrap().keys().map(|key| (key.clone(), Value::Null)).collect();
        for bare in [json!({}), Value::Object(nulls)] {
            let object = json!({ "metadata": { "name": "pv" }, "spec": { kind.field(): bare, "nodeAffinity": { "required": null } } });
            let own: PersistentVolume = read(&object, kind.successor(), Fields::MIGRATION);
            assert_eq!((own.spec.in_tree, own.metadata.labels.as_ref()), (Some(kind), None));
            let held = own.spec.migration.unwrap();
            assert!(held.node_affinity.is_empty());
            match held.source {
                InTreeSource::AzureDisk(disk) => assert_eq!(disk, AzureDisk::default()),
                InTreeSource::AzureFile(file) => assert_eq!(file.secret_namespace, None),
                InTreeSource::GcePersistentDisk(disk) => assert_eq!(disk, GceDisk::default()),
                InTreeSource::AwsElasticBlockStore(disk) => assert_eq!(disk, AwsDisk::default()),
                InTreeSource::Cinder(volume) | InTreeSource::PortworxVolume(volume) => {
                    assert_eq!(volume, VolumeById::default());
                }
                InTreeSource::VsphereVolume(volume) => assert_eq!(volume, VsphereVolume::default()),
            }
        }
    }
}

#[test]
fn of_other_in_tree_volumes_and_without_a_translation_only_the_kind_is_held() {
    for kind in ALL {
        let object = volume(kind, &full(kind).0);
        for (driver, fields) in [("demo", Fields::MIGRATION), (kind.successor(), Fields::RESIZE | Fields::HEALTH)] {
            let held: PersistentVolume = read(&object, driver, fields);
            assert_eq!(keys(&held), []);
            assert_eq!((held.spec.in_tree, held.spec.migration, held.metadata.labels), (Some(kind), None, None));
            let annotations: Vec<_> = held.metadata.annotations.as_ref().unwrap().keys().collect();
            assert_eq!(annotations, ["pv.kubernetes.io/migrated-to"]);
        }
    }
    let attachment = json!({ "metadata": { "name": "va" }, "spec": { "attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {
        "inlineVolumeSpec": { "awsElasticBlockStore": { "volumeID": "vol-1" } } } } });
    let attachment: VolumeAttachment = read(&attachment, "ebs.csi.aws.com", Fields::MIGRATION);
    assert_eq!(attachment.spec.source.inline_volume_spec.unwrap().migration, None, "it arrives translated");
}

#[test]
fn a_class_of_the_plugin_that_our_driver_has_taken_over_is_kept_untranslated() {
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "kubernetes.io/aws-ebs", "parameters": { "zone": "a" } });
    let held = |driver: &str, fields: Fields| read::<StorageClass>(&class, driver, fields);
    let own = held("ebs.csi.aws.com", Fields::MIGRATION);
    assert_eq!((own.provisioner.as_str(), own.parameters["zone"].as_str()), ("kubernetes.io/aws-ebs", "a"));
    for (driver, fields) in
        [("pd.csi.storage.gke.io", Fields::MIGRATION), ("demo", Fields::MIGRATION), ("ebs.csi.aws.com", Fields::NONE)]
    {
        assert!(held(driver, fields).parameters.is_empty(), "{driver}");
    }
}
