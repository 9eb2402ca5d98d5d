//! Names the snapshots that may be left over after a refusal (snapshotter L12).
//!
//! A driver that was asked without an answer and then refuses has no snapshot, by convention. Some have one. When such a content is
//! released, the driver is asked which snapshots the volume has, and an Event names those that no content has. Nothing is deleted,
//! because any of them may be somebody's. A driver that does not answer holds nothing up. Of a driver that lists nothing, and of groups,
//! for which CSI has no list, the Event says where to look.

use std::collections::HashMap;

use tracing::debug;

use crate::csi::Client;
use crate::proto::ListSnapshotsRequest;
use crate::roles::kit::secrets;
use crate::roles::snapshotter::secrets::for_listing;

use super::attempt::Done;
use super::context::{Context, Objects};
use super::error::{LOAD_LIST_SECRET, Stop};
use super::facts::ClassView;
use super::kind::{Class as _, Content};

/// How many snapshots one Event names.
const MOST_NAMED: usize = 5;
/// After how many pages the search ends.
const MOST_PAGES: usize = 100;

/// Asks the driver, and tells what it says.
pub(super) async fn name<K: Content>(cx: &Context<K>, now: &Objects<K>) -> Result<Done, Stop> {
    if !cx.rules.lists {
        cx.memory.doubtful.forget(now.uid());
        cx.report_unlisted(now);
        return Ok(Done::Searched);
    }
    let (Some(volume), Some(secrets)) = (now.content.sources().first(), list_secret(cx, now).await?) else {
        return Ok(Done::Searched);
    };
    let request = ListSnapshotsRequest { source_volume_id: volume.clone(), secrets, ..ListSnapshotsRequest::default() };
    let client = cx.scope.driver.use_now()?;
    let found = cx.scope.term.unless_over(unnamed(cx, client, request)).await?;
    cx.memory.doubtful.forget(now.uid());
    if !found.is_empty() {
        cx.report_leftovers(now, volume, &found);
    }
    Ok(Done::Searched)
}

/// The snapshots that no content names.
async fn unnamed<K: Content>(cx: &Context<K>, client: &Client, mut request: ListSnapshotsRequest) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = match client.list_snapshots(request.clone()).await {
            Ok(page) => page,
            Err(error) => {
                debug!(%error, "the driver does not say which snapshots may be left over");
                break;
            }
        };
        let ids = page.entries.into_iter().filter_map(|entry| Some(entry.snapshot?.snapshot_id));
        found.extend(ids.filter(|id| cx.with_handle(id).is_empty()));
        if found.len() >= MOST_NAMED || page.next_token.is_empty() || page.next_token == request.starting_token {
            break;
        }
        request.starting_token = page.next_token;
    }
    found.truncate(MOST_NAMED);
    found
}

/// The class' secret for lists. `None`: the driver wants one, maybe, and only people can bring it. It is not asked without.
async fn list_secret<K: Content>(cx: &Context<K>, now: &Objects<K>) -> Result<Option<HashMap<String, String>>, Stop> {
    let class = match cx.class_of(now) {
        ClassView::Ours(class) => class,
        ClassView::Unread(..) => return Ok(None),
        ClassView::Unnamed | ClassView::Missing(_) | ClassView::Foreign(_) => return Ok(Some(HashMap::new())),
    };
    let place = match for_listing(class.parameters(), &now.content.meta().name) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(Some(HashMap::new())),
        Err(fault) => {
            debug!(%fault, "the driver is not asked which snapshots may be left over");
            return Ok(None);
        }
    };
    match secrets::read(cx.scope.api.use_now()?, &place).await {
        Ok(secret) => Ok(Some(secret.texts())),
        Err(failure) if failure.is_withheld() => {
            debug!(error = %failure, "the driver is not asked which snapshots may be left over");
            Ok(None)
        }
        // The API says soon whether there is one.
        Err(failure) => Err(LOAD_LIST_SECRET.failed(failure).into()),
    }
}
