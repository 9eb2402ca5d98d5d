//! Classes to CSI: migration spec 8.

use serde_json::{Value, json};

use super::{BETA_ZONE, EBS_ZONE, GCE_ZONE, REGION, ZONE};
use crate::cluster::{InTree, StorageClass};
use crate::translation::class_to_csi;

fn class(kind: InTree, parameters: &Value, places: &Value) -> StorageClass {
    let object = json!({ "metadata": { "name": "gold" }, "provisioner": kind.plugin(), "parameters": parameters,
        "allowedTopologies": places, "mountOptions": ["ro"], "reclaimPolicy": "Retain" });
    serde_json::from_value(object).unwrap()
}

fn parameters(kind: InTree, parameters: &Value) -> Value {
    json!(class_to_csi(&class(kind, parameters, &json!([]))).unwrap().parameters)
}

fn places(kind: InTree, parameters: &Value, places: &Value) -> Result<Vec<(String, Vec<String>)>, String> {
    let class = class_to_csi(&class(kind, parameters, places)).map_err(|error| error.to_string())?;
    let expressions = class.allowed_topologies.into_iter().flat_map(|term| term.match_label_expressions);
    Ok(expressions.map(|expression| (expression.key, expression.values)).collect())
}

fn allowed(key: &str, values: &[&str]) -> Value {
    json!([{ "matchLabelExpressions": [{ "key": key, "values": values }] }])
}

#[test]
fn parameters_of_each_plugin() {
    use InTree::{
        AwsElasticBlockStore, AzureDisk, AzureFile, Cinder, GcePersistentDisk, PortworxVolume, VsphereVolume,
    };
    for (kind, given, expected) in [
        (
            GcePersistentDisk,
            json!({ "FsType": "xfs", "Type": "pd-ssd", "replication-type": "none", "Zone": "z" }),
            json!({ "csi.storage.k8s.io/fstype": "xfs", "Type": "pd-ssd", "replication-type": "none" }),
        ),
        (
            AwsElasticBlockStore,
            json!({ "fstype": "xfs", "type": "io1", "zones": "a" }),
            json!({ "csi.storage.k8s.io/fstype": "xfs", "type": "io1" }),
        ),
        (
            AwsElasticBlockStore,
            json!({ "iopsPerGB": "50" }),
            json!({ "iopsPerGB": "50", "allowautoiopspergbincrease": "true" }),
        ),
        (
            Cinder,
            json!({ "fsType": "xfs", "availability": "nova" }),
            json!({ "csi.storage.k8s.io/fstype": "xfs", "availability": "nova" }),
        ),
        (
            AzureDisk,
            json!({ "fsType": "xfs", "kind": "Managed", "zones": "1" }),
            json!({ "fsType": "xfs", "kind": "Managed" }),
        ),
        (AzureFile, json!({ "fsType": "xfs", "zone": "1" }), json!({ "fsType": "xfs", "zone": "1" })),
        (
            VsphereVolume,
            json!({ "FSTYPE": "xfs", "StoragePolicyName": "gold", "Datastore": "d", "diskFormat": "thin", "hostFailuresToTolerate": "1",
                "forceProvisioning": "0", "cacheReservation": "2", "diskStripes": "3", "objectSpaceReservation": "4", "iopsLimit": "5",
                "unknown": "x" }),
            json!({ "csi.storage.k8s.io/fstype": "xfs", "storagepolicyname": "gold", "datastore-migrationparam": "d",
                "diskformat-migrationparam": "thin", "hostfailurestotolerate-migrationparam": "1",
                "forceprovisioning-migrationparam": "0", "cachereservation-migrationparam": "2", "diskstripes-migrationparam": "3",
                "objectspacereservation-migrationparam": "4", "iopslimit-migrationparam": "5", "csimigration": "true" }),
        ),
        (VsphereVolume, json!({}), json!({ "csimigration": "true" })),
        (PortworxVolume, json!({ "repl": "2" }), json!({ "repl": "2" })),
    ] {
        assert_eq!(parameters(kind, &given), expected, "{kind:?}");
    }
}

