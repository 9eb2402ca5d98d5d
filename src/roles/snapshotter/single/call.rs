//! The calls to the driver about an independent snapshot, or a member of a group.

use std::collections::{BTreeSet, HashMap};

use tracing::debug;

use crate::cluster::VolumeSnapshotContent;
use crate::csi::{Client, RpcError};
use crate::process::Clock;
use crate::proto::{CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest};
use crate::roles::snapshotter::content::policy::Doomed;
use crate::roles::snapshotter::content::record::{Content as _, Found, InvalidSnapshot, Request, facts};
use crate::roles::snapshotter::content::work::{Brought, Driven, LookedUp, Query};

use super::found::{self, Listed, Match};

impl Driven for VolumeSnapshotContent {
    async fn create(
        client: &Client,
        request: &Request,
        secrets: HashMap<String, String>,
        clock: Clock,
    ) -> Brought<Found> {
        let request = CreateSnapshotRequest {
            source_volume_id: request.sources.first().cloned().unwrap_or_default(),
            name: request.name.clone(),
            secrets,
            parameters: request.parameters.clone().into_iter().collect(),
            // Kubernetes knows no place of a snapshot.
            accessibility_requirements: None,
        };
        let answer = client.create_snapshot(request).await?;
        Ok(found::read(answer.snapshot, clock.wall()))
    }

    async fn look_up(client: &Client, query: &Query<'_, Self>, secrets: HashMap<String, String>) -> Brought<LookedUp> {
        let Query { content, handle, rules, .. } = query;
        let list = |secrets| list(client, secrets, handle);
        let (found, secrets) = if rules.gets {
            let request = GetSnapshotRequest { snapshot_id: (*handle).to_owned(), secrets: secrets.clone() };
            (client.get_snapshot(request).await?.snapshot.map(Match::only), secrets)
        } else {
            (list(secrets.clone()).await?, secrets)
        };
        let Some(Match { mut snapshot, others }) = found else {
            return Ok(Err(InvalidSnapshot::NotListed((*handle).to_owned())));
        };
        // It is what was asked for, whatever the spelling of the driver.
        let answered = std::mem::replace(&mut snapshot.snapshot_id, (*handle).to_owned());
        if others == 0 && answered != *handle {
            debug!(asked = handle, answered, "the driver spells the id of the snapshot in its own way");
        }
        let mut found = match found::read(Some(snapshot), query.clock.wall()) {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        let is_given = facts::given_handle(*content).is_some();
        // The group of a snapshot that was there before its content, where the answer about it names none, is that of the content which
        // lists it. Some drivers say it in lists alone (csi-driver-host-path).
        if found.group.is_none() && is_given {
            found.group.clone_from(&query.listed_group);
            if found.group.is_none() && rules.groups && rules.gets && rules.lists {
                let listed = list(secrets).await?.map(|found| found.snapshot.group_snapshot_id);
                found.group = listed.filter(|group| !group.is_empty());
            }
        }
        let is_grouped = found.group.is_some();
        // Only of what we have not taken, the group may be one that the snapshot-controller knows.
        if !is_given && !content.is_member() {
            found.group = None;
        }
        Ok(Ok(LookedUp { found, is_grouped, others: (others > 0).then_some((answered, others)) }))
    }

    async fn delete(client: &Client, doomed: &Doomed, secrets: HashMap<String, String>) -> Result<(), RpcError> {
        let request = DeleteSnapshotRequest { snapshot_id: doomed.handle.clone(), secrets };
        client.delete_snapshot(request).await.map(|_| ())
    }
}

/// Follows the pages until one has just this id. A driver that repeats a token has no more of them.
async fn list(client: &Client, secrets: HashMap<String, String>, handle: &str) -> Result<Option<Match>, RpcError> {
    let (mut token, mut seen, mut listed) = (String::new(), BTreeSet::new(), Listed::default());
    loop {
        let request = ListSnapshotsRequest {
            snapshot_id: handle.to_owned(),
            starting_token: token,
            secrets: secrets.clone(),
            ..ListSnapshotsRequest::default()
        };
        let page = client.list_snapshots(request).await?;
        if let Some(found) = listed.add(page.entries, handle) {
            return Ok(Some(found));
        }
        if page.next_token.is_empty() || !seen.insert(page.next_token.clone()) {
            return Ok(listed.first());
        }
        token = page.next_token;
    }
}
