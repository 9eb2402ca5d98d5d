//! The calls to the driver about a group.

use std::collections::HashMap;

use crate::cluster::VolumeGroupSnapshotContent;
use crate::csi::{Client, RpcError};
use crate::process::Clock;
use crate::proto::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
    VolumeGroupSnapshot,
};
use crate::roles::snapshotter::content::policy::Doomed;
use crate::roles::snapshotter::content::record::{Content as _, Found, InvalidSnapshot, Request, facts};
use crate::roles::snapshotter::content::work::{Brought, Driven, LookedUp, Query};

use super::found;

impl Driven for VolumeGroupSnapshotContent {
    async fn create(
        client: &Client,
        request: &Request,
        secrets: HashMap<String, String>,
        clock: Clock,
    ) -> Brought<Found> {
        let asked = CreateVolumeGroupSnapshotRequest {
            name: request.name.clone(),
            source_volume_ids: request.sources.clone(),
            secrets,
            parameters: request.parameters.clone().into_iter().collect(),
        };
        let answer = client.create_volume_group_snapshot(asked).await?;
        Ok(found::read(answer.group_snapshot, &request.sources, clock.wall()))
    }

    async fn look_up(client: &Client, query: &Query<'_, Self>, secrets: HashMap<String, String>) -> Brought<LookedUp> {
        let (content, handle) = (query.content, query.handle);
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: handle.to_owned(),
            snapshot_ids: content.members(),
            secrets,
        };
        // A driver may spell the id in its own way: what it answers with is what it was asked for.
        let answer = client.get_volume_group_snapshot(request).await?.group_snapshot;
        let answer = answer.map(|group| VolumeGroupSnapshot { group_snapshot_id: handle.to_owned(), ..group });
        let found = if facts::has_sources(content) {
            found::read(answer, content.sources(), query.clock.wall())
        } else {
            found::read_given(answer.as_ref(), query.clock.wall())
        };
        Ok(match found {
            // Its id is stored already.
            Ok(Found { odd: Some(odd), .. }) => Err(InvalidSnapshot::OddMembers(odd.why)),
            found => found.map(|found| LookedUp { found, is_grouped: false, others: None }),
        })
    }

    async fn delete(client: &Client, doomed: &Doomed, secrets: HashMap<String, String>) -> Result<(), RpcError> {
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: doomed.handle.clone(),
            // Where no member is known, the driver says whether that is enough.
            snapshot_ids: doomed.members.clone(),
            secrets,
        };
        client.delete_volume_group_snapshot(request).await.map(|_| ())
    }
}
