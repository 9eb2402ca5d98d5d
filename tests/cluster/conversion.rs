//! Snapshots that the server has and cannot show: they are stored in another version, and nobody serves the webhook that converts
//! them. external-snapshotter had such a webhook (its issue 646).

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use crate::kinds;
use crate::snapshotting::SNAPSHOT;
use crate::world::{PATIENCE, World, settled};

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";

#[tokio::test]
async fn where_snapshots_cannot_be_converted_claims_are_provisioned_and_volumes_deleted() {
    let world = World::supplied_alone().await;
    world.install_snapshots().await;
    kinds::store_in_another_version(&world.client(), SNAPSHOTS).await;
    let source = json!({"persistentVolumeClaimName": world.name("any")});
    let snapshot = world.name("snapshot");
    world.installed(SNAPSHOT, json!({"metadata": {"name": snapshot}, "spec": {"source": source}})).await;
    kinds::convert_by_nobody(&world.client(), SNAPSHOTS, true).await;
    settled("a list that fails", PATIENCE, async || {
        match world.installed_kind(SNAPSHOT).list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.message.contains("conversion webhook") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    let daemon = world.supplier(json!({})).await;
    let (class, claim, volume) = world.supplied_claim().await;
    let restored = world.claim_from("restored", &class, SNAPSHOT, &snapshot).await;
    world.claim_told(&restored, "ProvisioningFailed", "conversion webhook").await;
    let unread = |status: &serde_json::Value| status["warnings"].to_string().contains("VolumeSnapshot: cannot list");
    world.shows(&daemon, "the kind that cannot be read", unread).await;
    assert_eq!(crate::http::get(&daemon.diagnostics_dial().unwrap(), "/readyz").await, "ok");
    world.delete_claim(&claim).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;

    kinds::convert_by_nobody(&world.client(), SNAPSHOTS, false).await;
    world.claim_told(&restored, "ProvisioningFailed", "status.boundVolumeSnapshotContentName").await;
}
