//! Zones and regions, both directions: migration spec 5.

use serde_json::{Value, json};

use super::{BETA_REGION, BETA_ZONE, EBS_ZONE, GCE_ZONE, REGION, ZONE, affinity, object, translated, within};
use crate::cluster::InTree;
use crate::translation::volume_to_in_tree;

const VSPHERE_ZONE: &str = "topology.csi.vmware.com/zone";
const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";

/// The affinity that a volume with these labels and this affinity gets.
fn to_csi(kind: InTree, labels: &Value, old: &Value) -> Value {
    let id = json!({ "volumeID": "v", "pdName": "d", "volumePath": "p", "diskURI": "u" });
    let mut volume = object(kind, &id);
    volume["metadata"]["labels"] = labels.clone();
    volume["spec"]["nodeAffinity"] = old.clone();
    translated(kind, &volume).unwrap().to_spec()["nodeAffinity"].take()
}

fn aws(labels: &Value, old: &Value) -> Value {
    to_csi(InTree::AwsElasticBlockStore, labels, old)
}

#[test]
fn m8_a_key_that_has_values_is_renamed_wherever_it_stands() {
    let other = within("rack", &["1"]);
    for key in [ZONE, BETA_ZONE] {
        let not = |key: &str| json!({ "key": key, "operator": "NotIn", "values": ["b", "a"] });
        let exists = |key: &str| json!({ "key": key, "operator": "Exists" });
        let old = affinity(&[&[other.clone(), within(key, &["z", "a"])], &[not(key)], &[exists(key)]]);
        let new = affinity(&[&[other.clone(), within(EBS_ZONE, &["z", "a"])], &[not(EBS_ZONE)], &[exists(EBS_ZONE)]]);
        assert_eq!(aws(&json!({ ZONE: "ignored", BETA_ZONE: "ignored" }), &old), new);
    }
}

#[test]
fn without_values_the_label_constrains_every_term() {
    let zones = within(EBS_ZONE, &["a", "b"]);
    let label = json!({ ZONE: "b__ a__b__" });
    assert_eq!(aws(&label, &Value::Null), affinity(&[std::slice::from_ref(&zones)]), "trimmed, distinct, sorted");
    let other = within("rack", &["1"]);
    let old = affinity(&[std::slice::from_ref(&other), &[]]);
    assert_eq!(aws(&label, &old), affinity(&[&[other.clone(), zones.clone()], &[zones]]));
    assert_eq!(aws(&json!({ ZONE: "__ " }), &Value::Null), Value::Null, "no zone is left");
    assert_eq!(aws(&json!({}), &affinity(&[std::slice::from_ref(&other)])), affinity(&[&[other]]), "neither");
    for kind in [InTree::AzureDisk, InTree::PortworxVolume] {
        assert_eq!(to_csi(kind, &label, &Value::Null), Value::Null, "{kind:?} has no zones");
    }
}

#[test]
fn m24_a_term_with_the_drivers_key_gets_no_second_expression() {
    let old = affinity(&[&[within(EBS_ZONE, &["a"])], &[within("rack", &["1"])]]);
    let new = affinity(&[&[within(EBS_ZONE, &["a"])], &[within("rack", &["1"]), within(EBS_ZONE, &["b"])]]);
    assert_eq!(aws(&json!({ ZONE: "b" }), &old), new);
}

#[test]
fn the_old_regions_key_becomes_the_present_one() {
    let old = affinity(&[&[within(BETA_ZONE, &["a"]), within(BETA_REGION, &["r"])]]);
    assert_eq!(aws(&json!({}), &old), affinity(&[&[within(EBS_ZONE, &["a"]), within(REGION, &["r"])]]));
    let present = affinity(&[&[within(ZONE, &["a"]), within(BETA_REGION, &["r"])]]);
    assert_eq!(aws(&json!({}), &present), affinity(&[&[within(EBS_ZONE, &["a"]), within(BETA_REGION, &["r"])]]));
}

#[test]
fn m28_affinity_counts_before_labels_and_the_present_pair_before_the_old_one() {
    let both = json!({ ZONE: "us-east1-a", BETA_ZONE: "us-east1-b" });
    assert_eq!(
        to_csi(InTree::GcePersistentDisk, &both, &Value::Null),
        affinity(&[&[within(GCE_ZONE, &["us-east1-a"])]])
    );
    let mut volume = object(InTree::GcePersistentDisk, &json!({ "pdName": "d" }));
    volume["metadata"]["labels"] = both.clone();
    let handle = translated(InTree::GcePersistentDisk, &volume).unwrap().source.volume_handle;
    assert_eq!(handle, "projects/UNSPECIFIED/zones/us-east1-b/disks/d", "the handle takes the old label first");
    let old = affinity(&[&[within(BETA_ZONE, &["x"])]]);
    assert_eq!(to_csi(InTree::GcePersistentDisk, &both, &old), affinity(&[&[within(GCE_ZONE, &["x"])]]));
    let mixed = affinity(&[&[within(BETA_ZONE, &["x"])], &[within(ZONE, &["y"])]]);
    let new = affinity(&[&[within(BETA_ZONE, &["x"])], &[within(GCE_ZONE, &["y"])]]);
    assert_eq!(to_csi(InTree::GcePersistentDisk, &both, &mixed), new);
}

