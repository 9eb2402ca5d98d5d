//! CSI volumes to in-tree ones: migration spec 7.

use serde_json::{Value, json};

use crate::cluster::InTree;
use crate::translation::volume_to_in_tree;

fn object(kind: InTree, csi: &Value) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv", "finalizers": ["f"] },
        "spec": { "csi": csi, "capacity": { "storage": "1" } } });
    object["spec"]["csi"]["driver"] = json!(kind.successor());
    object
}

fn source(kind: InTree, csi: &Value) -> Value {
    let mut new = volume_to_in_tree(&object(kind, csi)).unwrap();
    assert!(new["spec"].get("csi").is_none());
    assert_eq!((&new["metadata"]["finalizers"], &new["spec"]["capacity"]), (&json!(["f"]), &json!({ "storage": "1" })));
    new["spec"][kind.field()].take()
}

fn error(kind: InTree, csi: &Value) -> String {
    volume_to_in_tree(&object(kind, csi)).unwrap_err().to_string()
}

#[test]
fn disks_with_a_partition() {
    let gce = InTree::GcePersistentDisk;
    let handle = "projects/p/zones/z/disks/d/more";
    let csi =
        json!({ "volumeHandle": handle, "fsType": "xfs", "readOnly": true, "volumeAttributes": { "partition": "3" } });
    assert_eq!(source(gce, &csi), json!({ "pdName": "d", "fsType": "xfs", "readOnly": true, "partition": 3 }));
    assert_eq!(
        source(gce, &json!({ "volumeHandle": handle, "volumeAttributes": { "partition": "" } })),
        json!({ "pdName": "d" })
    );
    let short = error(gce, &json!({ "volumeHandle": "a/b" }));
    assert_eq!(short, "failed to get id components.Got: 2, wanted 6 components or more. ");

    let aws = InTree::AwsElasticBlockStore;
    assert_eq!(source(aws, &csi), json!({ "volumeID": handle, "fsType": "xfs", "readOnly": true, "partition": 3 }));
    assert_eq!(source(aws, &json!({ "volumeHandle": "vol-1" })), json!({ "volumeID": "vol-1" }));
    for kind in [gce, aws] {
        let error = error(kind, &json!({ "volumeHandle": handle, "volumeAttributes": { "partition": "x" } }));
        assert!(error.starts_with("failed to convert partition x to integer: "), "{error}");
    }
}

#[test]
fn volumes_of_cinder_and_portworx() {
    let csi = json!({ "volumeHandle": "v", "fsType": "xfs", "readOnly": true, "volumeAttributes": { "a": "b" } });
    for kind in [InTree::Cinder, InTree::PortworxVolume] {
        assert_eq!(source(kind, &csi), json!({ "volumeID": "v", "fsType": "xfs", "readOnly": true }));
        assert_eq!(source(kind, &json!({ "volumeHandle": "v" })), json!({ "volumeID": "v" }));
    }
}

#[test]
fn a_disk_of_azure() {
    let managed = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    assert_eq!(
        source(InTree::AzureDisk, &json!({ "volumeHandle": managed })),
        json!({ "diskName": "d", "diskURI": managed, "kind": "Managed", "fsType": "", "readOnly": false })
    );
    let full = json!({ "volumeHandle": managed, "fsType": "ext4", "readOnly": true,
        "volumeAttributes": { "CachingMode": "None", "FSType": "xfs" } });
    assert_eq!(
        source(InTree::AzureDisk, &full),
        json!({ "diskName": "d", "diskURI": managed, "kind": "Managed", "fsType": "xfs", "readOnly": true, "cachingMode": "None" })
    );
    let empty =
        json!({ "volumeHandle": managed, "fsType": "ext4", "volumeAttributes": { "cachingmode": "", "fstype": "" } });
    assert_eq!(source(InTree::AzureDisk, &empty)["fsType"], "ext4");
    for (handle, name) in [
        ("https://acc.blob.core.windows.net/vhds/d.vhd", "d.vhd"),
        ("https://a/vhds/b/vhds/c", "c"),
        ("https://a/vhds/b/vhds/", "b/vhds/"),
        ("http/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", ""),
        (
            "/subscriptions/s/resourceGroups/g/providers/Microsoft_Compute/disks/d/providers/Microsoft.Compute/disks/",
            "d/providers/Microsoft.Compute/disks/",
        ),
        ("/subscriptions//resourceGroups//providers/Microsoft.Compute/disks/x/y", "x/y"),
        ("/resourceGroups/g/subscriptions/s/providers/Microsoft.Compute/disks/d", ""),
        ("HTTPS://a/vhds/b", ""),
        ("", ""),
    ] {
        let made = volume_to_in_tree(&object(InTree::AzureDisk, &json!({ "volumeHandle": handle })));
        match made {
            Ok(made) => assert_eq!(made["spec"]["azureDisk"]["diskName"], name, "{handle}"),
            Err(error) => {
                assert_eq!(name, "", "{handle}");
                assert!(
                    error.to_string().starts_with(&format!("could not get disk name from {handle}, correct format: "))
                );
            }
        }
    }
}

