//! The part of the demo about snapshots: one is taken of a volume that a pod uses, a volume is made from it, and both go again.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::Value;

use super::objects::{self, SNAPSHOT_API};
use super::{Demo, NotObserved, Seen, StoryError, Volume};
use crate::sandbox::api::Api;
use crate::sandbox::api::pure::resources;

/// The snapshot's object.
const SNAPSHOT: &str = "before-the-upgrade";
/// The claim to the volume that is made from it.
const RESTORED: &str = "restored";

impl Demo<'_> {
    /// Takes a snapshot of a claim's volume, restores it, and deletes what came of it.
    pub(super) async fn snapshot_and_restore(&mut self, volume: &Volume) -> Result<(), StoryError> {
        if !self.backend.takes_snapshots() {
            self.narrator.skip("a snapshot is taken and restored", "the driver cannot take snapshots");
            return Ok(());
        }
        self.api.create_value(objects::snapshot(SNAPSHOT, objects::SNAPSHOTS, &volume.claim))?;
        let handle = self.see_snapshot_ready(SNAPSHOT).await?;
        let claim = &volume.claim;
        self.narrator.step(format_args!("snapshot {SNAPSHOT} of claim {claim} is taken, and ready to use: {handle}"));
        self.api.create_value(objects::restored_claim(RESTORED, objects::AT_ONCE, SNAPSHOT))?;
        let restored = self.see_bound(RESTORED).await?;
        self.narrator.step(format_args!("claim {RESTORED} provisioned from the snapshot: {} is bound", restored.name));
        self.api.delete::<PersistentVolumeClaim>("default", RESTORED)?;
        self.see_deleted(&restored).await?;
        if let Some(kind) = resources::of_kind(SNAPSHOT_API, "VolumeSnapshot") {
            self.api.delete_object(kind, "default", SNAPSHOT)?;
        }
        self.see_snapshot_deleted(SNAPSHOT).await?;
        self.narrator.step("the restored volume and the snapshot are deleted");
        Ok(())
    }

    /// Sees that volumes can be made from a snapshot. Says the driver's id of it.
    async fn see_snapshot_ready(&mut self, name: &str) -> Result<String, NotObserved> {
        let api = self.api.clone();
        self.observe(&format!("snapshot {name} is ready to use"), async || {
            let Some(snapshot) = object(&api, SNAPSHOT_API, "VolumeSnapshot", "default", name) else {
                return Seen::NotYet("there is none".into());
            };
            let status = &snapshot["status"];
            let content = status["boundVolumeSnapshotContentName"].as_str().unwrap_or_default();
            let content = object(&api, SNAPSHOT_API, "VolumeSnapshotContent", "", content);
            let handle = content.as_ref().and_then(|content| content["status"]["snapshotHandle"].as_str());
            match (handle, status["readyToUse"].as_bool()) {
                (Some(handle), Some(true)) => Seen::Yes(handle.to_owned()),
                _ => Seen::NotYet(status["error"]["message"].as_str().unwrap_or("it is not ready yet").to_owned()),
            }
        })
        .await
    }

    /// Sees that neither the API nor the driver has the snapshot any more.
    async fn see_snapshot_deleted(&mut self, name: &str) -> Result<(), NotObserved> {
        let (api, backend) = (self.api.clone(), self.backend);
        self.observe(&format!("snapshot {name} is deleted"), async || {
            if object(&api, SNAPSHOT_API, "VolumeSnapshot", "default", name).is_some() {
                return Seen::NotYet("its object is still there".into());
            }
            if backend.has_snapshots() == Some(true) {
                return Seen::NotYet("the driver still has it".into());
            }
            Seen::Yes(())
        })
        .await
    }
}

pub(super) fn object(
    api: &Api,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Option<std::sync::Arc<Value>> {
    api.object(resources::of_kind(api_version, kind)?, namespace, name)
}
