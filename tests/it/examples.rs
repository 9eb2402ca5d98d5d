//! The examples of deploy/examples, file by file, as a person applies them: a controller with the roles of deploy/controller is there.
//! The names of their objects are as in the files; the driver's is this world's.

use std::path::PathBuf;

use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::ground::{Daemon, is_a_cluster};
use crate::grouping::GROUP;
use crate::resizing::{CURRENT, GIB, at};
use crate::snapshotting::{SNAPSHOT, is_ready};
use crate::supply::{pool, zoned};
use crate::world::World;
use crate::world::leases::holder;

/// The driver's name in the files.
const DRIVER: &str = "your.driver.example.com";

/// A file of deploy/, with the driver's name of this world.
fn text(world: &World, file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text.contains(DRIVER) || !text.contains("kind: StorageClass"), "{file} is of another driver");
    text.replace(DRIVER, world.driver_name())
}

/// The objects of a file.
fn objects(world: &World, file: &str) -> Vec<Value> {
    let text = text(world, file);
    let documents = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    documents.filter(|object| !object.is_null()).collect()
}

/// Applies a file of deploy/examples as kubectl does, and waits until what it asks for is there.
async fn apply(world: &World, file: &str) {
    let objects = objects(world, &format!("examples/{file}"));
    for object in &objects {
        let told = |key: &str| object[key].as_str().unwrap_or_else(|| panic!("{file}: no {key}"));
        let api_version = told("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, told("kind")));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(world.client(), namespace, &resource),
            None => Api::all_with(world.client(), &resource),
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let applied = if api.get_opt(name).await.unwrap().is_some() {
            api.patch(name, &PatchParams::default(), &Patch::Merge(object)).await
        } else {
            api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await
        };
        applied.unwrap_or_else(|error| panic!("{file}: {name}: {error}"));
    }
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        match object["kind"].as_str().unwrap() {
            "PersistentVolumeClaim" => drop(world.bound(name).await),
            kind @ (SNAPSHOT | GROUP) => drop(world.look_until(kind, name, "ready", is_ready).await),
            _ => {}
        }
    }
}

/// The configuration in a file of values, without the role liveness, whose port is the machine's.
fn configuration(world: &World, file: &str) -> Value {
    let values: Value = serde_yaml::from_str(&text(world, file)).unwrap();
    let mut config = values["config"].clone();
    config["roles"].as_object_mut().unwrap().remove("liveness").expect("the sample has the role liveness");
    config
}

/// A daemon as deploy/controller configures it.
async fn controller(world: &World) -> Daemon {
    let config = configuration(world, "controller/values.yaml");
    world.ground().start(&world.name("daemon"), &config.to_string()).await
}

/// The volume of a claim of an example.
async fn volume_of(world: &World, claim: &str) -> PersistentVolume {
    world.bound(claim).await
}

