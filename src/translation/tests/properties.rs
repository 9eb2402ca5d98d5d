//! What holds for any object.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::{BETA_REGION, BETA_ZONE, EBS_ZONE, REGION, ZONE, cached, translated, within};
use crate::cluster::{InTree, StorageClass};
use crate::translation::{class_to_csi, csi_form, pod_volume_to_csi, repair_handle, volume_to_in_tree};

fn kind() -> impl Strategy<Value = InTree> {
    select(InTree::ALL.to_vec())
}

/// Texts that look like parts of what is taken apart, and any others.
fn text() -> impl Strategy<Value = String> {
    let known = [
        "",
        "a",
        "us-east1-a",
        "us-east1-b__us-east1-a",
        "us-west-2a",
        "aws://",
        "aws:///vol-1",
        "aws://z/vol-%é",
        "%",
        "__",
        " ",
        "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        "azure-storage-account-a-secret",
        "#a#b",
        "http://x/vhds/y",
        "http",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/é",
        "Managed",
        "3",
        "\n",
    ];
    prop_oneof![
        select(known.to_vec()).prop_map(str::to_owned),
        vec(select(known.to_vec()), 0..4).prop_map(|all| all.concat()),
        any::<String>()
    ]
}

fn maybe<T: Into<Value>>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 3 => of.prop_map(Into::into)]
}

/// A source with some of the fields of all plugins.
fn source() -> impl Strategy<Value = Value> {
    let texts = ["fsType", "cachingMode", "kind", "storagePolicyName", "secretNamespace"];
    let ids = ["pdName", "volumeID", "diskURI", "volumePath", "shareName", "secretName"];
    (vec(maybe(text()), texts.len()), vec(text(), ids.len()), any::<i32>(), maybe(any::<bool>())).prop_map(
        move |(optional, needed, partition, read_only)| {
            let fields = texts.iter().map(ToString::to_string).zip(optional);
            let mut source: Map<String, Value> =
                fields.chain(ids.iter().map(ToString::to_string).zip(needed.into_iter().map(Value::from))).collect();
            source.insert("partition".to_owned(), json!(partition));
            source.insert("readOnly".to_owned(), read_only);
            Value::Object(source)
        },
    )
}

fn requirement(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let values = vec(select(vec!["us-east1-a", "us-east1-b", "us-west-2a", ""]), 0..3);
    (select(keys), select(vec!["In", "NotIn", "Exists", "DoesNotExist"]), values).prop_map(|(key, operator, values)| {
        let has_values = matches!(operator, "In" | "NotIn");
        json!({ "key": key, "operator": operator, "values": if has_values { json!(values) } else { Value::Null } })
    })
}

fn terms(keys: &'static [&'static str]) -> impl Strategy<Value = Vec<Vec<Value>>> {
    vec(vec(requirement(keys), 1..4), 0..3)
}

const KEYS: &[&str] =
    &[ZONE, BETA_ZONE, REGION, BETA_REGION, EBS_ZONE, "topology.gke.io/zone", "topology.csi.vmware.com/zone", "rack"];

fn labels() -> impl Strategy<Value = Value> {
    vec((select(vec![ZONE, BETA_ZONE, REGION, BETA_REGION]), text()), 0..3).prop_map(|labels| {
        Value::Object(labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect())
    })
}

fn volume(kind: InTree, source: &Value, labels: &Value, terms: &[Vec<Value>]) -> Value {
    let terms: Vec<&[Value]> = terms.iter().map(Vec::as_slice).collect();
    json!({
        "metadata": { "name": "pv", "labels": labels },
        "spec": { kind.field(): source, "accessModes": ["ReadWriteOnce"], "claimRef": { "namespace": "shop", "name": "c" },
            "nodeAffinity": super::affinity(&terms) },
    })
}

/// Whether a node with these labels is admitted.
fn admits(terms: &Value, node: &Value) -> bool {
    let satisfied = |expression: &Value| {
        let label = &node[expression["key"].as_str().unwrap()];
        let listed = expression["values"].as_array().is_some_and(|values| values.contains(label));
        match expression["operator"].as_str().unwrap() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => !label.is_null(),
            _ => label.is_null(),
        }
    };
    let Some(terms) = terms["required"]["nodeSelectorTerms"].as_array().filter(|terms| !terms.is_empty()) else {
        return true;
    };
    terms.iter().any(|term| term["matchExpressions"].as_array().is_some_and(|all| all.iter().all(satisfied)))
}

