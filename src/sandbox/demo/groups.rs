//! The part of the demo about groups: snapshots of the volumes of several claims are taken at one moment, and go together.

use std::sync::Arc;

use serde_json::Value;

use super::objects::{self, GROUP_API, SNAPSHOT_API};
use super::snapshots::object;
use super::{Demo, NotObserved, Seen, StoryError};
use crate::sandbox::api::Api;
use crate::sandbox::api::pure::resources;

/// The group's object.
const GROUP: &str = "before-the-sale";

impl Demo<'_> {
    /// Takes a group of snapshots of all claims, and deletes it.
    pub(super) async fn snapshot_group_and_delete(&mut self) -> Result<(), StoryError> {
        if !self.backend.takes_groups() {
            self.narrator.skip("a group of snapshots is taken", "the driver cannot take groups of snapshots");
            return Ok(());
        }
        self.snapshot_group().await?;
        if let Some(kind) = resources::of_kind(GROUP_API, "VolumeGroupSnapshot") {
            self.api.delete_object(kind, "default", GROUP)?;
        }
        self.see_group_deleted().await?;
        self.narrator.step("the group and its snapshots are deleted");
        Ok(())
    }

    /// Takes a group of snapshots of all claims.
    pub(super) async fn snapshot_group(&mut self) -> Result<(), StoryError> {
        self.api.create_value(objects::group(GROUP, objects::GROUPS))?;
        let count = self.see_group_ready().await?;
        self.narrator.step(format_args!("group {GROUP} of all claims is taken: {count} snapshots of one moment"));
        Ok(())
    }

    /// Sees that volumes can be made from each snapshot of the group. Says how many there are.
    async fn see_group_ready(&mut self) -> Result<usize, NotObserved> {
        let api = self.api.clone();
        self.observe(&format!("group {GROUP} is ready to use"), async || {
            let Some(group) = object(&api, GROUP_API, "VolumeGroupSnapshot", "default", GROUP) else {
                return Seen::NotYet("there is none".into());
            };
            let members = members(&api);
            let is_ready = |it: &Value| it["status"]["readyToUse"] == true;
            if is_ready(&group) && !members.is_empty() && members.iter().all(|it| is_ready(it)) {
                return Seen::Yes(members.len());
            }
            Seen::NotYet(group["status"]["error"]["message"].as_str().unwrap_or("it is not ready yet").to_owned())
        })
        .await
    }

    /// Sees that neither the API nor the driver has the group or one of its snapshots any more.
    async fn see_group_deleted(&mut self) -> Result<(), NotObserved> {
        let (api, backend) = (self.api.clone(), self.backend);
        self.observe(&format!("group {GROUP} is deleted"), async || {
            if object(&api, GROUP_API, "VolumeGroupSnapshot", "default", GROUP).is_some() {
                return Seen::NotYet("its object is still there".into());
            }
            if !members(&api).is_empty() {
                return Seen::NotYet("its snapshots are still there".into());
            }
            if backend.has_snapshots() == Some(true) {
                return Seen::NotYet("the driver still has its snapshots".into());
            }
            Seen::Yes(())
        })
        .await
    }
}

/// The snapshots that are owned by the group.
fn members(api: &Api) -> Vec<Arc<Value>> {
    let kind = resources::of_kind(SNAPSHOT_API, "VolumeSnapshot");
    let all = kind.and_then(|kind| api.objects(kind, "default").ok()).unwrap_or_default();
    let is_member = |it: &Arc<Value>| {
        let owners = it["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["kind"] == "VolumeGroupSnapshot" && owner["name"] == GROUP)
    };
    all.into_iter().filter(is_member).collect()
}