#[tokio::test]
async fn topology_a_volume_is_made_where_its_pod_goes_and_only_in_the_named_zones() {
    let world = World::supplied(zoned(["zone-one", "zone-three"].map(|zone| pool(zone, 100)))).await;
    let _daemon = controller(&world).await;
    let node = world.node_in("one", "zone-one").await;
    world.node_in("three", "zone-three").await;
    apply(&world, "topology/1-pod.yaml").await;
    assert_eq!(world.scheduled("example-topology").await, node);
    let volume = volume_of(&world, "example-topology").await;
    let terms = at(&volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
    assert!(terms.to_string().contains("zone-one") && !terms.to_string().contains("zone-three"), "{terms}");
}

#[tokio::test]
async fn snapshot_a_claim_is_restored_from_the_snapshot_of_another_one() {
    let world = World::snapshotting(|_| {}).await;
    let _daemon = controller(&world).await;
    for file in ["1-claim", "2-snapshot", "3-restored"] {
        apply(&world, &format!("snapshot/{file}.yaml")).await;
    }
    let restored = volume_of(&world, "example-snapshot-restored").await;
    assert!(matches!(world.source_of(&restored), Some(Source::Snapshot(_))), "{:?}", world.source_of(&restored));
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn clone_a_claim_is_a_copy_of_another_one() {
    let world = World::supplied(|_| {}).await;
    let _daemon = controller(&world).await;
    for file in ["1-claim", "2-clone"] {
        apply(&world, &format!("clone/{file}.yaml")).await;
    }
    let clone = volume_of(&world, "example-clone").await;
    assert!(matches!(world.source_of(&clone), Some(Source::Volume(_))), "{:?}", world.source_of(&clone));
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn growth_a_claim_asks_for_more_and_its_volume_grows() {
    let world = World::supplied(|_| {}).await;
    let _daemon = controller(&world).await;
    apply(&world, "growth/1-claim.yaml").await;
    let name = volume_of(&world, "example-growth").await.name_any();
    apply(&world, "growth/2-larger.yaml").await;
    let is_larger = |volume: &PersistentVolume| at(volume, "/spec/capacity/storage") == "2Gi";
    world.until(&name, "larger", is_larger).await;
    let calls = world.driver().calls_of(Method::ControllerExpandVolume);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    assert_eq!(world.driver().volume_named(&name).map(|(_, volume)| volume.capacity), Some(2 * GIB));
}

#[tokio::test]
async fn attributes_class_a_claim_moves_from_one_class_to_another() {
    let world = World::supplied(|_| {}).await;
    let _daemon = controller(&world).await;
    apply(&world, "attributes-class/1-claim.yaml").await;
    let name = volume_of(&world, "example-attributes-class").await.name_any();
    let asked = world.driver().creates_of(&name).remove(0).create.clone().unwrap();
    assert_eq!(asked.mutable_parameters["iops"], "3000");
    apply(&world, "attributes-class/2-gold.yaml").await;
    world.claim_until("example-attributes-class", "gold", |claim| at(claim, CURRENT) == "example-gold").await;
    assert_eq!(world.modifications().last().unwrap()["iops"], "10000");
}

#[tokio::test]
async fn group_two_claims_have_one_snapshot() {
    let world = World::snapshotting(|_| {}).await;
    // A real cluster has these kinds with those of snapshots.
    if !is_a_cluster() {
        world.sandbox().testbed.api.install("groupsnapshot.storage.k8s.io");
    }
    let _daemon = controller(&world).await;
    for file in ["1-claims", "2-group"] {
        apply(&world, &format!("group/{file}.yaml")).await;
    }
    let calls = world.driver().calls_of(Method::CreateVolumeGroupSnapshot);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    world.assert_nothing_leaked().await;
}

/// The chart's own part of this example, three pods on three nodes, is tests/chart's.
#[tokio::test]
async fn replicas_one_leads_and_another_one_goes_on_when_it_stops() {
    let world = World::supplied(|_| {}).await;
    let config = configuration(&world, "examples/replicas/values.yaml").to_string();
    let lease = names::lease(world.driver_name());
    let first = world.ground().start(&world.name("first"), &config).await;
    assert!(holder(&world.lease_held(&lease).await).unwrap().starts_with(&world.name("first")));
    let _others = [
        world.ground().start(&world.name("second"), &config).await,
        world.ground().start(&world.name("third"), &config).await,
    ];
    let (class, claim) = world.claim_anew("one").await;
    world.bound(&claim).await;
    first.stop().await.unwrap();
    let claim = world.claim("two", &class, json!({})).await;
    world.bound(&claim).await;
    assert!(!holder(&world.lease_held(&lease).await).unwrap().starts_with(&world.name("first")));
    world.assert_nothing_leaked().await;
}

/// The node plugin itself runs in `just node`: here its controller works, and its sidecar's configuration is one that the daemon takes.
#[tokio::test]
async fn node_plugin_the_controller_works_and_the_sidecar_takes_its_configuration() {
    let world = World::supplied(|_| {}).await;
    let config = configuration(&world, "examples/node-plugin/values.yaml").to_string();
    let _daemon = world.ground().start(&world.name("daemon"), &config).await;
    let (_, claim) = world.claim_anew("claim").await;
    world.bound(&claim).await;

    let manifests = objects(&world, "examples/node-plugin/manifests.yaml");
    let files: Vec<&str> = manifests
        .iter()
        .filter(|it| it["kind"] == "ConfigMap")
        .filter_map(|it| it["data"]["config.yaml"].as_str())
        .collect();
    assert_eq!(files.len(), 2, "the controller's and the sidecar's");
    let mut hosted = Vec::new();
    for text in files {
        let file = File { name: "config.yaml".to_owned(), text: text.to_owned() };
        let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections());
        let loaded = loaded.unwrap_or_else(|rejected| panic!("{rejected}\n{text}"));
        hosted.push(loaded.roles.keys().copied().collect::<Vec<_>>());
    }
    hosted.sort();
    assert_eq!(hosted[1], ["liveness", "registrar"]);
    assert!(hosted[0].contains(&"provisioner"), "{hosted:?}");
    world.assert_nothing_leaked().await;
}

/// An example that nobody plays is a promise.
#[test]
fn every_folder_of_the_examples_is_played_here_and_told_of() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/examples");
    let (here, page) = (include_str!("examples.rs"), std::fs::read_to_string(root.join("README.md")).unwrap());
    let mut count = 0;
    for entry in std::fs::read_dir(&root).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        count += 1;
        assert!(page.contains(&format!("]({name})")), "deploy/examples/README.md does not name {name}");
        assert!(here.contains(&format!("async fn {}_", name.replace('-', "_"))), "no test plays {name}");
        for file in
            std::fs::read_dir(entry.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap())
        {
            let stem = file.split('.').next().unwrap();
            let is_played = here.contains(&format!("{name}/{file}")) || here.contains(&format!("\"{stem}\""));
            assert!(
                is_played || ["namespace.yaml", "manifests.yaml"].contains(&file.as_str()),
                "no test applies {name}/{file}"
            );
        }
    }
    assert_eq!(count, 8);
}