proptest! {
    #[test]
    fn no_object_makes_a_translation_panic(
        kind in kind(), source in source(), labels in labels(), terms in terms(KEYS),
        handle in text(), node in text(), attributes in vec((text(), text()), 0..3),
    ) {
        let object = volume(kind, &source, &labels, &terms);
        let cached = cached(kind, &object);
        for driver in [kind.successor(), "demo"] {
            let _ = (csi_form(&cached, driver).is_ok(), repair_handle(driver, &handle, &node).is_ok());
        }
        let source = &cached.spec.migration.as_ref().unwrap().source;
        let _ = pod_volume_to_csi(source, &handle, Some(&node)).map(|volume| volume.to_spec());
        let attributes: Value = attributes.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>().into();
        let mut made = object;
        made["spec"]["csi"] = json!({ "driver": kind.successor(), "volumeHandle": handle, "volumeAttributes": attributes });
        let _ = volume_to_in_tree(&made).is_ok();
        let class = json!({ "metadata": { "name": "c" }, "provisioner": kind.plugin(), "parameters": attributes });
        let class: StorageClass = serde_json::from_value(class).unwrap();
        let _ = class_to_csi(&class).is_ok();
    }

    #[test]
    fn i3_a_volume_that_goes_back_and_forth_keeps_its_csi_form(kind in kind(), mut source in source(), mut labels in labels()) {
        source["kind"] = json!("Managed");
        // An API server sets these.
        source["fsType"] = json!(source["fsType"].as_str().filter(|fs_type| !fs_type.is_empty()).unwrap_or("ext4"));
        source["cachingMode"] = json!(source["cachingMode"].as_str().filter(|mode| !mode.is_empty()).unwrap_or("ReadWrite"));
        source["storagePolicyName"] = Value::Null;
        // And it wants these; a slash is in no name of a disk and in no label.
        for needed in ["secretName", "shareName"] {
            source[needed] = json!(format!("x{}", source[needed].as_str().unwrap()));
        }
        let without_slashes = |value: &mut Value| *value = json!(value.as_str().unwrap().replace('/', ""));
        without_slashes(&mut source["pdName"]);
        labels.as_object_mut().unwrap().values_mut().for_each(without_slashes);
        let object = volume(kind, &source, &labels, &[]);
        let Ok(first) = translated(kind, &object) else { return Ok(()) };
        let mut made = object;
        made["spec"] = first.to_spec();
        if kind == InTree::VsphereVolume {
            made["spec"]["csi"]["volumeAttributes"]["initialvolumefilepath"] = source["volumePath"].clone();
        }
        made["spec"]["claimRef"] = json!({ "namespace": "shop", "name": "c" });
        match volume_to_in_tree(&made) {
            Ok(back) => {
                let again = translated(kind, &back).unwrap();
                // The affinity has the region as well, then.
                prop_assert_eq!((&again.source, &again.access_modes), (&first.source, &first.access_modes));
                prop_assert_eq!(&again.node_stage_secret, &first.node_stage_secret);
            }
            // A disk's name is part of the in-tree source of these, and not of any handle.
            Err(_) => prop_assert!(matches!(kind, InTree::AzureDisk | InTree::GcePersistentDisk)),
        }
    }

    #[test]
    fn i5_a_node_is_admitted_exactly_if_it_was_and_is_in_a_zone_of_the_label(
        terms in terms(&[ZONE, "rack"]), label in select(vec!["", "us-east1-a", "us-east1-a__us-west-2a"]),
        zone in select(vec!["us-east1-a", "us-east1-b", "us-west-2a"]), rack in any::<bool>(),
    ) {
        let kind = InTree::AwsElasticBlockStore;
        let object = volume(kind, &json!({ "volumeID": "vol-1" }), &json!({ ZONE: label }), &terms);
        let new = translated(kind, &object).unwrap().to_spec();
        let node = json!({ ZONE: zone, EBS_ZONE: zone, "rack": if rack { json!("us-east1-a") } else { Value::Null } });
        let is_named = terms.iter().flatten().any(|it| it["key"] == ZONE && it["values"].as_array().is_some_and(|all| !all.is_empty()));
        let is_in_label = is_named || label.is_empty() || label.split("__").any(|it| it == zone);
        let was_admitted = admits(&object["spec"]["nodeAffinity"], &node);
        prop_assert_eq!(admits(&new["nodeAffinity"], &node), was_admitted && is_in_label);
    }

    #[test]
    fn what_the_driver_made_admits_the_same_nodes_in_tree(terms in terms(&[EBS_ZONE, "rack"]), zone in select(vec!["us-east1-a", "us-west-2a"])) {
        let kind = InTree::AwsElasticBlockStore;
        let mut made = volume(kind, &Value::Null, &json!({}), &terms);
        made["spec"]["csi"] = json!({ "driver": kind.successor(), "volumeHandle": "vol-1" });
        let back = volume_to_in_tree(&made).unwrap();
        let region = zone.strip_suffix('a').unwrap().trim_end_matches('-');
        let node = json!({ ZONE: zone, EBS_ZONE: zone, REGION: region });
        let (old, new) = (admits(&made["spec"]["nodeAffinity"], &node), admits(&back["spec"]["nodeAffinity"], &node));
        prop_assert!(!new || old, "no constraint is lost");
    }
}

#[test]
fn the_judge_of_nodes_knows_what_a_term_admits() {
    let terms = super::affinity(&[&[within(ZONE, &["a"]), json!({ "key": "rack", "operator": "DoesNotExist" })]]);
    assert!(admits(&terms, &json!({ ZONE: "a" })) && admits(&Value::Null, &json!({})));
    assert!(!admits(&terms, &json!({ ZONE: "b" })) && !admits(&terms, &json!({ ZONE: "a", "rack": "1" })));
}
