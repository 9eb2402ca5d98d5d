//! Wherever a daemon is cut while it finds out whose a claim is, its successor comes to the same end.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::{REGISTRATION, names};
use crate::sandbox::driver::{Node, Profile};

const NODE: &str = "node-1";

/// A claim, a class that binds at once, and a daemon on a node.
async fn scene(patch: Value) -> Served {
    let section = json!({ "resync": "0s", "nodeDeployment": { "enabled": true } });
    let profile = Profile { nodes: [(NODE.to_owned(), Node::default())].into(), ..Profile::default() };
    let world = Served::on_node(&REGISTRATION, &section, profile, Some(NODE)).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": "default", "name": "data",
            "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: world.context.driver.name } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "1Gi" } } } });
    for object in [
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
            "provisioner": world.context.driver.name }),
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "other" } }),
        merged(claim, patch),
    ] {
        world.testbed.api.create_value(object).unwrap();
    }
    world
}

/// The claim's node, once there is a volume.
fn taken(world: &Served) -> Option<String> {
    let claim = world.testbed.api.get::<PersistentVolumeClaim>("default", "data").unwrap();
    let node = claim.metadata.annotations?.get(names::ANNOTATION_SELECTED_NODE).cloned()?;
    let volumes = world.testbed.api.list::<PersistentVolume>("").unwrap();
    (volumes.len() == 1).then_some(node)
}

fn of_node(node: &str) -> Value {
    json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } })
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_node_and_one_of_a_deleted_node_are_taken() {
    let end = |world: &Served| taken(world).filter(|node| node == NODE);
    assert_the_same_end(async || scene(json!({})).await, end).await;
    assert_the_same_end(async || scene(of_node("deleted")).await, end).await;
}
