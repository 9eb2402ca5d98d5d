//! The calls to the driver about an independent snapshot, or a member of a group.

use std::collections::{BTreeSet, HashMap};

use tracing::debug;

use crate::cluster::VolumeSnapshotContent;
use crate::csi::{Client, RpcError};
use crate::process::Clock;
use crate::proto::{CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest, Snapshot};
use crate::roles::snapshotter::content::attempt::{Done, Operation, State};
use crate::roles::snapshotter::content::call::{Answer, Driven, secrets_of};
use crate::roles::snapshotter::content::context::{Context, Objects};
use crate::roles::snapshotter::content::error::{InvalidSnapshot, Stop};
use crate::roles::snapshotter::content::facts;
use crate::roles::snapshotter::content::kind::Content as _;
use crate::roles::snapshotter::content::request::Request;
use crate::roles::snapshotter::content::view::Doomed;

use super::found::{self, Listed, Match};

impl Driven for VolumeSnapshotContent {
    async fn create(client: &Client, request: &Request, secrets: HashMap<String, String>, clock: Clock) -> Answer {
        let request = CreateSnapshotRequest {
            source_volume_id: request.sources.first().cloned().unwrap_or_default(),
            name: request.name.clone(),
            secrets,
            parameters: request.parameters.clone().into_iter().collect(),
        };
        let answer = client.create_snapshot(request).await?;
        Ok(found::read(answer.snapshot, clock.wall()))
    }

    async fn look_up(cx: &Context<Self>, now: &Objects<Self>, state: &State, handle: &str) -> Result<Done, Stop> {
        let found = if cx.rules.gets { get(cx, state, handle).await? } else { list(cx, state, handle).await? };
        let found = match found {
            Ok(found) => found,
            Err(error) => return Ok(Done::failed(Operation::Ready, error.into())),
        };
        let Some(snapshot) = found else {
            return Ok(Done::failed(Operation::Ready, InvalidSnapshot::NotListed(handle.to_owned()).into()));
        };
        let snapshot = told(cx, now, snapshot, handle);
        let mut found = match found::read(Some(snapshot), cx.scope.clock.wall()) {
            Ok(found) => found,
            Err(reason) => return Ok(Done::failed(Operation::Ready, reason.into())),
        };
        if found.group.is_none() && facts::given_handle(&*now.content).is_some() {
            found.group = match group_of(cx, state, handle).await? {
                Ok(group) => group,
                Err(error) => return Ok(Done::failed(Operation::Ready, error.into())),
            };
        }
        if found.group.is_some() {
            cx.memory.grouped.note(now.uid());
        }
        // Only of what we have not taken, the group may be one that the snapshot-controller knows.
        if facts::given_handle(&*now.content).is_none() && !now.content.is_member() {
            found.group = None;
        }
        Ok(Done::Found(found))
    }

    async fn delete(client: &Client, doomed: &Doomed, secrets: HashMap<String, String>) -> Result<(), RpcError> {
        let request = DeleteSnapshotRequest { snapshot_id: doomed.handle.clone(), secrets };
        client.delete_snapshot(request).await.map(|_| ())
    }
}

type Asked = Result<Option<Match>, RpcError>;

/// The snapshot that was asked for, under the id by which it was asked for.
fn told(
    cx: &Context<VolumeSnapshotContent>,
    now: &Objects<VolumeSnapshotContent>,
    found: Match,
    asked: &str,
) -> Snapshot {
    let Match { snapshot, others } = found;
    if others > 0 {
        cx.report_other_id(now, asked, &snapshot.snapshot_id, others);
    } else if snapshot.snapshot_id != asked {
        debug!(asked, answered = snapshot.snapshot_id, "the driver spells the id of the snapshot in its own way");
    }
    Snapshot { snapshot_id: asked.to_owned(), ..snapshot }
}

/// The group of a snapshot that was there before its content, where the answer about it names none: that of the content which lists it.
/// Some drivers say it in lists alone (csi-driver-host-path).
async fn group_of(
    cx: &Context<VolumeSnapshotContent>,
    state: &State,
    handle: &str,
) -> Result<Result<Option<String>, RpcError>, Stop> {
    if let Some(group) = cx.listed_group(handle) {
        return Ok(Ok(Some(group)));
    }
    if !(cx.rules.groups && cx.rules.gets && cx.rules.lists) {
        return Ok(Ok(None));
    }
    let listed = list(cx, state, handle).await?;
    Ok(listed.map(|found| Some(found?.snapshot.group_snapshot_id).filter(|group| !group.is_empty())))
}

async fn get(cx: &Context<VolumeSnapshotContent>, state: &State, handle: &str) -> Result<Asked, Stop> {
    let client = cx.scope.driver.use_now()?;
    let request = GetSnapshotRequest { snapshot_id: handle.to_owned(), secrets: secrets_of(state) };
    let answer = cx.scope.term.during(client.get_snapshot(request)).await?;
    Ok(answer.map(|answer| answer.snapshot.map(Match::only)))
}

/// Follows the pages until one has just this id. A driver that repeats a token has no more of them.
async fn list(cx: &Context<VolumeSnapshotContent>, state: &State, handle: &str) -> Result<Asked, Stop> {
    let (mut token, mut seen, mut listed) = (String::new(), BTreeSet::new(), Listed::default());
    loop {
        let client = cx.scope.driver.use_now()?;
        let request = ListSnapshotsRequest {
            snapshot_id: handle.to_owned(),
            starting_token: token,
            secrets: secrets_of(state),
            ..ListSnapshotsRequest::default()
        };
        let page = match cx.scope.term.during(client.list_snapshots(request)).await? {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(found) = listed.add(page.entries, handle) {
            return Ok(Ok(Some(found)));
        }
        if page.next_token.is_empty() || !seen.insert(page.next_token.clone()) {
            return Ok(Ok(listed.first()));
        }
        token = page.next_token;
    }
}
