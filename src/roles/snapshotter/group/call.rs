//! The calls to the driver about a group.

use std::collections::HashMap;

use crate::cluster::VolumeGroupSnapshotContent;
use crate::csi::{Client, RpcError};
use crate::process::Clock;
use crate::proto::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
    VolumeGroupSnapshot,
};
use crate::roles::snapshotter::content::attempt::{Done, Operation, State};
use crate::roles::snapshotter::content::call::{Answer, Driven, secrets_of};
use crate::roles::snapshotter::content::context::{Context, Objects};
use crate::roles::snapshotter::content::error::{InvalidSnapshot, Stop};
use crate::roles::snapshotter::content::facts;
use crate::roles::snapshotter::content::found::Found;
use crate::roles::snapshotter::content::kind::Content as _;
use crate::roles::snapshotter::content::request::Request;
use crate::roles::snapshotter::content::view::Doomed;

use super::found;

impl Driven for VolumeGroupSnapshotContent {
    async fn create(client: &Client, request: &Request, secrets: HashMap<String, String>, clock: Clock) -> Answer {
        let asked = CreateVolumeGroupSnapshotRequest {
            name: request.name.clone(),
            source_volume_ids: request.sources.clone(),
            secrets,
            parameters: request.parameters.clone().into_iter().collect(),
        };
        let answer = client.create_volume_group_snapshot(asked).await?;
        Ok(found::read(answer.group_snapshot, &request.sources, clock.wall()))
    }

    async fn look_up(cx: &Context<Self>, now: &Objects<Self>, state: &State, handle: &str) -> Result<Done, Stop> {
        let client = cx.scope.driver.use_now()?;
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: handle.to_owned(),
            snapshot_ids: now.content.members(),
            secrets: secrets_of(state),
        };
        let answer = match cx.scope.term.during(client.get_volume_group_snapshot(request)).await? {
            // A driver may spell the id in its own way: what it answers with is what it was asked for.
            Ok(answer) => answer.group_snapshot.map(|group| as_asked(group, handle)),
            Err(error) => return Ok(Done::failed(Operation::Ready, error.into())),
        };
        let wall = cx.scope.clock.wall();
        let found = if facts::has_sources(&*now.content) {
            found::read(answer, now.content.sources(), wall)
        } else {
            found::read_given(answer.as_ref(), wall)
        };
        Ok(match found {
            // Its id is stored already.
            Ok(Found { odd: Some(odd), .. }) => {
                Done::failed(Operation::Ready, InvalidSnapshot::OddMembers(odd.why).into())
            }
            Ok(found) => Done::Found(found),
            Err(reason) => Done::failed(Operation::Ready, reason.into()),
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

fn as_asked(group: VolumeGroupSnapshot, handle: &str) -> VolumeGroupSnapshot {
    VolumeGroupSnapshot { group_snapshot_id: handle.to_owned(), ..group }
}