#[test]
fn m11_zone_and_region_of_vsphere_become_affinity() {
    let of = |labels: &Value, old: &Value| to_csi(InTree::VsphereVolume, labels, old);
    let both = affinity(&[&[within(VSPHERE_ZONE, &["z__y"]), within(VSPHERE_REGION, &["r"])]]);
    assert_eq!(of(&json!({ ZONE: "z__y", REGION: "r" }), &Value::Null), both, "one value, not split");
    assert_eq!(of(&json!({ BETA_ZONE: "z__y", BETA_REGION: "r", REGION: "other" }), &Value::Null), both);
    assert_eq!(of(&json!({ ZONE: "", REGION: "" }), &Value::Null), Value::Null);
    let old = affinity(&[&[within(BETA_ZONE, &["z__y"]), within(BETA_REGION, &["r"])]]);
    assert_eq!(of(&json!({}), &old), both);
}

/// The labels and the affinity of the in-tree volume that one of the driver becomes.
fn to_in_tree(kind: InTree, labels: &Value, old: &Value) -> (Value, Value) {
    let handle = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    let object = json!({ "metadata": { "name": "pv", "labels": labels }, "spec": { "nodeAffinity": old, "csi": {
        "driver": kind.successor(), "volumeHandle": handle, "volumeAttributes": { "initialvolumefilepath": "p" } } } });
    let mut new = volume_to_in_tree(&object).unwrap();
    (new["metadata"]["labels"].take(), new["spec"]["nodeAffinity"].take())
}

#[test]
fn m15_a_new_in_tree_volume_has_zones_and_but_for_cinder_regions() {
    let old =
        affinity(&[&[within(EBS_ZONE, &["us-west-2b"])], &[within(EBS_ZONE, &["us-west-2a"]), within("rack", &["1"])]]);
    let region = within(REGION, &["us-west-2"]);
    let (labels, new) = to_in_tree(InTree::AwsElasticBlockStore, &Value::Null, &old);
    assert_eq!(labels, json!({ ZONE: "us-west-2a__us-west-2b", REGION: "us-west-2" }));
    let first = [within(ZONE, &["us-west-2b"]), region.clone()];
    assert_eq!(new, affinity(&[&first, &[within(ZONE, &["us-west-2a"]), within("rack", &["1"]), region]]));

    let old = affinity(&[&[within("topology.cinder.csi.openstack.org/zone", &["nova"])]]);
    let (labels, new) = to_in_tree(InTree::Cinder, &json!({ "team": "blue" }), &old);
    assert_eq!((labels, new), (json!({ "team": "blue", ZONE: "nova" }), affinity(&[&[within(ZONE, &["nova"])]])));
}

#[test]
fn labels_that_are_there_stay_and_say_which_pair_it_is() {
    let old = affinity(&[&[within(GCE_ZONE, &["us-east1-a"])]]);
    let (labels, new) = to_in_tree(InTree::GcePersistentDisk, &json!({ BETA_ZONE: "kept" }), &old);
    assert_eq!(labels, json!({ BETA_ZONE: "kept", BETA_REGION: "us-east1" }));
    assert_eq!(new, affinity(&[&[within(BETA_ZONE, &["us-east1-a"]), within(BETA_REGION, &["us-east1"])]]));
}

#[test]
fn several_regions_give_no_label_and_zones_without_a_region_no_error() {
    let old = affinity(&[&[within(GCE_ZONE, &["us-east1-a"])], &[within(GCE_ZONE, &["eu-west1-a"])]]);
    let (labels, _) = to_in_tree(InTree::GcePersistentDisk, &Value::Null, &old);
    assert_eq!(labels, json!({ ZONE: "eu-west1-a__us-east1-a" }));
    let odd = affinity(&[&[within(GCE_ZONE, &["moon"])], &[within("rack", &["1"])]]);
    let (labels, new) = to_in_tree(InTree::GcePersistentDisk, &Value::Null, &odd);
    assert_eq!(labels, json!({ ZONE: "moon" }));
    assert_eq!(new, affinity(&[&[within(ZONE, &["moon"])], &[within("rack", &["1"])]]));
}

#[test]
fn regions_of_zones_of_aws() {
    for (zone, region) in [
        ("us-west-2a", "us-west-2"),
        ("us-gov-east-1a", "us-gov-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
    ] {
        let (labels, _) =
            to_in_tree(InTree::AwsElasticBlockStore, &Value::Null, &affinity(&[&[within(EBS_ZONE, &[zone])]]));
        assert_eq!(labels[REGION], region, "{zone}");
    }
    for zone in ["us-west-2", "us-west-22a", "a-b", "us-west-2-lax-1-b", "us-west-é"] {
        let (labels, _) =
            to_in_tree(InTree::AwsElasticBlockStore, &Value::Null, &affinity(&[&[within(EBS_ZONE, &[zone])]]));
        assert_eq!(labels, json!({ ZONE: zone }), "{zone}");
    }
}

#[test]
fn vsphere_gets_the_first_value_of_each_label_and_others_keep_the_drivers_key() {
    let old = affinity(&[&[within(VSPHERE_ZONE, &["z", "a"]), within(VSPHERE_REGION, &["r", "b"])]]);
    let (labels, new) = to_in_tree(InTree::VsphereVolume, &Value::Null, &old);
    assert_eq!(labels, json!({ ZONE: "a", REGION: "b" }));
    assert_eq!(new, affinity(&[&[within(ZONE, &["z", "a"]), within(REGION, &["r", "b"])]]));
    let key = "topology.disk.csi.azure.com/zone";
    let old = affinity(&[&[within(key, &["z"])]]);
    assert_eq!(to_in_tree(InTree::AzureDisk, &Value::Null, &old), (Value::Null, old));
}
