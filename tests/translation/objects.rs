//! Objects that an API server could hold, and some that it would not take: questions for `translate-in-tree`.

use csi_control_plane::cluster::InTree;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Keys of drivers. They are not in in-tree volumes here: the library appends a second expression to a term that has one (M24).
const DRIVERS: &[&str] = &[
    "topology.gke.io/zone",
    "topology.ebs.csi.aws.com/zone",
    "topology.cinder.csi.openstack.org/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.csi.vmware.com/zone",
    "topology.csi.vmware.com/region",
];

fn kind() -> impl Strategy<Value = InTree> {
    select(InTree::ALL.to_vec())
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    select(texts).prop_map(Value::from)
}

/// Not always there.
fn maybe(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 2 => of]
}

fn object(members: Vec<(&str, Value)>) -> Value {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(members.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn map(keys: Vec<&'static str>, values: impl Strategy<Value = Value>, most: usize) -> impl Strategy<Value = Value> {
    vec((select(keys), values), 0..=most).prop_map(object)
}

fn text() -> BoxedStrategy<Value> {
    prop_oneof!["[a-z0-9-]{1,12}", "[ -~]{0,16}", "\\PC{0,8}"].prop_map(Value::from).boxed()
}

fn ids() -> BoxedStrategy<Value> {
    let urls = "aws://([a-z0-9:@%?#/-]{0,10}|us-east-1a)/{1,2}(vol-|snap-|)[a-z0-9%/?# ~+]{0,8}";
    prop_oneof![2 => "vol-[0-9a-f]{8}", 2 => "aws://(us-east-1a)?/vol-[0-9a-f]{8}/?", 2 => urls, 1 => "[ -~]{0,16}"]
        .prop_map(Value::from)
        .boxed()
}

fn fs_type() -> BoxedStrategy<Value> {
    maybe(one_of(&["ext4", "xfs", "NTFS"])).boxed()
}

fn yes() -> BoxedStrategy<Value> {
    maybe(Just(json!(true))).boxed()
}

fn partition() -> BoxedStrategy<Value> {
    maybe(prop_oneof![1..64_i32, any::<i32>()].prop_map(Value::from)).boxed()
}

fn secret_name() -> BoxedStrategy<Value> {
    prop_oneof![
        "azure-storage-account-[a-z0-9]{1,8}-secret",
        "[a-z-]{0,4}azure-storage-account-(a|-|\n){0,3}-secret(-secret|\n|x)?",
        "[a-z]{1,8}"
    ]
    .prop_map(Value::from)
    .boxed()
}

/// The source of a plugin's volume.
fn source(kind: InTree, is_pods: bool) -> BoxedStrategy<Value> {
    match kind {
        InTree::GcePersistentDisk => (text(), fs_type(), partition(), yes())
            .prop_map(|(id, fs, part, ro)| {
                object(vec![("pdName", id), ("fsType", fs), ("partition", part), ("readOnly", ro)])
            })
            .boxed(),
        InTree::AwsElasticBlockStore => (ids(), fs_type(), partition(), yes())
            .prop_map(|(id, fs, part, ro)| {
                object(vec![("volumeID", id), ("fsType", fs), ("partition", part), ("readOnly", ro)])
            })
            .boxed(),
        InTree::Cinder => (text(), fs_type(), yes())
            .prop_map(|(id, fs, ro)| {
                object(vec![("volumeID", id), ("fsType", fs), ("readOnly", ro), ("secretRef", json!({ "name": "s" }))])
            })
            .boxed(),
        InTree::PortworxVolume => (text(), fs_type(), yes())
            .prop_map(|(id, fs, ro)| object(vec![("volumeID", id), ("fsType", fs), ("readOnly", ro)]))
            .boxed(),
        InTree::AzureDisk => {
            let kinds =
                prop_oneof![4 => one_of(&["Managed", "managed", "MANAGED"]), 1 => one_of(&["Shared", "Dedicated", ""])];
            let modes = one_of(&["", "None", "ReadWrite"]);
            (
                text(),
                maybe(kinds),
                maybe(modes),
                maybe(one_of(&["", "ext4"])),
                maybe(any::<bool>().prop_map(Value::from)),
            )
                .prop_map(|(id, kind, mode, fs, ro)| {
                    object(vec![
                        ("diskName", json!("n")),
                        ("diskURI", id),
                        ("kind", kind),
                        ("cachingMode", mode),
                        ("fsType", fs),
                        ("readOnly", ro),
                    ])
                })
                .boxed()
        }
        InTree::AzureFile => (secret_name(), text(), maybe(one_of(&["ns", "other", ""])), yes())
            .prop_map(move |(secret, share, namespace, ro)| {
                let namespace = if is_pods { Value::Null } else { namespace };
                object(vec![
                    ("secretName", secret),
                    ("shareName", share),
                    ("secretNamespace", namespace),
                    ("readOnly", ro),
                ])
            })
            .boxed(),
        InTree::VsphereVolume => (text(), fs_type(), maybe(one_of(&["gold", ""])))
            .prop_map(|(path, fs, policy)| {
                object(vec![
                    ("volumePath", path),
                    ("fsType", fs),
                    ("storagePolicyName", policy),
                    ("storagePolicyID", json!("7")),
                ])
            })
            .boxed(),
    }
}

fn zone() -> BoxedStrategy<Value> {
    let common = one_of(&[
        "us-east1-a",
        "us-east1-b",
        "europe-west4-a",
        "us-west-2a",
        "us-west-2b",
        "us-gov-east-1a",
        "nova",
        "0",
    ]);
    let rare = one_of(&["us-west-2-lax-1a", "us-east-1-wl1-bos-wlz-1", "a-b", "us-west-22a", "", " us-east1-a "]);
    prop_oneof![4 => common, 1 => rare].boxed()
}

/// The value of a label of zones.
fn zone_label() -> BoxedStrategy<Value> {
    let joined =
        |zones: Vec<Value>| json!(zones.iter().map(|zone| zone.as_str().unwrap()).collect::<Vec<_>>().join("__"));
    vec(zone(), 1..4).prop_map(joined).boxed()
}

fn labels() -> BoxedStrategy<Value> {
    map(vec![ZONE, BETA_ZONE, REGION, BETA_REGION, "team"], prop_oneof![zone(), zone_label()], 3).boxed()
}

fn affinity(keys: Vec<&'static str>) -> BoxedStrategy<Value> {
    let operators = prop_oneof![4 => one_of(&["In"]), 1 => one_of(&["NotIn", "Exists", "DoesNotExist"])];
    let requirement = (select(keys), operators, vec(zone(), 1..3)).prop_map(|(key, operator, values)| {
        let has_values = operator == "In" || operator == "NotIn";
        json!({ "key": key, "operator": operator, "values": if has_values { json!(values) } else { Value::Null } })
    });
    let terms = vec(vec(requirement, 1..4).prop_map(|all| json!({ "matchExpressions": all })), 1..3);
    maybe(terms.prop_map(|terms| json!({ "required": { "nodeSelectorTerms": terms } }))).boxed()
}

fn modes() -> BoxedStrategy<Value> {
    let all = vec![json!("ReadWriteOnce"), json!("ReadOnlyMany"), json!("ReadWriteMany"), json!("ReadWriteOncePod")];
    vec(select(all), 1..4).prop_map(Value::from).boxed()
}

/// In-tree PersistentVolumes.
pub(crate) fn volumes() -> impl Strategy<Value = Value> {
    let annotations = vec![
        "kubernetes.io/azure-file-resource-group",
        "openstorage.io/auth-secret-name",
        "openstorage.io/auth-secret-namespace",
    ];
    let claim = maybe(one_of(&["shop", ""]).prop_map(|namespace| json!({ "namespace": namespace, "name": "c" })));
    let metadata = (text(), labels(), map(annotations, text(), 3));
    let volume = |kind: InTree| (Just(kind), source(kind, false));
    let spec = (modes(), claim, affinity(vec![ZONE, ZONE, BETA_ZONE, REGION, BETA_REGION, "rack"]));
    (metadata, kind().prop_flat_map(volume), spec).prop_map(
        |((name, labels, annotations), (kind, source), (modes, claim, affinity))| {
            json!({ "ask": "volumeToCSI", "object": {
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { kind.field(): source, "accessModes": modes, "claimRef": claim, "nodeAffinity": affinity },
        } })
        },
    )
}

/// In-tree volumes of pods.
pub(crate) fn pod_volumes() -> impl Strategy<Value = Value> {
    let volume = |kind: InTree| (Just(kind), source(kind, true));
    (kind().prop_flat_map(volume), text(), one_of(&["shop", ""])).prop_map(|((kind, source), name, namespace)| {
        json!({ "ask": "podVolumeToCSI", "object": { "name": name, kind.field(): source }, "namespace": namespace })
    })
}

fn handle() -> BoxedStrategy<Value> {
    prop_oneof![
        "projects/(p|UNSPECIFIED)/(zones|regions|moons)/(UNSPECIFIED|us-east1-a|us-east1)/disks/d[a-z/]{0,4}",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/[a-z/]{0,6}",
        "(/subscriptions/|/resourceGroups/|/providers/Microsoft[.x]Compute/disks/|s|\n){2,8}",
        "(http|HTTPS|https)(://|a)(acc|/vhds/|\n){1,4}[a-z]{0,4}",
        "(rg)?#acc#share(#[a-z]{0,3}){0,2}",
        "[ -~]{0,12}",
    ]
    .prop_map(Value::from)
    .boxed()
}

/// CSI volumes of the drivers.
pub(crate) fn driver_volumes() -> impl Strategy<Value = Value> {
    let attributes = map(
        vec!["shareName", "secretname", "secretNamespace", "cachingMode", "FSTYPE", "initialvolumefilepath", "other"],
        one_of(&["", "x", "gold"]),
        5,
    );
    let attributes = (attributes, maybe(one_of(&["0", "1", "+7", "-3", "007", "x", "1.5"]))).prop_map(
        |(mut attributes, partition)| {
            attributes
                .as_object_mut()
                .unwrap()
                .extend((!partition.is_null()).then(|| ("partition".to_owned(), partition)));
            attributes
        },
    );
    let secret = maybe(one_of(&["", "s"]).prop_map(|name| object(vec![("name", name), ("namespace", json!("ns"))])));
    let keys = [DRIVERS, DRIVERS, &[ZONE, BETA_ZONE, REGION, BETA_REGION, "rack"]].concat();
    // A source has a handle that fits its driver more often than not.
    let fitting = |kind: InTree| match kind {
        InTree::GcePersistentDisk => "projects/p/zones/us-east1-a/disks/[a-z]{1,4}(/x)?".boxed(),
        InTree::AzureDisk => "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/[a-z/]{1,4}".boxed(),
        InTree::AzureFile => "(rg)?#acc#share(#[a-z]{0,3}){0,2}".boxed(),
        _ => "vol-[a-f]{4}".boxed(),
    };
    let volume = move |kind: InTree| (Just(kind), prop_oneof![2 => fitting(kind).prop_map(Value::from), 1 => handle()]);
    (kind().prop_flat_map(volume), (attributes, secret, fs_type(), yes()), labels(), affinity(keys)).prop_map(
        |((kind, handle), (attributes, secret, fs, ro), labels, affinity)| {
            let csi = object(vec![
                ("driver", json!(kind.successor())),
                ("volumeHandle", handle),
                ("volumeAttributes", attributes),
                ("nodeStageSecretRef", secret),
                ("fsType", fs),
                ("readOnly", ro),
            ]);
            json!({ "ask": "volumeToInTree", "object": {
                "metadata": { "name": "pv", "labels": labels, "annotations": { "a": "b" } },
                "spec": { "csi": csi, "accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity },
            } })
        },
    )
}

/// Classes of the plugins.
pub(crate) fn classes() -> impl Strategy<Value = Value> {
    // Each key once, whatever its case: of two the library takes one by chance. And one of `zone` and `zones` (M21).
    let keys = [
        "fsType",
        "type",
        "iopsPerGB",
        "availability",
        "storagePolicyName",
        "Datastore",
        "diskformat",
        "hostFailuresToTolerate",
        "forceProvisioning",
        "cacheReservation",
        "diskStripes",
        "objectSpaceReservation",
        "iopsLimit",
        "other",
        "openstorage.io/auth-secret-name",
        "openstorage.io/Auth-secret-namespace",
    ];
    let zones = one_of(&["a", "us-east1-a,us-east1-b", "1,2", "7"]);
    let zones = maybe((select(vec!["zone", "Zones"]), zones).prop_map(|(key, zones)| object(vec![(key, zones)])));
    let parameters = (map(keys.to_vec(), one_of(&["x", "", "xfs"]), 5), zones).prop_map(|(mut parameters, zones)| {
        parameters.as_object_mut().unwrap().extend(zones.as_object().cloned().unwrap_or_else(Map::new));
        parameters
    });
    let key = select([DRIVERS, &[ZONE, BETA_ZONE, REGION, "rack"]].concat());
    let expression = (key, vec(zone(), 1..3)).prop_map(|(key, values)| json!({ "key": key, "values": values }));
    let places = vec(vec(expression, 1..3).prop_map(|all| json!({ "matchLabelExpressions": all })), 0..3);
    (kind(), parameters, maybe(places.prop_map(Value::from))).prop_map(|(kind, parameters, places)| {
        json!({ "ask": "classToCSI", "name": kind.plugin(), "object": {
            "metadata": { "name": "gold" }, "provisioner": kind.plugin(), "parameters": parameters, "allowedTopologies": places,
        } })
    })
}

/// Handles to repair.
pub(crate) fn handles() -> impl Strategy<Value = Value> {
    let drivers: Vec<&str> = InTree::ALL.map(InTree::successor).into_iter().chain(["demo"]).collect();
    let drivers = prop_oneof![3 => Just("pd.csi.storage.gke.io"), 1 => select(drivers)];
    let nodes = prop_oneof![3 => "projects/p/zones/(us-east1-a|moon)/instances/n(/x)?", 1 => "[a-z/]{0,8}"];
    (drivers, handle(), nodes).prop_map(
        |(driver, handle, node)| json!({ "ask": "repairHandle", "name": driver, "handle": handle, "node": node }),
    )
}
