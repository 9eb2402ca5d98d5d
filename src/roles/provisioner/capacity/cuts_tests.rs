//! Wherever a refresh is cut, the next leader comes to the same end.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use serde_json::{Value, json};

use crate::proto::plugin_capability::service;
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::{REGISTRATION, names};
use crate::sandbox::driver::Profile;

const SPACE: &str = "kube-system";
const AT: [&str; 3] = ["/storageClassName", "/nodeTopology/matchLabels/zone", "/capacity"];

/// A class in two zones, and objects of these classes and zones.
async fn scene(objects: &[(&str, &str)]) -> Served {
    let zone = |name: &str| BTreeMap::from([("zone".to_owned(), name.to_owned())]);
    let mut profile = Profile { segments: vec![zone("z1"), zone("z2")], ..Profile::default() };
    profile.services.insert(service::Type::VolumeAccessibilityConstraints as i32);
    let section = json!({ "resync": "0s", "capacity": { "enabled": true, "ownerLevel": -1, "pollInterval": "1h" } });
    let world = Served::new(&REGISTRATION, &section, profile).await;
    let driver = world.context.driver.name.clone();
    let mut all =
        vec![json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
        "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer" })];
    for zone in ["z1", "z2"] {
        all.push(
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": zone, "labels": { "zone": zone } } }),
        );
        let drivers = json!([{ "name": driver, "nodeID": zone, "topologyKeys": ["zone"] }]);
        all.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": zone },
            "spec": { "drivers": drivers } }));
    }
    let labels = json!({ names::LABEL_DRIVER_NAME: driver,
        names::LABEL_MANAGED_BY: names::MANAGED_BY_PROVISIONER });
    for (number, (class, zone)) in objects.iter().enumerate() {
        all.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": { "name": format!("csisc-{number}"), "namespace": SPACE, "labels": labels },
            "storageClassName": class, "nodeTopology": { "matchLabels": { "zone": zone } }, "capacity": "1Gi" }));
    }
    for object in all {
        world.testbed.api.create_value(object).unwrap();
    }
    world
}

/// Class, zone and capacity of each object.
fn told(world: &Served) -> Vec<[Value; 3]> {
    let mut told: Vec<[Value; 3]> = world
        .testbed
        .api
        .list::<CSIStorageCapacity>(SPACE)
        .unwrap()
        .iter()
        .map(|object| serde_json::to_value(object).unwrap())
        .map(|it| AT.map(|at| it.pointer(at).cloned().unwrap_or_default()))
        .collect();
    told.sort_by_key(|row| format!("{row:?}"));
    told
}

#[tokio::test(start_paused = true)]
async fn each_slot_has_one_object_and_what_nobody_wants_is_gone() {
    let expected = ["z1", "z2"].map(|zone| ["fast", zone, "10Ti"].map(Value::from));
    let end = |world: &Served| Some(told(world)).filter(|told| *told == expected);
    // Nothing is there; one is old, and has a twin; one is of a zone and one of a class that are not wanted.
    assert_the_same_end(async || scene(&[]).await, end).await;
    let odd = [("fast", "z1"), ("fast", "z1"), ("fast", "z9"), ("gone", "z2")];
    assert_the_same_end(async || scene(&odd).await, end).await;
}