#[test]
fn m17_a_secret_of_portworx_is_for_six_kinds_of_calls() {
    let given =
        json!({ "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "ns", "repl": "2" });
    let new = parameters(InTree::PortworxVolume, &given);
    for call in ["provisioner", "controller-publish", "node-publish", "node-stage", "controller-expand", "node-expand"]
    {
        assert_eq!(new[format!("csi.storage.k8s.io/{call}-secret-name")], "s", "{call}");
        assert_eq!(new[format!("csi.storage.k8s.io/{call}-secret-namespace")], "ns", "{call}");
    }
    assert_eq!(new.as_object().unwrap().len(), 13);
}

#[test]
fn the_provisioner_stays_but_for_portworx_and_so_does_all_else() {
    for kind in InTree::ALL {
        let old = class(kind, &json!({ "a": "b" }), &json!([]));
        let new = class_to_csi(&old).unwrap();
        let provisioner = if kind == InTree::PortworxVolume { kind.successor() } else { kind.plugin() };
        assert_eq!(new.provisioner, provisioner);
        assert_eq!(
            (new.metadata, new.mount_options, new.reclaim_policy),
            (old.metadata, old.mount_options, old.reclaim_policy)
        );
    }
    let foreign = StorageClass { provisioner: "demo".into(), ..StorageClass::default() };
    let error = class_to_csi(&foreign).unwrap_err().to_string();
    assert_eq!(error, "could not find in-tree storage class parameter translation logic for \"demo\"");
}

#[test]
fn zones_of_parameters_become_places() {
    let of = |given: Value| places(InTree::AwsElasticBlockStore, &given, &json!([]));
    let zones = |all: &[&str]| vec![(EBS_ZONE.to_owned(), all.iter().map(ToString::to_string).collect::<Vec<_>>())];
    assert_eq!(of(json!({ "zone": "a" })).unwrap(), zones(&["a"]));
    assert_eq!(of(json!({ "zone": "a,b" })).unwrap(), zones(&["a,b"]), "one zone");
    assert_eq!(
        of(json!({ "ZONES": "a, b,,a" })).unwrap(),
        zones(&["a", "b", "a"]),
        "trimmed, which the Go library does not"
    );
    assert_eq!(of(json!({ "zones": " ," })).unwrap_err(), "the parameter zones names no zone");
    let both = places(InTree::GcePersistentDisk, &json!({ "zone": "a" }), &allowed(ZONE, &["a"]));
    assert_eq!(both.unwrap_err(), "cannot simultaneously set allowed topologies and zone/zones parameters");
}

#[test]
fn m21_zone_and_zones_together_are_refused_each_time() {
    for kind in [InTree::GcePersistentDisk, InTree::AwsElasticBlockStore, InTree::AzureDisk] {
        for _ in 0..8 {
            let error = places(kind, &json!({ "zone": "a", "zones": "b" }), &json!([])).unwrap_err();
            assert_eq!(error, "cannot set both zone and zones parameters");
        }
    }
}

#[test]
fn allowed_topologies_are_renamed() {
    let expected = |key: &str, value: &str| Ok(vec![(key.to_owned(), vec![value.to_owned()])]);
    for key in [ZONE, BETA_ZONE] {
        assert_eq!(places(InTree::GcePersistentDisk, &json!({}), &allowed(key, &["z"])), expected(GCE_ZONE, "z"));
        let vsphere = places(InTree::VsphereVolume, &json!({}), &allowed(key, &["z"]));
        assert_eq!(vsphere, expected("topology.csi.vmware.com/zone", "z"));
        assert_eq!(places(InTree::AzureFile, &json!({}), &allowed(key, &["z"])), expected(key, "z"));
        assert_eq!(places(InTree::PortworxVolume, &json!({}), &allowed(key, &["z"])), expected(key, "z"));
    }
    assert_eq!(places(InTree::Cinder, &json!({}), &allowed(REGION, &["r"])), expected(REGION, "r"));
    assert_eq!(places(InTree::Cinder, &json!({}), &Value::Null), Ok(vec![]));
}

#[test]
fn a_fault_domain_of_azure_is_no_zone_of_the_driver() {
    let key = "topology.disk.csi.azure.com/zone";
    for (given, values) in [
        (allowed(ZONE, &["0", "centralus-1", ""]), ["", "centralus-1", ""]),
        (allowed(key, &["12", "a", "1a"]), ["", "a", "1a"]),
    ] {
        let values = values.map(str::to_owned).to_vec();
        assert_eq!(places(InTree::AzureDisk, &json!({}), &given), Ok(vec![(key.to_owned(), values)]));
    }
    assert_eq!(
        places(InTree::AzureDisk, &json!({ "zone": "1" }), &json!([])),
        Ok(vec![(key.to_owned(), vec![String::new()])])
    );
}
