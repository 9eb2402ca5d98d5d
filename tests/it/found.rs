//! What a search on the status page finds of a claim.

use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::snapshotting::Source;
use crate::supplier::short_times;
use crate::world::World;

/// What a search finds, until it is like this.
async fn found(world: &World, daemon: &Daemon, words: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let dial = daemon.diagnostics_dial().unwrap();
    let path = format!("/status.json?find={words}");
    crate::world::settled(what, crate::world::PATIENCE, async || {
        let status: Value = serde_json::from_str(&crate::http::get(&dial, &path).await).unwrap();
        if holds(&status) { Ok(status) } else { Err(format!("{}: {status:#}", world.driver_name())) }
    })
    .await
}

/// The row of a list with this key, and its subject.
fn subject<'a>(status: &'a Value, list: &str, key: &str) -> Option<&'a str> {
    let row = status[list].as_array().unwrap().iter().find(|row| row["key"] == key)?;
    Some(row["subject"].as_str().unwrap_or("no subject"))
}

#[tokio::test]
async fn a_claim_leads_to_its_volume_attachments_snapshots_and_deletion() {
    let world = World::snapshotting(|_| {}).await;
    let snapshotter = json!({"readyCheck": {"initial": "50ms", "max": "200ms"}, "resync": "0s"});
    let daemon = world.daemon(json!({"roles": {"provisioner": short_times(), "snapshotter": snapshotter}})).await;
    let (class, claim) = world.claim_anew("claim").await;
    let (other, node) = (world.claim("other", &class, json!({})).await, world.node("node").await);
    let volume = world.provisioned(&claim).await;
    let (name, handle) = (volume.name_any(), volume.spec.unwrap().csi.unwrap().volume_handle);
    let other = world.provisioned(&other).await.name_any();
    let (words, told) = (format!("default/{claim}"), format!("claim default/{claim}"));

    let fail = |method| Fault::on(method, Action::fail(Code::Internal, "the array is on fire"));
    world.driver().inject(fail(Method::ControllerPublishVolume));
    let attachment = world.attach(&name, &node).await;
    world.attach(&other, &node).await;
    world.failed(&attachment, "the array is on fire").await;
    let snapshots = world.snapshot_class("snapshots", json!({})).await;
    let source = Source { claim: claim.clone(), volume: name.clone(), handle };
    let cut = world.cut("cut", &source, &snapshots).await;
    world.ready(&cut).await;

    let kinds =
        ["PersistentVolume", "PersistentVolumeClaim", "VolumeAttachment", "VolumeSnapshot", "VolumeSnapshotContent"];
    let is_found = |status: &Value| {
        let objects = status["objects"].as_array().unwrap();
        kinds.iter().all(|kind| objects.iter().any(|object| object["kind"] == *kind))
            && subject(status, "work", &attachment).is_some()
    };
    let status = found(&world, &daemon, &words, "all that belongs to the claim", is_found).await;
    assert_eq!(status["objectsTotal"], kinds.len(), "and nothing of the other claim: {status:#}");
    let of = |kind: &str| {
        let object = status["objects"].as_array().unwrap().iter().find(|object| object["kind"] == kind);
        object.unwrap()["state"].as_str().unwrap().to_owned()
    };
    for kind in kinds.iter().filter(|kind| **kind != "PersistentVolumeClaim") {
        assert!(of(kind).contains(&told), "{kind}: {}", of(kind));
    }
    assert_eq!(subject(&status, "work", &attachment).unwrap(), format!("{name} on {node}, {told}"));
    assert!(status["done"].as_array().unwrap().iter().any(|row| row["key"] == cut.content.as_str()), "{status:#}");

    // The claim goes: its volume waits for its detach, and then for the driver.
    world.driver().inject(fail(Method::DeleteVolume));
    world.delete_claim(&claim).await;
    let detaching = |status: &Value| {
        let tables = status["tables"].as_array().unwrap();
        let table = tables.iter().find(|table| table["name"] == "detachingVolumes");
        table.is_some_and(|table| table["rows"][0]["claim"] == words.as_str())
    };
    found(&world, &daemon, &words, "the volume that waits for its detach", detaching).await;
    world.driver().clear_faults();
    world.driver().inject(fail(Method::DeleteVolume));
    world.detached(&attachment).await;
    let is_deleting = |status: &Value| subject(status, "work", &name).is_some();
    let status = found(&world, &daemon, &words, "the deletion", is_deleting).await;
    assert_eq!(subject(&status, "work", &name).unwrap(), format!("{name}: {told}"));
    world.driver().clear_faults();
    world.gone::<PersistentVolume>(&name).await;
    let is_done = |status: &Value| subject(status, "done", &name) == Some(&*format!("{name}: {told}"));
    found(&world, &daemon, &words, "what was deleted", is_done).await;
}