fn share(csi: &Value) -> (Value, Value) {
    let mut new = volume_to_in_tree(&object(InTree::AzureFile, csi)).unwrap();
    (new["spec"]["azureFile"].take(), new["metadata"]["annotations"]["kubernetes.io/azure-file-resource-group"].take())
}

#[test]
fn a_share_of_azure() {
    let attributes = json!({ "ShareName": "s", "secretName": "k", "secretnamespace": "ns" });
    let all = share(&json!({ "volumeHandle": "rg#acc#other#n", "volumeAttributes": attributes, "readOnly": true }));
    let source = json!({ "shareName": "s", "secretName": "k", "secretNamespace": "ns", "readOnly": true });
    assert_eq!(all, (source, json!("rg")), "the group, too, which the Go library loses then");
    let staged = json!({ "name": "staged", "namespace": "" });
    let (source, _) =
        share(&json!({ "volumeHandle": "no parts", "volumeAttributes": attributes, "nodeStageSecretRef": staged }));
    assert_eq!(source, json!({ "shareName": "s", "secretName": "staged", "secretNamespace": "" }));
    let (source, group) =
        share(&json!({ "volumeHandle": "#acc#s", "nodeStageSecretRef": { "name": "", "namespace": "x" } }));
    let secret = "azure-storage-account-acc-secret";
    assert_eq!(source, json!({ "shareName": "s", "secretName": secret, "secretNamespace": "default" }));
    assert_eq!(group, Value::Null);
    let short = error(InTree::AzureFile, &json!({ "volumeHandle": "a#b" }));
    assert_eq!(short, "error parsing volume id: \"a#b\", should at least contain two #");
}

#[test]
fn m27_a_driver_of_vsphere_that_does_not_say_where_the_disk_is_gets_an_error_that_names_the_attribute() {
    let csi = json!({ "volumeHandle": "id", "fsType": "xfs", "readOnly": true, "volumeAttributes": { "initialvolumefilepath": "[a] b" } });
    assert_eq!(source(InTree::VsphereVolume, &csi), json!({ "volumePath": "[a] b", "fsType": "xfs" }));
    assert!(error(InTree::VsphereVolume, &json!({ "volumeHandle": "id" })).contains("initialvolumefilepath"));
}

#[test]
fn what_cannot_be_translated_back() {
    let of = |object: Value| volume_to_in_tree(&object).unwrap_err().to_string();
    for object in
        [json!({}), json!(null), json!([]), json!({ "spec": { "csi": null } }), json!({ "spec": { "nfs": {} } })]
    {
        assert_eq!(of(object), "CSI persistent volume was nil");
    }
    let other = of(json!({ "spec": { "csi": { "driver": "demo" } } }));
    assert_eq!(other, "could not find in-tree plugin translation logic for demo");
    for odd in [
        json!({ "spec": { "csi": 7 } }),
        json!({ "metadata": { "labels": 7 }, "spec": { "csi": { "driver": "ebs.csi.aws.com" } } }),
        json!({ "spec": { "csi": { "driver": "ebs.csi.aws.com" }, "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": 7 }] } } } }),
        json!({ "metadata": 7, "spec": { "csi": { "driver": "file.csi.azure.com", "volumeHandle": "a#b#c" } } }),
    ] {
        assert!(of(odd).starts_with("the CSI persistent volume is not valid: "));
    }
}
