//! Pods' volumes to CSI: migration spec 6.

use serde_json::{Value, json};

use crate::cluster::{InTree, InTreeSource};
use crate::translation::pod_volume_to_csi;

fn source(kind: InTree, source: Value) -> InTreeSource {
    match kind {
        InTree::GcePersistentDisk => InTreeSource::GcePersistentDisk(serde_json::from_value(source).unwrap()),
        InTree::AwsElasticBlockStore => InTreeSource::AwsElasticBlockStore(serde_json::from_value(source).unwrap()),
        InTree::AzureDisk => InTreeSource::AzureDisk(serde_json::from_value(source).unwrap()),
        InTree::AzureFile => InTreeSource::AzureFile(serde_json::from_value(source).unwrap()),
        InTree::Cinder => InTreeSource::Cinder(serde_json::from_value(source).unwrap()),
        InTree::VsphereVolume => InTreeSource::VsphereVolume(serde_json::from_value(source).unwrap()),
        InTree::PortworxVolume => InTreeSource::PortworxVolume(serde_json::from_value(source).unwrap()),
    }
}

/// The name and the specification of a pod's volume `data` in the namespace `shop`.
fn translated(kind: InTree, of: Value) -> (String, Value) {
    let volume = pod_volume_to_csi(&source(kind, of), "data", Some("shop")).unwrap();
    let spec = volume.to_spec();
    assert_eq!(spec["csi"]["driver"], kind.successor());
    (volume.name, spec)
}

#[test]
fn m3_each_plugins_volume_of_a_pod_is_a_file_system_with_a_name_of_its_own() {
    use InTree::{AwsElasticBlockStore, AzureDisk, Cinder, GcePersistentDisk, PortworxVolume, VsphereVolume};
    let once = json!(["ReadWriteOnce"]);
    for (kind, of, name, handle, modes, read_only) in [
        (
            GcePersistentDisk,
            json!({ "pdName": "d" }),
            "pd.csi.storage.gke.io-d",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            once.clone(),
            false,
        ),
        (
            GcePersistentDisk,
            json!({ "pdName": "d", "readOnly": true }),
            "pd.csi.storage.gke.io-d",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            json!(["ReadOnlyMany"]),
            true,
        ),
        (
            AwsElasticBlockStore,
            json!({ "volumeID": "aws://z/vol-1", "readOnly": true }),
            "ebs.csi.aws.com-vol-1",
            "vol-1",
            once.clone(),
            true,
        ),
        (Cinder, json!({ "volumeID": "v" }), "cinder.csi.openstack.org-v", "v", once.clone(), false),
        (AzureDisk, json!({ "diskURI": "/u" }), "/u", "/u", once.clone(), false),
        (VsphereVolume, json!({ "volumePath": "[a] b" }), "csi.vsphere.vmware.com-[a] b", "[a] b", once.clone(), false),
        (PortworxVolume, json!({ "volumeID": "v" }), "pxd.portworx.com-v", "v", once.clone(), false),
        // M20: the Go library forgets that it may only be read.
        (
            PortworxVolume,
            json!({ "volumeID": "v", "readOnly": true }),
            "pxd.portworx.com-v",
            "v",
            json!(["ReadOnlyMany"]),
            true,
        ),
    ] {
        let (found, spec) = translated(kind, of);
        assert_eq!((found.as_str(), &spec["csi"]["volumeHandle"]), (name, &json!(handle)));
        assert_eq!((&spec["accessModes"], &spec["volumeMode"]), (&modes, &json!("Filesystem")), "{kind:?}");
        assert_eq!(spec["csi"]["readOnly"], if read_only { json!(true) } else { Value::Null }, "{kind:?}");
    }
}

#[test]
fn m9_the_secret_of_an_azure_share_is_in_the_pods_namespace() {
    let share = source(
        InTree::AzureFile,
        json!({ "secretName": "azure-storage-account-a-secret", "shareName": "s", "readOnly": true }),
    );
    for (namespace, expected) in [(Some("shop"), "shop"), (Some(""), "default"), (None, "default")] {
        let volume = pod_volume_to_csi(&share, "data", namespace).unwrap();
        assert_eq!(volume.name, format!("#a#s#data#{expected}"));
        let spec = volume.to_spec();
        assert_eq!(spec["csi"]["volumeHandle"], volume.name);
        assert_eq!(
            spec["csi"]["nodeStageSecretRef"],
            json!({ "name": "azure-storage-account-a-secret", "namespace": expected })
        );
        assert_eq!((&spec["accessModes"], &spec["csi"]["readOnly"]), (&json!(["ReadWriteMany"]), &json!(true)));
    }
}

#[test]
fn m19_a_storage_policy_of_vsphere_does_not_crash() {
    let (_, spec) = translated(InTree::VsphereVolume, json!({ "volumePath": "p", "storagePolicyName": "gold" }));
    assert_eq!(spec["csi"]["volumeAttributes"], json!({ "storagepolicyname": "gold" }));
}

#[test]
fn the_caching_mode_of_an_azure_disk_counts_only_if_it_says_something() {
    let attributes = |mode: Value| {
        let (_, mut spec) = translated(
            InTree::AzureDisk,
            json!({ "diskURI": "u", "cachingMode": mode, "fsType": "", "kind": "Managed" }),
        );
        spec["csi"]["volumeAttributes"].take()
    };
    assert_eq!(attributes(json!("")), json!({ "kind": "Managed", "fstype": "" }));
    assert_eq!(attributes(json!("None")), json!({ "kind": "Managed", "cachingmode": "None", "fstype": "" }));
    let shared = source(InTree::AzureDisk, json!({ "diskURI": "u", "kind": "Shared" }));
    assert!(pod_volume_to_csi(&shared, "data", None).is_err());
    let bad = source(InTree::AwsElasticBlockStore, json!({ "volumeID": "aws://z/x" }));
    assert!(pod_volume_to_csi(&bad, "data", None).is_err());
}
