//! PersistentVolumes to CSI: migration spec 4.

use serde_json::{Value, json};

use super::{REGION, ZONE, cached, error_of, object, spec_of, translated};
use crate::cluster::{InTree, PersistentVolume};
use crate::translation::{NotServed, TranslationError, csi_form, volume_to_csi};

/// `spec.csi` of a source, without the driver.
fn csi_of(kind: InTree, source: &Value) -> Value {
    let mut csi = spec_of(kind, source)["csi"].take();
    assert_eq!(csi["driver"], kind.successor());
    csi.as_object_mut().unwrap().remove("driver");
    csi
}

#[test]
fn a_disk_of_gce() {
    let kind = InTree::GcePersistentDisk;
    assert_eq!(
        csi_of(kind, &json!({ "pdName": "d" })),
        json!({ "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "volumeAttributes": { "partition": "" } })
    );
    assert_eq!(
        csi_of(kind, &json!({ "pdName": "d", "fsType": "xfs", "partition": 3, "readOnly": true })),
        json!({ "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "fsType": "xfs", "readOnly": true,
            "volumeAttributes": { "partition": "3" } })
    );
}

#[test]
fn m1_the_access_modes_of_a_disk_of_gce_are_those_that_its_driver_can_attach() {
    for (given, expected) in [
        (&[][..], &[][..]),
        (&["ReadWriteOnce"], &["ReadWriteOnce"]),
        (&["ReadWriteMany"], &["ReadWriteOnce"]),
        (&["ReadWriteMany", "ReadOnlyMany"], &["ReadWriteOnce"]),
        (&["ReadOnlyMany"], &["ReadOnlyMany"]),
        (&["ReadOnlyMany", "ReadWriteOnce"], &["ReadWriteOnce"]),
        (&["ReadWriteOnce", "ReadOnlyMany"], &["ReadWriteOnce"]),
        (&["ReadWriteOncePod"], &["ReadWriteOnce"]),
        (&["ReadWriteOncePod", "ReadOnlyMany"], &["ReadOnlyMany"]),
    ] {
        let mut volume = object(InTree::GcePersistentDisk, &json!({ "pdName": "d" }));
        volume["spec"]["accessModes"] = json!(given);
        let volume = translated(InTree::GcePersistentDisk, &volume).unwrap();
        assert_eq!(*volume.access_modes, *expected, "{given:?}");
    }
    let mut volume = object(InTree::Cinder, &json!({ "volumeID": "v" }));
    volume["spec"]["accessModes"] = json!(["ReadWriteMany", "ReadOnlyMany"]);
    assert_eq!(*translated(InTree::Cinder, &volume).unwrap().access_modes, ["ReadWriteMany", "ReadOnlyMany"]);
}

#[test]
fn m12_the_handle_of_a_disk_of_gce_names_the_zone_or_region_of_its_label() {
    let handle = |zone: &str| {
        let mut volume = object(InTree::GcePersistentDisk, &json!({ "pdName": "d" }));
        volume["metadata"]["labels"] = json!({ ZONE: zone });
        translated(InTree::GcePersistentDisk, &volume)
            .map(|volume| volume.source.volume_handle)
            .map_err(|error| error.to_string())
    };
    assert_eq!(handle("").unwrap(), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    assert_eq!(handle("us-east1-a").unwrap(), "projects/UNSPECIFIED/zones/us-east1-a/disks/d");
    assert_eq!(handle(" odd ").unwrap(), "projects/UNSPECIFIED/zones/ odd /disks/d");
    let regional = "projects/UNSPECIFIED/regions/us-east1/disks/d";
    assert_eq!(handle("us-east1-a__us-east1-b").unwrap(), regional);
    assert_eq!(handle("us-east1-a__us-east1-a").unwrap(), regional);
    for (label, why) in [
        ("a__", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a"),
        ("us-east1-a__eu-west1-a", "multiple or no regions gotten from zones, got: eu-west1, us-east1"),
        ("__", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: "),
    ] {
        assert_eq!(handle(label).unwrap_err(), format!("failed to get region from zones: {why}"), "{label}");
    }
}

#[test]
fn a_disk_of_aws() {
    let kind = InTree::AwsElasticBlockStore;
    assert_eq!(
        csi_of(kind, &json!({ "volumeID": "vol-1" })),
        json!({ "volumeHandle": "vol-1", "volumeAttributes": { "partition": "0" } })
    );
    assert_eq!(
        csi_of(kind, &json!({ "volumeID": "vol-1", "fsType": "xfs", "partition": 2, "readOnly": true })),
        json!({ "volumeHandle": "vol-1", "fsType": "xfs", "readOnly": true, "volumeAttributes": { "partition": "2" } })
    );
}

#[test]
fn m7_ids_of_aws_with_and_without_a_url_are_one_volume() {
    let handle = |id: &str| {
        let volume = object(InTree::AwsElasticBlockStore, &json!({ "volumeID": id }));
        translated(InTree::AwsElasticBlockStore, &volume).map(|volume| volume.source.volume_handle)
    };
    for id in [
        "vol-1",
        "aws:///vol-1",
        "aws://us-east-1a/vol-1",
        "aws://us-east-1a/vol-1/",
        "aws://z//vol-1",
        "aws://u:p@z:80/vol%2D1?q#f",
        "aws:///vol-1?",
    ] {
        assert_eq!(handle(id).unwrap(), "vol-1", "{id}");
    }
    for id in ["", "anything", "AWS:///vol-1", "aws:/vol-1", "vol-1/2"] {
        assert_eq!(handle(id).unwrap(), id, "no URL of Amazon's: as it is");
    }
    assert_eq!(handle("aws://z/vol-").unwrap(), "vol-");
    for id in ["aws://", "aws://vol-1", "aws://z/snap-1", "aws://z/vol-1/2", "aws://z/vol-1%2f2"] {
        let error = handle(id).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})")
        );
    }
    for id in [
        "aws://z:p/vol-1",
        "aws://z z/vol-1",
        "aws://z/vol-%g1",
        "aws://z/vol-1\u{7f}",
        "aws://z%41/vol-1",
        "aws://<@z/vol-1",
        "aws://[::1]/vol-1",
        "aws://z/vol-1#%",
        "aws://z/vol-%ff",
    ] {
        let error = handle(id).unwrap_err().to_string();
        let begin = format!("failed to translate Kubernetes ID to EBS Volume ID Invalid disk name ({id}): ");
        assert!(error.starts_with(&begin), "{error}");
    }
}

#[test]
fn a_volume_of_cinder() {
    assert_eq!(csi_of(InTree::Cinder, &json!({ "volumeID": "v" })), json!({ "volumeHandle": "v" }));
    assert_eq!(
        csi_of(
            InTree::Cinder,
            &json!({ "volumeID": "v", "fsType": "xfs", "readOnly": true, "secretRef": { "name": "s" } })
        ),
        json!({ "volumeHandle": "v", "fsType": "xfs", "readOnly": true })
    );
}

#[test]
fn a_disk_of_azure() {
    let kind = InTree::AzureDisk;
    assert_eq!(
        csi_of(kind, &json!({ "diskName": "n", "diskURI": "/s/d" })),
        json!({ "volumeHandle": "/s/d", "volumeAttributes": { "kind": "Managed" } })
    );
    assert_eq!(
        csi_of(
            kind,
            &json!({ "diskName": "n", "diskURI": "/s/d", "kind": "mANAGED", "cachingMode": "", "fsType": "",
            "readOnly": true })
        ),
        json!({ "volumeHandle": "/s/d", "readOnly": true,
            "volumeAttributes": { "kind": "Managed", "cachingmode": "", "fstype": "" } })
    );
    assert_eq!(
        csi_of(
            kind,
            &json!({ "diskURI": "d", "kind": "Managed", "cachingMode": "ReadOnly", "fsType": "xfs", "readOnly": false })
        ),
        json!({ "volumeHandle": "d", "fsType": "xfs",
            "volumeAttributes": { "kind": "Managed", "cachingmode": "ReadOnly", "fstype": "xfs" } })
    );
    for odd in ["Shared", "Dedicated", ""] {
        let error = error_of(kind, &json!({ "diskURI": "d", "kind": odd }));
        assert!(error.starts_with(&format!("kind({odd}) is not supported in csi migration")), "{error}");
        assert!(error.contains("kind: Managed"), "what to write");
    }
}

fn share(source: &Value, more: &Value) -> Result<Value, TranslationError> {
    let mut volume = object(InTree::AzureFile, source);
    volume["metadata"]["annotations"] = more["annotations"].clone();
    volume["spec"]["claimRef"] = more["claimRef"].clone();
    translated(InTree::AzureFile, &volume).map(|volume| volume.to_spec()["csi"].take())
}

#[test]
fn a_share_of_azure() {
    let source = json!({ "secretName": "azure-storage-account-acc-secret", "shareName": "s", "secretNamespace": "ns", "readOnly": true });
    let group = json!({ "annotations": { "kubernetes.io/azure-file-resource-group": "rg" }, "claimRef": { "namespace": "shop" } });
    assert_eq!(
        share(&source, &group).unwrap(),
        json!({ "driver": "file.csi.azure.com", "volumeHandle": "rg#acc#s#pv#ns", "readOnly": true,
            "volumeAttributes": { "sharename": "s" },
            "nodeStageSecretRef": { "name": "azure-storage-account-acc-secret", "namespace": "ns" } })
    );
    for (secret, account) in [
        ("azure-storage-account--secret", "azure-storage-account--secret"),
        ("x-azure-storage-account-a-secret-secret-y", "a-secret"),
        ("azure-storage-account-a\n-secret", "azure-storage-account-a\n-secret"),
        ("azure-storage-account-a\nazure-storage-account-b-secret", "b"),
        ("mine", "mine"),
    ] {
        let csi =
            share(&json!({ "secretName": secret, "shareName": "s", "secretNamespace": "ns" }), &json!({})).unwrap();
        assert_eq!(csi["volumeHandle"], format!("#{account}#s#pv#ns"), "{secret}");
        assert_eq!(csi["nodeStageSecretRef"]["name"], secret);
    }
}

#[test]
fn m10_the_namespace_of_an_azure_shares_secret_is_the_claims_when_the_source_has_none() {
    let bound = json!({ "claimRef": { "namespace": "shop", "name": "c" } });
    let bare = json!({ "secretName": "s", "shareName": "a" });
    assert_eq!(share(&bare, &bound).unwrap()["volumeHandle"], "#s#a#pv#shop");
    assert_eq!(share(&bare, &bound).unwrap()["nodeStageSecretRef"], json!({ "name": "s", "namespace": "shop" }));
    let mut empty = bare.clone();
    empty["secretNamespace"] = json!("");
    for (source, more) in [(&bare, json!({})), (&empty, bound)] {
        let error = share(source, &more).unwrap_err().to_string();
        assert!(
            error.starts_with("could not find a secret namespace in PersistentVolumeSource or ClaimRef"),
            "{error}"
        );
    }
}

#[test]
fn a_disk_of_vsphere() {
    assert_eq!(
        csi_of(InTree::VsphereVolume, &json!({ "volumePath": "[ds] d.vmdk" })),
        json!({ "volumeHandle": "[ds] d.vmdk" })
    );
    assert_eq!(
        csi_of(
            InTree::VsphereVolume,
            &json!({ "volumePath": "p", "fsType": "ext4", "storagePolicyName": "gold", "storagePolicyID": "7" })
        ),
        json!({ "volumeHandle": "p", "fsType": "ext4", "volumeAttributes": { "storagepolicyname": "gold" } })
    );
}

#[test]
fn m17_and_m20_a_volume_of_portworx_keeps_its_read_only_and_has_one_secret_for_all_calls() {
    let kind = InTree::PortworxVolume;
    let source = json!({ "volumeID": "v", "fsType": "xfs", "readOnly": true });
    assert_eq!(csi_of(kind, &source), json!({ "volumeHandle": "v", "fsType": "xfs", "readOnly": true }));
    let mut volume = object(kind, &source);
    volume["metadata"]["annotations"] = json!({ "openstorage.io/auth-secret-name": "s" });
    assert_eq!(
        translated(kind, &volume).unwrap().to_spec()["csi"].as_object().unwrap().len(),
        4,
        "one alone counts for nothing"
    );
    volume["metadata"]["annotations"]["openstorage.io/auth-secret-namespace"] = json!("ns");
    let csi = translated(kind, &volume).unwrap().to_spec()["csi"].take();
    for call in ["controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand"] {
        assert_eq!(csi[format!("{call}SecretRef")], json!({ "name": "s", "namespace": "ns" }), "{call}");
    }
}

#[test]
fn what_is_not_translated_stays() {
    let mut object = object(InTree::PortworxVolume, &json!({ "volumeID": "v" }));
    object["metadata"] = json!({ "name": "pv", "annotations": {
        "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "ns" } });
    object["spec"].as_object_mut().unwrap().extend(
        json!({ "capacity": { "storage": "5G" }, "claimRef": { "namespace": "shop", "name": "c", "uid": "u" },
            "mountOptions": ["ro"], "volumeMode": "Block", "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "gold" })
        .as_object()
        .unwrap()
        .clone(),
    );
    let volume = cached(InTree::PortworxVolume, &object);
    let spec = csi_form(&volume, "pxd.portworx.com").unwrap();
    let old = &volume.spec;
    assert_eq!(
        (&spec.claim_ref, &spec.mount_options, &spec.volume_mode),
        (&old.claim_ref, &old.mount_options, &old.volume_mode)
    );
    assert_eq!((&spec.reclaim_policy, &spec.storage_class_name), (&old.reclaim_policy, &old.storage_class_name));
    let resize = spec.resize.as_ref().unwrap();
    assert_eq!(resize.capacity.as_deref(), Some("5G"));
    assert_eq!(resize.expand_secret.as_ref().unwrap().namespace, "ns");
    assert_eq!((spec.in_tree, spec.migration.is_none()), (None, true));
    assert_eq!(spec.csi.as_ref().unwrap().controller_publish_secret_ref.as_ref().unwrap().name, "s");
}

#[test]
fn m23_only_the_successor_of_its_plugin_serves_a_volume() {
    for kind in InTree::ALL {
        let volume = cached(InTree::Cinder, &object(kind, &json!({ "volumeID": "v" })));
        let served = csi_form(&volume, "cinder.csi.openstack.org");
        if kind == InTree::Cinder {
            assert_eq!(served.unwrap().csi.as_ref().unwrap().volume_handle, "v");
        } else {
            assert_eq!(served, Err(NotServed::OtherDriver(kind)));
            assert_eq!(volume_to_csi(&volume), Err(TranslationError::NoPlugin("pv".into())));
        }
    }
    let other: PersistentVolume =
        cached(InTree::Cinder, &json!({ "metadata": { "name": "pv" }, "spec": { "nfs": { "server": "s" } } }));
    assert_eq!(csi_form(&other, "cinder.csi.openstack.org"), Err(NotServed::NotCsi));
    let error = volume_to_csi(&other).unwrap_err().to_string();
    assert_eq!(error, "could not find in-tree plugin translation logic for \"pv\"");
    let csi = json!({ "metadata": { "name": "pv" }, "spec": { "csi": { "driver": "demo", "volumeHandle": "v" } } });
    let mut own: PersistentVolume = serde_json::from_value(csi).unwrap();
    assert!(matches!(csi_form(&own, "demo").unwrap(), std::borrow::Cow::Borrowed(_)), "a CSI volume stays as it is");
    own.metadata.labels = Some([(REGION.to_owned(), "r".to_owned())].into());
    assert!(csi_form(&own, "demo").unwrap().csi.is_some());
}
