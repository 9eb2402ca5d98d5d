//! Wherever a deletion is cut, the next leader comes to the same end.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::merged;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::{REGISTRATION, names};
use crate::sandbox::api::PatchBody;
use crate::sandbox::driver::Profile;

const VOLUME: &str = "pv-1";

/// A volume at the driver and its object in this phase, whose secret is in the cluster.
async fn scene(phase: &str, patch: Value) -> Served {
    let world = Served::new(&REGISTRATION, &json!({ "resync": "0s" }), Profile::default()).await;
    let driver = world.context.driver.name.clone();
    world.testbed.driver.seed([VOLUME]);
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": VOLUME, "annotations": { names::ANNOTATION_PROVISIONED_BY: driver,
            names::ANNOTATION_DELETION_SECRET_NAME: "keys", names::ANNOTATION_DELETION_SECRET_NAMESPACE: "default" } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": driver, "volumeHandle": VOLUME } } });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": "default" }, "data": {} }),
        merged(volume, patch),
    ] {
        world.testbed.api.create_value(object).unwrap();
    }
    let phase = PatchBody::Merge(json!({ "status": { "phase": phase } }));
    world.testbed.api.patch_status::<PersistentVolume>("", VOLUME, phase).unwrap();
    world
}

fn finalizers(world: &Served) -> Option<Vec<String>> {
    let volume = world.testbed.api.get::<PersistentVolume>("", VOLUME).ok()?;
    Some(volume.metadata.finalizers.unwrap_or_default())
}

/// The volumes at the driver.
fn left(world: &Served) -> usize {
    world.testbed.driver.state().volumes().len()
}

fn ours() -> Value {
    json!({ "metadata": { "finalizers": [names::FINALIZER_PROVISIONER] } })
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_deleted_with_its_object() {
    let end = |world: &Served| finalizers(world).is_none().then(|| left(world));
    assert_the_same_end(async || scene("Released", ours()).await, end).await;
    assert_the_same_end(async || scene("Released", json!({})).await, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_bound_volume_is_protected_and_a_kept_one_is_let_go_of() {
    let protected = |world: &Served| finalizers(world).filter(|all| !all.is_empty()).map(|all| (all, left(world)));
    assert_the_same_end(async || scene("Bound", json!({})).await, protected).await;
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    let free = |world: &Served| finalizers(world).filter(Vec::is_empty).map(|_| left(world));
    assert_the_same_end(async || scene("Released", merged(ours(), retain.clone())).await, free).await;
}
